//! Where the partition in which everybody works is the pool: who did not ask for co-location has whole GPUs there, in Slurm's order, and
//! does not notice us, whoever of us is alive.

use crate::leases::{
    Journal, SOON, UNTIL_TOLD, let_end, let_end_of, scontrol_as_alice, wait_for_member, wait_until_settled,
    why,
};
use pillion_core::SlurmJobId;
use pillion_core::device::Mechanism;
use pillion_tests::cluster::spec::{ADMITS_PLAIN, PoolNode};
use pillion_tests::wait::wait_until;
use pillion_tests::{Cluster, ClusterSpec};
use rustix::process::Signal;

/// Says what Slurm gave it, in the job and in a step.
const WORK: &str = "echo gpus=$SLURM_JOB_GPUS visible=$CUDA_VISIBLE_DEVICES shards=$SLURM_SHARDS_ON_NODE asks=${SLURM_GPUS:-} \\
    decision=${PILLION_DECISION:-none} progress=${PILLION_PROGRESS:-none} pipe=${CUDA_MPS_PIPE_DIRECTORY:-none}
    srun -n1 sh -c 'echo step gpus=$CUDA_VISIBLE_DEVICES'";

fn start(bound_seconds: u64) -> Cluster {
    let spec = ClusterSpec {
        pool_nodes: vec![PoolNode::new("n1", "h200", Mechanism::Mps)],
        pool_conf_extra: vec![ADMITS_PLAIN.to_owned()],
        bound_seconds,
        ..ClusterSpec::default()
    };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_pillion().unwrap();
    cluster
}

/// Submits as somebody would on plain Slurm, and checks that he is told nothing.
fn submit(cluster: &Cluster, user: &str, script: &str, more: &[&str]) -> SlurmJobId {
    let mut arguments = vec!["-p", "shared", "-c1", "--mem=100", "-t10"];
    arguments.extend(more);
    let submission = cluster.try_submit_as(user, script, &arguments).unwrap();
    assert_eq!(submission.said, "", "{more:?}");
    submission.job.unwrap()
}

fn salloc(cluster: &Cluster, request: &[&str], words: &str) -> pillion_tests::process::Program {
    let arguments = ["-p", "shared", "-c1", "--mem=100", "-t10"];
    let program =
        cluster.program_as("alice", "salloc").unwrap().args(arguments).args(request.iter().copied());
    program.args(["bash", "-c", words])
}

#[test]
fn who_did_not_ask_has_whole_gpus_as_soon_as_slurm_gives_them() {
    let cluster = start(600);
    for (request, count) in [
        (&["--gres=gpu:1"][..], 1),
        (&["--gpus=1", "-N1"], 1),
        (&["--gpus-per-node=2"], 2),
        (&["--gpus=4", "-N1"], 4),
    ] {
        let job = submit(&cluster, "bob", WORK, request);
        let printed = cluster.finished_output(job, SOON).unwrap();
        assert!(printed.contains(&format!(" shards={} asks= ", count * 100)), "{request:?}: {printed}");
        assert!(printed.contains(" pipe=none\n"), "{request:?}: {printed}");
        let (job_line, step_line) = printed.split_once("\nstep ").unwrap();
        let gpus = step_line.trim().trim_start_matches("gpus=");
        assert_eq!(gpus.split(',').count(), count, "{request:?}: {printed}");
        assert!(job_line.contains(&format!("gpus={gpus} visible={gpus} ")), "{request:?}: {printed}");
    }
    // And who sits in front of it.
    let printed = salloc(&cluster, &["--gres=gpu:2"], "srun sh -c 'echo gpus=$CUDA_VISIBLE_DEVICES,'")
        .stdout()
        .unwrap();
    assert_eq!(printed.matches(',').count(), 2, "{printed}");
    let srun = cluster.program_as("alice", "srun").unwrap();
    let request =
        ["-p", "shared", "-c1", "--mem=100", "--gres=gpu:1", "sh", "-c", "echo gpus=$CUDA_VISIBLE_DEVICES"];
    let printed = srun.args(request).stdout().unwrap();
    assert!(printed.starts_with("gpus=") && printed.len() == "gpus=0\n".len(), "{printed}");
    // What would fail in its first step is refused before it waits.
    let refused = salloc(&cluster, &["--gpus=1"], "true").output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("write --gres=gpu:N"), "{said}");
    let refused =
        cluster.try_submit_as("bob", "srun --gpus=1 true", &["-p", "shared", "--gres=gpu:1"]).unwrap();
    assert!(
        refused.job.is_none() && refused.said.contains("a step in its script asks for GPUs"),
        "{}",
        refused.said
    );
    let no_gpu = submit(&cluster, "bob", "echo done", &[]);
    assert_eq!(cluster.finished_output(no_gpu, SOON).unwrap(), "done\n");
}

