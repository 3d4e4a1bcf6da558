//! Who goes with whom: maximum weight matching on a general graph. Knows vertices and weights only.
//!
//! Exact by the blossom algorithm up to [`EXACT_VERTICES_MAX`] vertices. Above, greedy by weight, which is never below
//! half of the optimum, then improved by exchanging partners between pairs until nothing is won.

use std::collections::BTreeMap;

/// The largest graph that is matched exactly: the exact algorithm takes cubic time and quadratic memory.
pub const EXACT_VERTICES_MAX: usize = 160;
/// Rounds of exchanging partners at most.
const EXCHANGE_ROUNDS_MAX: usize = 8;
/// Weights are compared as whole numbers: deterministic, and finer than any estimate.
const WEIGHT_SCALE: f64 = 1e9;
/// Far above any gain, and small enough that sums cannot overflow.
const WEIGHT_MAX: f64 = 1e6;

/// An edge that pays.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Edge {
    /// One end.
    pub a: usize,
    /// The other end.
    pub b: usize,
    /// What is won by it; edges of 0 or less are never taken.
    pub weight: f64,
}

/// The partner of each of `vertex_count` vertices, so that the sum of weights is greatest. Edges that name a vertex twice
/// or one that does not exist are ignored; of parallel edges the heaviest counts.
pub fn max_weight_matching(vertex_count: usize, edges: &[Edge]) -> Vec<Option<usize>> {
    let weights = whole_weights(vertex_count, edges);
    if vertex_count <= EXACT_VERTICES_MAX {
        exact(vertex_count, &weights)
    } else {
        improved_greedy(vertex_count, &weights)
    }
}

/// Each edge once, lower end first, in the order of its ends.
struct Weights(Vec<((usize, usize), i64)>);

impl Weights {
    /// The weight of an edge; 0 where there is none.
    fn between(&self, a: usize, b: usize) -> i64 {
        let ends = (a.min(b), a.max(b));
        self.0.binary_search_by_key(&ends, |(ends, _)| *ends).map_or(0, |at| self.0[at].1)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "clamped to 1e15 first")]
fn whole_weights(vertex_count: usize, edges: &[Edge]) -> Weights {
    let pays = |edge: &&Edge| edge.a != edge.b && edge.a.max(edge.b) < vertex_count && edge.weight > 0.0;
    let whole = |edge: &Edge| {
        let weight = (edge.weight.min(WEIGHT_MAX) * WEIGHT_SCALE) as i64;
        ((edge.a.min(edge.b), edge.a.max(edge.b)), weight)
    };
    let mut weights: Vec<((usize, usize), i64)> = edges.iter().filter(pays).map(whole).collect();
    weights.sort_unstable_by_key(|(ends, weight)| (*ends, std::cmp::Reverse(*weight)));
    weights.dedup_by_key(|(ends, _)| *ends);
    Weights(weights)
}

/// Only vertices with an edge take part: the others cost time.
fn exact(vertex_count: usize, weights: &Weights) -> Vec<Option<usize>> {
    let mut touched: Vec<usize> = weights.0.iter().flat_map(|((a, b), _)| [*a, *b]).collect();
    touched.sort_unstable();
    touched.dedup();
    let position: BTreeMap<usize, usize> =
        touched.iter().enumerate().map(|(at, vertex)| (*vertex, at)).collect();
    let count = touched.len();
    let mut matrix = vec![0_i64; count * count];
    for ((a, b), weight) in &weights.0 {
        let (row, column) = (position[a], position[b]);
        matrix[row * count + column] = *weight;
        matrix[column * count + row] = *weight;
    }
    let mut mates = vec![None; vertex_count];
    for (at, mate) in integer_blossom::max_weight_matching(&matrix, count).into_iter().enumerate() {
        mates[touched[at]] = mate.map(|other| touched[other]);
    }
    mates
}

fn improved_greedy(vertex_count: usize, weights: &Weights) -> Vec<Option<usize>> {
    let mut order: Vec<&((usize, usize), i64)> = weights.0.iter().collect();
    order.sort_unstable_by_key(|(ends, weight)| (std::cmp::Reverse(*weight), *ends));
    let mut mates = vec![None; vertex_count];
    for ((a, b), _) in order {
        if mates[*a].is_none() && mates[*b].is_none() {
            (mates[*a], mates[*b]) = (Some(*b), Some(*a));
        }
    }
    for _ in 0..EXCHANGE_ROUNDS_MAX {
        if !exchange(&mut mates, weights) {
            break;
        }
    }
    mates
}

