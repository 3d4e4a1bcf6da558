//! Jobs of several GPUs in the pool, on real Slurm: they get all of them at once, whole, by our decision, whoever dies meanwhile; and
//! what is taken back, rescued or taken out is what their users asked for.

use crate::leases::{
    Journal, SLOW_RELEASE, SOON, UNTIL_TOLD, before_release, change_before_release, explain, let_end,
    let_end_of, scontrol_as_alice, standing, told, wait_for_member, wait_until_settled, was_refused, why,
};
use pillion_core::SlurmJobId;
use pillion_core::device::Mechanism;
use pillion_tests::cluster::spec::{ADMITS_PLAIN, PoolNode};
use pillion_tests::daemons::heartbeat;
use pillion_tests::wait::wait_until;
use pillion_tests::{Cluster, ClusterSpec};
use rustix::process::Signal;
use std::collections::BTreeSet;

/// Says what Slurm and we gave it.
pub(crate) const WORK: &str = "echo started restarts=${SLURM_RESTART_COUNT:-0} gpus=$SLURM_JOB_GPUS visible=$CUDA_VISIBLE_DEVICES \
    shards=${SLURM_SHARDS_ON_NODE:-none} decision=${PILLION_DECISION:-none} asks=${SLURM_GPUS:-}${SLURM_GPUS_PER_NODE:-}
    srun -n1 sh -c 'echo step gpus=$CUDA_VISIBLE_DEVICES'";

pub(crate) fn submit(cluster: &Cluster, user: &str, script: &str, more: &[&str]) -> SlurmJobId {
    let mut arguments = vec!["--colocate", "-c1", "--mem=100", "-t10"];
    arguments.extend(more);
    cluster.submit_as(user, script, &arguments).unwrap()
}

/// The numbers after a word that the job printed.
pub(crate) fn numbers(printed: &str, word: &str) -> BTreeSet<u32> {
    let (_, rest) = printed.split_once(word).unwrap_or_else(|| panic!("no {word} in {printed}"));
    let list = rest.split_whitespace().next().unwrap_or_default();
    list.split(',').map(|number| number.parse().unwrap_or_else(|_| panic!("{word} in {printed}"))).collect()
}

/// Checks what a job printed that has so many GPUs, and gives their indexes.
pub(crate) fn has_whole(printed: &str, count: usize) -> BTreeSet<u32> {
    let gpus = numbers(printed, " gpus=");
    assert_eq!(gpus.len(), count, "{printed}");
    assert_eq!(numbers(printed, " visible="), gpus, "{printed}");
    assert_eq!(numbers(printed, "step gpus="), gpus, "a step has all of them: {printed}");
    assert!(printed.contains(&format!(" shards={} ", count * 100)), "{printed}");
    assert!(printed.contains(" asks=\n"), "nothing that breaks srun: {printed}");
    gpus
}

fn nodes_of_four(names: &[&str]) -> Vec<PoolNode> {
    names.iter().map(|name| PoolNode::new(name, "h200", Mechanism::Mps)).collect()
}

pub(crate) fn start_on(nodes: &[&str], bound_seconds: u64) -> Cluster {
    let spec = ClusterSpec { pool_nodes: nodes_of_four(nodes), bound_seconds, ..ClusterSpec::default() };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_pillion().unwrap();
    cluster
}

/// A bound that nobody waits for.
fn start_on_two_nodes() -> Cluster {
    start_on(&["n1", "n2"], 600)
}

fn drain(cluster: &Cluster, node: &str) {
    let node = format!("NodeName={node}");
    cluster.scontrol(&["update", &node, "State=DRAIN", "Reason=test"]).unwrap();
}

