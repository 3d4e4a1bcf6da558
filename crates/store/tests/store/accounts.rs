//! What runs used and gained: by any filter and in any stretch of time the sum of the runs that it means, however the store
//! finds it.

use crate::fixtures::{LESSON, account, at, gres, node, start, summary, summary_report};
use pillion_core::event::EventKind;
use pillion_core::report::JobSummary;
use pillion_core::{NodeName, UnixTime, UserId, WorkloadKey};
use pillion_store::postgres::PgStore;
use pillion_store::prelude::*;
use pillion_store::{Account, Event, GroupBy, MemoryAlarms, RunAccount, RunFilter, SliceLesson, Store, Sums};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use std::collections::BTreeMap;
use std::sync::Arc;

fn all() -> RunFilter {
    RunFilter {
        since: at(0),
        until: at(1000),
        user: None,
        account: None,
        partition: None,
        workload: None,
        nodes: vec![],
        uid: None,
    }
}

/// Stores a run and its account.
async fn keep(store: &dyn Store, id: u32, run: &RunAccount) {
    let summary = JobSummary { ended_at: run.ended_at, ..summary(id) };
    let sequence = u64::from(id) + 1;
    assert!(store.ingest(&node(), "j", &summary_report(sequence, summary)).await.expect("stored"));
    store.profile_run(start(id), &gres(), run, &LESSON, None).await.expect("profiled");
}

pub(crate) async fn what_runs_used_and_gained_is_told_by_filter(store: Arc<PgStore>) {
    let (first, second) = (account(1), account(2));
    for (id, run) in [(1, &first), (2, &second)] {
        keep(&*store, id, run).await;
    }
    store.ingest(&node(), "j", &summary_report(9, summary(3))).await.expect("stored");
    let found = async |filter: &RunFilter| store.accounts(filter, GroupBy::Nothing).await.expect("read");
    let one = Account { key: String::new(), sums: first.sums.clone() };
    let mut sums = first.sums.clone();
    sums.add(&second.sums);
    assert_eq!(found(&all()).await, [Account { key: String::new(), sums }], "the third is not profiled yet");
    assert_eq!(found(&RunFilter { until: at(72), ..all() }).await, [one], "until is not included");
    assert_eq!(found(&RunFilter { since: at(72), ..all() }).await[0].sums.run_count, 1, "since is");
    assert_eq!(found(&RunFilter { since: at(73), ..all() }).await, []);

    store.profile_run(start(1), &gres(), &second, &LESSON, None).await.expect("known already");
    assert_eq!(found(&all()).await[0].sums.run_count, 2, "a run counts once");

    let own = |word: &str| Some(word.to_owned());
    let fitting = RunFilter {
        user: own(&first.user),
        account: own(&first.account),
        partition: own(&first.partition),
        workload: own(first.workload.as_str()),
        nodes: vec![NodeName::new("elsewhere"), node()],
        uid: Some(first.uid),
        ..all()
    };
    assert_eq!(found(&fitting).await[0].sums.run_count, 2);
    let none = [
        RunFilter { user: own("nobody"), ..fitting.clone() },
        RunFilter { account: own("none"), ..fitting.clone() },
        RunFilter { partition: own("none"), ..fitting.clone() },
        RunFilter { workload: own("none"), ..fitting.clone() },
        RunFilter { nodes: vec![NodeName::new("elsewhere")], ..fitting.clone() },
        RunFilter { uid: Some(UserId(4711)), ..fitting },
    ];
    for filter in none {
        assert_eq!(found(&filter).await, [], "{filter:?}");
    }
}

