//! A user who lies: a workload is measured while it does next to nothing, and what runs under its name beside others then is
//! another. He is found out while it runs, nobody joins him, and he shares with nobody for some runs, under whatever name.

use crate::faults::wait_for_event;
use crate::rides::{KNOWN_SECONDS, SOON, decisions, load, member_of, profile_count, script, starts, submit};
use pillion_core::SlurmJobId;
use pillion_core::device::Mechanism;
use pillion_tests::cluster::spec::{PoolNode, SharingPolicy};
use pillion_tests::wait::{Look, wait_for};
use pillion_tests::{Cluster, ClusterSpec};
use serde_json::Value;

/// Of real time: a run of [`KNOWN_SECONDS`] of the simulated machine is below it, one of [`ENOUGH_SECONDS`] above.
const SOLO_SECONDS_MIN: u32 = 11;
/// In seconds of the simulated machine: enough at once, and long enough for everything that is tried beside it.
const ENOUGH_SECONDS: u32 = 900;
const LONG_SECONDS: u32 = 2700;
/// The names that bob makes up: for a short run, for one that is long enough, and one that nobody knows yet.
const BRIEF: &str = "brief";
const QUIET: &str = "quiet";
const OTHER: &str = "other";
/// Alice's, which are as they say.
const HONEST: [&str; 2] = ["bert-small-batch", "resnet50-infer"];

/// What his name was measured as, and what it is when it counts: the same memory, so that no memory limit stops it.
fn light(seconds: u32) -> String {
    script(&format!("exec pillion-load launch-bound --memory 2G --seconds {seconds}"))
}
fn heavy(seconds: u32) -> String {
    script(&format!("exec pillion-load gemm-hog --memory 2G --seconds {seconds}"))
}

fn told(cluster: &Cluster, user: &str, command: &str, job: SlurmJobId) -> String {
    cluster.pillion_as(user, &[command, &job.to_string()]).unwrap().stdout().unwrap()
}

/// Waits until a job runs, and gives the group of its decision.
fn group_of(cluster: &Cluster, job: SlurmJobId) -> u64 {
    cluster.wait_for_job(job, &["RUNNING", "COMPLETED"], SOON).unwrap();
    let all = decisions(cluster);
    let (decision, _) = member_of(&all, job, 0).unwrap_or_else(|| panic!("{job} has no decision"));
    decision["group_id"].as_u64().unwrap()
}

/// Every reason in what was considered for a job, its own and those of its candidates.
pub(crate) fn reasons_of(cluster: &Cluster, job: SlurmJobId) -> Vec<String> {
    let arguments = ["explain", &job.to_string(), "--json"];
    let text = cluster.pillion_as("root", &arguments).unwrap().stdout().unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    let considered = value["explanations"].as_array().cloned().unwrap_or_default();
    let mut reasons = Vec::new();
    for explanation in considered.iter().map(|one| &one["explanation"]) {
        reasons.extend(explanation["reason"].as_str().map(str::to_owned));
        let candidates = explanation["candidates"].as_array().cloned().unwrap_or_default();
        let excluded = candidates.iter().filter_map(|candidate| candidate["excluded_by"].as_str());
        reasons.extend(excluded.map(str::to_owned));
    }
    reasons
}

/// Runs them at once, so that they are considered together; returns when both run.
fn together(cluster: &Cluster, hers: &str, his: (&str, &str)) -> [SlurmJobId; 2] {
    let begin = cluster.begin_together(3).unwrap();
    let work = load(hers, LONG_SECONDS);
    let jobs = [
        submit(cluster, "alice", &format!("{hers},max-slowdown=5"), &work, &[&begin]),
        submit(cluster, "bob", &format!("{},max-slowdown=5", his.0), his.1, &[&begin]),
    ];
    for job in jobs {
        cluster.wait_for_job(job, &["RUNNING"], SOON).unwrap();
    }
    jobs
}

fn end(cluster: &Cluster, jobs: &[SlurmJobId]) {
    for job in jobs {
        let _ = cluster.scontrol(&["update", &format!("JobId={job}"), "TimeLimit=0"]);
        cluster.program("scancel").arg(job.to_string()).stdout().unwrap();
        cluster.wait_for_job(*job, &["CANCELLED", "COMPLETED", "TIMEOUT", "FAILED"], SOON).unwrap();
    }
}

/// Runs all of them at once, each to its end.
fn ran(cluster: &Cluster, works: &[(&str, &str, String)]) {
    let submitted = |(user, name, work): &(&str, &str, String)| submit(cluster, user, name, work, &[]);
    for job in works.iter().map(submitted).collect::<Vec<_>>() {
        cluster.wait_for_job(job, &["COMPLETED"], SOON).unwrap();
    }
}

/// Waits for the event that he does more than he was let in for; gives its text.
fn found_out(cluster: &Cluster, job: SlurmJobId) -> String {
    wait_for_event(cluster, job, "profile-exceeded")
}

