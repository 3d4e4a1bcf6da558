//! Who dies between two steps of the release of several GPUs, and comes back while it goes on: the job runs once, and whole.

use crate::gangs::{WORK, has_whole, start_on, submit};
use crate::leases::{Journal, SCHEDULER, SOON, wait_for_fail_point, wait_until_settled};
use crate::outage::Postgres;
use pillion_core::SlurmJobId;
use pillion_tests::Cluster;
use rustix::process::Signal;

/// Long enough to stop the scheduler there.
const POINTS: [&str; 2] = ["release-before-release", "release-after-release"];

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
