//! Whether a start that ran out of device memory is started again, and with how much. Pure. By its user's consent alone: a program
//! that is run twice may do twice what it does to files. Any doubt means that it is not.
//!
//! Who may act after the verdict, and what then comes of it:
//!
//! ```text
//!  judge_run: the need is in job_requeue ─► scontrol requeue ─► it waits, pinned, with its old lease ─► Mark::again
//!        │ its user, or Slurm, requeues it: the same, it has its need     │ held: the hold stays, its request is put back
//!        │ Slurm forgets it, or a successor runs: refused                 │ cancelled: gone
//!        │ --no-requeue: Slurm refuses, and it is told                    │ nobody is left: rescue puts it back, alone
//!        └ we die: whoever leads next finds the row                       └ an old pillion.lua refuses it: alone
//! ```

use pillion_core::UnixTime;
use pillion_core::fault::{REQUEUE_AGE_SECONDS_MAX, RESTART_RUN_SECONDS_MAX};
use pillion_core::mark::Mark;
use pillion_store::MeasuredRun;

/// The next start has at least so many halves of what the one before had.
const MORE_HALVES: u64 = 3;
const MIB: u64 = 1 << 20;

/// What is done about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Restart {
    /// Its user did not ask for anything.
    Unwanted,
    /// It is not started again, for this reason.
    No(String),
    /// It is, with at least so much memory.
    With {
        memory_bytes: u64,
        /// What it had.
        had_bytes: u64,
    },
}

/// Of a start that ran out of device memory for certain. `mark`: as Slurm has it now; `is_let`: whether the site lets users have
/// it so.
pub(super) fn restart(run: &MeasuredRun, mark: Option<&Mark>, is_let: bool, now: UnixTime) -> Restart {
    let Some(mark) = mark.filter(|mark| mark.restart.is_given()) else { return Restart::Unwanted };
    let no = |why: &str| Restart::No(why.to_owned());
    let ran_seconds = run.summary.ended_at.seconds_since(run.summary.started_at);
    if !is_let {
        no("the site has policy.oom_requeue = \"never\"")
    } else if mark.again_lease_epoch.is_some() {
        no("it was given more memory once before")
    } else if ran_seconds > RESTART_RUN_SECONDS_MAX {
        no("it ran longer than an hour")
    } else if run.job.ended_at.is_none_or(|ended_at| now.seconds_since(ended_at) > REQUEUE_AGE_SECONDS_MAX) {
        no("it ended too long ago")
    } else {
        match memory_had(run) {
            Some(had_bytes) => Restart::With { memory_bytes: more_than(had_bytes), had_bytes },
            None => no("it had a whole GPU, and there is no more to give"),
        }
    }
}

/// The device memory that a start had: its limit, its instance's, or what it was let in with beside others; `None` where that was all
/// of the device's.
pub(crate) fn memory_had(run: &MeasuredRun) -> Option<u64> {
    let plan = &run.own_member()?.plan;
    let has_a_part = !run.summary.neighbours.is_empty() || run.is_in_instance();
    let admitted = plan.memory_bytes.or(run.summary.memory_bytes_peak).filter(|_| has_a_part);
    plan.sharing.memory_bytes_max(plan.memory_bytes).or(admitted).filter(|bytes| *bytes > 0)
}

