//! What exchanges could not mend: around where something is lost, the pairs that are cheapest to part are opened, and the
//! few vertices that this makes are matched exactly. Never worse than before, since the pairs as they were are one answer.

use super::exact;
use super::graph::{Graph, WholeEdge};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// How many neighbourhoods are tried, at most.
const ATTEMPTS_MAX: usize = 12;
/// A neighbourhood's vertices at most: some milliseconds.
const VERTICES_MAX: i64 = 120;

/// Improves a matching. `prices` as in `Relaxed`.
pub(super) fn improve(graph: &Graph, prices: &[i64], pairs: &mut [i64]) {
    let mut failed = 0;
    for _ in 0..ATTEMPTS_MAX {
        if graph.is_near_enough(pairs, prices) {
            return;
        }
        let unpaired = graph.unpaired(pairs);
        let lossy = lossy(graph, prices, &unpaired, pairs);
        // All of them first, then around one after the other.
        let sources =
            if failed == 0 { &lossy[..] } else { lossy.get(failed - 1..failed).unwrap_or_default() };
        if sources.is_empty() {
            return;
        }
        failed = if improve_around(graph, prices, &unpaired, sources, pairs) { 0 } else { failed + 1 };
    }
}

/// The classes where the loss against the bound arises, the greatest first: one is alone who is priced, or is in a pair
/// that weighs less than its ends are priced.
fn lossy(graph: &Graph, prices: &[i64], unpaired: &[i64], pairs: &[i64]) -> Vec<usize> {
    let mut loss: Vec<i64> =
        prices.iter().zip(unpaired).map(|(price, count)| price * count.min(&1)).collect();
    for (edge, _) in graph.edges.iter().zip(pairs).filter(|(_, count)| **count > 0) {
        let slack = prices[edge.a] + prices[edge.b] - 2 * edge.weight;
        loss[edge.a] = loss[edge.a].max(slack);
    }
    let mut lossy: Vec<usize> = (0..loss.len()).filter(|class| loss[*class] > 0).collect();
    lossy.sort_by_key(|class| (Reverse(loss[*class]), *class));
    lossy
}

/// Whether anything was won around these.
fn improve_around(
    graph: &Graph,
    prices: &[i64],
    unpaired: &[i64],
    sources: &[usize],
    pairs: &mut [i64],
) -> bool {
    let near = Near::around(graph, prices, unpaired, sources, pairs);
    let mut counts = near.alone;
    let mut before = 0_i128;
    for (edge, count) in graph.edges.iter().zip(&near.opened) {
        counts[edge.a] += count;
        counts[edge.b] += count;
        before += i128::from(edge.weight) * i128::from(*count);
    }
    let inside = graph.edges.iter().enumerate().filter(|(_, edge)| counts[edge.a] > 0 && counts[edge.b] > 0);
    let (edges, inside): (Vec<usize>, Vec<WholeEdge>) = inside.unzip();
    let part = graph.part(counts.clone(), inside);
    let best = exact::solve(&part);
    if part.weight(&best) <= before {
        return false;
    }
    for (index, count) in edges.into_iter().zip(best) {
        pairs[index] += count - near.opened[index];
    }
    true
}

/// What is matched anew.
struct Near {
    /// How many pairs of each edge are opened.
    opened: Vec<i64>,
    /// How many of each class were alone anyway.
    alone: Vec<i64>,
}

impl Near {
    /// In the order of what it costs to come there from the sources. Of what is alike two at most: an exchange may need
    /// both.
    fn around(graph: &Graph, prices: &[i64], unpaired: &[i64], sources: &[usize], pairs: &[i64]) -> Self {
        let mut near = Self { opened: vec![0; graph.edges.len()], alone: vec![0; graph.class_count()] };
        let mut vertices = 0;
        let mut cost_of = vec![i64::MAX; graph.class_count()];
        let mut open: BinaryHeap<(Reverse<i64>, Reverse<usize>)> = BinaryHeap::new();
        for source in sources {
            cost_of[*source] = 0;
            open.push((Reverse(0), Reverse(*source)));
        }
        while let Some((Reverse(cost), Reverse(class))) = open.pop() {
            if cost > cost_of[class] {
                continue;
            }
            near.alone[class] = unpaired[class].min(2);
            vertices += near.alone[class];
            for own in graph.neighbours(class) {
                if vertices >= VERTICES_MAX {
                    return near;
                }
                let more = pairs[own.edge].min(2) - near.opened[own.edge];
                near.opened[own.edge] += more;
                vertices += 2 * more;
            }
            for next in graph.neighbours(class) {
                let edge = &graph.edges[next.edge];
                let cost = cost + prices[edge.a] + prices[edge.b] - 2 * edge.weight;
                if cost < cost_of[next.class] {
                    cost_of[next.class] = cost;
                    open.push((Reverse(cost), Reverse(next.class)));
                }
            }
        }
        near
    }
}
