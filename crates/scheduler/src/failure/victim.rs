//! Whether a tenant died with another one of its device. Pure. Any doubt means that it did not.
//!
//! Under MPS all tenants are clients of one server: a kill of one with work under way, or a fatal fault of one, is reported
//! to all of them, and each fails at its next call (NVIDIA, Multi-Process Service, "Client early termination" and "Error
//! containment"). Which tenant was the cause shows in who ended first, and how; and in whose process the driver named in an
//! Xid, where the kernel's log tells, even if both ended in the same second.

use pillion_core::UnixTime;
use pillion_core::fault::Ending;
use pillion_slurm::Ending as JobEnding;
use pillion_store::MeasuredRun;

/// So soon after a neighbour was killed a failure is taken for its consequence: a program can compute for a while until its
/// next call.
const AFTER_KILL_SECONDS: f64 = 60.0;
/// So soon after a neighbour failed by itself. Shorter: two programs may fail each for its own reason.
const AFTER_FAILURE_SECONDS: f64 = 20.0;
/// Slurm dates ends in whole seconds: who failed in the same one failed first as likely as not.
const LATER_SECONDS_MIN: f64 = 1.0;
/// The same after the daemon died, which the agent may notice late.
const AFTER_DAEMON_SECONDS: f64 = 60.0;
const NOTICED_LATE_SECONDS: f64 = 5.0;
/// Likewise the agent dates an Xid by its sample.
const XID_LATE_SECONDS: f64 = 5.0;
/// A scan shows an end that much later for certain.
const SCAN_SECONDS: f64 = 5.0;
/// How long a neighbour's end is waited for.
const NEIGHBOUR_TIMEOUT_SECONDS: f64 = 120.0;

/// What became of a neighbour. `seconds_before`: how long before the tenant's own end; negative = after it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Fate {
    /// It still runs.
    Running,
    /// Slurm is ending it.
    Ending,
    /// It is over.
    Ended {
        ending: JobEnding,
        seconds_before: f64,
    },
    /// It was ended and started again: requeued, preempted.
    StartedAgain {
        seconds_before: f64,
    },
    Unknown,
}

/// A tenant that failed by itself, and for no reason of its own that shows.
#[derive(Debug, Clone)]
pub(super) struct Tenant<'a> {
    pub(super) run: &'a MeasuredRun,
    /// How it ended.
    pub(super) ending: Ending,
    pub(super) fates: Vec<Fate>,
    /// When the MPS daemon of its device died, by the node's clock.
    pub(super) mps_died_at: Vec<UnixTime>,
    /// When Slurm was last scanned.
    pub(super) scan_at: UnixTime,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Victim {
    /// It died with another: why that is believed. Tells nothing of who the other was: its user reads it.
    Of(String),
    /// It did not, as far as anybody can say.
    No,
    /// Ask again later.
    Undecided,
}

/// Judges one tenant.
pub(super) fn judge(tenant: &Tenant<'_>) -> Victim {
    let run = tenant.run;
    let shared_by_mps = run.decision.as_ref().is_some_and(|decision| decision.mechanism().has_daemon())
        && run.summary.shared_seconds > 0.0
        && !tenant.fates.is_empty();
    let named_by_xid =
        run.summary.signs.iter().flat_map(|signs| &signs.xids).any(|xid| xid.is_own == Some(true));
    if !shared_by_mps || named_by_xid {
        return Victim::No;
    }
    // How and when the other one ended would tell the user who it was.
    let by_neighbour =
        tenant.fates.iter().any(explains).then(|| "soon after a tenant beside it ended".to_owned());
    let named = other_was_named(tenant);
    let by_named = named
        .filter(|_| tenant.fates.iter().any(ended_with_it))
        .map(|code| format!("soon after the driver had named a process of a tenant beside it (Xid {code})"));
    let cause = by_named.or(by_neighbour).or_else(|| daemon_died(tenant));
    if let Some(cause) = cause {
        let how = match tenant.ending {
            Ending::Signalled(signal) => format!("signal {signal} ended it"),
            Ending::Exited(code) => format!("it exited with code {code}"),
            Ending::EndedBySlurm => return Victim::No,
        };
        return Victim::Of(format!("{how} {cause}, and all tenants of a device have one MPS server"));
    }
    let since_end = run.job.ended_at.map_or(f64::INFINITY, |ended_at| tenant.scan_at.seconds_since(ended_at));
    // The one that was named may take longer to fail than the one that it took along.
    let is_awaited = named.is_some()
        && tenant.fates.contains(&Fate::Running)
        && since_end < AFTER_FAILURE_SECONDS + SCAN_SECONDS;
    let is_open = tenant.fates.contains(&Fate::Ending) || since_end < SCAN_SECONDS || is_awaited;
    if is_open && since_end < NEIGHBOUR_TIMEOUT_SECONDS { Victim::Undecided } else { Victim::No }
}