#[test]
fn jobs_of_several_gpus_live_in_the_pool_beside_those_of_one() {
    let cluster = start_on_two_nodes();
    // Every way to ask for them.
    let asked: [(&[&str], usize); 4] = [
        (&["--gres=gpu:2"], 2),
        (&["--gpus=4", "-N1"], 4),
        (&["--gpus-per-node=2", "-N1", "-n2"], 2),
        (&["--gpus-per-task=2", "-n1"], 2),
    ];
    for (request, count) in asked {
        let job = submit(&cluster, "alice", WORK, request);
        let printed = cluster.finished_output(job, SOON).unwrap();
        has_whole(&printed, count);
        assert!(!printed.contains("decision=none"), "{request:?}: {printed}");
        assert_eq!((Journal::of(&cluster, job).releases(), Journal::of(&cluster, job).starts()), (1, 1));
    }
    // Three on one node and its fourth GPU for a job of one; a job of four has the other node, and one of four more waits.
    let three = submit(&cluster, "bob", UNTIL_TOLD, &["--gres=gpu:3"]);
    wait_for_member(&cluster, three, &["running"]);
    let four = submit(&cluster, "alice", UNTIL_TOLD, &["--gres=gpu:4"]);
    wait_for_member(&cluster, four, &["running"]);
    let one = submit(&cluster, "alice", UNTIL_TOLD, &["--gres=gpu:1"]);
    wait_for_member(&cluster, one, &["running"]);
    let waiting = submit(&cluster, "bob", WORK, &["--gres=gpu:4"]);
    let (node, other) =
        (standing(&cluster, three).unwrap().unwrap().node, standing(&cluster, four).unwrap().unwrap().node);
    assert_ne!(node, other);
    assert_eq!(standing(&cluster, one).unwrap().unwrap().node, node, "the node that was not empty");
    wait_until("why the last one waits", SOON, || {
        let why = why(&cluster, "bob", waiting);
        Ok(why.contains("no node has 4 wholly free GPUs") && why.contains("are set apart for it"))
    })
    .unwrap();
    // Each as its user is told of it.
    for (user, words) in [("bob", vec!["queue"]), ("root", vec!["nodes"]), ("root", vec!["top", "--once"])] {
        println!("{}", cluster.pillion_as(user, &words).unwrap().stdout().unwrap());
    }
    println!("{}", cluster.pillion_as("bob", &["why", &waiting.to_string()]).unwrap().stdout().unwrap());
    println!("{}", cluster.pillion_as("alice", &["explain", &four.to_string()]).unwrap().stdout().unwrap());
    let status = cluster.pillion_as("alice", &["why", &four.to_string()]).unwrap().stdout().unwrap();
    println!("{status}");
    assert!(status.contains("GPUs g0,g1,g2,g3"), "{status}");
    let_end(&cluster, four);
    has_whole(&cluster.finished_output(waiting, SOON).unwrap(), 4);
    let_end(&cluster, one);
    let_end_of(&cluster, "bob", three);
    for job in [one, three, four, waiting] {
        wait_until_settled(&cluster, job);
    }
    // What they held is charged by the GPU.
    wait_until("the account of four GPUs", SOON, || {
        println!("{}", cluster.pillion_as("alice", &["report", &four.to_string()])?.stdout()?);
        let report = cluster.pillion_json(&["report", &four.to_string()]);
        Ok(report.is_ok_and(|report| report.to_string().contains("g3")))
    })
    .unwrap();
}

/// NVLink joins GPUs 0 and 2, and 1 and 3: jobs of two get those, though others are neighbours by index.
#[test]
fn jobs_of_two_gpus_get_those_that_nvlink_joins() {
    let spec = ClusterSpec {
        pool_nodes: nodes_of_four(&["n1"]),
        machine_conf_extra: vec!["nvlinks = [[0, 2], [1, 3]]".to_owned()],
        bound_seconds: 600,
        ..ClusterSpec::default()
    };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_pillion().unwrap();
    // Before its agent has spoken, nobody knows what joins the GPUs of a node.
    wait_until("heartbeat that lists side by side what is joined", SOON, || {
        let told = std::fs::read_to_string(heartbeat(&cluster)).unwrap_or_default();
        Ok(told.contains("\nshape=shared g0,g2,g1,g3\n"))
    })
    .unwrap();
    let joined = [BTreeSet::from([0, 2]), BTreeSet::from([1, 3])];
    let script = format!("{WORK}\n{UNTIL_TOLD}");
    let pairs = [1, 2].map(|_| submit(&cluster, "alice", &script, &["--gres=gpu:2"]));
    for job in pairs {
        wait_for_member(&cluster, job, &["running"]);
        let explained = explain(&cluster, job).unwrap().unwrap_or_default().to_string();
        assert!(explained.contains("and reach each other by NVLink"), "{explained}");
        assert_eq!(Journal::of(&cluster, job).releases(), 1, "we chose, not Slurm");
    }
    let mut gpus = pairs.map(|job| {
        let_end(&cluster, job);
        has_whole(&cluster.finished_output(job, SOON).unwrap(), 2)
    });
    gpus.sort();
    assert_eq!(gpus, joined);
    for job in pairs {
        wait_until_settled(&cluster, job);
    }
    // One has a GPU: of the three others two are neighbours, and a job of two gets two that are not.
    let one = submit(&cluster, "alice", &script, &["--gres=gpu:1"]);
    wait_for_member(&cluster, one, &["running"]);
    let pair = submit(&cluster, "alice", WORK, &["--gres=gpu:2"]);
    let of_pair = has_whole(&cluster.finished_output(pair, SOON).unwrap(), 2);
    let_end(&cluster, one);
    let of_one = numbers(&cluster.finished_output(one, SOON).unwrap(), " gpus=");
    assert!(joined.contains(&of_pair) && of_pair.is_disjoint(&of_one), "{of_pair:?} beside {of_one:?}");
}