pub(crate) async fn of_runs_that_were_said_to_run_out_of_memory_those_that_did_are_counted(
    store: Arc<PgStore>,
) {
    let (first, second) = (account(1), account(2));
    let ended = |run: &RunAccount| run.ended_at.epoch();
    for (id, run) in [(1, &first), (2, &second)] {
        keep(&*store, id, run).await;
    }
    let tell = async |id: u32, second: u64, kind: EventKind| {
        let (job_id, detail) = (Some(start(id).job_id), String::new());
        let event = Event { at: UnixTime::from_epoch(second), kind, job_id, node: None, detail };
        store.record_event(&event).await.expect("recorded");
    };
    let alarms = async |filter: &RunFilter| {
        let MemoryAlarms { told, came_true } = store.memory_alarms(filter).await.expect("read");
        (told, came_true)
    };
    tell(1, ended(&first), EventKind::OutOfMemory).await;
    assert_eq!(alarms(&all()).await, (0, 0), "nobody was told of it before");
    tell(1, ended(&first) - 5, EventKind::MemoryGrowing).await;
    tell(2, ended(&second) - 5, EventKind::MemoryGrowing).await;
    // Of a later start of it.
    tell(2, ended(&second) + 3_600, EventKind::OutOfMemory).await;
    // Its run is not over.
    tell(3, 10, EventKind::MemoryGrowing).await;
    assert_eq!(alarms(&all()).await, (2, 1));
    assert_eq!(
        alarms(&RunFilter { user: Some(first.user.clone()), uid: Some(first.uid), ..all() }).await.1,
        1
    );
    assert_eq!(alarms(&RunFilter { uid: Some(UserId(4711)), ..all() }).await, (0, 0));
    assert_eq!(alarms(&RunFilter { until: first.ended_at, ..all() }).await, (0, 0), "until is not included");
}

pub(crate) async fn what_runs_gained_is_told_by_the_size_of_their_instance(store: Arc<PgStore>) {
    let lesson = |profile: &str| SliceLesson {
        device_model: "h100".to_owned(),
        profile: profile.parse().expect("a size"),
        memory_bytes: None,
        has_completed: true,
        ran_out_of_memory: false,
        speed_fraction: None,
    };
    let sizes = [None, Some("1g.10gb"), Some("3g.40gb"), Some("1g.10gb")];
    for (id, size) in (1..).zip(sizes) {
        keep(&*store, id, &RunAccount { slice: size.map(lesson), ..account(id) }).await;
    }
    let found = store.accounts(&all(), GroupBy::Instance).await.expect("read");
    let counts: Vec<(&str, u32)> = found.iter().map(|it| (it.key.as_str(), it.sums.run_count)).collect();
    assert_eq!(counts, [("1g.10gb", 2), ("3g.40gb", 1), ("none", 1)]);
}

/// How many seconds the runs of the property end in: some days, with whole hours among them.
const STRETCH: u32 = 300_000;

fn moment() -> impl Strategy<Value = UnixTime> {
    // Some on the hour itself, which `at` never is.
    let (hours, odd) = (0..STRETCH / 3600, 0..STRETCH);
    prop_oneof![
        hours.prop_map(|hour| UnixTime::from_seconds(1_789_999_200.0 + 3600.0 * f64::from(hour))),
        odd.prop_map(at),
    ]
}

/// A run of one of two users, each in one of two accounts, on one of three nodes. Its sums are whole numbers, which add up
/// to the same in every order.
fn run() -> impl Strategy<Value = RunAccount> {
    let sums = (0_u32..2, 0_u32..1000, 0_i32..2000);
    (moment(), 0_usize..2, 0_usize..2, 0_usize..3, sums).prop_map(
        |(ended_at, user, account, node, (shared, used, saved))| RunAccount {
            uid: UserId(if user == 0 { 1000 } else { 1001 }),
            user: ["alice", "bob"][user].to_owned(),
            account: ["physics", "Chemie"][account].to_owned(),
            partition: ["shared", "short"][(user + account) % 2].to_owned(),
            workload: WorkloadKey::new(format!("w{}", user + 2 * account)),
            node: NodeName::new(["n1", "n2", "n3"][node]),
            ended_at,
            sums: Sums {
                run_count: 1,
                shared_run_count: shared,
                gpu_seconds: f64::from(used),
                shared_seconds: f64::from(used / 2),
                unmeasured_seconds: f64::from(used / 3),
                gpu_seconds_saved: f64::from(saved - 1000),
                energy_joules: f64::from(used * 3),
                energy_joules_saved: f64::from(saved),
                promises_kept: shared,
                promises_broken: 1 - shared,
                sent_back_run_count: shared,
            },
            use_beyond_fraction: None,
            slice: None,
        },
    )
}