/// Whether this neighbour's end explains the failure.
fn explains(fate: &Fate) -> bool {
    match *fate {
        Fate::Ended { ending: JobEnding::Failed, seconds_before } => {
            (LATER_SECONDS_MIN..=AFTER_FAILURE_SECONDS).contains(&seconds_before)
        }
        Fate::Ended {
            ending: JobEnding::Cancelled | JobEnding::Timeout | JobEnding::Preempted | JobEnding::OutOfMemory,
            seconds_before,
        }
        | Fate::StartedAgain { seconds_before } => (0.0..=AFTER_KILL_SECONDS).contains(&seconds_before),
        Fate::Ended { ending: JobEnding::Completed | JobEnding::NodeFail | JobEnding::Revoked, .. }
        | Fate::Running
        | Fate::Ending
        | Fate::Unknown => false,
    }
}

/// The Xid just before the end that named a process of another tenant.
fn other_was_named(tenant: &Tenant<'_>) -> Option<u64> {
    let run = tenant.run;
    let xids = run.summary.signs.iter().flat_map(|signs| &signs.xids);
    for xid in xids.filter(|xid| xid.is_own == Some(false)) {
        let seconds_before = run.summary.ended_at.seconds() - xid.at.seconds();
        if (-XID_LATE_SECONDS..=AFTER_FAILURE_SECONDS).contains(&seconds_before) {
            return Some(xid.code);
        }
    }
    None
}

/// Whether this neighbour failed, or was ended, about when the tenant did: it was hit by the error, whoever was first.
fn ended_with_it(fate: &Fate) -> bool {
    match *fate {
        Fate::Ended {
            ending:
                JobEnding::Failed
                | JobEnding::Cancelled
                | JobEnding::Timeout
                | JobEnding::Preempted
                | JobEnding::OutOfMemory,
            seconds_before,
        }
        | Fate::StartedAgain { seconds_before } => seconds_before.abs() <= AFTER_FAILURE_SECONDS,
        Fate::Ended { ending: JobEnding::Completed | JobEnding::NodeFail | JobEnding::Revoked, .. }
        | Fate::Running
        | Fate::Ending
        | Fate::Unknown => false,
    }
}

