//! Interactive jobs with `--colocate` on real Slurm: each starts within seconds and alone, guests come while it is idle and go when it
//! works, and whoever of us is dead nobody who sits in front of his job waits for it.

use crate::faults::wait_for_event;
use crate::leases::{Journal, let_end_of, why};
use crate::rides::{SOON, Watched, decisions, guest, make_known_as, member_of, script};
use pillion_core::device::Mechanism;
use pillion_core::{Clock as _, SlurmJobId, SystemClock, UnixTime};
use pillion_tests::cluster::spec::{ADMITS_PLAIN, PoolNode};
use pillion_tests::daemons::heartbeat;
use pillion_tests::wait::{Look, wait_for, wait_until};
use pillion_tests::{Cluster, ClusterSpec};
use rustix::process::Signal;
use std::process::Child;
use std::time::Duration;

const OPTION: &str = "--colocate=memory=16G";
const REQUEST: [&str; 4] = ["--gres=gpu:1", "-c1", "--mem=100", "-t20"];
/// What a step says of itself, and then waits for: work, which it writes down how long it took, and its end.
const CELLS: &str = "env | grep -E \"^(CUDA_MPS_PIPE_DIRECTORY|CUDA_MPS_PINNED_DEVICE_MEM_LIMIT|PILLION_DECISION|SLURM_SHARDS_ON_NODE)=\" > is.$SLURM_JOB_ID
    while [ ! -e end-$SLURM_JOB_ID ]; do
        if [ -e work-$SLURM_JOB_ID ]; then
            rm work-$SLURM_JOB_ID; begin=$EPOCHREALTIME; pillion-load gemm-hog --seconds 1200 > /dev/null
            echo $begin $EPOCHREALTIME > worked-$SLURM_JOB_ID.new; mv worked-$SLURM_JOB_ID.new worked-$SLURM_JOB_ID
        fi
        sleep 0.2
    done";

pub(crate) fn start(gpus_per_node: u32) -> Cluster {
    let spec = ClusterSpec {
        pool_nodes: vec![PoolNode::new("n1", "h200", Mechanism::Mps)],
        gpus_per_node,
        pool_conf_extra: vec![ADMITS_PLAIN.to_owned()],
        slurm_conf_extra: vec!["KillWait=6".to_owned()],
        scheduler_conf_extra: vec!["session_idle_seconds = 10".to_owned()],
        ..ClusterSpec::default()
    };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_pillion().unwrap();
    wait_until_open(&cluster, gpus_per_node);
    cluster
}

/// Waits until `pillion.lua` is told that so many GPUs have an agent behind them.
fn wait_until_open(cluster: &Cluster, count: u32) {
    let (heartbeat, line) = (heartbeat(cluster), format!("open=shared {count}\n"));
    wait_until(&line, SOON, || Ok(std::fs::read_to_string(&heartbeat).unwrap_or_default().contains(&line)))
        .unwrap();
}

fn since(begun: UnixTime) -> Duration {
    Duration::from_secs_f64(SystemClock.now().seconds_since(begun).max(0.0))
}

/// Somebody in front of his job.
pub(crate) struct Session {
    pub(crate) job: SlurmJobId,
    user: &'static str,
    /// What he typed: `sbatch` is over at once, the others with the job.
    pub(crate) child: Child,
    /// From his command to the state that was waited for.
    waited: Duration,
}

impl Session {
    /// `salloc`, in whose shell a step is begun; waits until Slurm knows it in one of these states.
    pub(crate) fn salloc(
        cluster: &Cluster,
        user: &'static str,
        name: &str,
        more: &[&str],
        states: &[&str],
    ) -> Self {
        let line = format!("srun bash -c '{CELLS}'");
        let words = ["bash", "-c", line.as_str()].map(str::to_owned);
        Self::begin(cluster, user, ("salloc", name), (OPTION, more), &words, states)
    }

    /// `srun`, which is its step.
    fn srun(cluster: &Cluster, user: &'static str, name: &str) -> Self {
        let words = ["bash", "-c", CELLS].map(str::to_owned);
        Self::begin(cluster, user, ("srun", name), (OPTION, &[]), &words, &["RUNNING"])
    }

    /// `sbatch`, as a portal submits a notebook.
    fn sbatch(cluster: &Cluster, user: &'static str, name: &str, more: &[&str]) -> Self {
        let words = ["--output=/dev/null".to_owned(), format!("--wrap=exec bash -c '{CELLS}'")];
        let option = "--colocate=session,memory=16G";
        Self::begin(cluster, user, ("sbatch", name), (option, more), &words, &["RUNNING"])
    }

