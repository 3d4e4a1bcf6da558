//! Devices that can be cut: who has an instance of his own, who does not, and that there are no pairs in them.

use super::{groups, planned, reason};
use crate::mig::SliceRecord;
use crate::model::Contention;
use crate::plan::{Plan, Reason, Role};
use crate::planner::plan;
use crate::policy::{FirstRuns, Policy, UserPolicy};
use crate::testing::{NOW, claim, device, device_with, job, tenant, view};
use crate::view::{ClusterView, DeviceView, Tenant, WaitingJob};
use pillion_core::device::Mechanism::{Mig, Mps};
use pillion_core::isolation::Isolation;
use pillion_core::mig::{Geometry, Slot};
use pillion_core::share::Sharing;
use pillion_core::{Shards, SlurmJobId, UnixTime, UserId, WorkloadKey};

pub(super) fn h100() -> &'static Geometry {
    Geometry::of_model("h100").unwrap()
}

/// A free device that its agent can cut.
pub(super) fn cuttable(gres_type: &str, mechanism: pillion_core::device::Mechanism) -> DeviceView {
    DeviceView { geometry: Some(h100().clone()), ..device(gres_type, mechanism) }
}

pub(super) fn slot(text: &str) -> Slot {
    text.parse().unwrap()
}

/// Somebody who has an instance.
fn walled(id: u32, at: &str) -> Tenant {
    let Slot { profile, start } = slot(at);
    Tenant {
        sharing: Sharing::Mig { profile, start },
        shards: h100().shards(profile),
        ..tenant(id, "light", 7200)
    }
}

pub(super) fn cut(gres_type: &str, tenants: Vec<Tenant>) -> DeviceView {
    let booked: u32 = tenants.iter().map(|tenant| u32::from(tenant.shards.count())).sum();
    DeviceView { shards_free: 100 - booked, tenants, ..cuttable(gres_type, Mps) }
}

/// Jobs of as many users.
pub(super) fn strangers(ids: std::ops::RangeInclusive<u32>, workload: &str) -> Vec<WaitingJob> {
    ids.map(|id| WaitingJob { uid: UserId(1000 + id), ..job(id, workload) }).collect()
}

pub(super) fn walls() -> Policy {
    Policy { users: UserPolicy::Any, isolation: Isolation::Hard, ..Policy::default() }
}

/// Who has which instance, by job.
pub(super) fn slots(plan: &Plan) -> Vec<(u32, Slot)> {
    let members = plan.pairings.iter().flat_map(|pairing| &pairing.members);
    members.filter_map(|member| Some((member.start.job_id.id, member.sharing.mig_slot()?))).collect()
}

fn with_walls(view: &ClusterView) -> Plan {
    plan(view, &Contention, &walls())
}

#[test]
fn seven_strangers_have_an_instance_each_where_walls_are_wanted() {
    let plan = with_walls(&view(vec![cuttable("g0", Mps)], strangers(1..=8, "light")));
    let given = slots(&plan);
    let all: Vec<Slot> = given.iter().map(|(_, slot)| *slot).collect();
    assert_eq!((given.len(), h100().check(&all)), (7, Ok(())), "{given:?}");
    assert_eq!(plan.pairings.len(), 7, "each by a decision of its own");
    for pairing in &plan.pairings {
        let member = &pairing.members[0];
        assert_eq!((pairing.joins, member.role, member.shards.count()), (None, Role::Host, 14));
        assert_eq!(member.explanation.reason, Reason::OwnInstance);
        assert_eq!(member.memory_bytes, h100().size(slot("1g.10gb@0").profile).unwrap().memory_bytes);
        assert!(member.estimate.as_ref().is_some_and(|speed| speed.speed_fraction_low * 1.25 >= 1.0));
        assert!(member.explanation.text.contains("1g.10gb@"), "{}", member.explanation.text);
    }
    assert_eq!(plan.left_waiting.len(), 1);
}

#[test]
fn where_users_do_not_meet_nobody_else_is_on_the_device_not_even_behind_a_wall() {
    let plan = planned(&view(vec![cuttable("g0", Mps)], strangers(1..=3, "light")));
    assert_eq!((groups(&plan), slots(&plan)), (vec![vec![1]], vec![]));
}

#[test]
fn devices_that_are_full_keep_none_from_being_filled() {
    let ones = |first: u32, count: u32| {
        (0..count).map(|at| walled(first + at, &format!("1g.10gb@{at}"))).collect::<Vec<_>>()
    };
    let mut devices: Vec<DeviceView> =
        (0..100).map(|at| cut(&format!("g{at}"), ones(100 + 10 * at, 7))).collect();
    devices.push(cut("g100", ones(5000, 6)));
    let plan = with_walls(&view(devices, strangers(1..=1, "light")));
    assert_eq!(slots(&plan), [(1, slot("1g.10gb@6"))]);
}

