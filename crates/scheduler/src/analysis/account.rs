//! What sharing gained by one run: device time, energy and the kept promise. Pure; the store adds runs up.
//!
//! While two tenants are on a device for t seconds, each at speed fraction s, they do Σ s·t seconds of work alone in t seconds
//! of the device. So a tenant saves s·t − t/2, which over both sums to what the device did beyond one job at a time; with n
//! of them it is s·t − t/n, for which the agent adds up t/n from sample to sample. Runs of an agent that does not are booked
//! half of the time, so that their gain is rather too small than too great. What nobody measured counts as neither gain nor
//! loss, and is kept apart.
//!
//! A run in an instance (MIG) has its part of the device to itself from begin to end, which is what it is booked.
//!
//! A run that was ended so that its job starts again alone has done its work in vain: all of its device time is lost. That its
//! program may have kept a checkpoint nobody knows, so the loss is rather too great than too small.

use pillion_core::units::keeps_promise;
use pillion_slurm::Ending;
use pillion_store::{MeasuredRun, RunAccount, Sums};

/// The part of the shared time that is booked to a tenant where nobody counted the others.
const UNCOUNTED_PART: f64 = 0.5;

/// The account of a run. `speed_fraction`: as measured; `solo_energy_joules`: the mean of its workload's runs alone on this
/// device model.
pub fn run_account(
    run: &MeasuredRun,
    speed_fraction: Option<f64>,
    solo_energy_joules: Option<f64>,
) -> RunAccount {
    RunAccount {
        uid: run.job.uid,
        user: run.job.user.clone(),
        account: run.job.account.clone(),
        partition: run.job.partition.clone(),
        workload: run.job.workload.clone(),
        node: run.node.clone(),
        ended_at: run.summary.ended_at,
        sums: sums(run, speed_fraction, solo_energy_joules),
        use_beyond_fraction: None,
        slice: None,
    }
}

/// The part of the device's time that a run is booked for the seconds in which it shared.
pub(crate) fn shared_device_seconds(run: &MeasuredRun) -> f64 {
    let shared = shared_seconds(run);
    if let Some(member) = run.own_member().filter(|_| run.is_in_instance()) {
        return shared * f64::from(member.plan.shards.count()) / 100.0;
    }
    run.summary.shared_device_seconds.unwrap_or(shared * UNCOUNTED_PART).clamp(0.0, shared)
}

/// All of a run in an instance left the rest of the device to others.
fn shared_seconds(run: &MeasuredRun) -> f64 {
    let summary = &run.summary;
    let elapsed = summary.ended_at.seconds_since(summary.started_at).max(0.0);
    if run.is_in_instance() { elapsed } else { summary.shared_seconds.clamp(0.0, elapsed) }
}

