//! The scheduler is killed between any two steps of a release: every job runs, exactly once, at the latest one bound
//! later; after a restart nothing is released twice and nothing stays open.

use crate::leases::{
    Journal, SCHEDULER, SOON, UNTIL_TOLD, epoch_of, explain, let_end, stands_at, wait_for_member,
    wait_until_settled,
};
use pillion_core::{Clock as _, SlurmJobId, SystemClock};
use pillion_tests::monitoring::get;
use pillion_tests::wait::{Look, wait_for, wait_until};
use pillion_tests::{Cluster, ClusterSpec};
use rustix::process::Signal;
use std::net::SocketAddr;

pub(crate) const BOUND_SECONDS: u64 = 15;
/// How long Slurm itself may take from a begin time to the start, on a busy machine.
const START_SECONDS_MAX: u64 = 10;

/// When the scheduler is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    BeforeDeciding,
    /// The decision is committed, Slurm knows nothing of it.
    BeforeRelease,
    /// Slurm has the release, our database has not.
    AfterRelease,
}

impl Moment {
    pub(crate) const ALL: [Self; 3] = [Self::BeforeDeciding, Self::BeforeRelease, Self::AfterRelease];

    fn failpoints(self) -> &'static str {
        match self {
            Self::BeforeDeciding => "",
            Self::BeforeRelease => "release-before-release=pause",
            Self::AfterRelease => "release-after-release=pause",
        }
    }

    /// Whether this job is where the scheduler stands still now.
    fn has_come(self, cluster: &Cluster, job: SlurmJobId) -> bool {
        match self {
            Self::BeforeDeciding => true,
            Self::BeforeRelease => stands_at(cluster, job, "release-before-release"),
            Self::AfterRelease => Journal::of(cluster, job).releases() > 0,
        }
    }

    /// Starts the scheduler anew so that it stands still there.
    pub(crate) fn prepare(self, cluster: &mut Cluster) {
        cluster.kill_scheduler(Signal::TERM).unwrap();
        cluster.start_scheduler_with_failpoints(self.failpoints()).unwrap();
        if self == Self::BeforeDeciding {
            cluster.daemon(SCHEDULER).unwrap().signal(Signal::STOP);
        }
    }

    /// Waits until it stands still with one of these jobs.
    pub(crate) fn wait(self, cluster: &Cluster, jobs: &[SlurmJobId]) {
        wait_for(&format!("{self:?}"), SOON, || {
            let has_come = jobs.iter().any(|job| self.has_come(cluster, *job));
            Ok(if has_come { Look::Ready(()) } else { Look::NotYet("it has not come".into()) })
        })
        .unwrap();
    }
}

fn submit(cluster: &Cluster) -> SlurmJobId {
    let arguments = ["--colocate", "--gres=gpu:1", "-c1", "--mem=100", "-t10"];
    let job = cluster.submit_as("alice", UNTIL_TOLD, &arguments).unwrap();
    let mark = cluster.job_field(job, "AdminComment").unwrap();
    assert!(mark.starts_with("pillion1;"), "job {job} is not managed: '{mark}'");
    job
}

/// Submits two jobs and kills the scheduler at the moment given, of whichever comes first. Returns when it was dead.
fn die(cluster: &mut Cluster, moment: Moment) -> ([SlurmJobId; 2], u64) {
    moment.prepare(cluster);
    let jobs = [submit(cluster), submit(cluster)];
    moment.wait(cluster, &jobs);
    cluster.kill_scheduler(Signal::KILL).unwrap();
    (jobs, SystemClock.now().epoch())
}

/// Waits until a job runs without a scheduler, and checks that it was not held back for more than [`BOUND_SECONDS`].
pub(crate) fn starts_within_the_bound(cluster: &Cluster, job: SlurmJobId, died_at: u64) {
    let fields = cluster.wait_for_job(job, &["RUNNING"], SOON).unwrap();
    let (eligible, started) = (epoch_of(cluster, job, "EligibleTime"), epoch_of(cluster, job, "StartTime"));
    let (eligible, started) = (eligible.unwrap(), started.unwrap());
    assert!(
        eligible <= died_at + BOUND_SECONDS,
        "job {job} was held back until {eligible}, death was at {died_at}"
    );
    assert!(started <= eligible + START_SECONDS_MAX, "job {job}: {fields:?}");
}

/// Ends a job and checks that it ran once, and was released as often as it should.
fn ran_once(cluster: &Cluster, job: SlurmJobId) {
    let_end(cluster, job);
    let printed = cluster.finished_output(job, SOON).unwrap();
    assert_eq!(printed, "started restarts=0\nended\n");
    wait_until_settled(cluster, job);
    assert_eq!(cluster.job_field(job, "Restarts").unwrap(), "0");
    let journal = Journal::of(cluster, job);
    assert_eq!((journal.starts(), journal.ends()), (1, 1), "{journal:?}");
}

fn releases(cluster: &Cluster, jobs: &[SlurmJobId]) -> usize {
    jobs.iter().map(|job| Journal::of(cluster, *job).releases()).sum()
}

