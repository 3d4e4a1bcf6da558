//! When who is over, as far as is known: what the order of service goes by (docs/principles.md#order-of-service). Time limits tell
//! when Slurm ends a job, and users set them many times too long; so a workload that was seen to its end is known by its runs.

use crate::policy::{EndsBy, Policy};
use crate::view::{Tenant, WaitingJob};
use pillion_core::UnixTime;
use pillion_core::profile::WorkloadProfile;
use std::time::Duration;

/// By how many standard deviations a run may be longer than usual before it counts as longer.
const DEVIATIONS: f64 = 2.0;
/// The least that runs are taken to differ by, of their mean: two or three tell little of it.
const VARIATION_MIN: f64 = 0.1;

/// When a job is over at the latest that starts now beside others: as its workload is known to take, as slow as its promise lets
/// it, and longer than usual, else by its time limit; `None` = nobody knows.
pub(crate) fn end_of_joiner(
    job: &WaitingJob,
    profile: Option<&WorkloadProfile>,
    now: UnixTime,
    policy: &Policy,
) -> Option<UnixTime> {
    if job.as_guest {
        // It goes as soon as somebody needs the device.
        return Some(now);
    }
    let most = usual_seconds(job.duration_seconds_expected, profile, policy)
        .map(|usual| usual.most() * job.slowdown_ratio_max.value());
    earlier(limit_of(job, now), most.map(|seconds| after(now, seconds)))
}

/// When a job is over that starts now with nobody beside it, by the same; `None` = nobody knows.
pub(crate) fn end_of_host(
    job: &WaitingJob,
    profile: Option<&WorkloadProfile>,
    now: UnixTime,
    policy: &Policy,
) -> Option<UnixTime> {
    let usual = usual_seconds(job.duration_seconds_expected, profile, policy);
    earlier(limit_of(job, now), usual.map(|usual| after(now, usual.mean)))
}

/// When somebody who runs is over, by the same. Whoever runs for longer than he was expected to is known by his limit alone.
pub(crate) fn end_of_tenant(
    tenant: &Tenant,
    profile: Option<&WorkloadProfile>,
    now: UnixTime,
    policy: &Policy,
) -> Option<UnixTime> {
    let is_known = usual_seconds(None, profile, policy).is_some();
    earlier(tenant.time_limit_at, tenant.expected_end_at.filter(|end| is_known && *end > now))
}

/// How long a workload takes alone.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Usual {
    mean: f64,
    deviation_fraction: f64,
}

impl Usual {
    /// What it seldom takes longer than.
    fn most(self) -> f64 {
        self.mean * DEVIATIONS.mul_add(self.deviation_fraction, 1.0)
    }
}

/// Known from two runs on, which tell by how much they differ; `expected`: what is known of this run besides.
fn usual_seconds(expected: Option<f64>, profile: Option<&WorkloadProfile>, policy: &Policy) -> Option<Usual> {
    let profile = profile.filter(|_| policy.ends_by == EndsBy::Runs)?;
    let variation = profile.duration_variation_fraction?;
    let mean = expected.or(profile.duration_seconds)?;
    Some(Usual { mean, deviation_fraction: variation.max(VARIATION_MIN) })
}

fn limit_of(job: &WaitingJob, now: UnixTime) -> Option<UnixTime> {
    job.time_limit_seconds.map(|seconds| now + Duration::from_secs(seconds))
}

fn after(now: UnixTime, seconds: f64) -> UnixTime {
    UnixTime::from_seconds(now.seconds() + seconds)
}

fn earlier(a: Option<UnixTime>, b: Option<UnixTime>) -> Option<UnixTime> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if b < a { b } else { a }),
        (one, other) => one.or(other),
    }
}

