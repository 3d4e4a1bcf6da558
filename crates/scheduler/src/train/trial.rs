//! One training with its backtest: pure, and slow. Runs on a thread of its own.
//!
//! ```text
//! observations, oldest first:  [ seen by the incumbent | new ......................... ]
//! backtest:  candidate without [------------------------------------------] | held out ] <- both foretell these
//! then:      trained on all of [-------------------------------------------------------]
//! ```

use super::backtest::score;
use super::judge::{Duel, Verdict, judge, scores};
use super::models::untrained;
use super::recipe::Recipe;
use pillion_pairing::{InterferenceModel, Observation, ProfileBook};
use pillion_store::{ModelScore, StoredObservation};
use serde_json::Value;
use std::sync::Arc;

/// The fewest sharings that make a backtest.
const HELD_OUT_MIN: usize = 3;
/// One sharing of so many is held out at most.
const HELD_OUT_PART: usize = 5;
/// How many of the newest sharings a candidate must be able to tell after it was trained on them.
const TAUGHT_MAX: usize = 500;

/// What a training is given.
pub(super) struct TrialInput {
    pub(super) recipe: Arc<dyn Recipe>,
    /// The model in use with its version and the last observation that it has seen; `None` = the model without observations.
    pub(super) incumbent: Option<Incumbent>,
    pub(super) profiles: ProfileBook,
    /// Oldest first: the newest of them are held out.
    pub(super) observations: Vec<StoredObservation>,
}

pub(super) struct Incumbent {
    pub(super) version: u64,
    pub(super) horizon: u64,
    /// Whether it was made by the same recipe.
    pub(super) is_same_recipe: bool,
    pub(super) model: Arc<dyn InterferenceModel>,
}

/// What comes of it.
pub(super) struct Trial {
    pub(super) body: Value,
    pub(super) score: ModelScore,
    pub(super) verdict: Verdict,
}

/// Trains and judges.
///
/// # Errors
/// Where the recipe cannot read back what it has written: a number in it is none.
pub(super) fn run(input: &TrialInput) -> Result<Trial, serde_json::Error> {
    let recipe = input.recipe.as_ref();
    let prior = input.incumbent.is_none().then(|| untrained(recipe));
    let incumbent: &dyn InterferenceModel = match (&input.incumbent, &prior) {
        (Some(incumbent), _) => incumbent.model.as_ref(),
        (None, Some(prior)) => prior.as_ref(),
        (None, None) => unreachable!("one of the two is there"),
    };
    let all: Vec<Observation> = input.observations.iter().map(|stored| stored.observation.clone()).collect();
    let horizon = input.incumbent.as_ref().map_or(0, |incumbent| incumbent.horizon);
    let unseen = input.observations.iter().filter(|stored| stored.number > horizon).count();
    let held_out = match held_out_count(all.len(), unseen) {
        0 => Duel::default(),
        count => {
            let (rest, newest) = all.split_at(all.len() - count);
            let candidate = recipe.read(recipe.train(&input.profiles, rest))?;
            duel(candidate.as_ref(), incumbent, &input.profiles, newest)
        }
    };
    let body = recipe.train(&input.profiles, &all);
    let candidate = recipe.read(body.clone())?;
    let newest = &all[all.len().saturating_sub(TAUGHT_MAX)..];
    let taught = duel(candidate.as_ref(), incumbent, &input.profiles, newest);
    let version = input.incumbent.as_ref().map(|incumbent| incumbent.version);
    let is_continuation = input.incumbent.as_ref().is_none_or(|incumbent| incumbent.is_same_recipe);
    let verdict = judge(&held_out, &taught, is_continuation);
    Ok(Trial { body, score: scores(&held_out, version), verdict })
}

fn duel(
    candidate: &dyn InterferenceModel,
    incumbent: &dyn InterferenceModel,
    profiles: &ProfileBook,
    observations: &[Observation],
) -> Duel {
    Duel {
        candidate: score(candidate, profiles, observations),
        incumbent: score(incumbent, profiles, observations),
    }
}

/// How many of the newest sharings are held out: none that the incumbent has seen, and never all.
fn held_out_count(total: usize, unseen: usize) -> usize {
    let count = unseen.min(HELD_OUT_MIN.max(total / HELD_OUT_PART));
    if count < HELD_OUT_MIN || count >= total { 0 } else { count }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_incumbent_has_not_seen_is_held_out() {
        assert_eq!(held_out_count(2, 2), 0, "too few");
        assert_eq!(held_out_count(3, 3), 0, "nothing would be left to train on");
        assert_eq!(held_out_count(5, 5), 3);
        assert_eq!(held_out_count(100, 100), 20);
        assert_eq!(held_out_count(100, 4), 4);
        assert_eq!(held_out_count(100, 2), 0);
    }
}
