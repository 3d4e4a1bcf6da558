//! The relaxed question, in which pairs may be halves: a transportation problem in which each class stands twice, as a row
//! and as a column. Where the classes fall into two sides that pair only with each other, each stands once, and the
//! answer is whole.

use super::graph::Graph;
use super::simplex::{self, Arc};

/// What is best when pairs may be halves.
pub(super) struct Relaxed {
    /// Of each edge, twice the pairs.
    pub(super) halves: Vec<i64>,
    /// Twice the price of a vertex of each class, at least 0: two that are priced less than their pair weighs do not
    /// occur, pairs that are taken are priced as they weigh, and who is left over is priced 0.
    pub(super) prices: Vec<i64>,
}

/// In which part of the transport a class stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// It has no edge.
    Nowhere,
    Row,
    Column,
    Both,
}

pub(super) fn solve(graph: &Graph) -> Relaxed {
    let parts = parts(graph);
    let (rows, row_place) = numbered(&parts, |part| matches!(part, Part::Row | Part::Both));
    let (columns, column_place) = numbered(&parts, |part| matches!(part, Part::Column | Part::Both));
    let mut arcs = Vec::with_capacity(2 * graph.edges.len());
    let mut edge_of = Vec::with_capacity(2 * graph.edges.len());
    for (index, edge) in graph.edges.iter().enumerate() {
        let ways: &[(usize, usize)] = match parts[edge.a] {
            Part::Row => &[(edge.a, edge.b)],
            Part::Column => &[(edge.b, edge.a)],
            _ if edge.a == edge.b => &[(edge.a, edge.a)],
            _ => &[(edge.a, edge.b), (edge.b, edge.a)],
        };
        for (row, column) in ways {
            arcs.push(Arc { row: row_place[*row], column: column_place[*column], weight: edge.weight });
            edge_of.push(index);
        }
    }
    let [supplies, demands] = [&rows, &columns]
        .map(|classes| classes.iter().map(|class| graph.counts[*class]).collect::<Vec<i64>>());
    let transport = simplex::solve(&supplies, &demands, &arcs);
    let mut relaxed = Relaxed { halves: vec![0; graph.edges.len()], prices: vec![0; parts.len()] };
    for (arc, amount) in transport.amounts {
        let edge = edge_of[arc];
        let is_half = parts[graph.edges[edge].a] == Part::Both;
        relaxed.halves[edge] += if is_half { amount } else { 2 * amount };
    }
    for (classes, prices) in [(&rows, &transport.row_prices), (&columns, &transport.column_prices)] {
        for (class, price) in classes.iter().zip(prices) {
            relaxed.prices[*class] += if parts[*class] == Part::Both { *price } else { 2 * price };
        }
    }
    relaxed
}

/// The classes of some parts one after the other, and by class where it stands among them.
fn numbered(parts: &[Part], is_in: fn(Part) -> bool) -> (Vec<usize>, Vec<u32>) {
    let classes: Vec<usize> = (0..parts.len()).filter(|class| is_in(parts[*class])).collect();
    let mut place = vec![0_u32; parts.len()];
    for (at, class) in (0..).zip(&classes) {
        place[*class] = at;
    }
    (classes, place)
}

/// Classes that are connected take turns between row and column; where that cannot be, all of them stand twice.
fn parts(graph: &Graph) -> Vec<Part> {
    let mut parts = vec![Part::Nowhere; graph.class_count()];
    for start in 0..graph.class_count() {
        if parts[start] != Part::Nowhere || graph.neighbours(start).is_empty() {
            continue;
        }
        parts[start] = Part::Row;
        let mut connected = vec![start];
        let mut is_two_sided = true;
        let mut at = 0;
        while at < connected.len() {
            let class = connected[at];
            let across = if parts[class] == Part::Row { Part::Column } else { Part::Row };
            for neighbour in graph.neighbours(class) {
                if parts[neighbour.class] == Part::Nowhere {
                    parts[neighbour.class] = across;
                    connected.push(neighbour.class);
                } else if parts[neighbour.class] != across {
                    is_two_sided = false;
                }
            }
            at += 1;
        }
        if !is_two_sided {
            for class in connected {
                parts[class] = Part::Both;
            }
        }
    }
    parts
}
