//! What is shown of a cluster and of a long time.

use crate::fixtures::{at, commit, decision, estimate, gres, job, member, node, plain, run, start, step};
use pillion_core::decision::MemberState;
use pillion_core::{NodeName, UserId, WorkloadKey};
use pillion_pairing::Role;
use pillion_store::postgres::PgStore;
use pillion_store::prelude::*;
use pillion_store::{DecisionFilter, HeatFilter, NewMember};
use std::sync::Arc;

/// Alice's job beside Bob's: hers at half of its speed, his at four fifths, against promises of 1.25.
fn strangers() -> Vec<NewMember> {
    let host = NewMember { estimate: Some(estimate(0.8)), slowdown_ratio_max: 1.25, ..member(1, Role::Host) };
    let joiner = NewMember {
        uid: UserId(1001),
        workload: WorkloadKey::new("bob/w"),
        slowdown_ratio_max: 1.25,
        ..member(2, Role::Joiner)
    };
    vec![host, joiner]
}

pub(crate) async fn who_holds_devices_and_what_came_of_it_is_told(store: Arc<PgStore>) {
    let ids = commit(&*store, &[decision(strangers()), decision(vec![member(3, Role::Host)])]).await;
    store.record_jobs(&[job(1), job(3)], at(0)).await.expect("recorded");
    let known = store.jobs(&[plain(1), plain(2), plain(3)]).await.expect("read");
    assert_eq!(known.keys().copied().collect::<Vec<_>>(), [plain(1), plain(3)]);
    run(&*store, ids[0], 1).await;
    run(&*store, ids[0], 2).await;
    let held = store.occupancy().await.expect("read");
    assert_eq!(held.iter().map(|it| (&it.node, it.tenant_count)).collect::<Vec<_>>(), [(&node(), 3)]);
    let tenants = store.tenants(&[node()]).await.expect("read");
    assert_eq!(tenants.iter().map(|it| it.job_id).collect::<Vec<_>>(), [plain(1), plain(2), plain(3)]);
    assert_eq!((tenants[0].user.as_deref(), tenants[1].user.as_deref()), (Some("alice"), None));
    assert_eq!((tenants[0].speed_fraction, tenants[0].state), (Some(0.8), MemberState::Running));
    assert_eq!(tenants[0].gres_types, gres().into());
    assert_eq!(store.tenants(&[NodeName::new("n2")]).await.expect("read"), []);
    let of_jobs = store.tenancies(&[plain(3), plain(2), plain(4)]).await.expect("read");
    assert_eq!(of_jobs, tenants[1..], "the fourth is nowhere");

    for (job, speed) in [(1, 0.5), (2, 0.8)] {
        store.record_outcome(ids[0], start(job), Some(speed), Some(10_500.0)).await.expect("kept");
        let ended = step(ids[0], job, MemberState::Running, MemberState::Ended, 60);
        assert!(store.step_member(&ended).await.expect("ended"));
    }
    let filter = HeatFilter { since: at(0), until: at(100), workload: None, uid: None, limit: 10 };
    let heat = store.heat(&filter).await.expect("read");
    assert_eq!((heat.cells.len(), heat.outcome_count), (2, 2));
    let own = heat.cells.iter().find(|cell| cell.workload.as_str() == "alice/1f0c").expect("hers");
    assert_eq!((own.beside.as_str(), own.outcome_count, own.promises_broken), ("bob/w", 1, 1));
    assert!((own.slowdown_ratio - 2.0).abs() < 1e-9);
    assert!((own.predicted_slowdown_ratio.expect("foretold") - 1.25).abs() < 1e-9);
    assert_eq!(own.energy_ratio, None, "nothing is known of it alone");
    let other = heat.cells.iter().find(|cell| cell.workload.as_str() == "bob/w").expect("his");
    assert_eq!((other.predicted_slowdown_ratio, other.promises_broken), (None, 0));
    for nothing in [
        HeatFilter { uid: Some(UserId(1000)), ..filter.clone() },
        HeatFilter { until: at(60), ..filter.clone() },
        HeatFilter { workload: Some("nobody/x".to_owned()), ..filter.clone() },
    ] {
        assert_eq!(store.heat(&nothing).await.expect("read").cells, [], "{nothing:?}");
    }

    let all = DecisionFilter { include_single: true, ..DecisionFilter::default() };
    let list = async |filter: DecisionFilter| -> Vec<_> {
        store.decisions(&filter).await.expect("read").into_iter().map(|it| it.id).collect()
    };
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(list(DecisionFilter { workload: text("bob/w"), ..all.clone() }).await, [ids[0]]);
    assert_eq!(list(DecisionFilter { uid: Some(UserId(1001)), ..all.clone() }).await, [ids[0]]);
    assert_eq!(list(DecisionFilter { group: Some(ids[1]), ..all.clone() }).await, [ids[1]]);
    assert_eq!(list(DecisionFilter { before: Some(ids[1]), ..all.clone() }).await, [ids[0]]);
    assert_eq!(list(DecisionFilter { nodes: vec![NodeName::new("n2")], ..all.clone() }).await, []);
    let beside = DecisionFilter { workload: text("alice/1f0c"), beside: text("bob/w"), ..all };
    assert_eq!(list(beside.clone()).await, [ids[0]]);
    assert_eq!(
        list(DecisionFilter { uid: Some(UserId(1000)), ..beside }).await,
        [],
        "whom she sat beside is not told"
    );
}
