//! Which counts of GPUs a job can have: parts of one node, and whole nodes.

use crate::history::Run;

/// How many GPUs a node has, where that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeShape(Option<u32>);

impl NodeShape {
    /// Of a node with so many GPUs, at least 1.
    pub const fn of(gpus_per_node: u32) -> Self {
        Self(Some(if gpus_per_node == 0 { 1 } else { gpus_per_node }))
    }

    /// As runs show it: a run of several nodes had whole ones, so the most GPUs that one had on a node is what a node has. Runs on one node alone
    /// do not tell.
    pub fn seen(runs: &[Run]) -> Self {
        let whole = |run: &Run| run.nodes.filter(|nodes| *nodes > 1).map(|nodes| run.gpus / nodes);
        if runs.iter().filter_map(whole).max().is_none() {
            return Self(None);
        }
        Self(
            runs.iter()
                .filter_map(|run| run.nodes.map(|nodes| run.gpus / nodes.max(1)))
                .max()
                .filter(|gpus| *gpus > 0),
        )
    }

    /// How many GPUs a node has.
    pub const fn gpus_per_node(self) -> Option<u32> {
        self.0
    }

    /// Whether a job can have so many: up to a node's, then multiples of it.
    pub const fn fits(self, gpus: u32) -> bool {
        match self.0 {
            Some(of_node) => gpus <= of_node || gpus.is_multiple_of(of_node),
            None => true,
        }
    }

    /// How many nodes it takes.
    pub const fn nodes(self, gpus: u32) -> Option<u32> {
        match self.0 {
            Some(of_node) => Some(gpus.div_ceil(of_node)),
            None => None,
        }
    }

    /// The counts between `least` and `most` that people ask for: powers of two within a node, and one, two, four .. nodes.
    pub fn usual(self, least: u32, most: u32) -> Vec<u32> {
        let doublings = |from: u32| {
            (0..32).map_while(move |power| from.checked_shl(power).filter(|it| it >> power == from))
        };
        let of_node = self.0.unwrap_or(1);
        let mut counts: Vec<u32> = doublings(1).chain(doublings(of_node)).collect();
        counts.retain(|gpus| (least..=most).contains(gpus) && self.fits(*gpus));
        counts.sort_unstable();
        counts.dedup();
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_parts_of_a_node_and_whole_nodes() {
        assert_eq!(NodeShape::of(6).usual(1, 30), [1, 2, 4, 6, 12, 24]);
        assert_eq!(NodeShape::of(8).usual(2, 64), [2, 4, 8, 16, 32, 64]);
        assert_eq!(NodeShape::seen(&[]).usual(3, 20), [4, 8, 16]);
        assert!(!NodeShape::of(4).fits(6) && NodeShape::of(4).fits(12) && NodeShape::of(4).fits(3));
        assert_eq!(NodeShape::of(4).nodes(6), Some(2));
    }

    #[test]
    fn runs_of_several_nodes_tell_what_a_node_has() {
        let run = |gpus, nodes| Run { nodes: Some(nodes), gpus, cpus: None, seconds: 1.0, power_watts: None };
        assert_eq!(NodeShape::seen(&[run(2, 1), run(16, 2)]), NodeShape::of(8));
        assert_eq!(NodeShape::seen(&[run(2, 1), run(4, 1)]).gpus_per_node(), None);
        // One GPU on each of two nodes, and four on one.
        assert_eq!(NodeShape::seen(&[run(2, 2), run(4, 1)]), NodeShape::of(4));
    }
}
