//! The matching against what knows nothing of classes: trying everything, and the blossom algorithm.

use super::graph::LOSS_FRACTION_MAX;
use super::*;
use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// What random graphs look like.
#[derive(Debug, Clone, Copy)]
enum Look {
    /// Any weight.
    Any,
    /// What two leave idle, by how busy they are, as in measured sets.
    Busy,
    /// Few different weights: many ties.
    Ties,
    /// All about equally good: only who stays alone counts, so that odd circles hurt most.
    Alike,
    /// Two crowds that hardly pair with each other.
    Crowds,
}

const LOOKS: [Look; 5] = [Look::Any, Look::Busy, Look::Ties, Look::Alike, Look::Crowds];

/// `density` of all pairs of classes pay, also of two of one class.
fn edges(rng: &mut ChaCha8Rng, class_count: usize, look: Look, density: f64) -> Vec<Edge> {
    let busy: Vec<f64> = (0..class_count).map(|_| rng.random()).collect();
    let mut edges = Vec::new();
    for a in 0..class_count {
        for b in a..class_count {
            let any = rng.random::<f64>();
            let weight = match look {
                Look::Any => any,
                Look::Busy => 1.0 - (busy[a] + busy[b] - 0.6).max(0.0) * 1.3 - busy[a] * busy[b] * 0.4,
                Look::Ties => f64::from(rng.random_range(1..=3_u8)),
                Look::Alike => 0.9 + 0.1 * any,
                Look::Crowds => any * if (a % 3 == 0) == (b % 3 == 0) { 1.0 } else { 0.1 },
            };
            if rng.random_bool(density) {
                edges.push(Edge { a, b, weight });
            }
        }
    }
    edges
}

fn counts(rng: &mut ChaCha8Rng, class_count: usize, most: u32) -> Vec<u32> {
    (0..class_count).map(|_| rng.random_range(1..=most)).collect()
}

/// The greatest weight, each vertex for itself.
#[expect(clippy::cast_precision_loss, reason = "a weight")]
fn best(counts: &[u32], edges: &[Edge]) -> f64 {
    let graph = Graph::new(counts, edges);
    graph.weight(&exact::solve(&graph)) as f64 / graph.scale
}

/// Checks that an answer is possible and says truly what it weighs.
fn check(counts: &[u32], edges: &[Edge], answer: &ClassMatching) {
    let mut used = vec![0; counts.len()];
    let mut weight = 0.0;
    for pairs in &answer.pairs {
        used[pairs.a] += pairs.count;
        used[pairs.b] += pairs.count;
        let is_it = |edge: &&Edge| (edge.a.min(edge.b), edge.a.max(edge.b)) == (pairs.a, pairs.b);
        weight +=
            f64::from(pairs.count) * edges.iter().filter(is_it).map(|edge| edge.weight).fold(0.0, f64::max);
    }
    assert!(used.iter().zip(counts).all(|(used, count)| used <= count), "{used:?} of {counts:?}");
    assert!((weight - answer.weight).abs() <= 1e-9 * weight, "{weight}, not {}", answer.weight);
    assert!(answer.weight <= answer.weight_bound);
    let pays = |edge: &&Edge| {
        let least = if edge.a == edge.b { 2 } else { 1 };
        edge.weight.is_finite()
            && [edge.a, edge.b].iter().all(|class| counts.get(*class).is_some_and(|count| *count >= least))
    };
    for edge in edges.iter().filter(pays) {
        assert!(
            edge.weight <= answer.prices[edge.a] + answer.prices[edge.b] + 1e-9,
            "{edge:?} is underpriced"
        );
    }
}

/// By trying everything. `free` are vertices, by their class.
fn tried(free: &[usize], weights: &dyn Fn(usize, usize) -> f64) -> f64 {
    let Some((first, rest)) = free.split_first() else { return 0.0 };
    let mut best = tried(rest, weights);
    for (at, other) in rest.iter().enumerate().filter(|(_, other)| weights(*first, **other) > 0.0) {
        let mut remaining = rest.to_vec();
        remaining.remove(at);
        best = best.max(weights(*first, *other) + tried(&remaining, weights));
    }
    best
}

fn small_graphs() -> impl Strategy<Value = (Vec<u32>, Vec<Edge>)> {
    prop::collection::vec(0..4_u32, 0..6)
        .prop_filter("few vertices", |counts| counts.iter().sum::<u32>() <= 9)
        .prop_flat_map(|counts| {
            // One class too many: edges may name what does not exist.
            let class = 0..=counts.len();
            let weight = prop_oneof![-0.2..1.0_f64, Just(1.0)];
            let edge = (class.clone(), class, weight).prop_map(|(a, b, weight)| Edge { a, b, weight });
            (Just(counts), prop::collection::vec(edge, 0..16))
        })
}

proptest! {
    #[test]
    fn few_are_matched_as_well_as_by_trying_everything((counts, edges) in small_graphs()) {
        let answer = match_classes(&counts, &edges);
        check(&counts, &edges, &answer);
        let free: Vec<usize> = counts.iter().enumerate().flat_map(|(class, count)| vec![class; *count as usize]).collect();
        let weight = |a: usize, b: usize| {
            let is_it = |edge: &&Edge| (edge.a == a && edge.b == b) || (edge.a == b && edge.b == a);
            edges.iter().filter(is_it).map(|edge| edge.weight).fold(0.0, f64::max)
        };
        let best = tried(&free, &weight);
        prop_assert!((answer.weight - best).abs() < 1e-9, "{} instead of {best}", answer.weight);
        prop_assert!(answer.weight_bound >= best - 1e-9);
    }

    #[test]
    fn the_order_of_the_edges_does_not_matter((counts, edges) in small_graphs()) {
        let mut turned: Vec<Edge> = edges.iter().rev().map(|edge| Edge { a: edge.b, b: edge.a, ..*edge }).collect();
        let answer = match_classes(&counts, &edges);
        prop_assert_eq!(&match_classes(&counts, &turned), &answer);
        turned.extend(edges);
        prop_assert_eq!(match_classes(&counts, &turned), answer);
    }
}

