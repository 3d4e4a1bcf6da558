//! A queue played out on one device by one rule. Knows what is true: how fast a job is in an instance.

use super::QueuedJob;
use super::device::Device;
use super::rules::Rule;
use pillion_core::mig::{Geometry, Slot};

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Played {
    /// Until the last one ended.
    pub(super) makespan_seconds: f64,
    /// Mean time from submission to end.
    pub(super) turnaround_seconds: f64,
    /// The slowdown of all but one job in twenty.
    pub(super) slowdown_ratio_p95: f64,
    pub(super) slowdown_ratio_most: f64,
}

/// Plays the queue to its end.
pub(super) fn play(geometry: &Geometry, jobs: &[QueuedJob], rule: &Rule) -> Played {
    let mut device = Device::default();
    let mut waiting: Vec<usize> = (0..jobs.len()).collect();
    let (mut now, mut ends, mut slowdowns) = (0.0_f64, Vec::new(), Vec::new());
    loop {
        loop {
            let queue: Vec<&QueuedJob> = waiting.iter().map(|job| &jobs[*job]).collect();
            let starts = rule.choose(geometry, &device, &queue);
            if starts.is_empty() {
                break;
            }
            let slots: Vec<Slot> = starts.iter().map(|(_, slot)| *slot).collect();
            debug_assert!(geometry.check(&[device.tenants(), slots.clone()].concat()).is_ok());
            let begun = now + device.cut(geometry, &slots);
            for (at, slot) in &starts {
                let job = &jobs[waiting[*at]];
                let speed = job.speeds[&slot.profile];
                device.running.push((begun + job.duration_seconds / speed, *slot));
                slowdowns.push(speed.recip());
            }
            let mut at = 0;
            waiting.retain(|_| {
                at += 1;
                !starts.iter().any(|(started, _)| *started == at - 1)
            });
        }
        let next = device.running.iter().enumerate().min_by(|a, b| a.1.0.total_cmp(&b.1.0));
        let Some((first, _)) = next else { break };
        let (end, slot) = device.running.swap_remove(first);
        device.standing.push(slot);
        now = end;
        ends.push(end);
    }
    assert!(waiting.is_empty(), "every rule gives everybody a device in the end");
    played(&ends, slowdowns)
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a queue of jobs"
)]
fn played(ends: &[f64], mut slowdowns: Vec<f64>) -> Played {
    slowdowns.sort_by(f64::total_cmp);
    let rank = (0.95 * slowdowns.len() as f64).ceil() as usize;
    Played {
        makespan_seconds: ends.iter().copied().fold(0.0, f64::max),
        turnaround_seconds: ends.iter().sum::<f64>() / ends.len().max(1) as f64,
        slowdown_ratio_p95: slowdowns.get(rank.saturating_sub(1)).copied().unwrap_or(1.0),
        slowdown_ratio_most: slowdowns.last().copied().unwrap_or(1.0),
    }
}
