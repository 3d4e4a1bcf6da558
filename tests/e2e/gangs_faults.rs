//! Who dies while a job of several GPUs waits, between two steps of its release or when it is let go, and comes back at once, later or
//! never: the job runs once, and whole.

use crate::gangs::{WORK, has_whole, numbers, start_on, submit};
use crate::leases::{
    Journal, SCHEDULER, SOON, UNTIL_TOLD, epoch_of, let_end, let_end_of, scontrol_as_alice,
    wait_for_fail_point, wait_for_member, wait_until_settled, why,
};
use crate::outage::Postgres;
use crate::scheduler_death::{BOUND_SECONDS, Moment, starts_within_the_bound};
use pillion_core::{Clock as _, SlurmJobId, SystemClock};
use pillion_tests::Cluster;
use pillion_tests::wait::wait_until;
use rustix::process::Signal;

/// Long enough to stop the scheduler there.
const POINTS: [&str; 2] = ["release-before-release", "release-after-release"];

/// Submits a job of two GPUs and kills the scheduler at this moment of it, perhaps with the agent. The job runs until it is told.
fn die_with_it(cluster: &mut Cluster, moment: Moment, with_agent: bool) -> SlurmJobId {
    moment.prepare(cluster);
    let job = submit(cluster, "alice", &format!("{WORK}\n{UNTIL_TOLD}"), &["--gres=gpu:2"]);
    let mark = cluster.job_field(job, "AdminComment").unwrap();
    assert!(mark.starts_with("pillion2;"), "job {job} is not managed: '{mark}'");
    moment.wait(cluster, &[job]);
    cluster.kill_scheduler(Signal::KILL).unwrap();
    if with_agent {
        cluster.kill_agent("n1", Signal::KILL).unwrap();
    }
    job
}

/// Ends such a job and checks that it ran once, on two whole GPUs, and that nothing stays open. Gives what it printed.
fn ran_once_and_whole(cluster: &Cluster, job: SlurmJobId) -> String {
    let_end(cluster, job);
    let printed = cluster.finished_output(job, SOON).unwrap();
    has_whole(&printed, 2);
    assert!(printed.contains("restarts=0") && printed.ends_with("ended\n"), "{printed}");
    wait_until_settled(cluster, job);
    let journal = Journal::of(cluster, job);
    assert_eq!((journal.starts(), journal.ends()), (1, 1), "{journal:?}");
    printed
}

/// Who dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dies {
    Agent,
    Postgres,
    /// It forgets what it was told in the last seconds.
    Slurmctld,
    Slurmd,
}

impl Dies {
    const ALL: [Self; 4] = [Self::Agent, Self::Postgres, Self::Slurmctld, Self::Slurmd];

    fn die(self, cluster: &mut Cluster) {
        match self {
            Self::Agent => cluster.kill_agent("n1", Signal::KILL).unwrap(),
            Self::Postgres => Postgres::of(cluster).stop(Signal::KILL, true),
            Self::Slurmctld => cluster.stop_slurmctld(Signal::KILL).unwrap(),
            Self::Slurmd => cluster.stop_slurmd("n1", Signal::KILL).unwrap(),
        }
    }

    fn come_back(self, cluster: &mut Cluster) {
        match self {
            Self::Agent => cluster.start_agent("n1").unwrap(),
            Self::Postgres => Postgres::of(cluster).give_back(),
            Self::Slurmctld => cluster.start_slurmctld().unwrap(),
            Self::Slurmd => cluster.start_slurmd("n1").unwrap(),
        }
    }
}

/// Lets one die while the scheduler stands still at a point of this job's release, goes on without it, and has it back.
fn die_at(cluster: &mut Cluster, point: &str, dies: Dies, job: SlurmJobId) {
    wait_for_fail_point(cluster, job, point);
    cluster.daemon(SCHEDULER).unwrap().signal(Signal::STOP);
    dies.die(cluster);
    cluster.daemon(SCHEDULER).unwrap().signal(Signal::CONT);
    dies.come_back(cluster);
}

