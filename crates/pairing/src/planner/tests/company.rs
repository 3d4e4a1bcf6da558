//! Two jobs of one user in one instance: where the site wants it, where it does more, and never two users.

use super::instances::{cut, cuttable, h100, slot, slots, strangers, walls};
use super::reason;
use crate::mig::SliceRecord;
use crate::model::Contention;
use crate::plan::{Member, Plan, Reason, Role};
use crate::planner::plan;
use crate::policy::Policy;
use crate::testing::{job, tenant, view};
use crate::view::{ClusterView, Tenant, WaitingJob};
use pillion_core::device::Mechanism::{Mps, TimeSliced};
use pillion_core::mig::Slot;
use pillion_core::share::Sharing;
use pillion_core::{DecisionId, Shards, SlowdownRatio, UserId, WorkloadKey};
use std::collections::{BTreeMap, BTreeSet};

fn together() -> Policy {
    Policy { share_instances: true, ..walls() }
}

/// Light work that was measured too slow in the small sizes: a device has room for two instances in which it is fast.
fn known(waiting: Vec<WaitingJob>) -> ClusterView {
    let record = |profile: &str, speed| SliceRecord {
        workload: WorkloadKey::new("light"),
        device_model: "h100".to_owned(),
        profile: profile.parse().unwrap(),
        memory_bytes: h100().size(profile.parse().unwrap()).unwrap().memory_bytes,
        completed_count: 1,
        out_of_memory_count: 0,
        speed_count: 1,
        speed_fraction: Some(speed),
    };
    let speeds = [("1g.10gb", 0.4), ("2g.20gb", 0.5), ("3g.40gb", 0.96), ("4g.40gb", 0.97)];
    let mut view = view(vec![cuttable("g0", Mps)], waiting);
    view.slices = speeds.map(|(profile, speed)| record(profile, speed)).to_vec().into();
    view
}

/// Jobs of one user.
fn of_user(uid: u32, ids: std::ops::RangeInclusive<u32>) -> Vec<WaitingJob> {
    ids.map(|id| WaitingJob { uid: UserId(uid), ..job(id, "light") }).collect()
}

fn members(plan: &Plan) -> impl Iterator<Item = &Member> {
    plan.pairings.iter().flat_map(|pairing| &pairing.members)
}

/// Who is in which instance.
fn seats(plan: &Plan) -> BTreeMap<Slot, Vec<u32>> {
    let mut seats: BTreeMap<Slot, Vec<u32>> = BTreeMap::new();
    for (job, slot) in slots(plan) {
        seats.entry(slot).or_default().push(job);
    }
    seats
}

#[test]
fn two_of_one_user_share_an_instance_where_the_site_wants_it_and_more_is_done() {
    let all = known([of_user(1, 1..=2), of_user(2, 3..=4)].concat());
    let apart = plan(&all, &Contention, &walls());
    assert!(seats(&apart).values().all(|jobs| jobs.len() == 1), "off by itself: {:?}", seats(&apart));
    assert!(members(&apart).all(|member| !matches!(member.sharing, Sharing::MigMps { .. })));
    let plan = plan(&all, &Contention, &together());
    let jobs: BTreeSet<Vec<u32>> = seats(&plan).into_values().collect();
    assert_eq!(jobs, BTreeSet::from([vec![1, 2], vec![3, 4]]), "{:?}", seats(&plan));
    assert_eq!((plan.pairings.len(), plan.left_waiting.len()), (2, 0), "each two by one decision");
    for pairing in &plan.pairings {
        let [host, guest] = pairing.members.as_slice() else { panic!("{pairing:?}") };
        assert_eq!((host.role, guest.role, pairing.joins), (Role::Host, Role::Joiner, None));
        let profile = host.sharing.mig_slot().unwrap().profile;
        let booked: u32 = pairing.members.iter().map(|member| u32::from(member.shards.count())).sum();
        assert_eq!(booked, u32::from(h100().shards(profile).count()));
        for member in &pairing.members {
            assert_eq!(member.sharing.memory_limit_bytes(), member.memory_bytes);
            assert!(member.estimate.as_ref().is_some_and(|speed| speed.speed_fraction_low * 1.25 >= 1.0));
            assert_eq!(member.explanation.reason, Reason::SharedInstance);
            let text = &member.explanation.text;
            assert!(
                text.contains("another job of its user") && text.contains("3g.40gb")
                    || text.contains("4g.40gb"),
                "{text}"
            );
        }
        assert!(
            pairing.gain > 1.0,
            "two at nearly full speed on less than half of a device: {}",
            pairing.gain
        );
    }
    // As JSON it is read back as it was.
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
}

#[test]
fn users_never_share_one_whatever_the_site_says_of_them() {
    let plan = plan(&known(strangers(1..=4, "light")), &Contention, &together());
    assert!(
        !seats(&plan).is_empty() && seats(&plan).values().all(|jobs| jobs.len() == 1),
        "{:?}",
        seats(&plan)
    );
}

#[test]
fn who_would_break_a_promise_or_have_no_room_has_one_to_himself() {
    let four = || [of_user(1, 1..=2), of_user(2, 3..=4)].concat();
    let with = |change: fn(&mut WaitingJob)| {
        let mut waiting = four();
        waiting.iter_mut().for_each(change);
        let plan = plan(&known(waiting), &Contention, &together());
        seats(&plan).into_values().map(|jobs| jobs.len()).max()
    };
    assert_eq!(with(|_| {}), Some(2));
    let tight = |job: &mut WaitingJob| job.slowdown_ratio_max = SlowdownRatio::try_promise(1.06).unwrap();
    assert_eq!(with(tight), Some(1), "0.95 times what company leaves of it");
    assert_ne!(with(|job| job.memory_bytes_declared = Some(30 << 30)), Some(2), "60 GiB are no 40");
    let owes = |job: &mut WaitingJob| job.owes_runs = 1;
    assert_eq!(with(owes), None);
}

#[test]
fn where_the_device_has_no_mps_nobody_shares_what_is_cut_of_it() {
    let mut view = known([of_user(1, 1..=2), of_user(2, 3..=4)].concat());
    view.devices[0].mechanism = TimeSliced;
    let plan = plan(&view, &Contention, &together());
    assert!(seats(&plan).values().all(|jobs| jobs.len() == 1), "{:?}", seats(&plan));
}

#[test]
fn an_instance_that_two_share_is_one_to_those_who_come_beside_it() {
    let both = |id: u32, shards: u8| {
        let Slot { profile, start } = slot("3g.40gb@4");
        Tenant {
            sharing: Sharing::MigMps { profile, start, cap: None, memory_limit_bytes: None },
            shards: Shards::try_new(shards).unwrap(),
            group: Some(DecisionId(50)),
            ..tenant(id, "light", 7200)
        }
    };
    let mut view = known(of_user(3, 1..=2));
    view.devices = vec![cut("g0", vec![both(50, 20), both(51, 22)])];
    let plan = plan(&view, &Contention, &together());
    let found = seats(&plan);
    let [(beside, jobs)] = found.iter().collect::<Vec<_>>()[..] else { panic!("{found:?}") };
    assert_eq!(h100().check(&[slot("3g.40gb@4"), *beside]), Ok(()));
    assert_eq!((jobs.as_slice(), reason(&plan, 1)), (&[1, 2][..], Reason::SharedInstance));
}
