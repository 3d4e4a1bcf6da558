//! What Slurm does, as a table over its trait: the double must do the same as Slurm was seen to do. The double's own test runs it on
//! the double, in virtual time; `tests/e2e/fidelity.rs` runs it on whichever real Slurm the end-to-end tests have.

#![expect(clippy::unwrap_used, reason = "a table of tests fails by panicking")]

pub use crate::bed::{Bed, JobTest};
use crate::{FakeArray, FakeJob};
use pillion_core::{NodeName, SlurmJobId, UnixTime};
use pillion_slurm::{JobState, JobUpdate, NodeAvailability, ReasonKind, Requeued, SlurmError};
use std::time::Duration;

fn waiting(bed: &dyn Bed, gres: &str) -> FakeJob {
    FakeJob { begin: Some(bed.now() + Duration::from_hours(1)), ..job(gres) }
}

fn job(gres: &str) -> FakeJob {
    FakeJob { gres: gres.to_owned(), memory_mib: 100, ..FakeJob::default() }
}

fn pinned(gres: &str, node: &str) -> FakeJob {
    FakeJob { required_nodes: vec![NodeName::new(node)], ..job(gres) }
}

fn gres(gres: &str) -> JobUpdate {
    JobUpdate { gres: Some(gres.to_owned()), ..JobUpdate::default() }
}

fn comment(text: &str) -> JobUpdate {
    JobUpdate { admin_comment: Some(text.to_owned()), ..JobUpdate::default() }
}

fn start(at: UnixTime) -> JobUpdate {
    JobUpdate { start_time: Some(at), ..JobUpdate::default() }
}

/// The second call of a release.
fn release(gres: &str, node: &str, at: UnixTime) -> JobUpdate {
    JobUpdate {
        gres: Some(gres.to_owned()),
        required_nodes: Some(node.to_owned()),
        admin_comment: Some("pillion1;lease=5".to_owned()),
        start_time: Some(at),
        partition: None,
    }
}

async fn update(bed: &dyn Bed, id: SlurmJobId, update: &JobUpdate) -> Result<(), SlurmError> {
    bed.slurm().update(&[id], update).await
}

fn refusal<T: std::fmt::Debug>(result: Result<T, SlurmError>) -> String {
    match result {
        Err(SlurmError::Failed { detail, .. }) => detail,
        other => panic!("not refused: {other:?}"),
    }
}

async fn one_refused_job_does_not_keep_the_others(bed: &dyn Bed) {
    let first = bed.submit(waiting(bed, "shard:100")).await;
    let runs = bed.submit(job("shard:g1:10")).await;
    let last = bed.submit(waiting(bed, "shard:100")).await;
    let array = FakeArray { tasks: vec![1, 2], throttle: None };
    let array = bed.submit(FakeJob { array: Some(array), ..waiting(bed, "shard:100") }).await;
    let task = SlurmJobId::array_task(array.id, 2);
    bed.running(runs).await;
    let later = UnixTime::from_epoch(bed.now().epoch() + 7200);
    let unknown = SlurmJobId::plain(999_999);
    let jobs = [first, runs, unknown, task, last];
    let detail = refusal(bed.slurm().update(&jobs, &start(later)).await);
    assert!(detail.contains("no longer pending") || detail.contains("Invalid job id"), "{detail}");
    for id in [first, task, last] {
        assert_eq!(bed.job(id).await.eligible_at, Some(later), "{id}");
    }
    assert_ne!(bed.job(SlurmJobId::array_task(array.id, 1)).await.eligible_at, Some(later));
}

async fn a_release_starts_the_job_on_its_device(bed: &dyn Bed) {
    let id = bed.submit(waiting(bed, "shard:100,lscratch:100")).await;
    assert_eq!(bed.looked_at(id).await.reason, ReasonKind::BeginTime);
    update(bed, id, &release("shard:g1:40,lscratch:100", "n2", bed.now())).await.unwrap();
    let job = bed.running(id).await;
    assert_eq!((job.gres.as_str(), &job.nodes), ("shard:g1:40,lscratch:100", &vec![NodeName::new("n2")]));
    assert_eq!(job.mark.unwrap().unwrap().lease_epoch, Some(5));
    let nodes = bed.slurm().nodes().await.unwrap();
    let used: Vec<_> =
        nodes.iter().find(|n| n.name.as_str() == "n2").unwrap().shards.values().copied().collect();
    assert_eq!(used, [(100, 0), (100, 40)]);
}