/// At least half as much again, in whole mebibytes, as marks have it.
pub(crate) fn more_than(bytes: u64) -> u64 {
    let more = bytes / 2 * MORE_HALVES + bytes % 2 * 2;
    more.div_ceil(MIB).saturating_mul(MIB)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::tests::{ENDED, failed_run};
    use crate::testing::at;
    use pillion_core::restart::RestartConsent;
    use pillion_core::share::Sharing;

    const GIB: u64 = 1 << 30;

    fn consent() -> Mark {
        Mark {
            restart: RestartConsent::Yes,
            lease_epoch: Some(5),
            lease_restart_count: Some(0),
            ..Mark::default()
        }
    }

    /// Under a limit of 8 GiB, beside nobody.
    fn limited() -> MeasuredRun {
        let mut run = failed_run();
        run.summary.neighbours.clear();
        let member = &mut run.decision.as_mut().unwrap().members[0];
        member.plan.sharing = Sharing::Mps { cap: None, memory_limit_bytes: Some(8 * GIB) };
        run
    }

    fn of(run: &MeasuredRun, mark: &Mark) -> Restart {
        restart(run, Some(mark), true, at(ENDED + 10))
    }

    #[test]
    fn an_instance_is_memory_of_its_own_beside_nobody_too() {
        let mut run = limited();
        let member = &mut run.decision.as_mut().unwrap().members[0];
        member.plan.sharing = Sharing::Mig { profile: "1g.10gb".parse().unwrap(), start: 0 };
        member.plan.memory_bytes = Some(10 * GIB);
        assert_eq!(of(&run, &consent()), Restart::With { memory_bytes: 15 * GIB, had_bytes: 10 * GIB });
    }

    #[test]
    fn it_is_given_half_as_much_again_in_whole_mebibytes() {
        assert_eq!(of(&limited(), &consent()), Restart::With { memory_bytes: 12 * GIB, had_bytes: 8 * GIB });
        for bytes in [1, 2, 3, MIB - 1, MIB, MIB + 1, 5 * GIB + 7] {
            let more = more_than(bytes);
            assert!(
                u128::from(more) * 2 >= u128::from(bytes) * 3 && more.is_multiple_of(MIB),
                "{bytes}: {more}"
            );
        }
    }

    #[test]
    fn who_has_not_consented_is_not_asked_about() {
        assert_eq!(of(&limited(), &Mark { restart: RestartConsent::No, ..consent() }), Restart::Unwanted);
        assert_eq!(restart(&limited(), None, true, at(ENDED + 10)), Restart::Unwanted, "nobody can say");
    }

    #[test]
    fn never_twice_never_late_never_against_the_site_and_never_after_an_hour() {
        let no = |restart: &Restart| matches!(restart, Restart::No(_));
        assert!(no(&of(&limited(), &Mark { again_lease_epoch: Some(1), ..consent() })));
        assert!(no(&restart(&limited(), Some(&consent()), false, at(ENDED + 10))));
        assert!(no(&restart(&limited(), Some(&consent()), true, at(ENDED + 241))));
        let mut long = limited();
        long.summary.started_at = at(ENDED - 3601);
        assert!(no(&of(&long, &consent())));
        long.summary.started_at = at(ENDED - 3600);
        assert!(!no(&of(&long, &consent())));
    }

    #[test]
    fn who_had_a_whole_device_cannot_be_given_more() {
        let mut alone = limited();
        alone.decision.as_mut().unwrap().members[0].plan.sharing = Sharing::TimeSliced;
        assert_eq!(
            of(&alone, &consent()),
            Restart::No("it had a whole GPU, and there is no more to give".to_owned())
        );
        // Beside others, by turns: what it was admitted with, else what it held.
        let mut shared = failed_run();
        let plan = &mut shared.decision.as_mut().unwrap().members[0].plan;
        (plan.sharing, plan.memory_bytes) = (Sharing::TimeSliced, Some(4 * GIB));
        assert_eq!(of(&shared, &consent()), Restart::With { memory_bytes: 6 * GIB, had_bytes: 4 * GIB });
        shared.decision.as_mut().unwrap().members[0].plan.memory_bytes = None;
        shared.summary.memory_bytes_peak = Some(2 * GIB);
        assert_eq!(of(&shared, &consent()), Restart::With { memory_bytes: 3 * GIB, had_bytes: 2 * GIB });
        shared.decision = None;
        assert!(matches!(of(&shared, &consent()), Restart::No(_)), "it ran under no decision");
    }
}