#[test]
fn whoever_dies_between_two_steps_the_job_runs_once_and_whole() {
    let mut cluster = start_on(&["n1"], 30);
    for point in POINTS {
        cluster.kill_scheduler(Signal::TERM).unwrap();
        cluster.start_scheduler_with_failpoints(&format!("{point}=sleep(4000)")).unwrap();
        for dies in Dies::ALL {
            // Jobs that slurmctld has not written down yet, and starts that it forgets, are so without us as well (`killed`).
            if dies == Dies::Slurmctld && point == POINTS[1] {
                continue;
            }
            let begin: &[&str] = if dies == Dies::Slurmctld { &["--begin=now+8"] } else { &[] };
            let job = submit(&cluster, "alice", WORK, &[&["--gres=gpu:2"], begin].concat());
            die_at(&mut cluster, point, dies, job);
            let printed = cluster.finished_output(job, SOON).unwrap();
            println!("{point}, {dies:?}: {printed}");
            has_whole(&printed, 2);
            assert!(printed.contains("restarts=0"), "{point}, {dies:?}: {printed}");
            let journal = Journal::of(&cluster, job);
            assert_eq!(journal.starts(), 1, "{point}, {dies:?}: {journal:?}");
            assert!(journal.releases() <= 1, "{point}, {dies:?}: {journal:?}");
            wait_until_settled(&cluster, job);
        }
    }
    // Nobody was left out of the pool by it.
    let job = submit(&cluster, "alice", WORK, &["--gres=gpu:4"]);
    let printed = cluster.finished_output(job, SOON).unwrap();
    has_whole(&printed, 4);
    assert!(!printed.contains("decision=none"), "{printed}");
}

/// The bound is far away: only the scheduler can start them.
#[test]
fn a_scheduler_that_comes_back_at_once_carries_on_where_it_was_with_the_agent_or_without() {
    let mut cluster = start_on(&["n1"], 600);
    for with_agent in [false, true] {
        for moment in Moment::ALL {
            let job = die_with_it(&mut cluster, moment, with_agent);
            if with_agent {
                cluster.start_agent("n1").unwrap();
            }
            cluster.start_scheduler().unwrap();
            cluster.wait_for_job(job, &["RUNNING"], SOON).unwrap();
            wait_for_member(&cluster, job, &["running"]);
            let printed = ran_once_and_whole(&cluster, job);
            // Where it was released already, it may have started while there was no agent to tell it.
            let is_told = !with_agent || moment != Moment::AfterRelease;
            assert!(!is_told || !printed.contains("decision=none"), "{moment:?}, {with_agent}: {printed}");
            let journal = Journal::of(&cluster, job);
            assert_eq!(
                (journal.releases(), journal.undos()),
                (1, 0),
                "{moment:?}, {with_agent}: {journal:?}"
            );
        }
    }
}

#[test]
fn a_scheduler_and_an_agent_that_die_together_and_stay_away_cost_one_bound_at_most() {
    let mut cluster = start_on(&["n1"], BOUND_SECONDS);
    for moment in Moment::ALL {
        let job = die_with_it(&mut cluster, moment, true);
        let died_at = SystemClock.now().epoch();
        starts_within_the_bound(&cluster, job, died_at);
        let releases = Journal::of(&cluster, job).releases();
        assert_eq!(releases, usize::from(moment == Moment::AfterRelease), "{moment:?}");
        // They come back while it runs: what Slurm started by itself is let go, what was released is the scheduler's own again.
        cluster.start_agent("n1").unwrap();
        cluster.start_scheduler().unwrap();
        if releases == 1 {
            wait_for_member(&cluster, job, &["running"]);
        } else {
            wait_until_settled(&cluster, job);
        }
        ran_once_and_whole(&cluster, job);
        assert_eq!(Journal::of(&cluster, job).releases(), releases, "{moment:?}");
    }
}

