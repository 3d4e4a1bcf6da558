//! When to train: pure.

use pillion_core::UnixTime;
use pillion_pairing::model::TrainOptions;
use pillion_store::ModelVersion;
use std::fmt;
use std::time::Duration;

/// When to train, and on how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Training {
    /// New observations, or changed profiles, that make a new model worth training.
    pub observations_min: u32,
    /// The least time between two trainings.
    pub period_min: Duration,
    /// Observations beyond so many are left out, the oldest first.
    pub observations_max: u32,
}

impl Default for Training {
    fn default() -> Self {
        let observations_max = TrainOptions::default().observations_max;
        Self {
            observations_min: 5,
            period_min: Duration::from_mins(1),
            observations_max: u32::try_from(observations_max).unwrap_or(u32::MAX),
        }
    }
}

/// What there is to learn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Situation<'a> {
    pub(super) now: UnixTime,
    /// The last training, by us or by another scheduler, whatever became of it.
    pub(super) newest: Option<&'a ModelVersion>,
    /// When this scheduler last tried, whatever became of it.
    pub(super) tried_at: Option<UnixTime>,
    /// The active model cannot be read.
    pub(super) is_stand_in: bool,
    /// Observations that changed since the last training.
    pub(super) fresh_count: usize,
    /// Those of them that the model in use did not think possible.
    pub(super) surprise_count: usize,
    /// Profiles that changed since the last training.
    pub(super) profile_count: usize,
}

/// Why a model is trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    Unreadable,
    Surprises(usize),
    Observations(usize),
    Profiles(usize),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable => f.write_str("this release cannot read the model before it"),
            Self::Surprises(1) => f.write_str("one sharing went worse than thought possible"),
            Self::Surprises(count) => write!(f, "{count} sharings went worse than thought possible"),
            Self::Observations(1) => f.write_str("one new observation"),
            Self::Observations(count) => write!(f, "{count} new observations"),
            Self::Profiles(1) => f.write_str("one profile changed"),
            Self::Profiles(count) => write!(f, "{count} profiles changed"),
        }
    }
}

/// Why to train now; `None` = not now.
pub(super) fn due(situation: &Situation<'_>, training: &Training) -> Option<Why> {
    // A clock that was set back must not keep us from training until it has caught up.
    let is_recent =
        |at: UnixTime| (situation.now.seconds() - at.seconds()).abs() < training.period_min.as_secs_f64();
    if situation.tried_at.is_some_and(is_recent) {
        return None;
    }
    if situation.is_stand_in {
        return Some(Why::Unreadable);
    }
    if situation.newest.is_some_and(|newest| is_recent(newest.trained_at)) {
        return None;
    }
    let enough = training.observations_min as usize;
    if situation.surprise_count > 0 {
        Some(Why::Surprises(situation.surprise_count))
    } else if situation.fresh_count >= enough {
        Some(Why::Observations(situation.fresh_count))
    } else if situation.newest.is_some() && situation.profile_count >= enough {
        Some(Why::Profiles(situation.profile_count))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillion_store::{ModelScore, ModelState};

    fn trained(seconds: u64) -> ModelVersion {
        ModelVersion {
            version: 1,
            kind: "learned-1".to_owned(),
            state: ModelState::Active,
            trained_at: UnixTime::from_epoch(seconds),
            observation_count: 5,
            observation_horizon: 9,
            score: ModelScore::default(),
            reason: String::new(),
        }
    }

    fn quiet(newest: Option<&ModelVersion>) -> Situation<'_> {
        Situation {
            now: UnixTime::from_epoch(1000),
            newest,
            tried_at: None,
            is_stand_in: false,
            fresh_count: 0,
            surprise_count: 0,
            profile_count: 0,
        }
    }

    #[test]
    fn enough_that_is_new_is_learnt_from_and_nothing_else() {
        let newest = trained(100);
        let why = |situation: Situation<'_>| due(&situation, &Training::default());
        assert_eq!(why(quiet(Some(&newest))), None);
        assert_eq!(why(Situation { fresh_count: 4, profile_count: 4, ..quiet(Some(&newest)) }), None);
        assert_eq!(why(Situation { fresh_count: 5, ..quiet(None) }), Some(Why::Observations(5)));
        assert_eq!(why(Situation { profile_count: 5, ..quiet(Some(&newest)) }), Some(Why::Profiles(5)));
        assert_eq!(why(Situation { profile_count: 5, ..quiet(None) }), None, "nothing was ever observed");
    }

    #[test]
    fn a_surprise_and_an_unreadable_model_do_not_wait_for_more() {
        let newest = trained(100);
        let why = |situation: Situation<'_>| due(&situation, &Training::default());
        let surprised = Situation { fresh_count: 1, surprise_count: 1, ..quiet(Some(&newest)) };
        assert_eq!(why(surprised), Some(Why::Surprises(1)));
        let unreadable = Situation { is_stand_in: true, ..quiet(Some(&newest)) };
        assert_eq!(why(unreadable), Some(Why::Unreadable));
    }

    #[test]
    fn trainings_keep_their_distance_whatever_the_clock_does() {
        let surprised = |newest| Situation { fresh_count: 9, surprise_count: 9, ..quiet(newest) };
        let why = |situation: Situation<'_>| due(&situation, &Training::default());
        let (recent, from_the_future) = (trained(950), trained(5000));
        assert_eq!(why(surprised(Some(&recent))), None);
        assert!(why(surprised(Some(&from_the_future))).is_some(), "the clock was set back");
        let tried = Some(UnixTime::from_epoch(990));
        assert_eq!(why(Situation { tried_at: tried, is_stand_in: true, ..quiet(None) }), None);
    }
}
