//! What Slurm says of a job before it counts as over. The scheduler may have no look at Slurm, or have lost what it knew: who went by its
//! word alone would submit once more what Slurm holds still. Pure.

use super::campaign::RunStatus;
use pillion_core::UnixTime;
use pillion_slurm::JobState;

/// So long after its beginning an sbatch may still bring a job; it ends by itself before that ([`super::submit`]).
pub(crate) const SBATCH_SECONDS_MAX: f64 = 180.0;

/// What Slurm says of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum InSlurm {
    /// It waits, runs or is being ended; or Slurm has a word for it that nobody here knows.
    Held(&'static str),
    /// It is over: how.
    Over(&'static str),
    /// Slurm holds it no longer, and how it ended nobody has written down.
    Forgotten,
}

impl InSlurm {
    /// By the word of slurmctld.
    pub(crate) fn of(state: &JobState) -> Self {
        match state {
            JobState::Pending => Self::Held("waiting"),
            JobState::Running | JobState::Suspended => Self::Held("running"),
            JobState::Completing | JobState::Other(_) => Self::Held("ending"),
            JobState::Ended(ending) => Self::Over(ending.as_str()),
        }
    }

    /// By the word of the accounts, of a job that slurmctld does not hold: one that they still have as running was lost.
    pub(crate) fn by_accounts(state: &JobState) -> Self {
        match Self::of(state) {
            Self::Held(_) => Self::Forgotten,
            over => over,
        }
    }
}

/// How a job stands by Slurm, where that is not as the scheduler would have it, by whom it is over: nothing is, while Slurm holds it. What the
/// scheduler does not know is over by Slurm's word alone. `is_known`: whether the scheduler knows it.
pub(crate) fn objection(is_known: bool, slurm: &InSlurm) -> Option<RunStatus> {
    match (slurm, is_known) {
        (InSlurm::Held(state), true) => Some(RunStatus::open(state, "Slurm holds it still")),
        (InSlurm::Held(state), false) => {
            Some(RunStatus::open(state, "Slurm holds it, and the scheduler does not know it"))
        }
        (InSlurm::Over(ending), false) => {
            let why = format!("the scheduler did not see it; Slurm says that it ended as {ending}");
            Some(RunStatus::failed(&why))
        }
        (InSlurm::Forgotten, false) => {
            Some(RunStatus::failed("neither the scheduler nor Slurm knows it any more"))
        }
        (InSlurm::Over(_) | InSlurm::Forgotten, true) => None,
    }
}

/// What that Slurm does not know of a run says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unfound {
    /// Nothing yet: its sbatch may be under way.
    NotYet,
    /// It was not submitted.
    Never,
    /// It may have been, and Slurm has forgotten it: why, in one sentence.
    Unknowable(&'static str),
}

/// Of a run that was to be submitted then and that Slurm does not know. `has_sbatch_ended`: with an answer; `is_sure`: whether the accounts
/// were asked as well, so that Slurm cannot have forgotten it. Nothing is submitted twice unless its user says so.
pub(crate) fn unfound(since: UnixTime, has_sbatch_ended: bool, is_sure: bool, now: UnixTime) -> Unfound {
    if has_sbatch_ended {
        Unfound::Never
    } else if now.seconds_since(since) < SBATCH_SECONDS_MAX {
        Unfound::NotYet
    } else if is_sure {
        Unfound::Never
    } else {
        Unfound::Unknowable(
            "whether it was submitted nobody can say: Slurm keeps no accounts; the same command submits it anew",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::characterize::campaign::Outcome;
    use pillion_slurm::parse::state::job_state;

    fn by(state: &str) -> InSlurm {
        InSlurm::of(&job_state(state))
    }

    #[test]
    fn nothing_is_over_while_slurm_holds_it() {
        for state in [
            "PENDING",
            "REQUEUED",
            "REQUEUE_HOLD",
            "CONFIGURING",
            "RUNNING",
            "SUSPENDED",
            "COMPLETING",
            "SOMETHING_NEW",
        ] {
            for is_known in [true, false] {
                let stands = objection(is_known, &by(state));
                assert!(matches!(stands, Some(RunStatus::Open { .. })), "{state} {is_known}");
            }
        }
        for over in [by("COMPLETED"), by("NODE_FAIL"), InSlurm::Forgotten] {
            assert_eq!(objection(true, &over), None, "the scheduler says how: {over:?}");
        }
    }

    #[test]
    fn what_the_scheduler_does_not_know_is_over_by_slurms_word() {
        let failed = |slurm: &InSlurm| match objection(false, slurm) {
            Some(RunStatus::Over(Outcome::Failed(why))) => why,
            other => panic!("{other:?}"),
        };
        let accounts = |state| failed(&InSlurm::by_accounts(&job_state(state)));
        assert!(failed(&by("CANCELLED")).ends_with("Slurm says that it ended as cancelled"));
        assert!(accounts("TIMEOUT").ends_with("ended as timeout"));
        for lost in [failed(&InSlurm::Forgotten), accounts("RUNNING")] {
            assert!(lost.starts_with("neither the scheduler nor Slurm"), "{lost}");
        }
    }

    #[test]
    fn what_slurm_does_not_know_is_submitted_again_only_where_that_is_sure() {
        let at = UnixTime::from_epoch;
        let of = |has_ended: bool, is_sure: bool, seconds: u64| {
            unfound(at(1000), has_ended, is_sure, at(1000 + seconds))
        };
        for is_sure in [true, false] {
            assert_eq!(of(true, is_sure, 0), Unfound::Never, "it was refused");
            assert_eq!(of(false, is_sure, 179), Unfound::NotYet);
        }
        assert_eq!(of(false, true, 180), Unfound::Never);
        assert!(matches!(of(false, false, 180), Unfound::Unknowable(_)));
    }
}