    fn begin(
        cluster: &Cluster,
        user: &'static str,
        (client, name): (&str, &str),
        (option, more): (&str, &[&str]),
        words: &[String],
        states: &[&str],
    ) -> Self {
        let begun = SystemClock.now();
        let program = cluster.program_as(user, client).unwrap().args(["-J", name, option]).args(REQUEST);
        let child = program.args(more.iter().copied()).args(words.iter().cloned()).spawn().unwrap();
        let what = format!("{name} {states:?}");
        let job = wait_for(&what, SOON, || {
            let lines = cluster.squeue("%i|%j|%T")?;
            let own = lines.iter().find_map(|line| {
                let [id, own, state] = line.split('|').collect::<Vec<_>>()[..] else { return None };
                (own == name && states.contains(&state)).then(|| id.parse().ok())?
            });
            Ok(own.map_or_else(|| Look::NotYet(lines.join(", ")), Look::Ready))
        })
        .unwrap();
        Self { job, user, child, waited: since(begun) }
    }

    /// What its step found in its environment.
    pub(crate) fn is(&self, cluster: &Cluster) -> String {
        let path = cluster.home(self.user).join(format!("is.{}", self.job));
        wait_for("a step that says what it is", SOON, || {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            Ok(if text.contains("SHARDS") { Look::Ready(text) } else { Look::NotYet(text) })
        })
        .unwrap()
    }

    pub(crate) fn work(&self, cluster: &Cluster) {
        std::fs::write(cluster.home(self.user).join(format!("work-{}", self.job)), "").unwrap();
    }

    /// How long its work took.
    pub(crate) fn worked(&self, cluster: &Cluster) -> f64 {
        let path = cluster.home(self.user).join(format!("worked-{}", self.job));
        wait_until("its work is done", SOON, || Ok(path.exists())).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let times: Vec<f64> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
        times[1] - times[0]
    }

    pub(crate) fn end(mut self, cluster: &Cluster) {
        let_end_of(cluster, self.user, self.job);
        assert!(self.child.wait().unwrap().success());
    }
}

/// Until it runs.
pub(crate) fn wait_for_guest(cluster: &Cluster, guest: SlurmJobId) {
    wait_for("a guest to come", SOON, || {
        let state = cluster.job_field(guest, "JobState")?;
        Ok(if state == "RUNNING" { Look::Ready(()) } else { Look::NotYet(why(cluster, "alice", guest)) })
    })
    .unwrap();
}

pub(crate) fn small_guest(cluster: &Cluster) -> SlurmJobId {
    let work = guest("resnet50-infer", [36_000, 60]);
    cluster
        .submit_as(
            "alice",
            &work,
            &["--colocate=guest,profile=small", "--gres=gpu:1", "-c1", "--mem=100", "-t10"],
        )
        .unwrap()
}

pub(crate) fn make_known(cluster: &Cluster) {
    make_known_as(cluster, "alice", &[("small", "resnet50-infer")]);
}

/// The group of decisions of a start.
fn group(cluster: &Cluster, job: SlurmJobId, restarts: u64) -> Option<u64> {
    member_of(&decisions(cluster), job, restarts).and_then(|(decision, _)| decision["group_id"].as_u64())
}