/// Without the exact algorithm at the end, which would hide what is tested here.
#[test]
#[expect(clippy::cast_precision_loss, reason = "weights")]
fn what_needs_no_cubic_time_is_within_half_a_percent_of_the_best() {
    let mut losses = Vec::new();
    for seed in 0..200 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let class_count = rng.random_range(20..=230);
        let most = if class_count > 120 { 1 } else { rng.random_range(1..=3) };
        let look = LOOKS[rng.random_range(0..LOOKS.len())];
        let density = [1.0, 0.3, 0.05, 3.0 / class_count as f64][rng.random_range(0..4)];
        let (counts, edges) =
            (counts(&mut rng, class_count, most), edges(&mut rng, class_count, look, density));
        let graph = Graph::new(&counts, &edges);
        let relaxed = relaxation::solve(&graph);
        let pairs = near_best(&graph, &relaxed);
        check(&counts, &edges, &answer(&graph, &pairs, &relaxed.prices));
        let best = graph.weight(&exact::solve(&graph));
        assert!(2 * best <= graph.bound(&relaxed.prices), "seed {seed}: the bound is one");
        let loss = 1.0 - graph.weight(&pairs) as f64 / best.max(1) as f64;
        assert!(loss <= 0.005, "seed {seed}: {loss} below the best ({look:?}, density {density})");
        losses.push(loss);
    }
    let mean = losses.iter().sum::<f64>() / losses.len() as f64;
    assert!(mean <= 1e-4, "{mean} below the best on average");
}

#[test]
fn ten_thousand_in_three_hundred_classes_are_proven_to_be_near_the_best() {
    for look in LOOKS {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let (counts, edges) = (counts(&mut rng, 300, 66), edges(&mut rng, 300, look, 1.0));
        let answer = match_classes(&counts, &edges);
        check(&counts, &edges, &answer);
        let gap = 1.0 - answer.weight / answer.weight_bound;
        assert!(gap <= LOSS_FRACTION_MAX, "{look:?}: {gap}");
    }
}

#[test]
fn two_sides_need_no_halves() {
    // Hosts and joiners: the bound is reached.
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let counts = counts(&mut rng, 80, 9);
    let all = (0..30).flat_map(|host| (30..80).map(move |joiner| (host, joiner)));
    let edges: Vec<Edge> = all.map(|(a, b)| Edge { a, b, weight: rng.random() }).collect();
    let answer = match_classes(&counts, &edges);
    assert!((answer.weight_bound - answer.weight) <= 1e-9 * answer.weight);
}

#[test]
fn triangles_leave_their_cheapest_alone() {
    // Each three like each other: halves of pairs would weigh 1.4, whole ones 1 at most.
    let edges: Vec<Edge> = (0..300)
        .flat_map(|index| {
            let at = 3 * index;
            [(at, at + 1, 0.9), (at + 1, at + 2, 0.9), (at, at + 2, 1.0)]
        })
        .map(|(a, b, weight)| Edge { a, b, weight })
        .collect();
    let answer = match_classes(&[1; 900], &edges);
    assert!((answer.weight - 300.0).abs() < 1e-6 && (answer.weight_bound - 420.0).abs() < 1e-6, "{answer:?}");
}

#[test]
fn two_odd_classes_meet_over_a_pair_that_parts() {
    // 0 and 3 do not pair with each other, but each with one of a pair that does: 0-1, 2-3 beats 1-2 alone.
    let edge = |a, b, weight| Edge { a, b, weight };
    let answer = match_classes(&[1, 1, 1, 1], &[edge(1, 2, 1.0), edge(0, 1, 0.7), edge(2, 3, 0.7)]);
    assert_eq!(answer.pairs, [ClassPairs { a: 0, b: 1, count: 1 }, ClassPairs { a: 2, b: 3, count: 1 }]);
}

#[test]
fn an_odd_class_pairs_within_itself_as_far_as_it_goes() {
    let edges = [Edge { a: 0, b: 0, weight: 0.5 }];
    let answer = match_classes(&[7], &edges);
    assert_eq!(answer.pairs, [ClassPairs { a: 0, b: 0, count: 3 }]);
    assert!((answer.weight - 1.5).abs() < 1e-9 && (answer.weight_bound - 1.75).abs() < 1e-9);
    assert_eq!(match_classes(&[1], &edges).pairs, []);
}

#[test]
fn nothing_that_costs_is_taken() {
    let edge = |a, b, weight| Edge { a, b, weight };
    let edges =
        [edge(0, 1, -0.5), edge(1, 1, f64::NAN), edge(0, 9, 3.0), edge(0, 0, 0.0), edge(0, 1, f64::INFINITY)];
    let answer = match_classes(&[2, 2], &edges);
    assert!(answer.pairs.is_empty() && best(&[2, 2], &edges) == 0.0);
}
