//! Whether a sample of a shared device shows more than its tenants' profiles together: pure.
//!
//! Memory is read of each tenant. Compute units are read of the device alone: beside each other tenants use them no more than
//! the sum of what each uses alone, so what is beyond that sum is somebody's who is not as his profile says. Whose it is, is
//! taken from who is known least: the workload with the fewest runs, and of two the one that came last.

use crate::agents::DeviceSeen;
use pillion_core::metric::Metric;
use pillion_core::profile::WorkloadProfile;
use pillion_core::{JobStart, UnixTime, UserId};
use pillion_store::Member;

/// How far the compute units in use may be beyond the sum of the profiles: profiles are means, and samples are not.
pub(super) const ACTIVITY_MARGIN: f64 = 0.3;
/// How far a tenant's memory may be beyond what it was admitted with, as a ratio and in bytes.
const MEMORY_RATIO: f64 = 1.25;
const MEMORY_MARGIN_BYTES: f64 = 268_435_456.0;
const GIB: f64 = 1_073_741_824.0;

/// A tenant, and what is known of its workload alone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen<'a> {
    pub(super) member: &'a Member,
    pub(super) profile: Option<&'a WorkloadProfile>,
}

impl Seen<'_> {
    fn run_count(&self) -> u32 {
        self.profile.map_or(0, |profile| profile.run_count)
    }

    fn started_seconds(&self) -> f64 {
        self.member.started_at.map_or(0.0, UnixTime::seconds)
    }
}

/// What there is more of than there should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    Memory,
    Activity,
}

/// What one sample shows.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Look {
    /// What is beyond the profiles; `None`: nothing, or nobody can say.
    pub(super) excess: Option<Excess>,
    /// How far the compute units in use are beyond the sum of the profiles, or below it; `None`: nobody can say.
    pub(super) surplus: Option<f64>,
    /// Whose it is taken to be: who is known least.
    pub(super) newest: Option<JobStart>,
}

/// More than there should be.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Excess {
    /// Whose it is.
    pub(super) start: JobStart,
    pub(super) uid: UserId,
    pub(super) of: Of,
    /// What, one sentence without the other tenants.
    pub(super) detail: String,
}

/// Holds a sample against the profiles of all who were there.
pub(super) fn look(tenants: &[Seen<'_>], sample: &DeviceSeen) -> Look {
    let (surplus, newest) = (surplus(tenants, sample), newest(tenants));
    let excess = memory(tenants, sample).or_else(|| activity(newest?, surplus?));
    Look { excess, surplus, newest: newest.map(|tenant| tenant.member.plan.start) }
}

/// Who is known least, and of two the one that came last.
fn newest<'a>(tenants: &[Seen<'a>]) -> Option<Seen<'a>> {
    let newest = tenants.iter().min_by(|a, b| {
        let started_last = b.started_seconds().total_cmp(&a.started_seconds());
        a.run_count().cmp(&b.run_count()).then(started_last)
    });
    newest.copied()
}

#[expect(clippy::cast_precision_loss, reason = "memory is far below 2^53 bytes")]
fn memory(tenants: &[Seen<'_>], sample: &DeviceSeen) -> Option<Excess> {
    tenants.iter().find_map(|tenant| {
        let plan = &tenant.member.plan;
        let admitted = plan.memory_bytes? as f64;
        let JobStart { job_id, restart_count } = plan.start;
        let used = sample
            .tenants
            .iter()
            .find(|used| used.job_id == job_id && used.restart_count == restart_count)?
            .memory_bytes? as f64;
        (used > admitted * MEMORY_RATIO + MEMORY_MARGIN_BYTES).then(|| Excess {
            start: plan.start,
            uid: plan.uid,
            of: Of::Memory,
            detail: format!(
                "it holds {:.1} GiB of device memory and was let in with {:.1}",
                used / GIB,
                admitted / GIB
            ),
        })
    })
}

fn surplus(tenants: &[Seen<'_>], sample: &DeviceSeen) -> Option<f64> {
    let used = sample.reading.metrics.get(Metric::SmActiveFraction)?;
    let known: Option<Vec<f64>> =
        tenants.iter().map(|tenant| tenant.profile?.metrics.get(Metric::SmActiveFraction)).collect();
    Some(used - known?.iter().sum::<f64>().min(1.0))
}

fn activity(newest: Seen<'_>, surplus: f64) -> Option<Excess> {
    if surplus <= ACTIVITY_MARGIN {
        return None;
    }
    let plan = &newest.member.plan;
    Some(Excess {
        start: plan.start,
        uid: plan.uid,
        of: Of::Activity,
        // A user learns nothing of his neighbours: not even the sum.
        detail: "the device does far more than the profiles of all who are on it say, and its workload is the one that is \
                 known least"
            .to_owned(),
    })
}
