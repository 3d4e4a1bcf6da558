//! The case about tenants in instances of their own.

use crate::conformance::the;
use crate::fixtures::{commit, decision, device, full_member, member, node, start};
use pillion_core::device::{DeviceDescription, Mechanism};
use pillion_core::mig::Geometry;
use pillion_core::share::Sharing;
use pillion_pairing::Role;
use pillion_store::postgres::PgStore;
use pillion_store::prelude::*;
use pillion_store::{NewMember, Store, StoreError};
use std::sync::Arc;

fn in_instance(profile: &str, start: u8) -> Sharing {
    Sharing::Mig { profile: profile.parse().expect("a name"), start }
}

pub(crate) async fn each_tenant_has_its_own_instance(store: Arc<dyn Store>) {
    let geometry = Geometry::of_model("h100").cloned();
    let cut = DeviceDescription { mechanism: Mechanism::Mig, geometry, ..device() };
    store.record_devices(&node(), &[cut], crate::fixtures::at(0)).await.expect("recorded");
    let host = NewMember { sharing: in_instance("4g.40gb", 0), ..member(1, Role::Host) };
    let beside = NewMember { sharing: in_instance("1g.10gb+me", 6), ..full_member(2) };
    let id = commit(&*store, &[decision(vec![host.clone(), beside.clone()])]).await[0];
    let read = the(&*store, id).await;
    assert_eq!((read.mechanism(), &read.members[0].plan), (Mechanism::Mig, &host));
    assert_eq!(read.members[1].plan, beside);
    let active = store.active_decisions().await.expect("read");
    assert_eq!(active[0].members[1].plan.sharing, beside.sharing);
    let again = store.decisions_of(start(2).job_id).await.expect("read");
    assert_eq!(again[0].members[1].plan.sharing.mig_slot().expect("kept").to_string(), "1g.10gb+me@6");
}

/// What no release of ours writes: a row without an instance says nothing of where its tenant is.
pub(crate) async fn a_tenant_without_its_instance_cannot_be_read(store: Arc<PgStore>) {
    let new = NewMember { sharing: in_instance("3g.40gb", 4), ..member(1, Role::Host) };
    let id = commit(&*store, &[decision(vec![new])]).await[0];
    assert_eq!(store.tenants(&[node()]).await.expect("read")[0].sharing, in_instance("3g.40gb", 4));
    for slot in ["3g.40gb", "0g.40gb@4", "3g.40gb@x"] {
        let sql = format!("update pairing_member set mig_slot = '{slot}'");
        let refused = sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(store.pool()).await;
        assert!(refused.is_err(), "{slot}");
    }
    sqlx::raw_sql("update pairing_member set mig_slot = null").execute(store.pool()).await.expect("spoilt");
    assert_eq!(store.tenants(&[node()]).await.expect("the others are read"), []);
    assert!(matches!(store.decision(id).await, Ok(None) | Err(StoreError::Corrupt { .. })));
}