/// With nobody of ours alive Slurm itself starts them, on the devices that were chosen at the submission, and not all on the same.
#[test]
fn slurm_starts_jobs_of_several_gpus_by_itself_when_all_of_us_are_dead() {
    let mut cluster = start_on(&["n1"], 20);
    drain(&cluster, "n1");
    let jobs = [1, 2].map(|_| submit(&cluster, "alice", WORK, &["--gres=gpu:2"]));
    cluster.kill_scheduler(Signal::KILL).unwrap();
    cluster.kill_agent("n1", Signal::KILL).unwrap();
    cluster.scontrol(&["update", "NodeName=n1", "State=RESUME"]).unwrap();
    let [first, second] = jobs.map(|job| {
        let printed = cluster.finished_output(job, SOON).unwrap();
        assert!(printed.contains("decision=none"), "{printed}");
        assert_eq!(Journal::of(&cluster, job).releases(), 0);
        has_whole(&printed, 2)
    });
    assert!(first.is_disjoint(&second), "{first:?} and {second:?}");
}

/// A user acts between the decision and the release.
#[test]
fn what_a_user_does_before_a_release_of_several_gpus_stands() {
    let spec = ClusterSpec {
        pool_nodes: nodes_of_four(&["n1"]),
        whole_gpu_node_count: 1,
        bound_seconds: 600,
        ..ClusterSpec::default()
    };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_pillion().unwrap();
    cluster.kill_scheduler(Signal::TERM).unwrap();
    cluster.start_scheduler_with_failpoints(SLOW_RELEASE).unwrap();

    let held = submit(&cluster, "alice", WORK, &["--gres=gpu:2"]);
    change_before_release(&mut cluster, held, |cluster, _| {
        scontrol_as_alice(cluster, &["hold", &held.to_string()]);
    });
    was_refused(&cluster, held, "the job is held");
    let fields = cluster.job(held).unwrap();
    assert_eq!((fields["JobState"].as_str(), fields["Priority"].as_str()), ("PENDING", "0"), "{fields:?}");
    assert!(fields["TresPerNode"].starts_with("gres/shard:g"), "{fields:?}");
    scontrol_as_alice(&cluster, &["release", &held.to_string()]);
    has_whole(&cluster.finished_output(held, SOON).unwrap(), 2);

    for change in ["StartTime=now", "Partition=gpu"] {
        let left = submit(&cluster, "alice", WORK, &["--gres=gpu:2"]);
        let id = format!("JobId={left}");
        change_before_release(&mut cluster, left, |cluster, _| {
            scontrol_as_alice(cluster, &["update", &id, change]);
        });
        let printed = cluster.finished_output(left, SOON).unwrap();
        assert_eq!(numbers(&printed, " gpus=").len(), 2, "{change}: {printed}");
        assert!(printed.contains(" shards=none "), "{change}: {printed}");
        assert_eq!(cluster.job_field(left, "Partition").unwrap(), "gpu", "{change}");
        assert_eq!(Journal::of(&cluster, left).releases(), 0, "{change}");
    }
}

/// Checks that a release was taken back whole: the devices that Slurm starts it on, any node, never released again.
fn is_undone(cluster: &Cluster, job: SlurmJobId) {
    wait_until(&format!("undo of job {job}"), SOON, || Ok(Journal::of(cluster, job).undos() > 0)).unwrap();
    let fields = cluster.job(job).unwrap();
    let mark = &fields["AdminComment"];
    assert!(
        mark.starts_with("pillion2;") && mark.ends_with(";alone=1") && !mark.contains(";lease="),
        "{fields:?}"
    );
    let (_, at) = mark.split_once(";at=").unwrap();
    let each = at.split(';').next().unwrap().split(',').map(|own| format!("gres/shard:{own}:100"));
    assert_eq!(fields["TresPerNode"], each.collect::<Vec<_>>().join(","), "{fields:?}");
    assert_eq!(fields["ReqNodeList"], "(null)", "{fields:?}");
}