/// Two GPUs of each of two nodes.
const TWO_OF_TWO: [&str; 3] = ["-N2", "--gres=gpu:2", "-n2"];
/// What each node gives it.
const ON_EACH_NODE: &str = "srun -n2 -N2 sh -c 'echo node=$SLURMD_NODENAME gpus=$CUDA_VISIBLE_DEVICES'";
/// How far ahead the begin time of a job may be that is started again: Slurm itself has it wait for two minutes.
const RESTART_SECONDS_MAX: u64 = 130;

/// Checks what a job printed that has so many GPUs of each of both nodes.
fn has_of_both_nodes(printed: &str, count: usize) {
    let of_nodes = ["n1", "n2"].map(|node| numbers(printed, &format!("node={node} gpus=")));
    assert!(of_nodes[0].len() == count && of_nodes[0] == of_nodes[1], "{printed}");
}

/// A job of two nodes waits for one that holds a node; the scheduler dies while it waits or, where `is_let_go`, when its turn has come.
/// Slurm starts the job without it.
fn start_without_scheduler(cluster: &mut Cluster, is_let_go: bool) -> SlurmJobId {
    let holds = submit(cluster, "bob", UNTIL_TOLD, &["--gres=gpu:4"]);
    wait_for_member(cluster, holds, &["running"]);
    let job = submit(cluster, "alice", &format!("{ON_EACH_NODE}\n{UNTIL_TOLD}"), &TWO_OF_TWO);
    wait_until("why it waits", SOON, || {
        Ok(why(cluster, "alice", job).contains("no 2 nodes have 2 GPUs that are wholly free"))
    })
    .unwrap();
    if is_let_go {
        let_end_of(cluster, "bob", holds);
        wait_until("its turn", SOON, || Ok(cluster.job_field(job, "AdminComment")?.contains(";go=")))
            .unwrap();
        cluster.kill_scheduler(Signal::KILL).unwrap();
    } else {
        cluster.kill_scheduler(Signal::KILL).unwrap();
        let_end_of(cluster, "bob", holds);
    }
    cluster.wait_for_job(job, &["RUNNING"], SOON).unwrap();
    assert_eq!(cluster.job_field(job, "AdminComment").unwrap().contains(";go="), is_let_go);
    job
}

#[test]
fn a_job_of_two_nodes_whose_scheduler_dies_and_that_is_requeued_ends_once_and_leaves_nothing() {
    let mut cluster = start_on(&["n1", "n2"], 30);
    for is_let_go in [false, true] {
        let job = start_without_scheduler(&mut cluster, is_let_go);
        cluster.start_scheduler().unwrap();
        scontrol_as_alice(&cluster, &["requeue", &job.to_string()]);
        cluster.wait_for_job(job, &["PENDING"], SOON).unwrap();
        let now = SystemClock.now().epoch();
        let begins_at = epoch_of(&cluster, job, "EligibleTime").unwrap_or(now);
        assert!(begins_at <= now + RESTART_SECONDS_MAX, "at {now} it is held back until {begins_at}");
        cluster.wait_for_job(job, &["RUNNING"], 3 * SOON).unwrap();
        let_end(&cluster, job);
        let printed = cluster.finished_output(job, SOON).unwrap();
        has_of_both_nodes(&printed, 2);
        assert!(printed.contains("restarts=1") && printed.matches("ended\n").count() == 1, "{printed}");
        let fields = cluster.job(job).unwrap();
        assert!(!fields["AdminComment"].contains(";lease="), "{fields:?}");
        let journal = Journal::of(&cluster, job);
        assert_eq!((journal.starts(), journal.releases()), (2, 0), "{is_let_go}: {journal:?}");
    }
    // No shard of either node is booked by what is over.
    let all = submit(&cluster, "alice", ON_EACH_NODE, &["-N2", "--gres=gpu:4", "-n2"]);
    has_of_both_nodes(&cluster.finished_output(all, SOON).unwrap(), 4);
}