#[test]
fn who_did_not_ask_waits_in_slurms_order_and_is_joined_by_nobody() {
    let cluster = start(600);
    let colocated = |script: &str| {
        cluster
            .submit_as("alice", script, &["--colocate", "-c1", "--mem=100", "-t10", "--gres=gpu:1"])
            .unwrap()
    };
    // The workload of alice is known, so that she could share.
    cluster.finished_output(colocated(WORK), SOON).unwrap();
    let plain: Vec<SlurmJobId> =
        (0..4).map(|_| submit(&cluster, "bob", UNTIL_TOLD, &["--gres=gpu:1"])).collect();
    for job in &plain {
        cluster.wait_for_job(*job, &["RUNNING"], SOON).unwrap();
    }
    let first = submit(&cluster, "bob", &format!("{WORK}\n{UNTIL_TOLD}"), &["--gres=gpu:1"]);
    let second = colocated(WORK);
    // At first it is left to Slurm, which would start it at once.
    wait_until("both wait for a free GPU, in our care", SOON, || {
        let fields = cluster.job(first)?;
        Ok(why(&cluster, "bob", first).contains("no GPU is wholly free")
            && fields["EligibleTime"] != fields["SubmitTime"]
            && cluster.job(second)?["JobState"] == "PENDING")
    })
    .unwrap();
    println!("{}", why(&cluster, "bob", first));
    println!("{}", why(&cluster, "alice", second));
    println!("{}", cluster.pillion_as("root", &["queue"]).unwrap().stdout().unwrap());
    println!("{}", cluster.pillion_as("root", &["nodes"]).unwrap().stdout().unwrap());
    // Who sits in front of it takes his turn as well.
    let mut interactive =
        salloc(&cluster, &["--gres=gpu:1"], "srun sh -c 'echo gpus=$CUDA_VISIBLE_DEVICES'").spawn().unwrap();
    let end = |job: SlurmJobId| let_end_of(&cluster, "bob", job);
    end(plain[0]);
    cluster.wait_for_job(first, &["RUNNING"], SOON).unwrap();
    let member = wait_for_member(&cluster, first, &["running"]);
    assert_eq!(member.node, "n1");
    assert_eq!(cluster.job_field(second, "JobState").unwrap(), "PENDING", "nobody joins who did not ask");
    println!("{}", cluster.pillion_as("bob", &["explain", &first.to_string()]).unwrap().stdout().unwrap());
    end(plain[1]);
    cluster.finished_output(second, SOON).unwrap();
    assert!(interactive.wait().unwrap().success());
    for job in [first, plain[2], plain[3]] {
        end(job);
        cluster.wait_for_job(job, &["COMPLETED"], SOON).unwrap();
    }
    let printed = cluster.finished_output(first, SOON).unwrap();
    assert!(
        printed.contains(" decision=none progress=none pipe=none\n"),
        "it is measured, and not told: {printed}"
    );
    wait_until_settled(&cluster, first);
    assert_eq!((Journal::of(&cluster, first).releases(), Journal::of(&cluster, first).starts()), (1, 1));
}

/// Dead, and then frozen as soon as it was told of a queue.
#[test]
fn who_did_not_ask_does_not_notice_whether_we_live() {
    let mut cluster = start(20);
    cluster.kill_scheduler(Signal::KILL).unwrap();
    cluster.kill_agent("n1", Signal::KILL).unwrap();
    for request in ["--gres=gpu:1", "--gres=gpu:2", "--gres=gpu:4"] {
        let job = submit(&cluster, "bob", WORK, &[request]);
        let printed = cluster.finished_output(job, SOON).unwrap();
        assert!(printed.contains("decision=none"), "{printed}");
        let waited = cluster.job_field(job, "StartTime").unwrap();
        assert_eq!(
            cluster.job_field(job, "EligibleTime").unwrap(),
            cluster.job_field(job, "SubmitTime").unwrap(),
            "{waited}"
        );
    }
    salloc(&cluster, &["--gres=gpu:1"], "srun true").stdout().unwrap();
    cluster.start_agent("n1").unwrap();
    cluster.start_scheduler().unwrap();
    // One holds all, one waits in our care, and the scheduler is killed: at the bound Slurm has it.
    let all = submit(&cluster, "alice", UNTIL_TOLD, &["--gres=gpu:4"]);
    cluster.wait_for_job(all, &["RUNNING"], SOON).unwrap();
    let waits = submit(&cluster, "bob", WORK, &["--gres=gpu:1"]);
    wait_until("it is ours to move", SOON, || {
        Ok(why(&cluster, "bob", waits).contains("no GPU is wholly free"))
    })
    .unwrap();
    cluster.kill_scheduler(Signal::KILL).unwrap();
    let_end(&cluster, all);
    let printed = cluster.finished_output(waits, SOON).unwrap();
    assert!(printed.contains("decision=none") && printed.contains("shards=100"), "{printed}");
}

#[test]
fn what_its_user_does_to_it_stands() {
    let cluster = start(600);
    let all = submit(&cluster, "alice", UNTIL_TOLD, &["--gres=gpu:4"]);
    cluster.wait_for_job(all, &["RUNNING"], SOON).unwrap();
    let [held, moved, changed] = [(); 3].map(|()| submit(&cluster, "alice", WORK, &["--gres=gpu:2"]));
    scontrol_as_alice(&cluster, &["hold", &held.to_string()]);
    scontrol_as_alice(&cluster, &["update", &format!("JobId={moved}"), "Partition=gpu"]);
    let printed = cluster.finished_output(moved, SOON).unwrap();
    assert!(printed.contains(" shards= "), "a GPU as it was submitted: {printed}");
    for change in ["Gres=gpu:1", "StartTime=now+1hour", "ReqNodeList=n1"] {
        let id = format!("JobId={changed}");
        let refused =
            cluster.program_as("alice", "scontrol").unwrap().args(["update", &id, change]).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains("fixed at the submission"), "{change}: {said}");
    }
    scontrol_as_alice(&cluster, &["update", &format!("JobId={changed}"), "TimeLimit=7"]);
    let_end(&cluster, all);
    cluster.finished_output(changed, SOON).unwrap();
    let fields = cluster.job(held).unwrap();
    assert_eq!((fields["JobState"].as_str(), fields["Priority"].as_str()), ("PENDING", "0"), "{fields:?}");
    scontrol_as_alice(&cluster, &["release", &held.to_string()]);
    let printed = cluster.finished_output(held, SOON).unwrap();
    assert!(printed.contains(" shards=200 "), "{printed}");
}