/// Released where it cannot start any more: undone by the scheduler, and by rescue where there is none.
#[test]
fn a_release_of_several_gpus_is_taken_back_whole() {
    let spec = ClusterSpec { pool_nodes: nodes_of_four(&["n1", "n2"]), ..ClusterSpec::default() };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_pillion().unwrap();
    cluster.kill_scheduler(Signal::TERM).unwrap();
    cluster.start_scheduler_with_failpoints(SLOW_RELEASE).unwrap();
    let job = submit(&cluster, "alice", WORK, &["--gres=gpu:3"]);
    let mut drained = String::new();
    before_release(&mut cluster, job, |cluster, node| {
        drain(cluster, node);
        drained = node.to_owned();
    });
    is_undone(&cluster, job);
    has_whole(&cluster.finished_output(job, SOON).unwrap(), 3);
    assert_ne!(cluster.job_field(job, "NodeList").unwrap(), drained);
    assert_eq!((Journal::of(&cluster, job).releases(), Journal::of(&cluster, job).undos()), (1, 1));
    cluster.scontrol(&["update", &format!("NodeName={drained}"), "State=RESUME"]).unwrap();

    // The scheduler dies with the release made, and nobody comes back.
    let job = submit(&cluster, "alice", WORK, &["--gres=gpu:2"]);
    before_release(&mut cluster, job, |cluster, node| {
        drain(cluster, node);
        drained = node.to_owned();
    });
    cluster.kill_scheduler(Signal::KILL).unwrap();
    wait_until("rescue", SOON, || {
        cluster.program("pillion").args(["rescue", "--older-than", "1"]).stdout()?;
        Ok(Journal::of(&cluster, job).undos() > 0)
    })
    .unwrap();
    is_undone(&cluster, job);
    has_whole(&cluster.finished_output(job, SOON).unwrap(), 2);
}

/// The agent is killed while it runs, and Slurm starts it again.
#[test]
fn a_job_of_several_gpus_is_started_again_whole() {
    let spec = ClusterSpec { pool_nodes: nodes_of_four(&["n1"]), ..ClusterSpec::default() };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_pillion().unwrap();
    let job = submit(&cluster, "alice", UNTIL_TOLD, &["--gres=gpu:4"]);
    wait_for_member(&cluster, job, &["running"]);
    cluster.kill_agent("n1", Signal::KILL).unwrap();
    cluster.start_agent("n1").unwrap();
    // Nobody gets in beside it, and it waits alone after a requeue, for the same GPUs: two minutes, which are lent to who is done by then.
    let beside = submit(&cluster, "alice", WORK, &["--gres=gpu:1", "-t1"]);
    scontrol_as_alice(&cluster, &["requeue", &job.to_string()]);
    is_undone(&cluster, job);
    cluster.finished_output(beside, SOON).unwrap();
    cluster.wait_for_job(job, &["RUNNING"], SOON).unwrap();
    let_end(&cluster, job);
    let printed = cluster.finished_output(job, SOON).unwrap();
    assert!(printed.contains("restarts=1"), "{printed}");
    assert_eq!(Journal::of(&cluster, job).releases(), 1);
    wait_until_settled(&cluster, job);
}

/// Its node dies under it: Slurm starts it again elsewhere, on the devices that were chosen at its submission, and we release it no
/// second time.
#[test]
fn a_job_of_several_gpus_outlives_its_node() {
    let spec = ClusterSpec {
        pool_nodes: nodes_of_four(&["n1", "n2"]),
        slurm_conf_extra: vec!["SlurmdTimeout=20".to_owned()],
        ..ClusterSpec::default()
    };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_pillion().unwrap();
    let job = submit(&cluster, "alice", UNTIL_TOLD, &["--gres=gpu:3"]);
    let node = wait_for_member(&cluster, job, &["running"]).node;
    cluster.stop_slurmd(&node, Signal::KILL).unwrap();
    is_undone(&cluster, job);
    cluster.wait_for_job(job, &["RUNNING"], SOON).unwrap();
    assert_ne!(cluster.job_field(job, "NodeList").unwrap(), node);
    let_end(&cluster, job);
    let printed = cluster.finished_output(job, SOON).unwrap();
    assert!(printed.contains("restarts=1"), "{printed}");
    assert_eq!(Journal::of(&cluster, job).releases(), 1);
    wait_until_settled(&cluster, job);
}

