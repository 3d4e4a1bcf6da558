//! What the regression is told and what it learns: measured speeds, and variances. Must not fit.

use super::effects::{Group, Kind, Regime};
use std::collections::BTreeMap;

/// One measured speed: its distance from the prior in units of doubt, and the effects behind it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    /// By column in growing order, each at most once; those behind the dense ones are of one block.
    pub(super) effects: Vec<(usize, f64)>,
    /// Of this combination's own effect, by regime.
    pub(super) pair: [f64; 2],
    /// Which combination; `usize::MAX` is not used.
    pub(super) combination: usize,
    /// Measured less expected speed, in units of the doubt about it.
    pub(super) distance: f64,
    /// Variance of the measurement, same units squared.
    pub(super) noise: f64,
}

/// What is learnt about variances.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Variances {
    /// The variance of the effects of each group, in units of doubt squared.
    pub(super) of_group: BTreeMap<Group, f64>,
    /// Multiple of the rows' own noise.
    pub(super) noise: f64,
}

impl Default for Variances {
    fn default() -> Self {
        Self { of_group: BTreeMap::new(), noise: 1.0 }
    }
}

impl Variances {
    /// The variance of a group's effects; of one that was never met, what is expected.
    pub(super) fn of(&self, group: Group) -> f64 {
        self.of_group.get(&group).copied().unwrap_or_else(|| group.0.expected_variance(group.1))
    }
    pub(super) fn of_pair(&self) -> [f64; 2] {
        [self.of((Kind::Pair, Regime::Apart)), self.of((Kind::Pair, Regime::Together))]
    }
}