#[test]
fn a_guest_uses_a_notebook_s_gpu_while_it_is_idle_and_goes_when_it_works() {
    let mut cluster = start(1);
    make_known(&cluster);
    let notebook = Session::salloc(&cluster, "alice", "notebook", &[], &["RUNNING"]);
    println!("salloc --colocate ran after {:.1} s", notebook.waited.as_secs_f64());
    let is = notebook.is(&cluster);
    assert!(is.contains("CUDA_MPS_PIPE_DIRECTORY=") && is.contains("PILLION_DECISION="), "{is}");
    assert!(is.contains("SLURM_SHARDS_ON_NODE=60\n"), "{is}");
    assert!(is.contains("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=16384M"), "{is}");
    let told =
        cluster.pillion_as("alice", &["explain", &notebook.job.to_string()]).unwrap().stdout().unwrap();
    assert!(told.contains("guests may join while it leaves the device idle"), "{told}");
    assert!(told.contains("interactive host"), "{told}");
    // The next look at Slurm shows that it runs.
    wait_until("it is told that guests may come", SOON, || {
        Ok(why(&cluster, "alice", notebook.job)
            .contains("interactive: guests may use the GPU while it is idle"))
    })
    .unwrap();
    notebook.work(&cluster);
    let alone = notebook.worked(&cluster);

    // It is idle: whoever is no guest still does not come, and a guest does.
    let other = cluster
        .submit_as(
            "alice",
            &script("pillion-load resnet50-infer --seconds 60"),
            &["--colocate=profile=small", "--gres=gpu:1", "-c1", "--mem=100", "-t10"],
        )
        .unwrap();
    wait_for("why it does not come", SOON, || {
        let told = why(&cluster, "alice", other);
        Ok(if told.contains("room for small guests alone") { Look::Ready(()) } else { Look::NotYet(told) })
    })
    .unwrap();
    let first = small_guest(&cluster);
    wait_for_guest(&cluster, first);
    assert_eq!(group(&cluster, first, 0), group(&cluster, notebook.job, 0));
    println!("{}", cluster.pillion_as("root", &["pairs"]).unwrap().stdout().unwrap());

    // The scheduler is killed and started anew; then the notebook works.
    cluster.kill_scheduler(Signal::KILL).unwrap();
    cluster.start_scheduler().unwrap();
    notebook.work(&cluster);
    let told = wait_for_event(&cluster, first, "made-room");
    assert!(told.contains("the interactive job that has its GPU uses it now"), "{told}");
    cluster.wait_for_job(first, &["PENDING"], SOON).unwrap();
    let beside = notebook.worked(&cluster);
    println!("its work took {alone:.1} s alone and {beside:.1} s with a guest that went");
    assert!(beside <= 1.25 * alone, "{beside:.1} s, alone {alone:.1} s");
    assert_eq!(cluster.job_field(notebook.job, "JobState").unwrap(), "RUNNING");
    let mark = cluster.job_field(first, "AdminComment").unwrap();
    assert!(mark.contains(";guest=1;") && !mark.contains("lease=") && !mark.contains("alone=1"), "{mark}");

    // Idle again it is joined again; who leaves his notebook leaves the guest running.
    cluster.wait_for_job(first, &["RUNNING", "COMPLETED"], SOON).unwrap();
    notebook.end(&cluster);
    cluster.wait_for_job(first, &["COMPLETED"], SOON).unwrap();
    cluster.wait_for_job(other, &["COMPLETED"], SOON).unwrap();
    assert_eq!((Journal::of(&cluster, first).releases(), Journal::of(&cluster, first).starts()), (2, 2));
    println!("{}", cluster.pillion_as("root", &["events"]).unwrap().stdout().unwrap());
}

#[test]
fn two_notebooks_never_share_and_wait_their_turn() {
    let cluster = start(2);
    let mut watched = Watched::default();
    let first = Session::salloc(&cluster, "alice", "first", &[], &["RUNNING"]);
    let second = Session::srun(&cluster, "alice", "second");
    for session in [&first, &second] {
        println!("ran after {:.1} s", session.waited.as_secs_f64());
        assert!(session.waited < Duration::from_secs(15), "{:?}", session.waited);
        let is = session.is(&cluster);
        assert!(is.contains("CUDA_MPS_PIPE_DIRECTORY=") && is.contains("SLURM_SHARDS_ON_NODE=60\n"), "{is}");
    }
    // No GPU is free: neither half of one is.
    let third = Session::salloc(&cluster, "alice", "third", &[], &["PENDING"]);
    wait_for("why it waits", SOON, || {
        let told = why(&cluster, "alice", third.job);
        Ok(if told.contains("no device is wholly free") || told.contains("no GPU is wholly free") {
            Look::Ready(())
        } else {
            Look::NotYet(told)
        })
    })
    .unwrap();
    // Longer than it would wait beside a free GPU.
    let begun = SystemClock.now();
    wait_until("half a minute of two on two GPUs", SOON, || {
        watched.look(&cluster)?;
        Ok(since(begun) > Duration::from_secs(25))
    })
    .unwrap();
    assert_eq!(cluster.job_field(third.job, "JobState").unwrap(), "PENDING");
    // Held it stays, whatever is free; then it has its turn.
    cluster.program_as("alice", "scontrol").unwrap().args(["hold", &third.job.to_string()]).stdout().unwrap();
    first.end(&cluster);
    wait_until("a GPU is free", SOON, || {
        watched.look(&cluster)?;
        Ok(cluster.squeue("%j|%T")?.iter().all(|line| line != "first|RUNNING"))
    })
    .unwrap();
    assert_eq!(cluster.job_field(third.job, "JobState").unwrap(), "PENDING");
    cluster
        .program_as("alice", "scontrol")
        .unwrap()
        .args(["release", &third.job.to_string()])
        .stdout()
        .unwrap();
    cluster.wait_for_job(third.job, &["RUNNING"], SOON).unwrap();
    watched.look(&cluster).unwrap();
    second.end(&cluster);
    third.end(&cluster);
    assert!(watched.together.is_empty(), "{:?}", watched.together);
}

