//! Of very many ways to pair, those that a matching looks at: the best of each class at first, then those that would win
//! something at the prices that it came to, until none is left (column generation). A class is paired in a few ways in the
//! end, so that the rest need not be carried through every matching. Where it ends by itself, the prices prove that the
//! others could win nothing.

use std::cell::RefCell;

/// Up to so many ways all are looked at.
pub(super) const WAYS_ALL_MAX: usize = 60_000;
/// So many ways of each class are taken at a time.
const WAYS_EACH: usize = 24;
/// How often ways are taken at most.
const TAKEN_MAX: usize = 6;
/// What would win less than this part of what it weighs is not missed.
const MISSED_FRACTION_MIN: f64 = 1e-6;

/// The ways that are looked at, in growing order; those of the last question are where the next begins.
#[derive(Default)]
pub(super) struct Active(RefCell<Vec<usize>>);

/// A way by its ends and what it is worth.
pub(super) struct Valued {
    pub(super) a: usize,
    pub(super) b: usize,
    pub(super) value: f64,
}

impl Active {
    /// The answer of `matching` among the ways that matter; it says what its answer prices each class at.
    pub(super) fn settle<A>(
        &self,
        class_count: usize,
        way_count: usize,
        way: impl Fn(usize) -> Valued,
        matching: impl Fn(&[usize]) -> A,
        prices: impl Fn(&A) -> &[f64],
    ) -> A {
        let mut active = self.0.borrow_mut();
        if active.is_empty() {
            *active = missed(way_count, &way, &vec![0.0; class_count]);
        }
        let mut answer = matching(&active);
        for _ in 1..TAKEN_MAX {
            let more = missed(way_count, &way, prices(&answer));
            let before = active.len();
            active.extend(more);
            active.sort_unstable();
            active.dedup();
            if active.len() == before {
                break;
            }
            answer = matching(&active);
        }
        answer
    }
}

/// Of each class the ways that win most at these prices.
fn missed(way_count: usize, way: impl Fn(usize) -> Valued, prices: &[f64]) -> Vec<usize> {
    let mut of_class: Vec<Vec<(f64, usize)>> = vec![Vec::new(); prices.len()];
    for index in 0..way_count {
        let Valued { a, b, value } = way(index);
        let wins = value - prices[a] - prices[b];
        if wins > MISSED_FRACTION_MIN * value.abs() {
            push_best(&mut of_class[a], (wins, index));
            if a != b {
                push_best(&mut of_class[b], (wins, index));
            }
        }
    }
    let mut taken: Vec<usize> = Vec::new();
    for mut best in of_class {
        keep_best(&mut best);
        taken.extend(best.into_iter().map(|(_, index)| index));
    }
    taken
}

/// Adds one, and now and then forgets those that are not among the best.
fn push_best(best: &mut Vec<(f64, usize)>, one: (f64, usize)) {
    best.push(one);
    if best.len() >= 4 * WAYS_EACH {
        keep_best(best);
    }
}

fn keep_best(best: &mut Vec<(f64, usize)>) {
    if best.len() > WAYS_EACH {
        best.select_nth_unstable_by(WAYS_EACH - 1, |a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        best.truncate(WAYS_EACH);
    }
}
