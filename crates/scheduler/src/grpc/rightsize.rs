//! Workloads that would have done with less. Pure: what the caller may not see was left out of what is given here.

use super::listing;
use crate::agents::AgentState;
use crate::analysis::{Rightsizing, Site, SiteModel, UsedDevices, rightsize};
use pillion_api as api;
use pillion_core::profile::WorkloadProfile;
use pillion_core::workload::on_several;
use pillion_core::{NodeName, WorkloadKey};
use pillion_store::UsedOfStarts;
use std::collections::{BTreeMap, BTreeSet};

/// How many runs are needed where nobody says otherwise.
const RUN_COUNT_MIN_USUAL: u32 = 2;
/// How far back starts are looked at for GPUs that were never used.
pub(super) const USED_DAYS: u64 = 30;

/// The models that agents have announced, of whatever partitions.
pub(super) fn models(agents: &BTreeMap<NodeName, AgentState>) -> Vec<SiteModel> {
    let devices = agents.values().flat_map(|agent| &agent.devices);
    let models: BTreeSet<SiteModel> = devices
        .map(|device| SiteModel { memory_bytes: device.memory_bytes, name: device.model.clone() })
        .collect();
    models.into_iter().collect()
}

/// Whom the answer is asked for.
pub(super) fn answer(
    profiles: &[&WorkloadProfile],
    models: &[SiteModel],
    used: &[UsedOfStarts],
    request: &api::RightsizeRequest,
) -> api::RightsizeResponse {
    let used = used.iter().map(|it| {
        let seen = UsedDevices { start_count: it.start_count, used_count: it.used_count };
        ((it.workload.clone(), it.held_count), seen)
    });
    let used: BTreeMap<(WorkloadKey, u32), UsedDevices> = used.collect();
    let run_count_min = if request.run_count_min == 0 { RUN_COUNT_MIN_USUAL } else { request.run_count_min };
    let site = Site { profiles, models, used: &used, run_count_min };
    let asked = profiles
        .iter()
        .filter(|profile| request.workload.is_empty() || profile.workload.as_str() == request.workload)
        .filter(|profile| request.user.is_empty() || user_of(profile) == request.user);
    let (mut rows, mut workload_count) = (Vec::new(), 0);
    for profile in asked {
        if let Some(sized) = rightsize(profile, &site) {
            workload_count += 1;
            rows.extend(Some(&sized).filter(|sized| sized.is_less()).map(|sized| row(profile, sized)));
        }
    }
    rows.sort_by(|a: &api::Rightsizing, b: &api::Rightsizing| {
        b.gpu_hours.unwrap_or(0.0).total_cmp(&a.gpu_hours.unwrap_or(0.0))
    });
    api::RightsizeResponse { run_count_min, workload_count, rows }
}

/// What to ask for one job that is only observed: its workload on so many devices as it holds.
pub(super) fn request_for(status: &api::JobStatus) -> api::RightsizeRequest {
    let workload = status.job.as_ref().and_then(|job| job.workload.clone()).unwrap_or_default();
    let key = on_several(&WorkloadKey::new(workload), status.held_devices.len());
    // One that nobody has a profile of, where it is not known: an empty one would ask for all.
    let workload = if key.as_str().is_empty() { "/".to_owned() } else { key.to_string() };
    api::RightsizeRequest { workload, ..api::RightsizeRequest::default() }
}

/// The key of a workload begins with whose it is.
fn user_of(profile: &WorkloadProfile) -> &str {
    profile.workload.as_str().split_once('/').map_or("", |(user, _)| user)
}

fn row(profile: &WorkloadProfile, sized: &Rightsizing) -> api::Rightsizing {
    api::Rightsizing {
        workload: listing::some_text(profile.workload.to_string()),
        workload_name: None,
        user: user_of(profile).to_owned(),
        device_model: profile.device_model.clone(),
        device_count: sized.device_count,
        run_count: profile.run_count,
        gpu_hours: sized.gpu_hours,
        used_fraction: sized.used_fraction,
        memory_bytes_needed: sized.memory_bytes_need,
        memory_bytes: sized.memory_bytes,
        device_count_enough: sized.fewer.map(|(count, _)| count),
        device_model_enough: sized.smaller.as_ref().map(|smaller| smaller.name.clone()),
        memory_bytes_enough: sized.memory_bytes_need.filter(|_| sized.has_memory_to_spare),
        sentences: sized.sentences(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::device;
    use pillion_core::metric::{Metric, Metrics};

    fn profile(workload: &str, hours: f64) -> WorkloadProfile {
        WorkloadProfile {
            run_count: 2,
            duration_seconds: Some(hours * 3600.0),
            metrics: Metrics::from([(Metric::SmActiveFraction, 0.1)]),
            memory_bytes_peak: Some(1 << 30),
            ..WorkloadProfile::empty(WorkloadKey::new(workload), device(0).model)
        }
    }

    #[test]
    fn what_cost_most_stands_first_and_what_ran_too_seldom_nowhere() {
        let (small, great, once) = (
            profile("alice/4x-w", 1.0),
            profile("bob/v", 9.0),
            WorkloadProfile { run_count: 1, ..profile("bob/u", 99.0) },
        );
        let profiles = [&small, &great, &once];
        let node = device(0);
        let models = [SiteModel { memory_bytes: node.memory_bytes, name: node.model }];
        let used = [UsedOfStarts {
            workload: WorkloadKey::new("alice/w"),
            held_count: 4,
            start_count: 2,
            used_count: 1,
        }];
        let asked = |request: &api::RightsizeRequest| {
            let response = answer(&profiles, &models, &used, request);
            let rows =
                response.rows.iter().map(|row| (row.workload.clone().unwrap(), row.device_count_enough));
            (response.workload_count, rows.collect::<Vec<_>>())
        };
        let (alices, bobs) = (("alice/4x-w".to_owned(), Some(1)), ("bob/v".to_owned(), None));
        let usual = api::RightsizeRequest::default();
        assert_eq!(asked(&usual), (2, vec![bobs.clone(), alices.clone()]));
        let of_alice = api::RightsizeRequest { user: "alice".to_owned(), ..usual.clone() };
        assert_eq!(asked(&of_alice), (1, vec![alices]));
        assert_eq!(asked(&api::RightsizeRequest { user: "ali".to_owned(), ..usual.clone() }), (0, vec![]));
        let of_one = api::RightsizeRequest { workload: "bob/v".to_owned(), ..usual.clone() };
        assert_eq!(asked(&of_one), (1, vec![bobs]));
        let once = asked(&api::RightsizeRequest { run_count_min: 1, ..usual });
        assert_eq!((once.0, once.1[0].0.as_str()), (3, "bob/u"));
    }
}