#[test]
fn who_sits_in_front_of_his_job_waits_for_none_of_us() {
    let mut cluster = start(2);
    let pool = ["-p", "shared"];
    let is_alone = |cluster: &Cluster, session: &Session| {
        let is = session.is(cluster);
        assert!(is.contains("SLURM_SHARDS_ON_NODE=100\n") && !is.contains("CUDA_MPS_PIPE"), "{is}");
        println!("alone after {:.1} s", session.waited.as_secs_f64());
    };
    // 1. No agent: it starts at once, and is nobody's.
    cluster.kill_agent("n1", Signal::KILL).unwrap();
    wait_until_open(&cluster, 0);
    let unattended = Session::salloc(&cluster, "alice", "unattended", &pool, &["RUNNING"]);
    assert!(unattended.waited < Duration::from_secs(5), "{:?}", unattended.waited);
    is_alone(&cluster, &unattended);
    unattended.end(&cluster);
    // 2. The scheduler dies before it has decided: some seconds later it starts alone.
    cluster.start_agent("n1").unwrap();
    wait_until_open(&cluster, 2);
    cluster.kill_scheduler(Signal::KILL).unwrap();
    let orphan = Session::salloc(&cluster, "alice", "orphan", &pool, &["RUNNING"]);
    assert!(orphan.waited < Duration::from_secs(40), "{:?}", orphan.waited);
    is_alone(&cluster, &orphan);
    // 3. And when that is known it starts at once.
    let heartbeat = heartbeat(&cluster);
    wait_until("the heartbeat is old", SOON, || {
        let modified = std::fs::metadata(&heartbeat).and_then(|file| file.modified()).ok();
        let age = modified.and_then(|at| at.elapsed().ok());
        Ok(age.is_some_and(|age| age > Duration::from_secs(32)))
    })
    .unwrap();
    let late = Session::salloc(&cluster, "alice", "late", &pool, &["RUNNING"]);
    assert!(late.waited < Duration::from_secs(5), "{:?}", late.waited);
    is_alone(&cluster, &late);
    // 4. Whoever leads then lets nobody come to them.
    cluster.start_scheduler().unwrap();
    orphan.end(&cluster);
    late.end(&cluster);
}

/// Portals submit by `sbatch`.
#[test]
fn a_notebook_that_a_portal_submits_is_a_session_too() {
    let mut cluster = start(1);
    make_known(&cluster);
    let notebook = Session::sbatch(&cluster, "alice", "notebook", &[]);
    assert!(notebook.waited < Duration::from_secs(15), "{:?}", notebook.waited);
    let is = notebook.is(&cluster);
    assert!(is.contains("CUDA_MPS_PIPE_DIRECTORY=") && is.contains("PILLION_DECISION="), "{is}");
    assert!(is.contains("SLURM_SHARDS_ON_NODE=60\n"), "{is}");
    assert!(is.contains("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=16384M"), "{is}");
    let first = small_guest(&cluster);
    wait_for_guest(&cluster, first);
    assert_eq!(group(&cluster, first, 0), group(&cluster, notebook.job, 0));
    notebook.work(&cluster);
    wait_for_event(&cluster, first, "made-room");
    notebook.worked(&cluster);
    assert_eq!(cluster.job_field(notebook.job, "JobState").unwrap(), "RUNNING");

    // Where its user closes it the guest goes on.
    cluster.wait_for_job(first, &["RUNNING", "COMPLETED"], SOON).unwrap();
    let job = notebook.job;
    notebook.end(&cluster);
    cluster.wait_for_job(job, &["COMPLETED"], SOON).unwrap();
    cluster.wait_for_job(first, &["COMPLETED"], SOON).unwrap();

    // The scheduler dies before it has decided on the next: some seconds later that one starts alone.
    cluster.kill_scheduler(Signal::KILL).unwrap();
    let orphan = Session::sbatch(&cluster, "alice", "orphan", &["-p", "shared"]);
    assert!(orphan.waited < Duration::from_secs(40), "{:?}", orphan.waited);
    let is = orphan.is(&cluster);
    assert!(is.contains("SLURM_SHARDS_ON_NODE=100\n") && !is.contains("CUDA_MPS_PIPE"), "{is}");
    orphan.end(&cluster);
}

#[test]
fn what_is_no_session_is_left_as_it_is() {
    let cluster = start(1);
    for (option, said) in [
        ("--colocate", "say how much GPU memory it takes"),
        ("--colocate=guest,memory=1G", "an interactive job is no guest"),
        ("--colocate=profile=x,memory=1G", "takes memory= and isolation= alone"),
    ] {
        let program = cluster.program_as("alice", "salloc").unwrap();
        let output =
            program.args([option, "--gres=gpu:1", "-c1", "--mem=100", "-t5", "true"]).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && told.contains(said), "{option}: {told}");
        assert!(told.contains("is left as you wrote it and shares no GPU"), "{told}");
    }
}