#[test]
fn whoever_can_have_a_whole_device_has_one() {
    let devices = vec![cuttable("g0", Mps), cuttable("g1", Mps)];
    let plan = with_walls(&view(devices, strangers(1..=2, "light")));
    assert_eq!((groups(&plan), slots(&plan)), (vec![vec![1], vec![2]], vec![]));
}

#[test]
fn only_as_many_devices_are_cut_as_is_needed() {
    let devices = vec![cuttable("g0", Mps), cuttable("g1", Mps)];
    let plan = with_walls(&view(devices, strangers(1..=3, "light")));
    assert_eq!((slots(&plan).len(), plan.pairings.len(), plan.left_waiting.len()), (2, 3, 0));
    assert_eq!(plan.pairings.iter().filter(|pairing| pairing.gres_types.to_string() == "g1").count(), 1);
}

#[test]
fn who_starts_alone_is_passed_over_by_nobody() {
    let mut waiting = strangers(1..=1, "heavy");
    waiting.extend(strangers(2..=8, "light"));
    let plan = with_walls(&view(vec![cuttable("g0", Mps)], waiting.clone()));
    assert_eq!((groups(&plan), slots(&plan)), (vec![vec![1]], vec![]), "no instance suits him");
    waiting.rotate_left(1);
    let plan = with_walls(&view(vec![cuttable("g0", Mps)], waiting));
    assert!(slots(&plan).iter().any(|(job, _)| *job == 2) && slots(&plan).len() == 7);
    assert_eq!(reason(&plan, 1), Reason::SliceTooSlow);
}

#[test]
fn without_walls_two_share_where_that_does_more() {
    let halves = vec![job(1, "half"), job(2, "half"), job(3, "heavy")];
    let patient = |job: WaitingJob| WaitingJob {
        slowdown_ratio_max: pillion_core::SlowdownRatio::try_promise(2.0).unwrap(),
        ..job
    };
    let waiting: Vec<WaitingJob> = halves.into_iter().map(patient).collect();
    let with = |device| planned(&view(vec![device], waiting.clone()));
    let (as_before, now) = (with(device("g0", Mps)), with(cuttable("g0", Mps)));
    assert_eq!((groups(&now), slots(&now)), (groups(&as_before), vec![]));
}

#[test]
fn what_is_cut_is_filled_by_those_who_would_wait() {
    let device = cut("g0", vec![walled(50, "4g.40gb@0")]);
    let plan = with_walls(&view(vec![device], strangers(1..=4, "light")));
    let given = slots(&plan);
    let all: Vec<Slot> = given.iter().map(|(_, slot)| *slot).chain([slot("4g.40gb@0")]).collect();
    assert_eq!((given.len(), h100().check(&all)), (3, Ok(())), "{given:?}");
}

#[test]
fn beside_a_tenant_without_a_wall_nothing_is_cut() {
    let open =
        DeviceView { geometry: Some(h100().clone()), ..device_with("g0", Mps, tenant(50, "light", 7200)) };
    let plan = with_walls(&view(vec![open], strangers(1..=2, "light")));
    assert_eq!(groups(&plan), [[0_u32; 0]; 0]);
}

#[test]
fn a_held_device_gives_away_what_stands_and_is_nobodys_whole_one() {
    let held = DeviceView {
        is_shape_held: true,
        instances_empty: vec![slot("2g.20gb@0"), slot("2g.20gb@1")],
        ..cuttable("g0", Mps)
    };
    let plan = with_walls(&view(vec![held.clone()], strangers(1..=2, "light")));
    assert_eq!(slots(&plan), [(1, slot("2g.20gb@0"))]);
    let plan = with_walls(&view(vec![held], strangers(1..=1, "heavy")));
    assert_eq!((groups(&plan), reason(&plan, 1)), (vec![], Reason::ShapeHeld));
}

#[test]
fn nobody_is_put_beside_others_for_longer_than_they_stay_while_slurm_starts_somebody_on_all_of_it() {
    let mut waiting = view(vec![cut("g0", vec![walled(50, "4g.40gb@0")])], strangers(1..=2, "light"));
    waiting.alone_claims = vec![claim(99)];
    waiting.waiting[1].time_limit_seconds = Some(3600 * 9);
    assert_eq!(slots(&with_walls(&waiting)).iter().map(|(job, _)| *job).collect::<Vec<_>>(), [1]);
}

#[test]
fn a_cut_device_empties_for_one_who_needs_all_of_it_and_came_long_before() {
    let mut waiting = strangers(1..=1, "heavy");
    waiting.extend(strangers(2..=3, "light"));
    let device = cut("g0", vec![walled(50, "4g.40gb@0")]);
    let early = view(vec![device.clone()], waiting.clone());
    assert_eq!(slots(&with_walls(&early)).len(), 2);
    waiting[0].submitted_at = UnixTime::from_epoch(NOW - 7200);
    assert_eq!(slots(&with_walls(&view(vec![device], waiting))), []);
}