async fn a_running_job_refuses_all_but_its_comment(bed: &dyn Bed) {
    let id = bed.submit(job("shard:g1:10")).await;
    bed.running(id).await;
    assert!(refusal(update(bed, id, &start(bed.now())).await).contains("no longer pending"));
    assert!(refusal(update(bed, id, &gres("shard:g0:10")).await).contains("no longer pending"));
    let release = release("shard:g0:10", "n2", bed.now());
    assert!(refusal(update(bed, id, &release).await).contains("Invalid node name"));
    let job = bed.job(id).await;
    assert_eq!((job.gres.as_str(), job.required_nodes.len(), job.mark), ("shard:g1:10", 0, Ok(None)));
    update(bed, id, &comment("pillion1;w=a")).await.unwrap();
    // The comment is applied before the begin time is refused.
    let both = JobUpdate { start_time: Some(bed.now()), ..comment("pillion1;w=b") };
    refusal(update(bed, id, &both).await);
    assert_eq!(bed.job(id).await.mark.unwrap().unwrap().workload_digest, "b");
}

async fn a_refused_update_may_leave_the_node_list(bed: &dyn Bed) {
    let per_job = FakeJob { gres: String::new(), gres_per_job: Some("gpu:1".to_owned()), ..waiting(bed, "") };
    let per_job = bed.submit(per_job).await;
    let plain = bed.submit(waiting(bed, "shard:100")).await;
    for (id, gres) in [(per_job, "shard:g1:40"), (plain, "nosuch:1")] {
        let before = bed.job(id).await;
        let detail = refusal(update(bed, id, &release(gres, "n2", bed.now())).await);
        assert!(detail.contains("Invalid generic resource"), "{detail}");
        let job = bed.job(id).await;
        assert_eq!(job.required_nodes, [NodeName::new("n2")]);
        assert_eq!((job.gres, job.eligible_at, job.mark), (before.gres, before.eligible_at, Ok(None)));
    }
    let nosuch = JobUpdate { required_nodes: Some("nosuch".to_owned()), ..comment("pillion1;w=c") };
    assert!(refusal(update(bed, plain, &nosuch).await).contains("Invalid node name"));
    let nosuch = JobUpdate { partition: Some("nosuch".to_owned()), ..gres("shard:g1:1") };
    assert!(refusal(update(bed, plain, &nosuch).await).contains("Invalid partition name"));
    let job = bed.job(plain).await;
    assert_eq!((job.gres.as_str(), job.mark), ("shard:100", Ok(None)));
}

async fn what_no_node_can_run_is_set_aside(bed: &dyn Bed) {
    let excludes = FakeJob { excluded_nodes: vec![NodeName::new("n2")], ..waiting(bed, "shard:100") };
    let demands = FakeJob { features: "fast&h100".to_owned(), ..waiting(bed, "shard:100") };
    let cases = [
        (excludes, release("shard:g1:40", "n2", bed.now())),
        (demands, release("shard:g1:40", "n2", bed.now())),
        (waiting(bed, "shard:100"), release("shard:gX:10", "n1", bed.now())),
        (waiting(bed, "shard:100"), release("shard:g1:101", "n1", bed.now())),
    ];
    for (job, release) in cases {
        let id = bed.submit(job).await;
        update(bed, id, &release).await.unwrap();
        let aside = bed.until(id, "set aside", |job| job.priority == 0).await;
        assert_eq!(aside.reason, ReasonKind::Other("BadConstraints".to_owned()));
        // Released as it is, it is set aside again.
        bed.release(id).await;
        bed.until(id, "set aside again", |job| job.priority == 0).await;
        // An update of anything gives it a priority again; the undo lets it run.
        let undo = JobUpdate { required_nodes: Some(String::new()), ..gres("shard:100") };
        update(bed, id, &undo).await.unwrap();
        assert_eq!(bed.running(id).await.gres, "shard:100");
        bed.cancel(id).await;
    }
}

