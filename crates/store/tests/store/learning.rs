//! The cases about what is learnt from, and the models made of it.

use crate::conformance::revision;
use crate::fixtures::{at, fraction, gres, node, plain, samples_report, start, tenant, told};
use pillion_core::device::Mechanism;
use pillion_core::metric::Metric;
use pillion_core::share::Sharing;
use pillion_core::{GresType, JobStart, NodeName, WorkloadKey};
use pillion_pairing::{Observation, ObservedTenant};
use pillion_store::{
    MODEL_BODIES_KEPT, ModelScore, ModelState, NewModel, NewObservation, OBSERVATIONS_OF_COMBINATION_MAX,
    Score, SharingTenant, Store,
};
use serde_json::json;
use std::sync::Arc;

pub(crate) async fn tenants_tell_of_one_sharing_one_after_the_other(store: Arc<dyn Store>) {
    let first = NewObservation { speed_fraction_deviation: Some(0.02), ..told(1, 1, 0.75) };
    assert!(store.record_observation(&first, at(1)).await.expect("recorded"));
    assert!(!store.record_observation(&first, at(2)).await.expect("known"), "the same again");
    let other = NewObservation {
        power_watts: Some(350.5),
        speed_fraction_deviation: Some(0.0625),
        is_self_reported: true,
        ..told(1, 2, 1.0625)
    };
    assert!(store.record_observation(&other, at(3)).await.expect("recorded"));
    let all = store.observations(0, 0).await.expect("read");
    let tenants = [(1, None, 0.75, false), (2, Some(fraction(0.4)), 1.0625, true)];
    let expected = Observation {
        device_model: "h100".to_owned(),
        tenants: tenants
            .map(|(id, cap, speed, is_self_reported)| ObservedTenant {
                workload: WorkloadKey::new(format!("alice/{id}")),
                sharing: Sharing::by(Mechanism::Mps, cap, None),
                speed_fraction: Some(speed),
                is_self_reported,
            })
            .into(),
        power_watts: Some(350.5),
        fits: true,
        run_count: 1.0,
        speed_fraction_deviation: Some(0.0625),
    };
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!((&all[0].observation, all[0].recorded_at), (&expected, at(3)));
    assert_eq!(all[0].starts, [start(1), start(2)]);
    let unfit = NewObservation { fits: false, ..other.clone() };
    assert!(store.record_observation(&unfit, at(4)).await.expect("recorded"));
    assert!(!store.record_observation(&unfit, at(5)).await.expect("known"));
    assert!(
        !store.record_observation(&other, at(5)).await.expect("known"),
        "what once did not fit never did"
    );
    let all = store.observations(0, 0).await.expect("read");
    assert!(!all[0].observation.fits && all[0].observation.power_watts == Some(350.5), "{all:?}");
    assert_eq!(revision(&*store).await, 0, "no plan depends on what is not learnt yet");
}

pub(crate) async fn what_a_sharing_does_not_tell_stays_unknown(store: Arc<dyn Store>) {
    let three = NewObservation {
        tenants: [5, 6, 7].map(|id| SharingTenant { sharing: Sharing::Ccs { mode: 4 }, ..tenant(id) }).into(),
        speed_fraction: None,
        fits: false,
        ..told(5, 6, 1.0)
    };
    assert!(store.record_observation(&three, at(1)).await.expect("recorded"));
    let all = store.observations(0, 0).await.expect("read");
    let observation = &all[0].observation;
    assert_eq!((observation.sharing(), observation.fits), (Sharing::Ccs { mode: 4 }, false));
    assert_eq!((observation.power_watts, observation.speed_fraction_deviation), (None, None));
    let speeds: Vec<_> = observation.tenants.iter().map(|tenant| tenant.speed_fraction).collect();
    assert_eq!(speeds, [None; 3]);
    let stranger = NewObservation { own: start(99), ..three };
    store.record_observation(&stranger, at(2)).await.expect_err("he was not there");
    assert_eq!(store.observations(0, 0).await.expect("read"), all);
    let sixteen = NewObservation { tenants: (5..21).map(tenant).collect(), ..told(5, 6, 1.0) };
    assert!(store.record_observation(&sixteen, at(3)).await.expect("recorded"));
    let all = store.observations(0, 0).await.expect("read");
    assert_eq!(all.iter().map(|one| one.observation.tenants.len()).collect::<Vec<_>>(), [3, 16]);
}