#[test]
fn a_node_without_cpus_for_all_takes_those_who_fit() {
    let mut small = view(vec![cuttable("g0", Mps)], strangers(1..=8, "light"));
    small.nodes[0].cpus_free = 13;
    let plan = with_walls(&small);
    assert_eq!(slots(&plan).len(), 3, "four CPUs each");
}

#[test]
fn unknown_workloads_and_those_who_owe_runs_have_the_whole_device() {
    let mut waiting = strangers(1..=3, "new");
    waiting[1] = WaitingJob { owes_runs: 1, ..job(2, "light") };
    for first in 0..3 {
        waiting.rotate_left(first);
        let plan = with_walls(&view(vec![cuttable("g0", Mps)], waiting.clone()));
        assert_eq!((slots(&plan), plan.pairings.len()), (vec![], 1));
    }
}

/// What became of runs of `light` in instances of a size: it completed there, or ran out of memory so often.
fn record(profile: &str, out_of_memory_count: u32, speed_fraction: Option<f64>) -> SliceRecord {
    let profile = slot(&format!("{profile}@0")).profile;
    SliceRecord {
        workload: WorkloadKey::new("light"),
        device_model: "h100".to_owned(),
        profile,
        memory_bytes: h100().size(profile).unwrap().memory_bytes,
        completed_count: u32::from(out_of_memory_count == 0),
        out_of_memory_count,
        speed_count: 1,
        speed_fraction,
    }
}

/// What became of runs in instances goes before what is foretold: too slow in one, out of memory in another.
#[test]
fn what_was_seen_in_instances_counts_more_than_what_is_foretold() {
    let sizes = |records: Vec<SliceRecord>| {
        let mut waiting = view(vec![cuttable("g0", Mps)], strangers(1..=4, "light"));
        waiting.slices = records.into();
        let mut sizes: Vec<String> =
            slots(&with_walls(&waiting)).iter().map(|(_, slot)| slot.profile.to_string()).collect();
        sizes.sort();
        sizes
    };
    assert_eq!(sizes(Vec::new()).len(), 4);
    let slow = sizes(vec![record("1g.10gb", 0, Some(0.7))]);
    assert!(!slow.contains(&"1g.10gb".to_owned()) && slow.len() == 3, "{slow:?}");
    let full = sizes(vec![record("1g.10gb", 1, None)]);
    assert!(!full.contains(&"1g.10gb".to_owned()) && full.len() >= 3, "{full:?}");
    let full = sizes(vec![record("2g.20gb", 2, None)]);
    assert_eq!(full.len(), 2, "gone for good, with all below: {full:?}");
}

/// Half as much again as the largest part has is in no part: then he has all of a device, or waits for it.
#[test]
fn who_ran_out_of_memory_in_the_largest_part_has_the_whole_device() {
    let plans = |device: DeviceView| {
        ["2g.20gb", "4g.40gb"].map(|ran_out_in| {
            let mut waiting = view(vec![device.clone()], strangers(1..=2, "light"));
            waiting.slices = vec![record(ran_out_in, 1, None)].into();
            with_walls(&waiting)
        })
    };
    let [smaller, largest] = plans(cuttable("g0", Mps));
    assert_eq!(slots(&smaller).len(), 2, "there are larger parts");
    assert_eq!((groups(&largest), slots(&largest)), (vec![vec![1]], vec![]));
    let [smaller, largest] = plans(cut("g0", vec![walled(50, "1g.10gb@6")]));
    assert_eq!(slots(&smaller).len(), 1);
    assert_eq!(groups(&largest), [[0_u32; 0]; 0]);
}

/// Users who let their jobs be started again, of a workload that held 15 GiB and has room in 2g.20gb.
fn consenting(ids: std::ops::RangeInclusive<u32>) -> ClusterView {
    let waiting = strangers(ids, "light").into_iter().map(|job| WaitingJob { may_run_out: true, ..job });
    let mut view = view(vec![cuttable("g0", Mps), cuttable("g1", Mps)], waiting.collect());
    let mut profiles: Vec<_> = view.profiles.clone().into();
    for own in &mut profiles {
        own.memory_bytes_peak = Some(15 << 30);
        own.duration_seconds = Some(600.0);
    }
    view.profiles = profiles.into();
    view
}

/// Who is in the smallest size.
fn smallest(plan: &Plan) -> Vec<u32> {
    let small = slot("1g.10gb@0").profile;
    slots(plan).into_iter().filter(|(_, slot)| slot.profile == small).map(|(job, _)| job).collect()
}

