//! Whether a job leaves room for anybody, by what its user asks for and by what it needs: beside a neighbour of the least share
//! that a tenant is given. Pure; who asks is the budget for devices that nobody may join, which does not choose either.

use super::admit::{keeps_promise, memory_need, usable_bytes};
use super::copies::SHARDS_MIN;
use crate::model::{Contention, InterferenceModel as _, TenantInput};
use crate::policy::{JobRules, Policy, UserPolicy};
use pillion_core::device::Mechanism;
use pillion_core::isolation::Isolation;
use pillion_core::metric::{Metric, Metrics};
use pillion_core::profile::WorkloadProfile;
use pillion_core::share::Sharing;
use pillion_core::{SlowdownRatio, WorkloadKey};

/// What a job asks of whoever comes beside it.
#[derive(Debug, Clone, Copy)]
pub struct Demands<'a> {
    /// How its workload runs alone on this model of device; `None` where that is not known.
    pub profile: Option<&'a WorkloadProfile>,
    /// The device memory that its user says it needs.
    pub memory_bytes_declared: Option<u64>,
    /// The slowdown that it accepts.
    pub slowdown_ratio_max: SlowdownRatio,
    /// What is to stand between it and jobs of other users.
    pub isolation: Isolation,
    /// What the site says of it besides, for which it does not ask.
    pub rules: JobRules,
    /// What it would be promised if its user had named nothing.
    pub slowdown_ratio_usual: SlowdownRatio,
}

/// Whether somebody of the least share could come beside this job, on a device of so much memory.
///
/// A promise that is no tighter than the site's own is no wish for a whole device, however heavy the job. A tighter one is held
/// against what would be predicted beside the least neighbour, at the bound by which jobs are admitted; where nothing can be
/// predicted nobody is admitted either. Who wants a wall where others could come keeps them all away.
pub fn leaves_room(demands: &Demands<'_>, device_memory_bytes: u64, policy: &Policy) -> bool {
    let Demands { profile, memory_bytes_declared, slowdown_ratio_max: promise, isolation, rules, .. } =
        *demands;
    let need = match profile {
        Some(profile) => memory_need(memory_bytes_declared, profile),
        None => memory_bytes_declared,
    };
    let usable = usable_bytes(device_memory_bytes, policy);
    let least = usable / 100 * u64::from(SHARDS_MIN);
    let has_memory = need.is_none_or(|need| need.saturating_add(least) <= usable);
    let is_usual = promise.value() >= demands.slowdown_ratio_usual.value();
    let lets_others_in = isolation <= rules.isolation || rules.users == UserPolicy::SameUser;
    has_memory
        && lets_others_in
        && (is_usual || profile.is_some_and(|profile| is_kept_beside_the_least(profile, promise)))
}

fn is_kept_beside_the_least(profile: &WorkloadProfile, promise: SlowdownRatio) -> bool {
    let part = f64::from(SHARDS_MIN) / 100.0;
    let least = WorkloadProfile {
        metrics: Metrics::from([
            (Metric::SmActiveFraction, part),
            (Metric::GpuBusyFraction, part),
            (Metric::MemoryBandwidthFraction, part),
        ]),
        // Nothing about it is in doubt.
        run_count: u32::MAX,
        ..WorkloadProfile::empty(WorkloadKey::new("the least"), profile.device_model.as_str())
    };
    let sharing = Sharing::by(Mechanism::Mps, None, None);
    let tenants = [profile, &least].map(|profile| TenantInput { profile, sharing });
    let predicted = Contention.predict(&tenants, &profile.device_model);
    predicted.is_ok_and(|estimates| keeps_promise(&estimates[0], promise))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn light() -> WorkloadProfile {
        WorkloadProfile {
            metrics: Metrics::from([(Metric::SmActiveFraction, 0.3), (Metric::MemoryBandwidthFraction, 0.2)]),
            run_count: 100,
            memory_bytes_peak: Some(10 * GIB),
            ..WorkloadProfile::empty(WorkloadKey::new("alice/light"), "h100")
        }
    }

    fn has_room(profile: Option<&WorkloadProfile>, declared_gib: Option<u64>, promise: f64) -> bool {
        let demands = Demands {
            profile,
            memory_bytes_declared: declared_gib.map(|gib| gib * GIB),
            slowdown_ratio_max: SlowdownRatio::try_promise(promise).unwrap(),
            isolation: Isolation::Shared,
            rules: Policy::default().of_jobs(),
            slowdown_ratio_usual: Policy::default().slowdown_ratio_max,
        };
        leaves_room(&demands, 100 * GIB, &Policy::default())
    }

    #[test]
    fn who_wants_a_wall_where_others_could_come_keeps_them_away() {
        let of_site = |users, isolation| {
            let policy = Policy { users, isolation, ..Policy::default() };
            let demands = Demands {
                profile: Some(&light()),
                memory_bytes_declared: None,
                slowdown_ratio_max: SlowdownRatio::try_promise(1.25).unwrap(),
                isolation: Isolation::Hard,
                rules: policy.of_jobs(),
                slowdown_ratio_usual: policy.slowdown_ratio_max,
            };
            leaves_room(&demands, 100 * GIB, &policy)
        };
        assert!(!of_site(UserPolicy::Any, Isolation::Shared));
        assert!(!of_site(UserPolicy::SameAccount, Isolation::Shared));
        assert!(of_site(UserPolicy::SameUser, Isolation::Shared), "nobody else could come");
        assert!(of_site(UserPolicy::Any, Isolation::Hard), "it is what all have");
    }

    /// As it was tried: `max-slowdown=1.001`, which is not 1 and which nobody keeps either.
    #[test]
    fn a_promise_that_the_noise_of_measurements_breaks_leaves_room_for_nobody() {
        let light = light();
        let by_promise = [1.0, 1.001, 1.03, 1.1, 1.25].map(|promise| has_room(Some(&light), None, promise));
        assert_eq!(by_promise, [false, false, false, true, true]);
    }

    #[test]
    fn a_heavy_job_that_takes_the_sites_own_promise_wishes_for_nothing() {
        let metrics =
            Metrics::from([(Metric::SmActiveFraction, 1.0), (Metric::MemoryBandwidthFraction, 0.95)]);
        let heavy = WorkloadProfile { metrics, ..light() };
        assert!(has_room(Some(&heavy), None, 1.25) && !has_room(Some(&heavy), None, 1.2));
    }

    /// 95 GiB of 100 may be given out; the least share of it is 9.5.
    #[test]
    fn memory_of_nearly_the_whole_device_leaves_room_for_nobody() {
        let light = light();
        let by_memory = [None, Some(85), Some(86), Some(100)].map(|gib| has_room(Some(&light), gib, 1.25));
        assert_eq!(by_memory, [true, true, false, false]);
        let full = WorkloadProfile { memory_bytes_peak: Some(86 * GIB), ..light };
        assert!(!has_room(Some(&full), Some(1), 1.25), "what was seen counts, whatever is declared");
    }

    #[test]
    fn of_what_nothing_is_known_a_tight_promise_is_kept_by_nobody() {
        let blind = WorkloadProfile { metrics: Metrics::default(), ..light() };
        assert!(!has_room(Some(&blind), None, 1.2) && !has_room(None, None, 1.2));
        assert!(has_room(Some(&blind), None, 1.25) && has_room(None, Some(10), 1.25));
    }
}
