//! The cases about decisions that are only recorded.

use crate::fixtures::{
    at, commit, decision as pair_of, fraction, member, node, profile, run, start, step, summary,
};
use pillion_core::decision::MemberState;
use pillion_core::device::Mechanism;
use pillion_core::reason::Reason;
use pillion_core::report::{Report, ReportBody};
use pillion_core::shadow::{ShadowFit, ShadowOutcome};
use pillion_core::share::Sharing;
use pillion_core::{GresType, JobStart, Shards, UserId, WorkloadKey};
use pillion_pairing::{Explanation, Role, SpeedEstimate};
use pillion_store::postgres::PgStore;
use pillion_store::prelude::*;
use pillion_store::{
    NewMember, ShadowBeside, ShadowDecision, ShadowFilter, ShadowNeighbour, ShadowScore, Store,
};
use std::sync::Arc;

fn estimate(speed: f64) -> SpeedEstimate {
    SpeedEstimate {
        speed_fraction: speed,
        speed_fraction_deviation: 0.05,
        has_heavy_tail: false,
        speed_fraction_low: speed - 0.1,
        speed_fraction_high: speed,
        terms: Arc::default(),
    }
}

pub(crate) fn decision(id: u32, decided: u32, host: Option<u32>) -> ShadowDecision {
    let role = if host.is_some() { Role::Joiner } else { Role::Host };
    let reason = if host.is_some() { Reason::Joined } else { Reason::AloneJoinable };
    let explanation = Explanation {
        job_id: start(id).job_id,
        reason,
        text: "because".into(),
        model: "m".into(),
        candidates: [].into(),
    };
    ShadowDecision {
        member: NewMember {
            start: start(id),
            uid: UserId(1000),
            workload: WorkloadKey::new("alice/w"),
            role,
            sharing: Sharing::by(Mechanism::Mps, Some(fraction(0.5)), None),
            shards: Shards::try_new(40).expect("a share"),
            memory_bytes: Some(8 << 30),
            slowdown_ratio_max: 1.25,
            estimate: host.map(|_| estimate(0.9)),
            solo_duration_seconds: Some(3600.0),
            explanation: Some(explanation),
        },
        user: "alice".to_owned(),
        partition: "gpu".to_owned(),
        decided_at: at(decided),
        group: start(host.unwrap_or(id)),
        is_with_host: false,
        node: node(),
        gres_type: GresType::new("g0"),
        device_model: profile("alice/w").profile.device_model,
        device_memory_bytes: 80 << 30,
        beside: host
            .map(|host| ShadowNeighbour { start: start(host), estimate: estimate(0.8) })
            .into_iter()
            .collect(),
        gain: if host.is_some() { 0.7 } else { 0.0 },
        gain_low: if host.is_some() { 0.5 } else { 0.0 },
        broken_expected: if host.is_some() { 0.125 } else { 0.0 },
        overlap_seconds_believed: host.map(|_| 1800.0),
        time_limit_seconds: Some(7200),
    }
}

pub(crate) fn score(outcome: ShadowOutcome, beside: Option<ShadowBeside>) -> ShadowScore {
    ShadowScore { outcome, held_seconds: 3600.0, is_duration_as_believed: Some(true), beside }
}

pub(crate) fn beside(fit: ShadowFit) -> ShadowBeside {
    ShadowBeside {
        fit,
        overlap_seconds: 1000.0,
        is_overlap_as_believed: Some(false),
        saved_seconds_low: 500.0,
        saved_seconds: 700.0,
        is_over_limit: true,
    }
}

pub(crate) async fn a_shadow_decision_is_kept_and_closed_once(store: Arc<dyn Store>) {
    let (host, joiner) = (decision(1, 10, None), decision(2, 20, Some(1)));
    store.record_shadow(&[joiner.clone(), host.clone()]).await.expect("recorded");
    // Of a start that has one the first stays.
    let again = ShadowDecision { decided_at: at(30), ..joiner.clone() };
    store.record_shadow(&[again.clone(), again]).await.expect("recorded");
    assert_eq!(store.open_shadow().await.expect("read"), [host.clone(), joiner.clone()]);
    assert_eq!(store.shadow_of(start(2).job_id).await.expect("read"), Some((joiner.clone(), None)));
    assert_eq!(store.shadow_of(start(9).job_id).await.expect("read"), None);
    let scored = score(ShadowOutcome::Scored, Some(beside(ShadowFit::Fits)));
    let close = async |score: &ShadowScore| store.close_shadow(&[(start(2), score.clone())], at(50)).await;
    close(&scored).await.expect("closed");
    close(&score(ShadowOutcome::NeverRan, None)).await.expect("ignored");
    assert_eq!(store.open_shadow().await.expect("read"), std::slice::from_ref(&host));
    assert_eq!(store.shadow_of(start(2).job_id).await.expect("read"), Some((joiner.clone(), Some(scored))));
    assert_eq!(store.shadow_groups(&[start(1)]).await.expect("read"), [host, joiner]);
    assert_eq!(store.shadow_groups(&[start(2)]).await.expect("read"), []);
    // A start that was requeued is another one.
    let again = JobStart { restart_count: 1, ..start(2) };
    let mut newer = decision(2, 60, Some(1));
    newer.member.start = again;
    store.record_shadow(std::slice::from_ref(&newer)).await.expect("recorded");
    assert_eq!(store.shadow_of(start(2).job_id).await.expect("read"), Some((newer, None)));
    // Nothing of it is anybody's who acts.
    assert_eq!(store.active_decisions().await.expect("read"), []);
    assert_eq!(store.decisions_of(start(2).job_id).await.expect("read"), []);
    // What is closed goes with history, what is open stays.
    assert!(store.prune_history(at(51)).await.expect("pruned") >= 1);
    assert_eq!(store.shadow_groups(&[start(1)]).await.expect("read").len(), 2);
}

