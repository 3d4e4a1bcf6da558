//! What Slurm says of a job before it counts as over. The scheduler may have no look at Slurm, or have lost what it knew: who went by its
//! word alone would submit once more what Slurm holds still. Pure.

use super::campaign::RunStatus;
use pillion_slurm::JobState;

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
}