fn daemon_died(tenant: &Tenant<'_>) -> Option<String> {
    let ended_at = tenant.run.summary.ended_at.seconds();
    let seconds = tenant
        .mps_died_at
        .iter()
        .map(|died_at| ended_at - died_at.seconds())
        .find(|seconds| (-NOTICED_LATE_SECONDS..=AFTER_DAEMON_SECONDS).contains(seconds))?;
    Some(format!("{:.0} s after the MPS daemon of its device had died", seconds.max(0.0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::tests::{ENDED, failed_run};
    use crate::testing::at;
    use pillion_core::fault::{FaultSigns, XidSeen};
    use pillion_core::share::Sharing;
    use proptest::prelude::*;

    fn judged(run: &MeasuredRun, fates: &[Fate], later_seconds: u64) -> Victim {
        let scan_at = at(ENDED + later_seconds);
        let ending = Ending::Exited(1);
        judge(&Tenant { run, ending, fates: fates.to_vec(), mps_died_at: Vec::new(), scan_at })
    }

    fn ended(ending: JobEnding, seconds_before: f64) -> Fate {
        Fate::Ended { ending, seconds_before }
    }

    fn is_victim(victim: &Victim) -> bool {
        matches!(victim, Victim::Of(_))
    }

    #[test]
    fn who_fails_soon_after_a_neighbour_was_killed_died_of_it() {
        let run = failed_run();
        for ending in [JobEnding::Cancelled, JobEnding::Timeout, JobEnding::Preempted, JobEnding::OutOfMemory]
        {
            let after = |seconds| is_victim(&judged(&run, &[ended(ending, seconds)], 10));
            assert_eq!([-1.0, 0.0, 60.0, 61.0].map(after), [false, true, true, false], "{ending:?}");
        }
        let again = |seconds_before| is_victim(&judged(&run, &[Fate::StartedAgain { seconds_before }], 10));
        assert_eq!([-1.0, 0.0, 60.0, 61.0].map(again), [false, true, true, false]);
        let words = "it exited with code 1 soon after a tenant beside it ended, and all tenants of a device have one MPS server";
        assert_eq!(judged(&run, &[ended(JobEnding::Cancelled, 3.0)], 10), Victim::Of(words.to_owned()));
    }

    #[test]
    fn of_two_that_fail_only_the_later_one_can_be_a_victim() {
        let run = failed_run();
        let after = |seconds| is_victim(&judged(&run, &[ended(JobEnding::Failed, seconds)], 10));
        assert_eq!([-3.0, 0.0, 1.0, 20.0, 21.0].map(after), [false, false, true, true, false]);
    }

    #[test]
    fn neighbours_that_ended_well_with_their_node_or_not_at_all_explain_nothing() {
        let run = failed_run();
        for ending in [JobEnding::Completed, JobEnding::NodeFail, JobEnding::Revoked] {
            assert_eq!(judged(&run, &[ended(ending, 1.0)], 10), Victim::No, "{ending:?}");
        }
        for fate in [Fate::Running, Fate::Unknown] {
            assert_eq!(judged(&run, &[fate], 10), Victim::No, "{fate:?}");
        }
        assert_eq!(judged(&run, &[], 10), Victim::No, "it was alone");
    }

    #[test]
    fn a_neighbour_that_slurm_is_ending_is_waited_for() {
        let run = failed_run();
        assert_eq!(judged(&run, &[Fate::Ending], 10), Victim::Undecided);
        assert_eq!(judged(&run, &[Fate::Ending], 121), Victim::No, "not for ever");
        assert_eq!(
            judged(&run, &[Fate::Running], 4),
            Victim::Undecided,
            "the scan may be older than its end"
        );
    }

    #[test]
    fn all_tenants_of_a_daemon_that_died_are_victims() {
        let run = failed_run();
        let died = |epoch: u64| {
            let (ending, mps_died_at) = (Ending::Signalled(6), vec![at(epoch)]);
            let fates = vec![Fate::Running];
            is_victim(&judge(&Tenant { run: &run, ending, fates, mps_died_at, scan_at: at(ENDED + 10) }))
        };
        assert_eq!([ENDED - 61, ENDED - 60, ENDED + 5, ENDED + 6].map(died), [false, true, true, false]);
    }

    #[test]
    fn who_did_not_share_by_mps_or_is_named_by_the_driver_is_no_victim() {
        let fates = [ended(JobEnding::Cancelled, 1.0)];
        let mut run = failed_run();
        run.summary.signs = Some(FaultSigns {
            xids: vec![XidSeen { at: at(ENDED), code: 31, is_own: Some(true) }],
            ..FaultSigns::default()
        });
        assert_eq!(judged(&run, &fates, 10), Victim::No, "its own fault");
        let mut run = failed_run();
        run.summary.shared_seconds = 0.0;
        assert_eq!(judged(&run, &fates, 10), Victim::No);
        let mut run = failed_run();
        run.decision.as_mut().unwrap().members[0].plan.sharing = Sharing::Ccs { mode: 2 };
        assert_eq!(judged(&run, &fates, 10), Victim::No);
        run.decision = None;
        assert_eq!(judged(&run, &fates, 10), Victim::No);
    }

    #[test]
    fn of_two_that_fail_together_the_one_that_the_driver_did_not_name_is_the_victim() {
        let named = |is_own, seconds_before: i64| {
            let mut run = failed_run();
            let at = at(ENDED.checked_add_signed(-seconds_before).unwrap());
            let xids = vec![XidSeen { at, code: 31, is_own }];
            run.summary.signs = Some(FaultSigns { xids, ..FaultSigns::default() });
            run
        };
        let together = [ended(JobEnding::Failed, 0.0)];
        let words = "it exited with code 1 soon after the driver had named a process of a tenant beside it (Xid 31), \
                     and all tenants of a device have one MPS server";
        assert_eq!(judged(&named(Some(false), 1), &together, 10), Victim::Of(words.to_owned()));
        assert_eq!(judged(&named(Some(true), 1), &together, 10), Victim::No, "its culprit");
        assert_eq!(judged(&named(None, 1), &together, 10), Victim::No, "nobody knows whose it was");
        let at = |seconds| is_victim(&judged(&named(Some(false), seconds), &together, 10));
        assert_eq!([-6, -5, 20, 21].map(at), [false, true, true, false]);
        let run = named(Some(false), 1);
        let other = |seconds| is_victim(&judged(&run, &[ended(JobEnding::Failed, seconds)], 10));
        assert_eq!([-21.0, -20.0, 20.0, 21.0].map(other), [false, true, true, false]);
        assert_eq!(
            judged(&run, &[ended(JobEnding::Completed, 0.0)], 10),
            Victim::No,
            "it was not hit itself"
        );
        assert_eq!(judged(&run, &[Fate::Running], 24), Victim::Undecided, "it may fail yet");
        assert_eq!(judged(&run, &[Fate::Running], 25), Victim::No);
    }

    proptest! {
        #[test]
        fn more_neighbours_take_no_blame_away(count in 0..4_usize, seconds in 0.0..200.0_f64) {
            let run = failed_run();
            let one = ended(JobEnding::Cancelled, seconds);
            let mut fates = vec![Fate::Unknown; count];
            fates.push(one);
            prop_assert_eq!(judged(&run, &fates, 10), judged(&run, &[one], 10));
        }
    }
}