#[test]
fn a_scheduler_that_dies_at_any_moment_costs_one_bound_at_most() {
    let spec = ClusterSpec { bound_seconds: BOUND_SECONDS, ..ClusterSpec::default() };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_pillion().unwrap();
    for moment in Moment::ALL {
        let (jobs, died_at) = die(&mut cluster, moment);
        for job in jobs {
            starts_within_the_bound(&cluster, job, died_at);
        }
        // Releases go side by side: the other one may have been on its way to Slurm already.
        let released = releases(&cluster, &jobs);
        let may_be = if moment == Moment::AfterRelease { 1..=2 } else { 0..=0 };
        assert!(may_be.contains(&released), "{moment:?}: {released} of {jobs:?} were released");
        // It comes back while both run: what Slurm started by itself is let go, what it had released is its own again.
        cluster.start_scheduler().unwrap();
        let (own, others): (Vec<SlurmJobId>, Vec<SlurmJobId>) =
            jobs.into_iter().partition(|job| Journal::of(&cluster, *job).releases() == 1);
        for job in own {
            wait_for_member(&cluster, job, &["running"]);
        }
        for job in others {
            wait_for(&format!("job {job} known to the scheduler"), SOON, || {
                Ok(explain(&cluster, job)?.map_or_else(|| Look::NotYet("it is not".into()), Look::Ready))
            })
            .unwrap();
            wait_until_settled(&cluster, job);
        }
        for job in jobs {
            ran_once(&cluster, job);
        }
        assert_eq!(releases(&cluster, &jobs), released, "{moment:?}");
        println!("{moment:?}: {jobs:?} ran once, {released} of them released");
    }
}

#[test]
fn a_scheduler_that_comes_back_at_once_carries_on_where_it_was() {
    // The bound is far away: only the scheduler can start them.
    let mut cluster = Cluster::start(ClusterSpec { bound_seconds: 600, ..ClusterSpec::default() }).unwrap();
    cluster.start_pillion().unwrap();
    for moment in Moment::ALL {
        let (jobs, _) = die(&mut cluster, moment);
        cluster.start_scheduler().unwrap();
        for job in jobs {
            cluster.wait_for_job(job, &["RUNNING"], SOON).unwrap();
            let standing = wait_for_member(&cluster, job, &["running"]);
            assert_eq!(standing.decision, "released", "{moment:?}");
        }
        for job in jobs {
            ran_once(&cluster, job);
            let journal = Journal::of(&cluster, job);
            assert_eq!((journal.releases(), journal.undos()), (1, 0), "{moment:?} {journal:?}");
        }
    }
}

/// How often a task of a scheduler has ticked.
fn ticks(metrics: SocketAddr, task: &str) -> u64 {
    count(metrics, &format!("pillion_task_duration_seconds_count{{task=\"{task}\"}}"))
}

/// A count on a scheduler's page of metrics; 0 where it is not there.
pub(crate) fn count(metrics: SocketAddr, series: &str) -> u64 {
    let page = get(metrics, "/metrics").unwrap_or_default();
    let words = format!("{series} ");
    page.lines().find_map(|line| line.strip_prefix(&words)?.parse().ok()).unwrap_or_default()
}

/// Whether a line of a daemon's log ends so.
fn says(cluster: &Cluster, daemon: &str, words: &str) -> bool {
    let log = cluster.layout().log(&format!("{daemon}.out"));
    let text = std::fs::read_to_string(log).unwrap_or_default();
    text.lines().any(|line| line.ends_with(words))
}

/// A standby whose scans are older than what the leader did since: each job begins, runs and ends between two of them.
#[test]
fn a_second_scheduler_that_stands_by_gives_up_nothing_of_what_the_first_does() {
    let mut cluster = Cluster::start(ClusterSpec { bound_seconds: 600, ..ClusterSpec::default() }).unwrap();
    cluster.start_pillion().unwrap();
    // As seldom as may be configured: its scan is never so old that it would not act by it.
    let second = cluster.start_second_scheduler(10.0).unwrap();
    let metrics = cluster.metrics_address("scheduler-second").unwrap();
    wait_until("the standby has looked", SOON, || Ok(ticks(metrics, "watch") > 0)).unwrap();
    for _ in 0..3 {
        let job = submit(&cluster);
        cluster.wait_for_job(job, &["RUNNING"], SOON).unwrap();
        wait_for_member(&cluster, job, &["running"]);
        let before = ticks(metrics, "release");
        wait_until("more ticks of the standby", SOON, || Ok(ticks(metrics, "release") > before + 2)).unwrap();
        assert_eq!(wait_for_member(&cluster, job, &["running", "ended", "undone"]).member, "running");
        ran_once(&cluster, job);
        let standing = wait_for_member(&cluster, job, &["ended", "undone"]);
        assert_eq!((standing.member.as_str(), Journal::of(&cluster, job).undos()), ("ended", 0));
    }
    // Frozen, it is followed; when it wakes it knows, before it does anything.
    cluster.daemon(SCHEDULER).unwrap().signal(Signal::STOP);
    wait_until("the other one leads", SOON, || Ok(says(&cluster, second, " leading"))).unwrap();
    cluster.daemon(SCHEDULER).unwrap().signal(Signal::CONT);
    let deposed = "not leading any more: the connection to the database broke";
    wait_until("the first one knows", SOON, || Ok(says(&cluster, SCHEDULER, deposed))).unwrap();
}