async fn a_requeue_keeps_the_shards_and_the_pin(bed: &dyn Bed) {
    let id = bed.submit(pinned("shard:g1:40", "n2")).await;
    bed.running(id).await;
    let before = bed.now().epoch();
    bed.slurm().requeue(id, Requeued::Running).await.unwrap();
    // The restart is counted while the job still cleans up.
    assert_eq!(bed.job(id).await.restart_count, 1);
    let job = bed.looked_at(id).await;
    assert_eq!((job.restart_count, job.gres.as_str(), job.reason), (1, "shard:g1:40", ReasonKind::BeginTime));
    assert_eq!(job.required_nodes, [NodeName::new("n2")]);
    // Slurm counts from some second between the order and what is seen here, which a busy machine sees late.
    let eligible = job.eligible_at.unwrap().epoch();
    assert!((before + 120..=bed.now().epoch() + 122).contains(&eligible), "{before} to {eligible}");
    assert!(refusal(bed.slurm().requeue(id, Requeued::Over).await).contains("pending"));
    // Who means one that runs is not told that it waits.
    bed.slurm().requeue(id, Requeued::Running).await.unwrap();
    assert_eq!(bed.job(id).await.restart_count, 1);
    // Slurm compares whole seconds: one that is started again in the second of its requeue is killed ("Job credential revoked").
    while bed.now().epoch() < eligible - 118 {
        bed.wait().await;
    }
    update(bed, id, &start(bed.now())).await.unwrap();
    bed.running(id).await;
    bed.cancel(id).await;
    bed.until(id, "over", |job| matches!(job.state, JobState::Ended(_))).await;
    assert!(refusal(update(bed, id, &gres("shard:100")).await).contains("already finished"));
    // Its user ended it: only who means a job that is over starts it again, whatever Slurm says to the other.
    let _ = bed.slurm().requeue(id, Requeued::Running).await;
    assert_eq!(bed.job(id).await.restart_count, 1);
    bed.slurm().requeue(id, Requeued::Over).await.unwrap();
    assert_eq!(bed.until(id, "waiting", |job| job.state == JobState::Pending).await.restart_count, 2);
    refusal(bed.slurm().requeue(SlurmJobId::plain(999_999), Requeued::Over).await);
}

async fn a_job_not_to_be_requeued_is_not(bed: &dyn Bed) {
    let id = bed.submit(FakeJob { requeue: false, ..job("shard:g1:40") }).await;
    bed.running(id).await;
    for which in [Requeued::Running, Requeued::Over] {
        assert!(refusal(bed.slurm().requeue(id, which).await).contains("disabled"));
    }
    assert_eq!(bed.job(id).await.state, JobState::Running);
}

async fn shards_are_never_booked_twice(bed: &dyn Bed) {
    let first = bed.submit(pinned("shard:g1:40", "n1")).await;
    let second = bed.submit(pinned("shard:g1:60", "n1")).await;
    bed.running(first).await;
    bed.running(second).await;
    // An exclusive one takes the other device, then there is room for nothing more.
    let whole = bed.submit(pinned("shard:100", "n1")).await;
    bed.running(whole).await;
    let third = bed.submit(pinned("shard:g1:1", "n1")).await;
    assert!(matches!(bed.looked_at(third).await.reason, ReasonKind::Resources(_)));
    let next = bed.submit(pinned("shard:100", "n1")).await;
    assert!(matches!(bed.looked_at(next).await.reason, ReasonKind::Resources(_)));
    bed.cancel(first).await;
    bed.running(third).await;
    assert_eq!(bed.job(next).await.state, JobState::Pending);
}

async fn a_waiting_job_keeps_later_ones_off_its_node(bed: &dyn Bed) {
    let host = bed.submit(pinned("shard:g1:100", "n1")).await;
    bed.running(host).await;
    let waits = bed.submit(pinned("shard:g1:1", "n1")).await;
    assert!(matches!(bed.looked_at(waits).await.reason, ReasonKind::Resources(_)));
    // The other device is free, but backfill plans whole nodes here: whoever would end later has to wait.
    let long = bed.submit(FakeJob { time_limit_seconds: Some(7200), ..pinned("shard:g0:10", "n1") }).await;
    assert!(matches!(bed.looked_at(long).await.reason, ReasonKind::Resources(_)));
    let short = bed.submit(FakeJob { time_limit_seconds: Some(300), ..pinned("shard:g0:10", "n1") }).await;
    bed.running(short).await;
    let elsewhere = bed.submit(pinned("shard:g0:10", "n2")).await;
    bed.running(elsewhere).await;
    assert_eq!(bed.job(long).await.state, JobState::Pending);
    bed.cancel(waits).await;
    bed.running(long).await;
}