pub(crate) async fn observations_come_in_the_order_of_changes(store: Arc<dyn Store>) {
    for first in [10, 20, 30] {
        assert!(store.record_observation(&told(first, first, 0.8), at(first)).await.expect("recorded"));
    }
    let firsts = async |after, limit| -> Vec<u32> {
        let found = store.observations(after, limit).await.expect("read");
        assert!(found.windows(2).all(|two| two[0].number < two[1].number), "{found:?}");
        found.iter().map(|one| one.starts[0].job_id.id).collect()
    };
    assert_eq!(firsts(0, 0).await, [10, 20, 30]);
    assert_eq!(firsts(0, 2).await, [20, 30], "the newest, and still the oldest of them first");
    let horizon = store.observations(0, 0).await.expect("read")[1].number;
    assert_eq!(firsts(horizon, 0).await, [30]);
    assert!(store.record_observation(&told(10, 11, 0.9), at(40)).await.expect("recorded"));
    assert_eq!(firsts(horizon, 0).await, [30, 10], "a change moves it to the end");
}

pub(crate) async fn a_pair_that_runs_again_and_again_leaves_others_theirs(store: Arc<dyn Store>) {
    let most = OBSERVATIONS_OF_COMBINATION_MAX;
    let pair = |id: u32, workloads: [&str; 2]| {
        let tenants = [(id, workloads[0]), (id + 1, workloads[1])]
            .map(|(id, workload)| SharingTenant { workload: WorkloadKey::new(workload), ..tenant(id) });
        NewObservation { tenants: tenants.into(), own: start(id), ..told(id, id, 0.8) }
    };
    let record = async |new: NewObservation, seconds| {
        let other = NewObservation { own: new.tenants[1].start, ..new.clone() };
        assert!(store.record_observation(&new, at(seconds)).await.expect("recorded"));
        if new.fits {
            assert!(store.record_observation(&other, at(seconds)).await.expect("recorded"));
        }
    };
    record(pair(10, ["alice/a", "bob/b"]), 10).await;
    record(NewObservation { fits: false, ..pair(20, ["alice/x", "alice/y"]) }, 20).await;
    for count in 0..most + 3 {
        // Whoever of both came first, it is one pair.
        let workloads = if count % 2 == 0 { ["alice/x", "alice/y"] } else { ["alice/y", "alice/x"] };
        record(pair(100 + 2 * count, workloads), 100 + count).await;
    }
    record(NewObservation { device_model: "a100".to_owned(), ..pair(30, ["alice/x", "alice/y"]) }, 900).await;
    let firsts = async |after| -> Vec<u32> {
        let found = store.observations(after, 0).await.expect("read");
        found.iter().map(|one| one.starts[0].job_id.id).collect()
    };
    let newest = (3..most + 3).map(|count| 100 + 2 * count);
    let expected: Vec<u32> = [10, 20].into_iter().chain(newest).chain([30]).collect();
    assert_eq!(
        firsts(0).await,
        expected,
        "what was not measured to the end is no part of these sixteen, and neither is the pair of others"
    );
    let third = store.observations(0, 3).await.expect("read")[0].number;
    assert_eq!(firsts(third).await.len(), 2, "who asks for what is new is told of it");
}

pub(crate) fn model(state: ModelState, seconds: u32) -> NewModel {
    let score = Score { log_score_mean: 0.75, error_mean: 0.125, below_low_fraction: 0.25 };
    NewModel {
        kind: "learned-1".to_owned(),
        state,
        trained_at: at(seconds),
        observation_count: 12,
        observation_horizon: 34,
        score: ModelScore {
            outcome_count: 6,
            candidate: Some(score),
            incumbent: None,
            incumbent_version: None,
        },
        reason: "it is better".to_owned(),
        body: json!({ "weights": [0.1, 2.5], "of": seconds }),
    }
}