/// Whether what ends at `joiner` may hold a device longer than what ends at `host` (`None` = nobody knows).
pub(crate) fn outlives(joiner: Option<UnixTime>, host: Option<UnixTime>) -> bool {
    match (joiner, host) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(joiner), Some(host)) => joiner > host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{NOW, job, profile, tenant};
    use pillion_core::SlowdownRatio;

    fn taken_at() -> UnixTime {
        UnixTime::from_epoch(NOW)
    }

    /// A workload that takes 600 s and differs by that much from run to run.
    fn runs(variation: Option<f64>) -> WorkloadProfile {
        WorkloadProfile { duration_variation_fraction: variation, ..profile("light", 0.2, 0.2, 8) }
    }

    /// A job that may take an hour, with a promise of 1.5.
    fn waiting() -> WaitingJob {
        WaitingJob { slowdown_ratio_max: SlowdownRatio::try_promise(1.5).unwrap(), ..job(1, "light") }
    }

    fn seconds(end: Option<UnixTime>) -> Option<f64> {
        end.map(|end| end.seconds_since(taken_at()).round())
    }

    fn of_joiner(job: &WaitingJob, variation: Option<f64>, ends_by: EndsBy) -> Option<f64> {
        let policy = Policy { ends_by, ..Policy::default() };
        seconds(end_of_joiner(job, Some(&runs(variation)), taken_at(), &policy))
    }

    #[test]
    fn a_joiner_ends_when_a_long_run_that_is_slowed_as_promised_would() {
        assert_eq!(of_joiner(&waiting(), Some(0.2), EndsBy::Runs), Some(600.0 * 1.4 * 1.5));
        assert_eq!(
            of_joiner(&waiting(), Some(0.0), EndsBy::Runs),
            Some(600.0 * 1.2 * 1.5),
            "two runs tell little"
        );
        // Nobody outlives his limit, and one run says nothing of how runs differ.
        let short = WaitingJob { time_limit_seconds: Some(300), ..waiting() };
        assert_eq!(of_joiner(&short, Some(0.2), EndsBy::Runs), Some(300.0));
        assert_eq!(of_joiner(&waiting(), None, EndsBy::Runs), Some(3600.0));
        assert_eq!(of_joiner(&waiting(), Some(0.2), EndsBy::Limits), Some(3600.0));
        let endless = WaitingJob { time_limit_seconds: None, ..waiting() };
        assert_eq!(of_joiner(&endless, None, EndsBy::Runs), None);
        assert_eq!(of_joiner(&endless, Some(0.2), EndsBy::Runs), Some(1260.0));
    }

    #[test]
    fn a_host_ends_as_usual_and_one_that_is_late_by_its_limit() {
        let policy = Policy::default();
        let (known, once) = (runs(Some(0.2)), runs(None));
        assert_eq!(seconds(end_of_host(&waiting(), Some(&known), taken_at(), &policy)), Some(600.0));
        assert_eq!(seconds(end_of_host(&waiting(), None, taken_at(), &policy)), Some(3600.0));
        let running = |left_seconds: f64| Tenant {
            expected_end_at: Some(after(taken_at(), left_seconds)),
            ..tenant(50, "light", 1800)
        };
        let of = |tenant: &Tenant, profile| seconds(end_of_tenant(tenant, profile, taken_at(), &policy));
        assert_eq!(of(&running(400.0), Some(&known)), Some(400.0));
        assert_eq!(of(&running(-1.0), Some(&known)), Some(1800.0), "it takes longer than it ever did");
        assert_eq!(of(&running(400.0), Some(&once)), Some(1800.0));
        assert_eq!(of(&running(400.0), None), Some(1800.0));
        assert_eq!(of(&Tenant { time_limit_at: None, ..running(-1.0) }, Some(&known)), None);
    }

    #[test]
    fn who_never_ends_outlives_everybody_who_does() {
        let [soon, late] = [10.0, 20.0].map(|seconds| Some(after(taken_at(), seconds)));
        let cases = [
            (soon, late, false),
            (late, soon, true),
            (soon, soon, false),
            (None, late, true),
            (None, None, false),
        ];
        for (joiner, host, does) in cases {
            assert_eq!(outlives(joiner, host), does, "{joiner:?} beside {host:?}");
        }
    }
}