async fn untyped_shards_take_the_first_device_with_room(bed: &dyn Bed) {
    for (typed, untyped, expected) in [
        ("shard:g1:30", "shard:50", [(100, 50), (100, 30)]),
        ("shard:g0:30", "shard:50", [(100, 80), (100, 0)]),
        ("shard:g0:60", "shard:50", [(100, 60), (100, 50)]),
        ("shard:g0:1", "shard:100", [(100, 1), (100, 100)]),
    ] {
        for gres in [typed, untyped] {
            let id = bed.submit(pinned(gres, "n1")).await;
            bed.running(id).await;
        }
        let nodes = bed.slurm().nodes().await.unwrap();
        let node = nodes.iter().find(|node| node.name.as_str() == "n1").unwrap();
        assert_eq!(node.shards.values().copied().collect::<Vec<_>>(), expected, "{typed} {untyped}");
        bed.clear().await;
    }
}

async fn shards_and_whole_devices_exclude_each_other(bed: &dyn Bed) {
    let shards = bed.submit(pinned("shard:g0:1", "n1")).await;
    bed.running(shards).await;
    let gpu = bed.submit(pinned("gpu:g0:1", "n1")).await;
    assert!(matches!(bed.looked_at(gpu).await.reason, ReasonKind::Resources(_)));
    bed.cancel(shards).await;
    bed.running(gpu).await;
    let shards = bed.submit(pinned("shard:g0:1", "n1")).await;
    assert!(matches!(bed.looked_at(shards).await.reason, ReasonKind::Resources(_)));
}

async fn a_list_is_booked_on_each_of_its_nodes(bed: &dyn Bed) {
    let other = bed.submit(pinned("shard:g0:10", "n1")).await;
    bed.running(other).await;
    let on_both = |gres: &str| FakeJob { node_count: 2, ..waiting(bed, gres) };
    let moved = bed.submit(on_both("shard:g0:100")).await;
    let stays = bed.submit(on_both("shard:g0:100")).await;
    // It is let go with the other device, and begins at once.
    let let_go = JobUpdate { start_time: Some(bed.now()), ..gres("shard:g1:100") };
    update(bed, moved, &let_go).await.unwrap();
    update(bed, stays, &start(bed.now())).await.unwrap();
    let job = bed.running(moved).await;
    assert_eq!(job.nodes, [NodeName::new("n1"), NodeName::new("n2")]);
    assert_eq!(job.cpus, 2, "of both nodes");
    for node in bed.slurm().nodes().await.unwrap() {
        assert_eq!(node.shards.values().last(), Some(&(100, 100)), "{}", node.name);
    }
    assert!(matches!(bed.looked_at(stays).await.reason, ReasonKind::Resources(_)));
    bed.cancel(other).await;
    bed.running(stays).await;
}

async fn a_pin_waits_for_its_node(bed: &dyn Bed) {
    bed.drain("n2", true).await;
    let nodes = bed.slurm().nodes().await.unwrap();
    let state =
        |name: &str| nodes.iter().find(|node| node.name.as_str() == name).unwrap().availability.clone();
    assert_eq!(state("n1"), NodeAvailability::Up);
    assert!(matches!(state("n2"), NodeAvailability::Unavailable(word) if word.contains("DRAIN")));
    let id = bed.submit(pinned("shard:g1:40", "n2")).await;
    let job = bed.looked_at(id).await;
    assert!(matches!(job.reason, ReasonKind::Resources(_)) && job.priority > 0, "{job:?}");
    bed.drain("n2", false).await;
    bed.running(id).await;
    // CPUs and memory are waited for as well.
    let cpus = bed.submit(FakeJob { cpus: 8, ..pinned("shard:g0:1", "n2") }).await;
    let memory = bed.submit(FakeJob { memory_mib: 8000, ..pinned("shard:g0:1", "n2") }).await;
    assert!(matches!(bed.looked_at(cpus).await.reason, ReasonKind::Resources(_)));
    assert!(matches!(bed.looked_at(memory).await.reason, ReasonKind::Resources(_)));
}