fn question() -> impl Strategy<Value = (RunFilter, GroupBy)> {
    let day = prop_oneof![Just(0), Just(3600), Just(-7200), Just(19_800), Just(-12_345)];
    let group = prop_oneof![
        Just(GroupBy::Nothing),
        Just(GroupBy::User),
        Just(GroupBy::Account),
        Just(GroupBy::Partition),
        Just(GroupBy::Workload),
        Just(GroupBy::Node),
        day.prop_map(|utc_offset_seconds| GroupBy::Day { utc_offset_seconds }),
    ];
    let word = |words: [&'static str; 2]| prop::option::of(prop::sample::select(words.to_vec()));
    let nodes = prop::collection::vec(prop::sample::select(vec!["n1", "n3"]), 0..2);
    let filter = (
        (moment(), moment()),
        word(["alice", "bob"]),
        word(["physics", "Chemie"]),
        word(["w0", "w3"]),
        nodes,
        prop::option::weighted(0.3, prop::sample::select(vec![1000, 1001])),
    );
    (filter, group).prop_map(|(((a, b), user, account, workload, nodes, uid), group)| {
        let own = |word: Option<&str>| word.map(str::to_owned);
        let filter = RunFilter {
            since: if a < b { a } else { b },
            until: if a < b { b } else { a },
            user: own(user),
            account: own(account),
            partition: None,
            workload: own(workload),
            nodes: nodes.into_iter().map(NodeName::new).collect(),
            uid: uid.map(UserId),
        };
        (filter, group)
    })
}

/// One run after the other, by nothing that the stores have.
fn expected(runs: &[RunAccount], filter: &RunFilter, group: GroupBy) -> Vec<Account> {
    let is = |wanted: &Option<String>, own: &str| wanted.as_deref().is_none_or(|wanted| wanted == own);
    let mut groups: BTreeMap<String, Sums> = BTreeMap::new();
    for run in runs {
        let is_meant = filter.since <= run.ended_at
            && run.ended_at < filter.until
            && is(&filter.user, &run.user)
            && is(&filter.account, &run.account)
            && is(&filter.workload, run.workload.as_str())
            && (filter.nodes.is_empty() || filter.nodes.contains(&run.node))
            && filter.uid.is_none_or(|uid| uid == run.uid);
        let key = match group {
            GroupBy::Nothing => String::new(),
            GroupBy::User => run.user.clone(),
            GroupBy::Account => run.account.clone(),
            GroupBy::Partition => run.partition.clone(),
            GroupBy::Workload => run.workload.to_string(),
            GroupBy::Node => run.node.to_string(),
            GroupBy::Instance => {
                run.slice.as_ref().map_or_else(|| "none".to_owned(), |slice| slice.profile.to_string())
            }
            GroupBy::Day { utc_offset_seconds } => {
                // 1,789,948,800 is the midnight that began 2026-09-21, in UTC.
                let seconds = run.ended_at.seconds() + f64::from(utc_offset_seconds) - 1_789_948_800.0;
                let days = (seconds / 86_400.0).floor();
                format!("2026-09-{:02}", 21.0 + days)
            }
        };
        if is_meant {
            groups.entry(key).or_default().add(&run.sums);
        }
    }
    groups.into_iter().map(|(key, sums)| Account { key, sums }).collect()
}

/// The same in every run of the test.
fn drawn<T: std::fmt::Debug>(of: impl Strategy<Value = T>, count: usize) -> Vec<T> {
    let mut random = TestRunner::deterministic();
    prop::collection::vec(of, count).new_tree(&mut random).expect("drawn").current()
}

pub(crate) async fn hours_and_runs_add_up_to_the_same(store: Arc<PgStore>) {
    let runs = drawn(run(), 150);
    for (id, run) in (1..).zip(&runs) {
        keep(&*store, id, run).await;
    }
    let mut told = 0;
    for (filter, group) in drawn(question(), 300) {
        let found = store.accounts(&filter, group).await.expect("read");
        told += found.len();
        assert_eq!(found, expected(&runs, &filter, group), "{filter:?} by {group:?}");
    }
    assert!(told > 300, "the questions ask for nothing: {told} rows");
}
