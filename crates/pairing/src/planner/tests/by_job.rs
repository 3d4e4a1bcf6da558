//! Rules by job: of those on one device the stricter counts (docs/decisions/0036-policy-by-job.md).

use super::{exclusion, groups};
use crate::model::Contention;
use crate::plan::Reason;
use crate::planner::plan;
use crate::policy::{FirstRuns, GuestRule, JobRules, Policy, UserPolicy};
use crate::testing::{device, device_with, job, tenant, view};
use crate::view::{ClusterView, GuestTenant, Tenant, WaitingJob};
use pillion_core::UserId;
use pillion_core::device::Mechanism::Mps;
use pillion_core::isolation::Isolation;
use pillion_core::share::Sharing;
use proptest::prelude::*;

fn usual() -> JobRules {
    JobRules { from_override: Some(1), ..Policy::default().of_jobs() }
}

fn open() -> JobRules {
    JobRules { users: UserPolicy::Any, ..usual() }
}

/// Of another user than the tests' own.
fn stranger(id: u32, rules: JobRules) -> WaitingJob {
    WaitingJob { uid: UserId(1001), rules: Some(rules), ..job(id, "light") }
}

fn own(id: u32, rules: JobRules) -> WaitingJob {
    WaitingJob { rules: Some(rules), ..job(id, "light") }
}

/// Whether the two share one device where there are two, and what keeps them apart.
fn share(one: WaitingJob, other: WaitingJob) -> Result<(), Option<Reason>> {
    let ids = [&one, &other].map(|job| job.start.job_id.id);
    let view = view(vec![device("g0", Mps), device("g1", Mps)], vec![one, other]);
    let plan = plan(&view, &Contention, &Policy::default());
    if groups(&plan) == vec![ids.to_vec()] { Ok(()) } else { Err(exclusion(&plan, ids[0], ids[1])) }
}

#[test]
fn of_two_the_stricter_rule_counts_whoever_has_it() {
    assert_eq!(share(own(1, open()), stranger(2, open())), Ok(()));
    let guest = |job: WaitingJob| WaitingJob { as_guest: true, ..job };
    for (strict, why) in [
        (JobRules { users: UserPolicy::SameUser, ..open() }, Some(Reason::UserPolicy)),
        (JobRules { isolation: Isolation::Hard, ..open() }, Some(Reason::NeedsWall)),
        (JobRules { tenants_max: 1, ..open() }, None),
    ] {
        for (one, other) in [(strict, open()), (open(), strict)] {
            let found = share(own(1, one), stranger(2, other));
            assert!(found.is_err() && (why.is_none() || found == Err(why)), "{strict:?}: {found:?}");
        }
    }
    let never = JobRules { guests: GuestRule::Never, ..open() };
    assert_eq!(share(own(1, open()), guest(own(2, open()))), Ok(()));
    assert_eq!(share(own(1, never), guest(own(2, open()))), Err(Some(Reason::NoGuests)));
    assert_eq!(share(guest(own(1, open())), own(2, never)), Err(Some(Reason::NoGuests)));
    assert_eq!(share(own(1, never), own(2, open())), Ok(()), "who is no guest may");
}

#[test]
fn accounts_are_compared_by_whoever_wants_it() {
    let same = JobRules { users: UserPolicy::SameAccount, ..usual() };
    let of_account = |job: WaitingJob, account: &str| WaitingJob { account: account.into(), ..job };
    let both = |a: &str, b: &str| share(of_account(own(1, same), a), of_account(stranger(2, open()), b));
    assert_eq!((both("lab", "lab"), both("lab", "other")), (Ok(()), Err(Some(Reason::UserPolicy))));
}

/// A host that runs, with room beside it.
fn host(rules: JobRules) -> Tenant {
    Tenant { rules: Some(rules), sharing: Sharing::by(Mps, None, None), ..tenant(7, "light", 7200) }
}

#[test]
fn who_runs_is_under_his_rules_too() {
    let joins = |host: Tenant, joiner: WaitingJob| {
        let view = view(vec![device_with("g0", Mps, host)], vec![joiner]);
        !plan(&view, &Contention, &Policy::default()).pairings.is_empty()
    };
    assert!(joins(host(open()), stranger(1, open())));
    assert!(!joins(host(usual()), stranger(1, open())) && !joins(host(open()), stranger(1, usual())));
    assert!(!joins(host(JobRules { tenants_max: 1, ..open() }), stranger(1, open())));
    let never = JobRules { guests: GuestRule::Never, ..open() };
    let guest = WaitingJob { as_guest: true, ..stranger(1, open()) };
    assert!(joins(host(open()), guest.clone()) && !joins(host(never), guest));
    let as_guest = GuestTenant { cpus: 1, memory_mib: 1, started_at: None, is_leaving: false };
    let of_guest = Tenant { guest: Some(as_guest), ..host(open()) };
    assert!(joins(of_guest.clone(), own(1, open())) && !joins(of_guest, own(1, never)));
}