pub(crate) async fn observed_starts_are_read_with_their_parts(store: Arc<dyn Store>) {
    let (first, second) = (crate::observed::observed(1, 10), crate::observed::observed(2, 20));
    store.record_observed(&[first.clone(), second]).await.expect("recorded");
    let body = ReportBody::ObservedRun(Box::new(summary(1)));
    store.ingest(&node(), "j", &Report { sequence: 1, body }).await.expect("stored");
    let asked = [start(1), start(7), JobStart { restart_count: 3, ..start(2) }];
    let found = store.observed_starts(&asked).await.expect("read");
    let [(job, runs)] = &found[..] else { panic!("{found:?}") };
    assert_eq!((job, runs.len(), &runs[0].summary), (&first, 1, &summary(1)));
}

/// What a page asks: sums over those that are alike.
pub(crate) async fn shadow_decisions_are_added_up(store: Arc<PgStore>) {
    let mut bobs = decision(4, 40, Some(1));
    bobs.member.uid = UserId(2000);
    let all = [decision(1, 10, None), decision(2, 20, Some(1)), decision(3, 30, Some(1)), bobs];
    store.record_shadow(&all).await.expect("recorded");
    let fits = score(ShadowOutcome::Scored, Some(beside(ShadowFit::Fits)));
    let scores =
        [(start(2), fits.clone()), (start(3), fits), (start(4), score(ShadowOutcome::NeverRan, None))];
    store.close_shadow(&scores, at(99)).await.expect("closed");
    let filter = ShadowFilter { since: at(0), until: at(100), uid: None };
    let sums = store.shadow_sums(&filter).await.expect("read");
    let told = sums.iter().map(|sum| (sum.role, sum.outcome, sum.fit, sum.count)).collect::<Vec<_>>();
    assert_eq!(
        told,
        [
            (Role::Host, None, None, 1),
            (Role::Joiner, Some(ShadowOutcome::NeverRan), None, 1),
            (Role::Joiner, Some(ShadowOutcome::Scored), Some(ShadowFit::Fits), 2),
        ]
    );
    let both = &sums[2];
    assert_eq!((both.reason, both.promise_count, both.over_limit_count), (Reason::Joined, 4, 2));
    assert_eq!((both.is_duration_as_believed, both.is_overlap_as_believed), (Some(true), Some(false)));
    let figures = [
        (both.broken_expected, 0.25),
        (both.held_seconds, 7200.0),
        (both.overlap_seconds_believed, 3600.0),
        (both.overlap_seconds, 2000.0),
        (both.saved_seconds_low, 1000.0),
        (both.saved_seconds, 1400.0),
    ];
    assert!(figures.iter().all(|(sum, expected)| (sum - expected).abs() < 1e-6), "{figures:?}");
    let of_bob = ShadowFilter { uid: Some(UserId(2000)), ..filter };
    assert_eq!(store.shadow_sums(&of_bob).await.expect("read").len(), 1);
    let early = ShadowFilter { until: at(20), ..filter };
    assert_eq!(store.shadow_sums(&early).await.expect("read").len(), 1);
}

/// What the bounds of a shadow are held against: of pairs alone, and with what was foretold of each.
pub(crate) async fn speeds_that_were_foretold_of_two_are_told(store: Arc<PgStore>) {
    let foretold = |id, role| NewMember { estimate: Some(estimate(0.8)), ..member(id, role) };
    let two = vec![foretold(1, Role::Host), foretold(2, Role::Joiner)];
    let three = vec![foretold(3, Role::Host), foretold(4, Role::Joiner), foretold(5, Role::Joiner)];
    let unforetold = vec![member(6, Role::Host), member(7, Role::Joiner)];
    let ids = commit(&*store, &[two, three, unforetold].map(pair_of)).await;
    for (id, jobs) in ids.iter().zip([1..3, 3..6, 6..8]) {
        for job in jobs {
            run(&*store, *id, job).await;
            store.record_outcome(*id, start(job), Some(0.7), None).await.expect("kept");
            let ended = step(*id, job, MemberState::Running, MemberState::Ended, 60);
            assert!(store.step_member(&ended).await.expect("ended"));
        }
    }
    let speeds = store.foretold_speeds(at(0), at(100)).await.expect("read");
    assert_eq!(speeds.len(), 2, "{speeds:?}");
    for speed in speeds {
        assert_eq!((speed.estimate, speed.promise.value()), (estimate(0.8), 1.25));
        assert!((speed.measured_speed_fraction - 0.7).abs() < 1e-9);
    }
    assert_eq!(store.foretold_speeds(at(0), at(60)).await.expect("read"), [], "they ended at 60");
}
