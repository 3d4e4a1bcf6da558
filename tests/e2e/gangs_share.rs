//! Jobs of two GPUs that share both, on real Slurm, where the site has it so (docs/decisions/0041-gangs-share.md): what they have and are
//! told, whoever dies meanwhile, and that one that cannot come is put back whole beside one that runs on.

use crate::leases::{
    Journal, SLOW_RELEASE, UNTIL_TOLD, before_release, let_end, standing, wait_for_fail_point,
    wait_for_member, wait_until_settled, why,
};
use crate::rides::{
    self, KNOWN_SECONDS, SOON, Words, decisions, member_of, profile_count, script, starts, submit,
};
use pillion_core::SlurmJobId;
use pillion_core::device::Mechanism;
use pillion_device::simulated::Simulated;
use pillion_device::{MpsControl as _, MpsPlace};
use pillion_tests::cluster::spec::PoolNode;
use pillion_tests::wait::{Look, wait_for, wait_until};
use pillion_tests::{Cluster, ClusterSpec};
use rustix::process::Signal;
use serde_json::Value;

/// Two that go well together.
const WORKLOADS: [&str; 2] = ["resnet50-infer", "bert-small-batch"];

/// One node of two GPUs: whoever comes second has to share them.
fn start() -> Cluster {
    let spec = ClusterSpec {
        pool_nodes: vec![PoolNode::new("n1", "h200", Mechanism::Mps)],
        whole_gpu_node_count: 0,
        gpus_per_node: 2,
        bound_seconds: 600,
        scheduler_conf_extra: vec!["share_wide = true".to_owned()],
        ..ClusterSpec::default()
    };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_pillion().unwrap();
    cluster
}

/// The same work on both, of which the first counts.
fn gang(name: &str, seconds: u32) -> String {
    script(&format!(
        "env -u PILLION_PROGRESS pillion-load {name} --seconds {seconds} --device 1 &\n\
         pillion-load {name} --seconds {seconds} || exit 1\nwait $!"
    ))
}

fn submit_gang(cluster: &Cluster, name: &str, seconds: u32, more: &[&str]) -> SlurmJobId {
    let more: Vec<&str> = ["--gres=gpu:2"].into_iter().chain(more.iter().copied()).collect();
    submit(cluster, "alice", name, &gang(name, seconds), &more)
}

/// Runs each alone once.
fn make_known(cluster: &Cluster) {
    for name in WORKLOADS {
        let job = submit_gang(cluster, name, KNOWN_SECONDS, &[]);
        cluster.wait_for_job(job, &["COMPLETED"], SOON).unwrap();
        let (_, member) = member_of(&decisions(cluster), job, 0).map(cloned).expect("a decision");
        assert_eq!((&member["role"], &member["shards"]), (&"alone".into(), &100.into()), "nothing is known");
    }
    wait_until("both profiles", SOON, || Ok(profile_count(cluster)? == WORKLOADS.len())).unwrap();
}

fn cloned((decision, member): (&Value, &Value)) -> (Value, Value) {
    (decision.clone(), member.clone())
}

/// How a job says that it started, beside what was decided; it is what was decided.
fn as_decided(cluster: &Cluster, job: SlurmJobId) -> (Words, Value, Value) {
    let mut seen = starts(cluster, "alice", job);
    assert_eq!(seen.len(), 1, "{job} started {} times", seen.len());
    let seen = seen.remove(0);
    let (decision, member) = member_of(&decisions(cluster), job, 0).map(cloned).expect("a decision");
    let told = |name: &str| seen.get(name).map(String::as_str).unwrap_or_default();
    assert_eq!((told("gpu"), &decision["gres_type"]), ("0,1", &"g0,g1".into()));
    assert_eq!(told("decision"), decision["decision_id"].to_string());
    let shards = member["shards"].as_u64().unwrap();
    assert!(shards < 100, "{member}");
    assert_eq!(told("shards"), (2 * shards).to_string(), "of each");
    assert!(told("pipe").ends_with("/mps/g0+g1/pipe"), "{seen:?}");
    let limit = member["memory_limit_bytes"].as_u64().unwrap() >> 20;
    assert_eq!(told("limit"), format!("0={limit}M,1={limit}M"));
    let cap = member["cap_fraction"].as_f64().map(|cap| format!("{:.0}", cap * 100.0)).unwrap_or_default();
    assert_eq!(told("cap"), cap);
    (seen, decision, member)
}

/// Both were planned together, and have all of each device between them at most.
fn are_together(rows: &[(Words, Value, Value)]) {
    let groups: Vec<&Value> = rows.iter().map(|(_, decision, _)| &decision["group_id"]).collect();
    assert_eq!(groups[0], groups[1], "{rows:#?}");
    let shards: u64 = rows.iter().map(|(_, _, member)| member["shards"].as_u64().unwrap()).sum();
    assert!(shards <= 100, "{shards} shards");
}

fn driver(cluster: &Cluster) -> Simulated {
    Simulated::new(cluster.root().join("run/n1/devices.sock"))
}

/// How many processes run on each device as clients of the daemon of both.
fn clients(cluster: &Cluster) -> [usize; 2] {
    [0, 1].map(|index| {
        let tenants = driver(cluster).tenants(index).unwrap_or_default();
        tenants.iter().filter(|tenant| tenant.is_mps).count()
    })
}

