//! What a model says of the combinations that a seed may choose from.

use super::Backtest;
use super::draw::Split;
use crate::model::{InterferenceModel, TenantInput};
use pillion_core::share::Sharing;
use std::collections::BTreeMap;

/// What is said of one tenant's speed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Guess {
    /// Expected, 0..=1.
    pub(super) speed: f64,
    /// The truth is above it with the stated probability; equal to `speed` where a model gives no bound.
    pub(super) low: f64,
    /// Standard deviation; 0 = not given.
    pub(super) deviation: f64,
}

/// Of each combination of new workloads, by place, what is said of both tenants. Those of which nothing can be said are
/// missing.
pub(super) type Guesses = BTreeMap<usize, [Guess; 2]>;

/// What an interference model says.
pub(super) fn of_model(backtest: &Backtest<'_>, split: &Split, model: &dyn InterferenceModel) -> Guesses {
    let truth = backtest.truth();
    let guess = |at: usize| {
        let combination = &truth.combinations[at];
        let input = |end: usize| {
            let workload = &truth.workloads[combination.workloads[end]];
            let profile = backtest.profiles.get(workload, backtest.device_model())?;
            Some(TenantInput { profile, sharing: Sharing::by(truth.mechanism, combination.caps[end], None) })
        };
        let estimates = model.predict(&[input(0)?, input(1)?], backtest.device_model()).ok()?;
        let guess = |end: usize| Guess {
            speed: estimates[end].speed_fraction,
            low: estimates[end].speed_fraction_low,
            deviation: estimates[end].speed_fraction_deviation,
        };
        Some([guess(0), guess(1)])
    };
    candidates(backtest, split).filter_map(|at| Some((at, guess(at)?))).collect()
}

/// The combinations of two new workloads, by place.
pub(super) fn candidates<'b>(
    backtest: &'b Backtest<'_>,
    split: &'b Split,
) -> impl Iterator<Item = usize> + 'b {
    let all = backtest.truth().combinations.iter().enumerate();
    all.filter(|(_, combination)| split.new_count(combination.workloads) == 2).map(|(at, _)| at)
}