async fn an_array_throttle_keeps_a_released_task_waiting(bed: &dyn Bed) {
    let array = FakeArray { tasks: vec![1, 2, 3], throttle: Some(1) };
    let mark = "pillion1;w=a".to_owned();
    let array =
        bed.submit(FakeJob { array: Some(array), admin_comment: mark, ..waiting(bed, "shard:100") }).await;
    let task = |number| SlurmJobId::array_task(array.id, number);
    let all = [task(1), task(2), task(3)];
    bed.slurm().update(&all, &start(bed.now() + Duration::from_mins(30))).await.unwrap();
    for id in all {
        assert_eq!(bed.job(id).await.array_throttle, Some(1), "{id}");
    }
    update(bed, task(1), &release("shard:g0:10", "n1", bed.now())).await.unwrap();
    bed.running(task(1)).await;
    update(bed, task(2), &release("shard:g0:10", "n1", bed.now())).await.unwrap();
    let job = bed.until(task(2), "limited", |job| matches!(job.reason, ReasonKind::Limit(_))).await;
    assert_eq!(job.reason, ReasonKind::Limit("JobArrayTaskLimit".to_owned()));
    assert_ne!(job.inner_id, array.id);
    bed.cancel(task(1)).await;
    bed.running(task(2)).await;
}

async fn tasks_of_an_array_are_listed_each_as_it_is(bed: &dyn Bed) {
    let array = FakeArray { tasks: (1..=9).collect(), throttle: None };
    let array = bed.submit(FakeJob { array: Some(array), ..waiting(bed, "shard:100") }).await;
    for number in 1..=5 {
        let task = SlurmJobId::array_task(array.id, number);
        update(bed, task, &gres(&format!("shard:g1:{number}"))).await.unwrap();
    }
    let scan = bed.slurm().jobs(&["shared".to_owned()]).await.unwrap();
    let mut listed: Vec<_> = scan.jobs.into_iter().filter(|job| job.id.id == array.id).collect();
    listed.sort_by_key(|job| job.id);
    let gres: Vec<_> = listed.iter().map(|job| job.gres.as_str()).collect();
    assert_eq!(gres[..5], ["shard:g1:1", "shard:g1:2", "shard:g1:3", "shard:g1:4", "shard:g1:5"]);
    assert_eq!(gres[5..], ["shard:100"; 4]);
}

async fn a_begin_time_that_is_past_means_now(bed: &dyn Bed) {
    for past in [UnixTime::from_epoch(0), UnixTime::from_epoch(1), bed.now()] {
        let id = bed.submit(waiting(bed, "shard:g0:10")).await;
        update(bed, id, &start(past)).await.unwrap();
        let job = bed.running(id).await;
        assert!(bed.now().seconds_since(job.eligible_at.unwrap()) < 60.0);
    }
}

async fn a_hold_outlives_updates(bed: &dyn Bed) {
    let submitted = bed.submit(FakeJob { held: true, ..job("shard:g0:10") }).await;
    let held = bed.submit(waiting(bed, "shard:g0:10")).await;
    bed.hold(held).await;
    for id in [submitted, held] {
        update(bed, id, &release("shard:g1:20", "n1", bed.now())).await.unwrap();
    }
    let other = bed.submit(job("shard:g0:10")).await;
    bed.running(other).await;
    for id in [submitted, held] {
        let job = bed.job(id).await;
        assert_eq!((job.priority, job.state), (0, JobState::Pending));
        assert!(matches!(job.reason, ReasonKind::Held(_)), "{:?}", job.reason);
        bed.release(id).await;
        bed.running(id).await;
    }
}

async fn a_dependency_is_still_waited_for(bed: &dyn Bed) {
    let first = bed.submit(job("shard:g0:10")).await;
    let second = bed.submit(FakeJob { dependency: Some(first), ..job("shard:g0:10") }).await;
    bed.running(first).await;
    update(bed, second, &release("shard:g1:20", "n1", bed.now())).await.unwrap();
    let job = bed.looked_at(second).await;
    assert_eq!((job.reason, job.has_dependency), (ReasonKind::Dependency, true));
    bed.cancel(first).await;
    assert!(!bed.running(second).await.has_dependency);
}

