//! What a model says of the combinations that a seed may choose from.

use super::draw::Split;
use super::{Backtest, Combination};
use crate::model::{InterferenceModel, TenantInput};
use pillion_core::share::Sharing;
use std::collections::BTreeMap;

/// What is said of one tenant's speed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Guess {
    /// Expected speed over solo speed, 0..=1.
    pub(super) speed: f64,
    /// The truth is above it with the stated probability; equal to `speed` where a model gives no bound.
    pub(super) low: f64,
    /// The optimistic bound; equal to `speed` where a model gives none.
    pub(super) high: f64,
    /// Standard deviation; 0 = not given.
    pub(super) deviation: f64,
}

/// Of each combination of new workloads, by place, what is said of both tenants. Those of which nothing can be said are
/// missing.
pub(super) type Guesses = BTreeMap<usize, [Guess; 2]>;

/// What an interference model says.
pub(super) fn of_model(backtest: &Backtest<'_>, split: &Split, model: &dyn InterferenceModel) -> Guesses {
    let places = candidates(backtest, split);
    places.filter_map(|at| Some((at, guess(backtest, &backtest.truth().combinations[at], model)?))).collect()
}

fn guess(
    backtest: &Backtest<'_>,
    combination: &Combination,
    model: &dyn InterferenceModel,
) -> Option<[Guess; 2]> {
    let (truth, device_model) = (backtest.truth(), backtest.device_model());
    let [a, b] = combination.workloads.map(|at| backtest.profiles.get(&truth.workloads[at], device_model));
    let [sharing_a, sharing_b] = combination.caps.map(|cap| Sharing::by(truth.mechanism, cap, None));
    let inputs =
        [TenantInput { profile: a?, sharing: sharing_a }, TenantInput { profile: b?, sharing: sharing_b }];
    let estimates = model.predict(&inputs, device_model).ok()?;
    Some([0, 1].map(|end| Guess {
        speed: estimates[end].speed_fraction,
        low: estimates[end].speed_fraction_low,
        high: estimates[end].speed_fraction_high,
        deviation: estimates[end].speed_fraction_deviation,
    }))
}

/// The combinations of two new workloads, by place.
pub(super) fn candidates<'b>(
    backtest: &'b Backtest<'_>,
    split: &'b Split,
) -> impl Iterator<Item = usize> + 'b {
    let all = backtest.truth().combinations.iter().enumerate();
    all.filter(|(_, combination)| split.new_count(combination.workloads) == 2).map(|(at, _)| at)
}