#[test]
fn one_of_a_workload_is_tried_in_less_memory_than_it_held_where_its_user_lets_it() {
    let plan = with_walls(&consenting(1..=8));
    let [tried] = smallest(&plan)[..] else { panic!("{:?}", slots(&plan)) };
    assert_eq!(reason(&plan, tried), Reason::SmallerInstance);
    let mut members = plan.pairings.iter().flat_map(|pairing| &pairing.members);
    let own = members.find(|member| member.start.job_id.id == tried).unwrap();
    assert!(own.explanation.text.contains("once with less memory than it held"), "{}", own.explanation.text);
    assert_eq!(own.memory_bytes, h100().size(slot("1g.10gb@0").profile).unwrap().memory_bytes);
    assert!(tried > 2, "not whoever would have had a device alone: {tried}");
    assert!(slots(&plan).len() > 4, "the others where they have room: {:?}", slots(&plan));
}

#[test]
fn nobody_is_tried_in_less_memory_whom_it_could_harm_or_of_whom_more_is_known() {
    let changed = |change: &dyn Fn(&mut ClusterView)| {
        let mut view = consenting(1..=8);
        change(&mut view);
        smallest(&with_walls(&view))
    };
    let job = |change: fn(&mut WaitingJob)| changed(&|view| view.waiting.iter_mut().for_each(change));
    assert_eq!(changed(&|_| {}).len(), 1);
    assert_eq!(job(|job| job.may_run_out = false), [0_u32; 0]);
    assert_eq!(job(|job| job.memory_bytes_declared = Some(15 << 30)), [0_u32; 0], "its user knows better");
    assert_eq!(
        job(|job| job.duration_seconds_expected = Some(3_590.0)),
        [0_u32; 0],
        "it may run out too late"
    );
    let running = |view: &mut ClusterView| {
        view.devices[1] = cut("g1", vec![walled(50, "4g.40gb@0")]);
    };
    assert_eq!(changed(&running), [0_u32; 0], "what comes of another is not known yet");
    let ran = |view: &mut ClusterView| {
        view.slices = vec![SliceRecord {
            workload: WorkloadKey::new("light"),
            device_model: "h100".to_owned(),
            profile: slot("1g.10gb@0").profile,
            memory_bytes: Some(10 << 30),
            completed_count: 0,
            out_of_memory_count: 0,
            speed_count: 0,
            speed_fraction: None,
        }]
        .into();
    };
    assert_eq!(changed(&ran), [0_u32; 0], "one was tried, whatever came of it");
}

#[test]
fn nobody_is_paired_on_a_device_that_is_cut_into_instances() {
    let cut = view(vec![device("g0", Mig)], vec![job(1, "light"), job(2, "light")]);
    let plan = planned(&cut);
    assert_eq!((groups(&plan), reason(&plan, 1)), (vec![vec![1]], Reason::NotShareable));
    assert_eq!(
        (plan.pairings[0].sharing(), plan.pairings[0].members[0].shards),
        (Sharing::TimeSliced, Shards::ALL)
    );
    let plan = planned(&view(vec![cuttable("g0", Mig)], vec![job(1, "light"), job(2, "light")]));
    assert_eq!(slots(&plan).len(), 2, "where its agent can cut it");
}

#[test]
fn nobody_joins_who_has_an_instance_of_his_own() {
    for mechanism in [Mig, Mps] {
        let cut = view(vec![device_with("g0", mechanism, walled(7, "3g.40gb@4"))], vec![job(1, "light")]);
        assert_eq!(groups(&planned(&cut)), [[0_u32; 0]; 0], "{mechanism}");
    }
}

#[test]
fn a_first_run_there_is_nobodys_host() {
    let policy = Policy { first_runs: FirstRuns::Host, ..Policy::default() };
    let plan = plan(&view(vec![device("g0", Mig)], vec![job(1, "new")]), &Contention, &policy);
    assert_eq!((reason(&plan, 1), plan.pairings[0].members[0].shards), (Reason::NotShareable, Shards::ALL));
}

/// A view that an earlier release saved is read, and one without such devices is written as before.
#[test]
fn a_saved_view_knows_nothing_of_instances_where_there_are_none() {
    let plain = view(vec![device("g0", Mps)], vec![job(1, "light")]);
    let text = serde_json::to_string(&plain).unwrap();
    assert!(!text.contains("geometry") && !text.contains("instances_empty") && !text.contains("shape_held"));
    let cut = view(vec![cut("g0", vec![walled(50, "4g.40gb@0")])], Vec::new());
    let read: ClusterView = serde_json::from_str(&serde_json::to_string(&cut).unwrap()).unwrap();
    assert_eq!((read.devices[0].tenants[0].job_id, read), (SlurmJobId::plain(50), cut));
}
