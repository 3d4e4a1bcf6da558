//! Who goes with whom: maximum weight matching on a general graph whose vertices come in classes of equals. Knows
//! classes, counts and weights only.
//!
//! ```text
//! relaxation (network simplex) ─► rounding ─► exchange, neighbourhood ─► few, and not proven best? exact
//!       an upper bound           whole pairs    win back what that lost             (blossoms)
//! ```
//!
//! The relaxation lets pairs be halves. Its value is an upper bound, so every answer carries a certificate of how far
//! from the best it can be at most. No library did all of it: the crates for blossoms take each vertex for itself, and
//! those for flows that are maintained are slow on dense graphs, give no prices, or are under the GPL.

mod exact;
mod exchange;
mod graph;
mod neighbourhood;
mod relaxation;
mod rounding;
mod simplex;
#[cfg(test)]
mod tests;

pub use graph::Edge;

use exact::EXACT_VERTICES_MAX;
use graph::Graph;
use relaxation::Relaxed;

/// How often two classes are paired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassPairs {
    /// The lower class.
    pub a: usize,
    /// The higher class, or the same.
    pub b: usize,
    /// How many pairs of one of `a` with one of `b`, at least 1.
    pub count: u32,
}

/// A matching of classes.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassMatching {
    /// The pairs, in the order of their classes, each combination once.
    pub pairs: Vec<ClassPairs>,
    /// The sum of their weights.
    pub weight: f64,
    /// No matching weighs more than this. Where both are equal, this one is proven best; where halves of pairs would
    /// weigh more than whole ones (three vertices that all like each other), it may be best all the same.
    pub weight_bound: f64,
    /// What proves the bound, by class: a pair weighs no more than the prices of its two ends. So much would be won at
    /// most by one more vertex, and an edge that weighs no more than its ends are priced could win nothing.
    pub prices: Vec<f64>,
}

/// Pairs vertices so that the sum of weights is greatest. `counts[class]` vertices are alike; nobody must be paired.
/// Edges that name a class that does not exist, or that weigh nothing, are ignored; of parallel edges the heaviest counts.
///
/// Equal input gives equal output. Exact for up to 200 vertices with an edge, and wherever the weight reaches the bound.
pub fn match_classes(counts: &[u32], edges: &[Edge]) -> ClassMatching {
    let graph = Graph::new(counts, edges);
    let relaxed = relaxation::solve(&graph);
    let mut pairs = near_best(&graph, &relaxed);
    if graph.vertex_count() <= EXACT_VERTICES_MAX && !graph.is_proven_best(&pairs, &relaxed.prices) {
        pairs = exact::solve(&graph);
    }
    answer(&graph, &pairs, &relaxed.prices)
}

/// What needs no cubic time: how often each edge is taken.
fn near_best(graph: &Graph, relaxed: &Relaxed) -> Vec<i64> {
    let mut pairs = rounding::round(graph, relaxed);
    exchange::improve(graph, &relaxed.prices, &mut pairs);
    neighbourhood::improve(graph, &relaxed.prices, &mut pairs);
    pairs
}

/// The answer in the weights that were asked with.
#[expect(clippy::cast_precision_loss, reason = "a sum of weights, for people")]
fn answer(graph: &Graph, pairs: &[i64], prices: &[i64]) -> ClassMatching {
    let (weight, bound) = (graph.weight(pairs), graph.bound(prices));
    let taken = graph.edges.iter().zip(pairs).filter(|(_, count)| **count > 0);
    let class_pairs = taken.map(|(edge, count)| ClassPairs {
        a: edge.a,
        b: edge.b,
        count: u32::try_from(*count).unwrap_or(u32::MAX),
    });
    ClassMatching {
        pairs: class_pairs.collect(),
        weight: weight as f64 / graph.scale,
        weight_bound: (bound as f64 / 2.0).max(weight as f64) / graph.scale,
        prices: prices.iter().map(|price| *price as f64 / 2.0 / graph.scale).collect(),
    }
}