pub(crate) async fn one_model_is_active_and_all_are_kept(store: Arc<dyn Store>) {
    assert_eq!(store.active_model().await.expect("read"), None);
    assert_eq!(store.add_model(&model(ModelState::Rejected, 1), None).await.expect("kept"), Some(1));
    assert_eq!((store.active_model().await.expect("read"), revision(&*store).await), (None, 0));
    let first = store.add_model(&model(ModelState::Active, 2), None).await.expect("kept");
    assert_eq!((store.active_model().await.expect("read"), revision(&*store).await), (first, 1));
    let late = store.add_model(&model(ModelState::Active, 3), None).await.expect("answered");
    assert_eq!(late, None, "judged against what is not in use any more");
    let second = store.add_model(&model(ModelState::Active, 4), first).await.expect("kept");
    assert_eq!(store.active_model().await.expect("read"), second);
    let all = store.models(0).await.expect("read");
    let states: Vec<_> = all.iter().map(|one| (one.state, one.trained_at)).collect();
    let expected_states =
        [(ModelState::Active, at(4)), (ModelState::Retired, at(2)), (ModelState::Rejected, at(1))];
    assert_eq!(states, expected_states, "newest first");
    let expected = model(ModelState::Active, 4);
    assert_eq!((&all[0].score, &all[0].reason), (&expected.score, &expected.reason));
    assert_eq!((all[0].observation_count, all[0].observation_horizon), (12, 34));
    assert_eq!(store.models(1).await.expect("read"), all[..1]);
    assert_eq!(store.model_body(all[0].version).await.expect("read"), Some(expected.body));
    assert_eq!(store.model_body(99).await.expect("read"), None);
}

pub(crate) async fn one_of_two_candidates_is_promoted(store: Arc<dyn Store>) {
    let racing = |seconds| {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.add_model(&model(ModelState::Active, seconds), None).await })
    };
    let racers: Vec<_> = (0..4).map(racing).collect();
    let mut promoted = 0;
    for racer in racers {
        promoted += u32::from(racer.await.expect("no panic").expect("no error").is_some());
    }
    assert_eq!((promoted, store.models(0).await.expect("read").len()), (1, 1));
}

pub(crate) async fn bodies_of_old_models_are_not_kept(store: Arc<dyn Store>) {
    let active = store.add_model(&model(ModelState::Active, 0), None).await.expect("kept");
    let first = active.expect("a version");
    for seconds in 1..=u32::try_from(MODEL_BODIES_KEPT).expect("a few") + 1 {
        store.add_model(&model(ModelState::Rejected, seconds), active).await.expect("kept");
    }
    let body = async |version| store.model_body(version).await.expect("read");
    assert!(body(first).await.is_some(), "the engine uses it");
    assert!(body(first + 1).await.is_none());
    assert!(body(first + 2).await.is_some());
    let count = usize::try_from(MODEL_BODIES_KEPT).expect("a few") + 2;
    assert_eq!(store.models(0).await.expect("read").len(), count, "scores are kept for good");
}

pub(crate) async fn the_power_of_a_device_is_that_of_its_samples(store: Arc<dyn Store>) {
    for (sequence, seconds) in [(1, 10), (2, 20), (3, 30)] {
        assert!(store.ingest(&node(), "j", &with_power(sequence, seconds)).await.expect("stored"));
    }
    let mean = async |node: &NodeName, gres: &GresType, from, until| {
        store.power_watts_mean(node, gres, at(from), at(until)).await.expect("read")
    };
    assert_eq!(mean(&node(), &gres(), 10, 20).await, Some(115.0));
    assert_eq!(mean(&node(), &gres(), 11, 99).await, Some(125.0));
    assert_eq!(mean(&node(), &gres(), 31, 99).await, None, "no sample");
    assert_eq!(mean(&node(), &GresType::new("g2"), 0, 99).await, None, "samples that do not tell");
    assert_eq!(mean(&NodeName::new("n2"), &gres(), 0, 99).await, None);
}

fn with_power(sequence: u64, seconds: u32) -> pillion_core::report::Report {
    let mut report = samples_report(sequence, seconds);
    if let pillion_core::report::ReportBody::Samples(taken) = &mut report.body {
        taken.samples[0].reading.metrics.set(Metric::PowerWatts, 100.0 + f64::from(seconds));
    }
    report
}

/// An array task's start is written and read back like any other.
pub(crate) async fn starts_of_array_tasks_are_told_apart(store: Arc<dyn Store>) {
    let of_task =
        |restart_count| JobStart { job_id: pillion_core::SlurmJobId::array_task(33, 2), restart_count };
    for restart_count in [0, 1] {
        let starts = [JobStart { job_id: plain(1), restart_count: 0 }, of_task(restart_count)];
        let tenants = starts.map(|start| SharingTenant { start, ..tenant(1) });
        let new = NewObservation { tenants: tenants.into(), own: starts[1], ..told(1, 1, 0.5) };
        assert!(store.record_observation(&new, at(1)).await.expect("recorded"));
    }
    let all = store.observations(0, 0).await.expect("read");
    assert_eq!(all.iter().map(|one| one.starts[1]).collect::<Vec<_>>(), [of_task(0), of_task(1)]);
}