#[test]
fn who_lies_about_his_workload_is_found_out_and_shares_with_nobody() {
    let spec = ClusterSpec {
        pool_nodes: vec![PoolNode::new("n1", "h200", Mechanism::Mps)],
        gpus_per_node: 2,
        policy: SharingPolicy::Any,
        solo_seconds_min: SOLO_SECONDS_MIN,
        // What caps leave possible is not what this is about.
        scheduler_conf_extra: vec!["caps = false".to_owned(), "tenants_max = 3".to_owned()],
        ..ClusterSpec::default()
    };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_pillion().unwrap();
    // A short run of his is no measure: nobody is promised anything beside that name. Hers are known better than his, for that is
    // how the one who lies is told from the one who does not (docs/security.md says what that is worth).
    let hers = |name: &'static str| ("alice", name, load(name, ENOUGH_SECONDS));
    ran(&cluster, &HONEST.map(hers));
    let his = |name: &'static str, seconds| ("bob", name, light(seconds));
    ran(&cluster, &[hers(HONEST[0]), his(BRIEF, KNOWN_SECONDS), his(QUIET, ENOUGH_SECONDS)]);
    wait_for("profiles of all that ran", SOON, || {
        let count = profile_count(&cluster)?;
        Ok(if count == HONEST.len() + 2 { Look::Ready(()) } else { Look::NotYet(count.to_string()) })
    })
    .unwrap();
    let first = together(&cluster, HONEST[0], (BRIEF, &light(KNOWN_SECONDS)));
    assert_ne!(group_of(&cluster, first[0]), group_of(&cluster, first[1]), "measured too briefly");
    let why = reasons_of(&cluster, first[1]);
    assert!(why.iter().any(|reason| reason == "measured-too-briefly"), "{why:?}");
    cluster.wait_for_job(first[1], &["COMPLETED"], SOON).unwrap();
    end(&cluster, &first[..1]);

    // Now it is believed, and he hammers the device.
    let shared = together(&cluster, HONEST[0], (QUIET, &heavy(LONG_SECONDS)));
    assert_eq!(group_of(&cluster, shared[0]), group_of(&cluster, shared[1]), "the lie was believed");
    let detail = found_out(&cluster, shared[1]);
    assert!(detail.contains("nobody joins it there any more"), "{detail}");
    assert!(!detail.contains("alice") && !detail.contains(&shared[0].to_string()), "{detail}");

    let his = told(&cluster, "bob", "why", shared[1]);
    assert!(his.contains(&format!("profile-exceeded: {detail}")), "{his}");

    // Nobody joins there, though there is room; whoever comes has the other device to himself.
    let joiner = submit(&cluster, "alice", HONEST[1], &load(HONEST[1], LONG_SECONDS), &[]);
    assert_ne!(
        group_of(&cluster, joiner),
        group_of(&cluster, shared[0]),
        "{}",
        told(&cluster, "root", "explain", joiner)
    );
    // His next jobs get a device of their own, under a name that is known and under one that is not.
    let next = [QUIET, OTHER].map(|name| submit(&cluster, "bob", name, &light(KNOWN_SECONDS), &[]));
    let hers = told(&cluster, "alice", "why", shared[0]);
    assert!(!hers.contains("bob") && !hers.contains(QUIET), "{hers}");
    end(&cluster, &[shared[0], shared[1], joiner]);
    for job in next {
        cluster.wait_for_job(job, &["COMPLETED"], SOON).unwrap();
        let all = decisions(&cluster);
        let (decision, _) = member_of(&all, job, 0).unwrap_or_else(|| panic!("{job} has no decision"));
        assert_eq!(decision["members"].as_array().unwrap().len(), 1, "{decision}");
        let why = told(&cluster, "bob", "explain", job);
        assert!(why.contains("its user owes runs alone"), "{why}");
    }
}

/// How many shards Slurm booked a start with, as the job saw them; waits until it has written them down.
fn shards(cluster: &Cluster, user: &str, job: SlurmJobId) -> u32 {
    let start = wait_for(&format!("first line of {job} of {user}"), SOON, || {
        let first = starts(cluster, user, job).into_iter().next();
        Ok(first.map_or_else(|| Look::NotYet("nothing".to_owned()), Look::Ready))
    })
    .unwrap();
    let (_, count) = start["shards"].rsplit_once(':').unwrap_or(("", &start["shards"]));
    count.parse().unwrap_or_else(|_| panic!("{start:?}"))
}

#[test]
fn where_the_site_wants_it_who_uses_more_is_booked_with_more() {
    let spec = ClusterSpec {
        pool_nodes: vec![PoolNode::new("n1", "h200", Mechanism::Mps)],
        gpus_per_node: 1,
        policy: SharingPolicy::Any,
        solo_seconds_min: SOLO_SECONDS_MIN,
        // He owes one run alone once he is found out, and shares again after it.
        scheduler_conf_extra: ["caps = false", "shards_by = \"use\"", "credit_runs = 1"]
            .map(str::to_owned)
            .into(),
        ..ClusterSpec::default()
    };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_pillion().unwrap();
    let hers = ("alice", HONEST[0], load(HONEST[0], ENOUGH_SECONDS));
    ran(&cluster, &[hers.clone(), hers, ("bob", QUIET, light(ENOUGH_SECONDS))]);
    let known = || {
        let count = profile_count(&cluster)?;
        Ok(if count == 2 { Look::Ready(()) } else { Look::NotYet(count.to_string()) })
    };
    wait_for("profiles of all that ran", SOON, known).unwrap();

    let first = together(&cluster, HONEST[0], (QUIET, &heavy(LONG_SECONDS)));
    assert_eq!(group_of(&cluster, first[0]), group_of(&cluster, first[1]), "he was believed");
    let before = shards(&cluster, "bob", first[1]);
    found_out(&cluster, first[1]);
    cluster.wait_for_job(first[1], &["COMPLETED"], SOON).unwrap();
    wait_for_event(&cluster, first[1], "use-exceeded");
    end(&cluster, &first[..1]);
    // Only one that is no shorter than what is believed pays for it.
    ran(&cluster, &[("bob", QUIET, light(ENOUGH_SECONDS))]);

    let again = together(&cluster, HONEST[0], (QUIET, &light(LONG_SECONDS)));
    assert_eq!(group_of(&cluster, again[0]), group_of(&cluster, again[1]), "his run alone is over");
    let after = shards(&cluster, "bob", again[1]);
    assert!(after > before, "booked with {before} shards, then with {after}");
    assert!(after + shards(&cluster, "alice", again[0]) <= 100);
    end(&cluster, &again);
}
