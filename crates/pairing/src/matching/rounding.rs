//! From halves of pairs to whole ones. What is half forms trails through the classes: along a trail, halves are made
//! whole and dropped in turn, which costs nothing, unless the trail is closed and odd: then one vertex on it, the one of
//! the least price, stays alone.

use super::graph::{Graph, Neighbour};
use super::relaxation::Relaxed;

/// How many whole pairs of each edge.
pub(super) fn round(graph: &Graph, relaxed: &Relaxed) -> Vec<i64> {
    let mut pairs: Vec<i64> = relaxed.halves.iter().map(|halves| halves / 2).collect();
    let mut trails = Trails::new(graph, &relaxed.halves);
    // Open trails first, from one end to the other: both ends have half a vertex to spare.
    for class in 0..graph.class_count() {
        if trails.degree[class] % 2 == 1 {
            for (step, edge) in trails.walk(class).into_iter().enumerate() {
                pairs[edge.edge] += i64::from(step % 2 == 0);
            }
        }
    }
    for class in 0..graph.class_count() {
        let trail = trails.round_trip(class);
        // The first and the last of an odd trail are both dropped where they meet: at the cheapest vertex.
        let cheapest =
            (0..trail.len()).min_by_key(|at| relaxed.prices[trail[*at].class]).map_or(0, |at| at + 1);
        for step in 0..trail.len() {
            pairs[trail[(cheapest + step) % trail.len()].edge] += i64::from(step % 2 == 1);
        }
    }
    pairs
}

/// The edges that are half, while they are walked over.
struct Trails<'g> {
    graph: &'g Graph,
    /// Whether an edge is half and not walked over yet.
    is_left: Vec<bool>,
    /// Halves left at each class; an edge within a class counts twice.
    degree: Vec<usize>,
    /// Up to where the neighbours of each class are done with.
    next: Vec<usize>,
}

impl<'g> Trails<'g> {
    fn new(graph: &'g Graph, halves: &[i64]) -> Self {
        let is_left: Vec<bool> = halves.iter().map(|halves| halves % 2 == 1).collect();
        let mut degree = vec![0; graph.class_count()];
        for (edge, _) in graph.edges.iter().zip(&is_left).filter(|(_, is_left)| **is_left) {
            degree[edge.a] += 1;
            degree[edge.b] += 1;
        }
        Self { graph, is_left, degree, next: vec![0; graph.class_count()] }
    }

    /// The next step from a class: the edge, and the class it leads to.
    fn step(&mut self, class: usize) -> Option<Neighbour> {
        while let Some(neighbour) = self.graph.neighbours(class).get(self.next[class]).copied() {
            self.next[class] += 1;
            if std::mem::take(&mut self.is_left[neighbour.edge]) {
                self.degree[class] -= 1;
                self.degree[neighbour.class] -= 1;
                return Some(neighbour);
            }
        }
        None
    }

    /// As far as it goes.
    fn walk(&mut self, class: usize) -> Vec<Neighbour> {
        std::iter::successors(self.step(class), |last| self.step(last.class)).collect()
    }

    /// A closed trail over all halves that are connected with a class; each step with the class it leads to.
    fn round_trip(&mut self, class: usize) -> Vec<Neighbour> {
        let mut way = Vec::new();
        let mut trail = Vec::new();
        let mut here = class;
        loop {
            if let Some(step) = self.step(here) {
                here = step.class;
                way.push(step);
            } else if let Some(step) = way.pop() {
                here = way.last().map_or(class, |before| before.class);
                trail.push(step);
            } else {
                break;
            }
        }
        trail.reverse();
        trail
    }
}