#[test]
fn two_jobs_of_two_gpus_share_both() {
    let cluster = start();
    make_known(&cluster);
    let begin = cluster.begin_together(3).unwrap();
    let jobs = WORKLOADS.map(|name| submit_gang(&cluster, name, 900, &[begin.as_str()]));
    wait_until("both on both", SOON, || Ok(clients(&cluster) == [2, 2])).unwrap();
    let status = cluster.pillion_as("alice", &["why", &jobs[0].to_string()]).unwrap().stdout().unwrap();
    println!("{status}");
    assert!(status.contains("GPUs g0,g1") && status.contains("of 100 shards of each of 2 GPUs"), "{status}");
    println!(
        "{}",
        cluster.pillion_as("alice", &["explain", &jobs[1].to_string()]).unwrap().stdout().unwrap()
    );
    for words in [vec!["nodes"], vec!["top", "--once"], vec!["pairs"], vec!["queue"]] {
        println!("{}", cluster.pillion_as("root", &words).unwrap().stdout().unwrap());
    }
    for job in jobs {
        cluster.wait_for_job(job, &["COMPLETED"], SOON).unwrap();
    }
    are_together(&jobs.map(|job| as_decided(&cluster, job)));
    for job in jobs {
        wait_until_settled(&cluster, job);
    }
    wait_until("the daemon's end", SOON, || {
        Ok(driver(&cluster).status(&MpsPlace::set(0, vec![1])).is_ok_and(|status| status.is_none()))
    })
    .unwrap();
    // What it was like is known, once, and was measured.
    wait_until("how fast they went", SOON, || {
        let all = decisions(&cluster);
        let speed = |job: &SlurmJobId| member_of(&all, *job, 0)?.1["measured_speed_fraction"].as_f64();
        Ok(jobs.iter().all(|job| speed(job).is_some_and(|speed| speed > 0.5)))
    })
    .unwrap();
}

/// One runs and may be joined; the scheduler dies before and after the other's release, and the agent with it.
#[test]
fn whoever_dies_the_second_joins_once_and_the_first_runs_on() {
    let mut cluster = start();
    make_known(&cluster);
    rides::make_known(&cluster, &["alice"], &[WORKLOADS[1]], &[&[]]);
    let host = submit_gang(&cluster, WORKLOADS[0], 15_000, &[]);
    wait_for_member(&cluster, host, &["running"]);
    wait_until("its clients", SOON, || Ok(clients(&cluster) == [1, 1])).unwrap();
    for point in ["release-before-release", "release-after-release"] {
        cluster.kill_scheduler(Signal::TERM).unwrap();
        cluster.start_scheduler_with_failpoints(&format!("{point}=pause")).unwrap();
        let joiner = submit_gang(&cluster, WORKLOADS[1], 900, &[]);
        wait_for_fail_point(&cluster, joiner, point);
        cluster.kill_scheduler(Signal::KILL).unwrap();
        cluster.kill_agent("n1", Signal::KILL).unwrap();
        cluster.start_agent("n1").unwrap();
        cluster.start_scheduler().unwrap();
        cluster.wait_for_job(joiner, &["COMPLETED"], SOON).unwrap();
        are_together(&[host, joiner].map(|job| as_decided(&cluster, job)));
        let journal = Journal::of(&cluster, joiner);
        assert_eq!((journal.releases(), journal.starts()), (1, 1), "{point}");
        wait_until_settled(&cluster, joiner);
        wait_until("the host alone", SOON, || Ok(clients(&cluster) == [1, 1])).unwrap();
    }
    assert_eq!(cluster.job_field(host, "JobState").unwrap(), "RUNNING");
    // Nobody of another width comes beside it, though he would go well with it.
    let one = submit(&cluster, "alice", WORKLOADS[1], &script("true"), &[]);
    wait_for("why it waits", SOON, || {
        let said = why(&cluster, "alice", one);
        Ok(if said.contains("beside others: the device is not shared") {
            Look::Ready(())
        } else {
            Look::NotYet(said)
        })
    })
    .unwrap();
    assert_eq!(standing(&cluster, one).unwrap(), None);
    cluster.program("scancel").arg(host.to_string()).stdout().unwrap();
    cluster.wait_for_job(one, &["COMPLETED"], SOON).unwrap();
}

/// Released where it cannot start any more: put back whole, while the one that it was to join runs on.
#[test]
fn one_that_cannot_come_is_put_back_whole() {
    let mut cluster = start();
    make_known(&cluster);
    let host = submit_gang(&cluster, WORKLOADS[0], 15_000, &[]);
    wait_for_member(&cluster, host, &["running"]);
    cluster.kill_scheduler(Signal::TERM).unwrap();
    cluster.start_scheduler_with_failpoints(SLOW_RELEASE).unwrap();
    let joiner = submit(&cluster, "alice", WORKLOADS[1], UNTIL_TOLD, &["--gres=gpu:2"]);
    before_release(&mut cluster, joiner, |cluster, node| {
        let node = format!("NodeName={node}");
        cluster.scontrol(&["update", &node, "State=DRAIN", "Reason=test"]).unwrap();
    });
    wait_until("the undo", SOON, || Ok(Journal::of(&cluster, joiner).undos() > 0)).unwrap();
    let fields = cluster.job(joiner).unwrap();
    assert_eq!(fields["TresPerNode"], "gres/shard:g0:100,gres/shard:g1:100", "{fields:?}");
    assert_eq!(cluster.job_field(host, "JobState").unwrap(), "RUNNING");
    cluster.scontrol(&["update", "NodeName=n1", "State=RESUME"]).unwrap();
    cluster.program("scancel").arg(host.to_string()).stdout().unwrap();
    cluster.wait_for_job(joiner, &["RUNNING"], SOON).unwrap();
    let_end(&cluster, joiner);
    let printed = cluster.finished_output(joiner, SOON).unwrap();
    println!("{printed}");
    let journal = Journal::of(&cluster, joiner);
    assert_eq!((journal.releases(), journal.undos(), journal.starts()), (1, 1, 1));
}
