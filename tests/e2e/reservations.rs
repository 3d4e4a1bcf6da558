//! Nodes that an admin has reserved: whoever would not have ended before is not let go onto one, and shares when that is over.

use crate::rides::{KNOWN_SECONDS, SOON, decisions, load, make_known, member_of, submit};
use crate::scheduler_death::count;
use pillion_core::SlurmJobId;
use pillion_core::device::Mechanism;
use pillion_tests::cluster::spec::PoolNode;
use pillion_tests::wait::wait_until;
use pillion_tests::{Cluster, ClusterSpec};

const KNOWN: [&str; 2] = ["resnet50-infer", "bert-small-batch"];

#[test]
fn who_would_meet_a_reservation_waits_without_a_decision_and_shares_afterwards() {
    let pool_nodes = vec![PoolNode::new("n1", "h200", Mechanism::Mps)];
    let mut cluster = Cluster::start(ClusterSpec { pool_nodes, ..ClusterSpec::default() }).unwrap();
    cluster.start_pillion().unwrap();
    make_known(&cluster, &["alice"], &KNOWN, &[&[]]);
    let metrics = cluster.metrics_address("scheduler").unwrap();
    let maintenance = ["StartTime=now+1800", "Duration=60", "Nodes=n1", "Users=root", "Flags=MAINT"];
    let create = ["create", "reservation", "ReservationName=maint"];
    cluster.scontrol(&[&create[..], &maintenance].concat()).unwrap();
    let reads = || count(metrics, "pillion_slurm_call_duration_seconds_count{call=\"reservations\"}");
    let before = reads();
    wait_until("it is known", SOON, || Ok(reads() > before + 1)).unwrap();

    let begin = cluster.begin_together(3).unwrap();
    let submit_for = |name: &str, minutes: &str| {
        submit(&cluster, "alice", name, &load(name, KNOWN_SECONDS), &["-t", minutes, &begin])
    };
    let long = KNOWN.map(|name| submit_for(name, "60"));
    let short = submit_for(KNOWN[0], "20");
    cluster.wait_for_job(short, &["COMPLETED"], SOON).unwrap();
    let told =
        |job: SlurmJobId| cluster.pillion_as("alice", &["explain", &job.to_string()]).unwrap().stdout();
    for job in long {
        wait_until("a word on the reservation", SOON, || {
            Ok(told(job)?.contains("are reserved for others before its time limit would be over"))
        })
        .unwrap();
        assert_eq!(cluster.job_field(job, "JobState").unwrap(), "PENDING");
        assert!(member_of(&decisions(&cluster), job, 0).is_none(), "nothing was decided for {job}");
    }

    cluster.scontrol(&["delete", "ReservationName=maint"]).unwrap();
    for job in long {
        cluster.wait_for_job(job, &["COMPLETED"], SOON).unwrap();
    }
    let all = decisions(&cluster);
    let groups = long.map(|job| member_of(&all, job, 0).unwrap().0["group_id"].as_u64());
    assert_eq!(groups[0], groups[1], "they were not paired: {all:#?}");
}