/// One round of exchanges between any two pairs; whether anything was won.
fn exchange(mates: &mut [Option<usize>], weights: &Weights) -> bool {
    let weight = |a: usize, b: usize| weights.between(a, b);
    let mut pairs: Vec<(usize, usize)> =
        mates.iter().enumerate().filter_map(|(a, mate)| mate.filter(|b| a < *b).map(|b| (a, b))).collect();
    let mut has_won = false;
    for first in 0..pairs.len() {
        for second in first + 1..pairs.len() {
            let ((a, b), (c, d)) = (pairs[first], pairs[second]);
            let now = weight(a, b) + weight(c, d);
            let (straight, crossed) = (weight(a, c) + weight(b, d), weight(a, d) + weight(b, c));
            if straight.max(crossed) <= now {
                continue;
            }
            has_won = true;
            (pairs[first], pairs[second]) =
                if straight >= crossed { ((a, c), (b, d)) } else { ((a, d), (b, c)) };
        }
    }
    if has_won {
        mates.fill(None);
        for (a, b) in pairs.into_iter().filter(|(a, b)| weight(*a, *b) > 0) {
            (mates[a], mates[b]) = (Some(b), Some(a));
        }
    }
    has_won
}

#[cfg(test)]
#[expect(clippy::cast_precision_loss, reason = "small counts")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn total(mates: &[Option<usize>], weights: &Weights) -> i64 {
        let pairs = mates.iter().enumerate().filter_map(|(a, mate)| mate.filter(|b| a < *b).map(|b| (a, b)));
        pairs
            .map(|(a, b)| if weights.between(a, b) > 0 { weights.between(a, b) } else { i64::MIN / 64 })
            .sum()
    }

    fn best(free: &[usize], weights: &Weights) -> i64 {
        let Some((first, rest)) = free.split_first() else { return 0 };
        let paired = rest.iter().filter(|other| weights.between(*first, **other) > 0).map(|other| {
            let remaining: Vec<usize> = rest.iter().copied().filter(|vertex| vertex != other).collect();
            weights.between(*first, *other) + best(&remaining, weights)
        });
        paired.max().unwrap_or(0).max(best(rest, weights))
    }

    fn is_mutual(mates: &[Option<usize>]) -> bool {
        mates.iter().enumerate().all(|(a, mate)| mate.is_none_or(|b| b != a && mates[b] == Some(a)))
    }

    fn graphs() -> impl Strategy<Value = (usize, Vec<Edge>)> {
        (0..=10_usize).prop_flat_map(|count| {
            let edge = (0..count.max(1), 0..count.max(1), -0.2..1.0_f64).prop_map(|(a, b, weight)| Edge {
                a,
                b,
                weight,
            });
            (Just(count), prop::collection::vec(edge, 0..40))
        })
    }

    proptest! {
        #[test]
        fn exact_is_as_good_as_trying_everything((count, edges) in graphs()) {
            let weights = whole_weights(count, &edges);
            let mates = max_weight_matching(count, &edges);
            prop_assert!(is_mutual(&mates));
            prop_assert_eq!(total(&mates, &weights), best(&(0..count).collect::<Vec<_>>(), &weights));
        }

        #[test]
        fn greedy_reaches_at_least_half((count, edges) in graphs()) {
            let weights = whole_weights(count, &edges);
            let mates = improved_greedy(count, &weights);
            prop_assert!(is_mutual(&mates));
            prop_assert!(2 * total(&mates, &weights) >= best(&(0..count).collect::<Vec<_>>(), &weights));
        }
    }

    #[test]
    fn greedy_with_exchanges_comes_close_on_pairs_as_they_occur() {
        // Gains of jobs by how busy they are: what two leave idle, as in measured sets.
        let count = 120;
        let busy = |vertex: usize| ((vertex * 37 + 11) % 100) as f64 / 100.0;
        let gain =
            |a: usize, b: usize| 1.0 - (busy(a) + busy(b) - 0.6).max(0.0) * 1.3 - busy(a) * busy(b) * 0.4;
        let pairs = (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b)));
        let edges: Vec<Edge> = pairs.map(|(a, b)| Edge { a, b, weight: gain(a, b) }).collect();
        let weights = whole_weights(count, &edges);
        let (best, fast) =
            (total(&exact(count, &weights), &weights), total(&improved_greedy(count, &weights), &weights));
        let ratio = fast as f64 / best as f64;
        assert!((0.98..=1.0).contains(&ratio), "{ratio}");
    }

    #[test]
    fn exchanging_mends_what_greedy_spoils() {
        // Greedy takes the two light jobs together and leaves the heavy ones alone.
        let edge = |a, b, weight| Edge { a, b, weight };
        let edges = [edge(0, 1, 1.0), edge(0, 2, 0.9), edge(1, 3, 0.9), edge(2, 3, 0.05)];
        assert_eq!(improved_greedy(4, &whole_weights(4, &edges)), [Some(2), Some(3), Some(0), Some(1)]);
    }

    #[test]
    fn nothing_that_costs_is_taken() {
        let edges = [
            Edge { a: 0, b: 1, weight: -0.5 },
            Edge { a: 1, b: 1, weight: 3.0 },
            Edge { a: 0, b: 9, weight: 3.0 },
        ];
        assert_eq!(max_weight_matching(2, &edges), [None, None]);
    }
}