#[test]
fn it_is_told_which_part_of_the_policy_was_applied() {
    let waiting =
        vec![own(1, JobRules { from_override: Some(3), ..open() }), stranger(2, usual()), job(3, "heavy")];
    let plan = plan(&view(vec![device("g0", Mps)], waiting), &Contention, &Policy::default());
    let members = plan.pairings.iter().flat_map(|pairing| &pairing.members).map(|member| &member.explanation);
    let mut texts: Vec<_> =
        members.chain(&plan.left_waiting).map(|one| (one.job_id.id, one.text.to_string())).collect();
    texts.sort();
    assert!(texts[0].1.ends_with("(by the site's policy.override[3])"), "{texts:?}");
    assert!(texts[1].1.ends_with("(by the site's policy.override[1])"), "{texts:?}");
    assert!(!texts[2].1.contains("override"), "{texts:?}");
}

fn rules() -> impl Strategy<Value = JobRules> {
    let users = prop_oneof![Just(UserPolicy::SameUser), Just(UserPolicy::SameAccount), Just(UserPolicy::Any)];
    let isolation = prop_oneof![4 => Just(Isolation::Shared), 1 => Just(Isolation::Hard)];
    let guests = prop_oneof![Just(GuestRule::Beside), Just(GuestRule::Never)];
    (users, isolation, 1..5_u32, any::<bool>(), guests).prop_map(
        |(users, isolation, tenants_max, caps, guests)| JobRules {
            from_override: Some(1),
            users,
            isolation,
            tenants_max,
            caps,
            first_runs: FirstRuns::Alone,
            is_parted: true,
            trials: false,
            guests,
        },
    )
}

/// One on a device: whose it is, his account, his rules, and whether he is a guest.
type Present = (UserId, String, JobRules, bool);

fn a_present() -> impl Strategy<Value = (u32, u32, JobRules, bool, bool)> {
    (1000..1003_u32, 0..2_u32, rules(), any::<bool>(), any::<bool>())
}

fn a_view() -> impl Strategy<Value = ClusterView> {
    (prop::collection::vec(a_present(), 0..4), prop::collection::vec(a_present(), 1..12), 0..4_usize)
        .prop_map(|(hosts, jobs, free)| {
            let mut devices: Vec<_> = (0..free).map(|at| device(&format!("f{at}"), Mps)).collect();
            for (at, (uid, account, rules, is_guest, is_light)) in hosts.into_iter().enumerate() {
                let as_guest = GuestTenant { cpus: 1, memory_mib: 1, started_at: None, is_leaving: false };
                let host = Tenant {
                    uid: UserId(uid),
                    account: format!("a{account}"),
                    rules: Some(rules),
                    guest: is_guest.then_some(as_guest),
                    sharing: Sharing::by(Mps, None, None),
                    ..tenant(u32::try_from(900 + at).unwrap(), if is_light { "light" } else { "half" }, 7200)
                };
                devices.push(device_with(&format!("g{at}"), Mps, host));
            }
            let waiting =
                jobs.into_iter().zip(1..).map(|((uid, account, rules, as_guest, is_light), id)| WaitingJob {
                    uid: UserId(uid),
                    account: format!("a{account}").into(),
                    rules: Some(rules),
                    as_guest,
                    ..job(id, if is_light { "light" } else { "half" })
                });
            view(devices, waiting.collect())
        })
}

fn forbids(
    (uid, account, rules, _): &Present,
    (other_uid, other_account, _, other_is_guest): &Present,
    count: usize,
) -> bool {
    let is_stranger = uid != other_uid;
    let is_let = match rules.users {
        UserPolicy::SameUser => !is_stranger,
        UserPolicy::SameAccount => !is_stranger || account == other_account,
        UserPolicy::Any => true,
    };
    let needs_wall = is_stranger && rules.isolation == Isolation::Hard;
    !is_let
        || needs_wall
        || count > rules.tenants_max as usize
        || (*other_is_guest && rules.guests == GuestRule::Never)
}

proptest! {
    #[test]
    fn nobody_is_beside_one_whom_the_rules_of_either_forbid(view in a_view()) {
        for pairing in plan(&view, &Contention, &Policy::default()).pairings {
            let device = view.devices.iter().find(|device| pairing.gres_types.contains(&device.gres_type)).unwrap();
            let mut all: Vec<Present> = device
                .tenants
                .iter()
                .map(|tenant| (tenant.uid, tenant.account.clone(), tenant.rules.unwrap(), tenant.guest.is_some()))
                .collect();
            for member in &pairing.members {
                let job = view.waiting.iter().find(|job| job.start == member.start).unwrap();
                prop_assert!(job.rules.unwrap().caps || member.sharing.cap().is_none(), "a cap on one that may have none");
                all.push((job.uid, job.account.to_string(), job.rules.unwrap(), job.as_guest));
            }
            for (at, one) in all.iter().enumerate() {
                for other in all.iter().skip(at + 1) {
                    prop_assert!(!forbids(one, other, all.len()) && !forbids(other, one, all.len()), "{one:?} {other:?}");
                }
            }
        }
    }

    /// What is the same for all may be said of each.
    #[test]
    fn said_of_each_or_of_all_the_plan_is_one(mut view in a_view(), users in 0..3_usize) {
        let users = [UserPolicy::SameUser, UserPolicy::SameAccount, UserPolicy::Any][users];
        let policy = Policy { users, ..Policy::default() };
        let mut of_each = |rules: Option<JobRules>| {
            view.waiting.iter_mut().for_each(|job| job.rules = rules);
            view.devices.iter_mut().flat_map(|device| &mut device.tenants).for_each(|tenant| tenant.rules = rules);
            plan(&view, &Contention, &policy)
        };
        prop_assert_eq!(of_each(None), of_each(Some(policy.of_jobs())));
    }
}