fn sums(run: &MeasuredRun, speed_fraction: Option<f64>, solo_energy_joules: Option<f64>) -> Sums {
    let summary = &run.summary;
    let elapsed = summary.ended_at.seconds_since(summary.started_at).max(0.0);
    let is_kept = speed_fraction.zip(run.own_member());
    let is_kept = is_kept.map(|(speed, member)| keeps_promise(speed, member.plan.slowdown_ratio_max));
    let (shared, own_part) = (shared_seconds(run), shared_device_seconds(run));
    let sums = Sums {
        run_count: 1,
        gpu_seconds: elapsed - shared + own_part,
        shared_seconds: shared,
        energy_joules: summary.energy_joules.unwrap_or(0.0),
        ..Sums::default()
    };
    if run.was_sent_back() {
        return Sums {
            shared_run_count: u32::from(shared > 0.0),
            sent_back_run_count: 1,
            gpu_seconds_saved: -sums.gpu_seconds,
            promises_broken: u32::from(is_kept == Some(false)),
            promises_kept: u32::from(is_kept == Some(true)),
            ..sums
        };
    }
    if shared <= 0.0 {
        return sums;
    }
    let is_completed =
        run.job.restart_count == summary.start.restart_count && run.job.ending == Some(Ending::Completed);
    let energy = summary.energy_joules.zip(solo_energy_joules).filter(|_| is_completed);
    let sums = Sums {
        shared_run_count: 1,
        energy_joules_saved: energy.map_or(0.0, |(own, alone)| alone - own),
        ..sums
    };
    let Some(speed) = speed_fraction else {
        return Sums { unmeasured_seconds: shared, ..sums };
    };
    Sums {
        gpu_seconds_saved: speed * shared - own_part,
        promises_kept: u32::from(is_kept == Some(true)),
        promises_broken: u32::from(is_kept == Some(false)),
        ..sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, decision, member, record, start, summary};
    use pillion_core::NodeName;
    use pillion_core::decision::MemberState;
    use pillion_core::report::JobSummary;
    use pillion_store::{JobRecord, RequeueCause};

    /// A run under a promise of 1.25 that used 100 J; alone its workload uses 150.
    fn run(seconds: u32, shared: f64, speed_fraction: Option<f64>) -> RunAccount {
        run_account(&measured(seconds, shared), speed_fraction, Some(150.0))
    }

    fn measured(seconds: u32, shared: f64) -> MeasuredRun {
        MeasuredRun {
            summary: JobSummary {
                started_at: at(1000),
                ended_at: at(1000 + u64::from(seconds)),
                shared_seconds: shared,
                energy_joules: Some(100.0),
                ..summary(start())
            },
            node: NodeName::new("n1"),
            device_model: "h200".into(),
            device_memory_bytes: 100,
            job: record(start()),
            decision: Some(decision(&member(MemberState::Ended))),
            requeue: None,
        }
    }

    #[test]
    fn two_at_nine_tenths_of_their_speed_save_eight_tenths_of_a_device() {
        let mut all = run(100, 100.0, Some(0.9)).sums;
        all.add(&run(100, 100.0, Some(0.9)).sums);
        assert!(
            (all.gpu_seconds - 100.0).abs() < 1e-9 && (all.gpu_seconds_saved - 80.0).abs() < 1e-9,
            "{all:?}"
        );
        assert_eq!(
            (all.promises_kept, all.promises_broken, all.run_count, all.shared_run_count),
            (2, 0, 2, 2)
        );
        assert!((all.energy_joules_saved - 100.0).abs() < 1e-9);
    }

    #[test]
    fn three_tenants_are_booked_a_third_each() {
        let counted = |shared_device_seconds| {
            let mut run = measured(90, 90.0);
            run.summary.shared_device_seconds = shared_device_seconds;
            run_account(&run, Some(0.5), None).sums
        };
        let third = counted(Some(30.0));
        assert!((third.gpu_seconds - 30.0).abs() < 1e-9 && (third.gpu_seconds_saved - 15.0).abs() < 1e-9);
        let uncounted = counted(None);
        assert!((uncounted.gpu_seconds - 45.0).abs() < 1e-9 && uncounted.gpu_seconds_saved.abs() < 1e-9);
        let odd = counted(Some(1e9));
        assert!((odd.gpu_seconds - 90.0).abs() < 1e-9, "no more than it had");
    }

    #[test]
    fn a_run_alone_gains_nothing_and_one_that_nobody_measured_is_told_apart() {
        let alone = run(100, 0.0, None);
        assert_eq!((alone.user.as_str(), alone.ended_at), ("alice", at(1100)));
        let alone = alone.sums;
        assert_eq!(
            (alone.gpu_seconds, alone.gpu_seconds_saved, alone.energy_joules, alone.energy_joules_saved),
            (100.0, 0.0, 100.0, 0.0)
        );
        let unknown = run(100, 40.0, None).sums;
        assert_eq!((unknown.unmeasured_seconds, unknown.gpu_seconds_saved), (40.0, 0.0));
        assert_eq!((unknown.promises_broken, unknown.promises_kept), (0, 0));
        let slow = run(100, 50.0, Some(0.4)).sums;
        assert_eq!((slow.unmeasured_seconds, slow.promises_broken, slow.promises_kept), (0.0, 1, 0));
        assert!((slow.gpu_seconds_saved - (0.4 * 50.0 - 25.0)).abs() < 1e-9, "a loss is told too");
    }

    #[test]
    fn a_run_that_was_sent_back_has_lost_all_that_it_used() {
        let of = |requeue, restart_count| {
            let mut run = measured(100, 40.0);
            run.requeue = requeue;
            run.job.restart_count = restart_count;
            run_account(&run, Some(0.9), Some(150.0)).sums
        };
        let kept = of(None, 1);
        assert_eq!(
            (kept.sent_back_run_count, kept.gpu_seconds_saved.round()),
            (0, 16.0),
            "its user's own requeue"
        );
        for cause in [RequeueCause::SentBack, RequeueCause::Evicted] {
            let lost = of(Some(cause), 1);
            assert_eq!((lost.sent_back_run_count, lost.shared_run_count, lost.run_count), (1, 1, 1));
            // A minute alone, and half of the 40 s together.
            assert_eq!(
                (lost.gpu_seconds, lost.gpu_seconds_saved, lost.energy_joules_saved),
                (80.0, -80.0, 0.0)
            );
            assert_eq!((lost.promises_kept, lost.promises_broken), (1, 0));
            assert_eq!(of(Some(cause), 0), kept_until_its_end(&kept), "Slurm refused, or it ended before");
        }
        assert_eq!(of(Some(RequeueCause::Victim), 1).sent_back_run_count, 0, "it died; nobody sent it back");
    }

    /// What the account of a run is whose job completed in it.
    fn kept_until_its_end(restarted: &Sums) -> Sums {
        Sums { energy_joules_saved: 50.0, ..restarted.clone() }
    }

    #[test]
    fn energy_is_saved_by_work_that_was_finished_and_a_promise_is_a_decisions() {
        let mut failed = measured(100, 50.0);
        failed.job.ending = Some(Ending::Failed);
        let mut restarted = measured(100, 50.0);
        restarted.job = JobRecord { restart_count: 1, ..restarted.job };
        let saved =
            |run: &MeasuredRun, alone| run_account(run, Some(0.9), alone).sums.energy_joules_saved.abs();
        assert!(saved(&measured(100, 50.0), Some(150.0)) > 49.0);
        for (run, alone) in [(&failed, Some(150.0)), (&restarted, Some(150.0)), (&measured(100, 50.0), None)]
        {
            assert!(saved(run, alone) < 1e-9);
        }
        let undecided = MeasuredRun { decision: None, ..measured(100, 50.0) };
        let sums = run_account(&undecided, Some(0.1), Some(150.0)).sums;
        assert_eq!((sums.promises_kept, sums.promises_broken), (0, 0));
    }
}