/// What users may call their jobs stands in no other job's name, and nobody else's job comes of it.
async fn names_are_whole_and_make_no_jobs(bed: &dyn Bed) {
    let long = "x".repeat(1000);
    let hostile =
        ["", "train.sh", "a\n33;RUNNING\n", ";7f3a9c.\n", "\u{1b}[2J\u{202e}evil", "JobId=1 Name=b", &long];
    let mut jobs = Vec::new();
    for name in hostile {
        jobs.push(bed.submit(FakeJob { name: name.to_owned(), ..waiting(bed, "shard:100") }).await);
    }
    let array = FakeArray { tasks: vec![1, 2], throttle: None };
    let array = FakeJob { array: Some(array), name: "swarm".to_owned(), ..waiting(bed, "shard:100") };
    let task = SlurmJobId::array_task(bed.submit(array).await.id, 2);
    let gone = SlurmJobId::plain(999_999);
    let asked: Vec<SlurmJobId> = jobs.iter().copied().chain([gone, task]).collect();
    let names = bed.slurm().job_names(&asked).await.unwrap();
    let expected = jobs.iter().copied().zip(["wrap"].into_iter().chain(hostile.into_iter().skip(1)));
    let expected = expected.chain([(task, "swarm")]).map(|(id, name)| (id, name.to_owned()));
    assert_eq!(names, expected.collect());
    assert_eq!(bed.slurm().job_names(&[gone]).await.unwrap(), [].into());
}

/// Nobody is started where he would not have ended before a reservation of others begins, however short of it he will be in the end.
async fn who_would_meet_a_reservation_waits(bed: &dyn Bed) {
    assert_eq!(bed.slurm().reservations().await.unwrap(), []);
    let begin = UnixTime::from_epoch(bed.now().epoch() + 3600);
    bed.reserve(Some(("n1", begin))).await;
    let reserved = bed.slurm().reservations().await.unwrap();
    let [reservation] = reserved.as_slice() else { panic!("{reserved:?}") };
    assert_eq!(
        (reservation.nodes.as_slice(), reservation.starts_at),
        ([NodeName::new("n1")].as_slice(), begin)
    );
    assert_eq!(reservation.ends_at, begin + Duration::from_hours(1));
    let limited =
        |minutes: u64| FakeJob { time_limit_seconds: Some(minutes * 60), ..pinned("shard:g0:10", "n1") };
    let short = bed.submit(limited(30)).await;
    bed.running(short).await;
    let long = bed.submit(limited(90)).await;
    assert!(matches!(bed.looked_at(long).await.reason, ReasonKind::Resources(_)));
    let elsewhere = bed.submit(FakeJob { required_nodes: Vec::new(), ..limited(90) }).await;
    assert_eq!(bed.running(elsewhere).await.nodes, [NodeName::new("n2")]);
    bed.reserve(None).await;
    bed.running(long).await;
}

macro_rules! table {
    ($bed:expr; $($row:ident)*) => {$(
        println!("{}", stringify!($row));
        $row($bed).await;
        $bed.clear().await;
    )*};
}

/// Runs every row, each on an empty cluster.
///
/// # Panics
/// Where Slurm does otherwise.
pub async fn behaviours(bed: &dyn Bed) {
    bed.clear().await;
    table! { bed;
        one_refused_job_does_not_keep_the_others
        a_release_starts_the_job_on_its_device
        a_running_job_refuses_all_but_its_comment
        a_refused_update_may_leave_the_node_list
        what_no_node_can_run_is_set_aside
        a_requeue_keeps_the_shards_and_the_pin
        a_job_not_to_be_requeued_is_not
        shards_are_never_booked_twice
        a_waiting_job_keeps_later_ones_off_its_node
        untyped_shards_take_the_first_device_with_room
        shards_and_whole_devices_exclude_each_other
        a_list_is_booked_on_each_of_its_nodes
        a_pin_waits_for_its_node
        who_would_meet_a_reservation_waits
        an_array_throttle_keeps_a_released_task_waiting
        tasks_of_an_array_are_listed_each_as_it_is
        a_begin_time_that_is_past_means_now
        a_hold_outlives_updates
        a_dependency_is_still_waited_for
        names_are_whole_and_make_no_jobs
    }
}
