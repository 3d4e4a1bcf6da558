//! The budget holds, and little is lost by it: against trying everything, and on many ways.

use super::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A small question: counts, ways, allowance.
fn small(seed: u64) -> (Vec<u32>, Vec<Way>) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let counts: Vec<u32> = (0..rng.random_range(2..=5)).map(|_| rng.random_range(1..=3)).collect();
    let mut ways = Vec::new();
    for a in 0..counts.len() {
        for b in a..counts.len() {
            if rng.random_bool(0.7) {
                let risk = rng.random_range(0.0_f64..0.5).powi(2);
                ways.push(Way { a, b, weight: rng.random_range(0.1..1.0), risk, budget: 0.08 });
            }
        }
    }
    (counts, ways)
}

/// The greatest weight within the budget, by trying everything.
fn tried(counts: &mut Vec<u32>, ways: &[Way], allowance: f64) -> f64 {
    let Some((way, rest)) = ways.split_first() else {
        return if allowance >= -TOLERANCE { 0.0 } else { f64::NEG_INFINITY };
    };
    let mut best = tried(counts, rest, allowance);
    let need = if way.a == way.b { 2 } else { 1 };
    if counts[way.a] >= need && counts[way.b] >= need {
        counts[way.a] -= 1;
        counts[way.b] -= 1;
        best = best.max(way.weight + tried(counts, ways, allowance - way.excess()));
        counts[way.a] += 1;
        counts[way.b] += 1;
    }
    best
}

#[test]
fn the_budget_holds_and_little_is_lost_against_trying_everything() {
    let mut ratios = Vec::new();
    for seed in 0..400 {
        let (mut counts, ways) = small(seed);
        if counts.iter().sum::<u32>() > 9 {
            continue;
        }
        let mut asked = Solved::default();
        let question = asked.question(&counts, &ways, 0.0, UNUSED_FRACTION_MAX.0);
        let is_bound = question.excess(&question.matched(0.0).counts) > TOLERANCE;
        let choice = choose(&mut Solved::default(), &counts, &ways, 0.0, 0.0);
        assert!(question.excess(&choice.counts) <= TOLERANCE, "seed {seed}: beyond the budget");
        let weight = question.weight(&choice.counts);
        let best = tried(&mut counts, &ways, 0.0);
        assert!(weight <= best + TOLERANCE, "seed {seed}: {weight} is impossible");
        if is_bound && best > 0.0 {
            ratios.push(weight / best);
        }
    }
    let (least, mean) = (
        ratios.iter().copied().fold(1.0, f64::min),
        ratios.iter().sum::<f64>() / f64::from(u32::try_from(ratios.len()).unwrap()),
    );
    assert!(ratios.len() > 100 && least >= 0.8 && mean >= 0.99, "{least} at least, {mean} on average");
}

#[test]
fn of_many_the_budget_is_used_up_and_kept() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let counts = vec![30; 80];
    let busy: Vec<f64> = counts.iter().map(|_| rng.random()).collect();
    let pairs = (0..80).flat_map(|a| (a..80).map(move |b| (a, b)));
    let ways = pairs.map(|(a, b)| {
        let slower = 0.3 * busy[a] * busy[b];
        Way { a, b, weight: 1.0 - slower, risk: slower, budget: 0.04 }
    });
    let ways: Vec<Way> = ways.filter(|way| way.weight > 0.0).collect();
    assert!(ways.len() > WAYS_EXACT_MAX);
    let mut asked = Solved::default();
    let question = asked.question(&counts, &ways, 0.0, UNUSED_FRACTION_MAX.0);
    let free = question.matched(0.0);
    assert!(question.excess(&free.counts) > 0.0, "the budget binds");
    let choice = choose(&mut Solved::default(), &counts, &ways, 0.0, 0.0);
    assert!(question.is_fine(&choice), "{}", question.excess(&choice.counts));
    // With a price that is not far off it comes to the same.
    let again = choose(&mut Solved::default(), &counts, &ways, 0.0, 1.3 * choice.risk_price);
    assert!(question.excess(&again.counts) <= TOLERANCE);
    let ratio = question.weight(&again.counts) / question.weight(&choice.counts);
    assert!((ratio - 1.0).abs() < 0.01, "{ratio}");
}

fn risky(a: usize, b: usize, weight: f64, risk: f64) -> Way {
    Way { a, b, weight, risk, budget: 0.04 }
}

#[test]
fn what_is_within_the_budget_is_not_touched() {
    let ways = [risky(0, 1, 0.8, 0.01), risky(0, 2, 0.5, 0.0)];
    assert_eq!(choose(&mut Solved::default(), &[1, 1, 1], &ways, 0.0, 0.0).counts, [1, 0]);
}

#[test]
fn a_risky_pair_gives_way_to_a_safer_one_and_goes_where_there_is_none() {
    let ways = [risky(0, 1, 0.8, 0.2), risky(0, 2, 0.5, 0.0)];
    assert_eq!(choose(&mut Solved::default(), &[1, 1, 1], &ways, 0.0, 0.0).counts, [0, 1]);
    assert_eq!(choose(&mut Solved::default(), &[1, 1], &ways[..1], 0.0, 0.0).counts, [0]);
}

#[test]
fn safe_pairs_pay_for_a_risky_one_and_an_allowance_does() {
    let ways = [risky(0, 1, 0.8, 0.1), risky(2, 3, 0.5, 0.0)];
    assert_eq!(choose(&mut Solved::default(), &[1, 1, 4, 4], &ways, 0.0, 0.0).counts, [1, 4]);
    assert_eq!(choose(&mut Solved::default(), &[1, 1, 1, 1], &ways, 0.0, 0.0).counts, [0, 1]);
    assert_eq!(choose(&mut Solved::default(), &[1, 1, 1, 1], &ways, 0.02, 0.0).counts, [1, 1]);
}

/// What was asked before is not asked again, and changes no answer: of the same question, and of others in between.
#[test]
fn what_was_solved_before_changes_no_answer() {
    let mut solved = Solved::default();
    for seed in 0..100 {
        let (counts, ways) = small(seed);
        let fresh = choose(&mut Solved::default(), &counts, &ways, 0.0, 0.0);
        for _ in 0..2 {
            assert_eq!(choose(&mut solved, &counts, &ways, 0.0, 0.0), fresh, "seed {seed}");
        }
        let mut heavier = ways.clone();
        for way in &mut heavier {
            way.weight *= 1.5;
        }
        let other = choose(&mut Solved::default(), &counts, &heavier, 0.01, 0.0);
        assert_eq!(choose(&mut solved, &counts, &heavier, 0.01, 0.0), other, "seed {seed}, heavier");
    }
}
