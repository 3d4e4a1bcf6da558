//! Jobs that run several processes on their GPU, as MPI programs do: after a run alone has shown how many they are and how much each
//! takes, they share, each held to its part by MPS (docs/decisions/0040-several-processes.md).

use crate::faults::wait_for_event;
use crate::restart::{PAIR, mps_nodes};
use crate::rides::{
    KNOWN_SECONDS, SOON, Watched, Words, decisions, load, make_known_as, member_of, profile_count, script,
    starts, submit,
};
use pillion_core::SlurmJobId;
use pillion_tests::wait::{Look, wait_for};
use pillion_tests::{Cluster, ClusterSpec};

/// The workload of several.
const RANKS: &str = "ranks";
/// Of simulated seconds: long enough to be met by the other, and to be looked at.
const LONG_SECONDS: u32 = 1500;

/// Ranks side by side, each with so much memory; the job fails where one of them does.
fn ranks(seconds: u32, memory: &[&str]) -> String {
    let run = |each: &&str| format!("pillion-load launch-bound --seconds {seconds} --memory {each} &\n");
    let all: String = memory.iter().map(run).collect();
    script(&format!("{all}failed=0\nfor each in $(jobs -p); do wait $each || failed=1; done\nexit $failed"))
}

fn start() -> Cluster {
    let mut cluster =
        Cluster::start(ClusterSpec { pool_nodes: mps_nodes(), ..ClusterSpec::default() }).unwrap();
    cluster.start_pillion().unwrap();
    let before = profile_count(&cluster).unwrap();
    let first = submit(&cluster, "alice", RANKS, &ranks(KNOWN_SECONDS, &["2G", "1G"]), &[]);
    cluster.wait_for_job(first, &["COMPLETED"], SOON).unwrap();
    wait_for("its profile", SOON, || {
        let count = profile_count(&cluster)? - before;
        Ok(if count > 0 { Look::Ready(()) } else { Look::NotYet("none".to_owned()) })
    })
    .unwrap();
    make_known_as(&cluster, "alice", &[(PAIR[0], PAIR[0])]);
    cluster
}

/// The ranks and a job of one process on one GPU.
fn together(cluster: &Cluster, memory: &[&str]) -> [SlurmJobId; 2] {
    let begin = cluster.begin_together(3).unwrap();
    let jobs = [
        submit(cluster, "alice", RANKS, &ranks(LONG_SECONDS, memory), &[&begin]),
        submit(cluster, "alice", PAIR[0], &load(PAIR[0], LONG_SECONDS), &[&begin]),
    ];
    wait_for("two tenants of one GPU", SOON, || {
        let mut watched = Watched::default();
        watched.look(cluster)?;
        let is_pair = watched.together.contains(&((jobs[0], 0), (jobs[1], 0)));
        Ok(if is_pair { Look::Ready(()) } else { Look::NotYet(format!("{watched:?}")) })
    })
    .unwrap();
    jobs
}

/// The limit of each process that the start's environment tells, in MiB.
fn limit_mebibytes(start: &Words) -> u64 {
    let text = start["limit"].strip_prefix("0=").and_then(|rest| rest.strip_suffix('M'));
    text.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{start:?}"))
}

#[test]
fn several_processes_share_once_it_is_known_how_many_they_are_and_how_much_each_takes() {
    let cluster = start();
    let jobs = together(&cluster, &["2G", "1G"]);
    let told = cluster.pillion_as("alice", &["why", &jobs[0].to_string()]).unwrap().stdout().unwrap();
    assert!(told.contains("of GPU memory a process"), "{told}");
    for job in jobs {
        let fields = cluster.wait_for_job(job, &["COMPLETED", "FAILED"], 3 * SOON).unwrap();
        assert_eq!((fields["JobState"].as_str(), fields["Restarts"].as_str()), ("COMPLETED", "0"), "{job}");
    }
    // 1. The larger of the two fits into its part, and what all have is twice that.
    let of_ranks = starts(&cluster, "alice", jobs[0]).remove(0);
    let each = limit_mebibytes(&of_ranks);
    assert!((2048..2560).contains(&each), "{of_ranks:?}");
    // 2. Nobody is held to a cap that would count for each process by itself.
    assert_eq!(of_ranks.get("cap").map(String::as_str), Some(""), "{of_ranks:?}");
    // 3. Both were measured, and kept what was promised.
    let all = decisions(&cluster);
    for job in jobs {
        let (_, member) = member_of(&all, job, 0).unwrap();
        let speed = member["measured_speed_fraction"].as_f64();
        assert!(speed.is_none_or(|speed| speed * 1.25 >= 0.97), "{member}");
    }
}

/// Under the same name it runs more than were ever seen: each within its limit, and all of them beyond what was kept for them.
#[test]
fn more_processes_than_were_seen_do_not_take_their_neighbours_memory() {
    let cluster = start();
    let jobs = together(&cluster, &["2G", "2G", "2G"]);
    let fields = cluster.wait_for_job(jobs[0], &["FAILED", "COMPLETED"], 2 * SOON).unwrap();
    assert_eq!(fields["JobState"], "FAILED");
    let told = wait_for_event(&cluster, jobs[0], "out-of-memory");
    assert!(told.contains("its processes together held more device memory than its share allows"), "{told}");
    let fields = cluster.wait_for_job(jobs[1], &["COMPLETED", "FAILED"], 3 * SOON).unwrap();
    assert_eq!(
        (fields["JobState"].as_str(), fields["Restarts"].as_str()),
        ("COMPLETED", "0"),
        "its neighbour"
    );
}