/// It waits with the devices that were chosen at its submission, and gets those that fall free first.
#[test]
fn a_job_of_several_nodes_goes_where_the_same_gpus_fall_free() {
    let cluster = start_on_two_nodes();
    let two_of_each = ["-N2", "--gres=gpu:2", "-n2", "-t30"];
    let gpus_of = |job| {
        let asked = cluster.job_field(job, "TresPerNode").unwrap();
        (0..4)
            .filter(|at| asked.contains(&format!("shard:g{at}:100")))
            .map(|at| at.to_string())
            .collect::<Vec<_>>()
            .join(",")
    };
    // Two of them have all there is.
    let running = [1, 2].map(|_| {
        let job = submit(&cluster, "alice", UNTIL_TOLD, &two_of_each);
        cluster.wait_for_job(job, &["RUNNING"], SOON).unwrap();
        job
    });
    assert_eq!(running.map(gpus_of).iter().map(|own| own.split(',').count()).sum::<usize>(), 4);
    let script = "srun -n2 -N2 sh -c 'echo node=$SLURMD_NODENAME gpus=$CUDA_VISIBLE_DEVICES'";
    let waits = submit(&cluster, "bob", script, &two_of_each);
    let waits_with = gpus_of(waits);
    // Whoever has those that it waits with goes on.
    let (stays, goes) =
        if gpus_of(running[0]) == waits_with { (running[0], running[1]) } else { (running[1], running[0]) };
    let free = gpus_of(goes);
    assert_ne!(free, waits_with);
    let_end(&cluster, goes);
    let printed = cluster.finished_output(waits, SOON).unwrap();
    for node in ["n1", "n2"] {
        assert!(printed.contains(&format!("node={node} gpus={free}")), "{free}: {printed}");
    }
    assert_eq!(cluster.job_field(stays, "JobState").unwrap(), "RUNNING");
    let told = told(&cluster, waits, &["let-go"]);
    assert!(told.concat().contains("are free on as many nodes as it asks for"), "{told:?}");
    assert_eq!(Journal::of(&cluster, waits).starts(), 1);
    let_end(&cluster, stays);
}

/// GPUs of each of several nodes: let go at its turn, started by Slurm, and kept from nobody's leftovers.
#[test]
fn a_job_of_several_nodes_takes_its_turn_and_slurm_starts_it() {
    let spec = ClusterSpec {
        pool_nodes: nodes_of_four(&["n1", "n2"]),
        pool_conf_extra: vec![ADMITS_PLAIN.to_owned()],
        bound_seconds: 600,
        ..ClusterSpec::default()
    };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_pillion().unwrap();
    let script = "srun -n2 -N2 sh -c 'echo node=$SLURMD_NODENAME gpus=$CUDA_VISIBLE_DEVICES'";
    let has_all = |printed: &str| {
        for node in ["n1", "n2"] {
            assert!(printed.contains(&format!("node={node} gpus=0,1,2,3")), "{printed}");
        }
    };
    // With and without the option, and where nobody waits at once.
    let two_nodes = ["-N2", "--gres=gpu:4", "-n2"];
    has_all(&cluster.finished_output(submit(&cluster, "alice", script, &two_nodes), SOON).unwrap());
    let plain = ["-p", "shared", "-c1", "--mem=100", "-t10", "-N2", "--gres=gpu:4", "-n2"];
    has_all(&cluster.finished_output(cluster.submit_as("bob", script, &plain).unwrap(), SOON).unwrap());
    // One holds a GPU, and another would take the next that falls free.
    let holds = [1, 2].map(|_| submit(&cluster, "alice", UNTIL_TOLD, &["--gres=gpu:1"]));
    for job in holds {
        wait_for_member(&cluster, job, &["running"]);
    }
    let waits = submit(&cluster, "bob", script, &two_nodes);
    let small = submit(&cluster, "alice", WORK, &["--gres=gpu:1", "-t20"]);
    wait_until("both wait", SOON, || {
        let why = why(&cluster, "bob", waits);
        Ok(why.contains(
            "no 2 nodes have 4 GPUs that are wholly free, the same ones of each; they are set apart for it",
        ))
    })
    .unwrap();
    let_end(&cluster, holds[0]);
    wait_until_settled(&cluster, holds[0]);
    assert_eq!(
        cluster.job_field(small, "JobState").unwrap(),
        "PENDING",
        "it stays longer than what is set apart"
    );
    let_end(&cluster, holds[1]);
    has_all(&cluster.finished_output(waits, SOON).unwrap());
    assert!(!told(&cluster, waits, &["let-go"]).is_empty());
    cluster.finished_output(small, SOON).unwrap();
    assert_eq!(Journal::of(&cluster, waits).starts(), 1);
}
