//! A `pillion.lua` that is missing, broken, or fails in the middle of its work, on real Slurm: slurmctld starts, and the
//! job runs as its user wrote it. No daemon of ours runs here; the heartbeat that makes lua act is written by the test.

use crate::options::compare::{differences, records};
use pillion_core::heartbeat::{Heartbeat, Mode, PoolAbility};
use pillion_core::{Clock as _, SystemClock};
use pillion_tests::daemons::heartbeat;
use pillion_tests::{Cluster, ClusterSpec};
use rustix::process::Signal;
use std::time::Duration;

const SOON: Duration = Duration::from_mins(1);
/// More assignments than any job needs.
const ASSIGNMENTS_MAX: usize = 20;

/// One GPU, asked for in the ways that take the fewest and the most assignments.
const REQUESTS: [&[&str]; 3] = [
    &["--gres=gpu:1", "--mem=300"],
    &["--gpus=1", "--cpus-per-gpu=2", "--mem=300"],
    &["--gpus-per-task=1", "-n1", "-c2", "--mem-per-gpu=300"],
];

/// Makes lua act as if a scheduler had just been there.
pub(crate) fn beat(cluster: &Cluster) {
    let pool = PoolAbility {
        partition: "shared".into(),
        cpus: 64,
        memory_mib: 256_000,
        features: Vec::new(),
        nodes: Vec::new(),
        gpu_types: Vec::new(),
        gpu_types_of_some: Some(Vec::new()),
        shapes: Vec::new(),
        plain_behind: None,
        shares_by_default: false,
        open_device_count: 4,
    };
    let beat = Heartbeat {
        epoch: SystemClock.now().epoch(),
        bound_seconds: 600,
        mode: Mode::Active,
        slowdown_ratio_max: None,
        pools: vec![pool],
        per_gpu: Vec::new(),
    };
    let path = heartbeat(cluster);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, beat.render()).unwrap();
}

/// What is different between a job with `--colocate` and one without it, while both wait; then both run to their ends, and
/// what is different inside.
fn difference(cluster: &Cluster, request: &[&str], besides: &[&str]) -> String {
    beat(cluster);
    let script = "echo $SLURM_JOB_PARTITION gpus=$SLURM_GPUS_ON_NODE cpus=$SLURM_CPUS_ON_NODE shards=$SLURM_SHARDS_ON_NODE";
    cluster.scontrol(&["update", "PartitionName=gpu", "State=DOWN"]).unwrap();
    let plain = cluster.submit_as("alice", script, request).unwrap();
    let arguments = [&["--colocate"], request].concat();
    let job = cluster.submit_as("alice", script, &arguments).unwrap();
    let different = differences(&records(cluster, plain), &records(cluster, job), besides);
    cluster.scontrol(&["update", "PartitionName=gpu", "State=UP"]).unwrap();
    if !different.is_empty() {
        return different;
    }
    let [before, after] = [plain, job].map(|job| cluster.finished_output(job, SOON).unwrap());
    assert!(before.starts_with("gpu gpus=1 cpus="), "{before}");
    if before == after { String::new() } else { format!("inside, '{before}' is '{after}'") }
}

fn is_managed(cluster: &Cluster, request: &[&str]) -> bool {
    beat(cluster);
    let job = cluster.submit_as("alice", "true", &[&["--colocate"], request].concat()).unwrap();
    let is_managed = cluster.job_field(job, "Partition").unwrap() == "shared";
    // One that is not managed may have ended already.
    cluster.program("scancel").arg(job.to_string()).output().unwrap();
    is_managed
}

#[test]
fn without_a_whole_module_slurm_starts_and_jobs_are_what_they_were() {
    let mut cluster = Cluster::start(ClusterSpec::default()).unwrap();
    let module = cluster.layout().path("conf/pillion.lua");
    let good = std::fs::read_to_string(&module).unwrap();
    assert!(is_managed(&cluster, REQUESTS[0]), "the module does not work at all");
    let half = &good[..good.len() / 2];
    let broken = [
        ("missing", None),
        ("a syntax error", Some(format!("{good}\nthen end (\n"))),
        ("half of it", Some(half.to_owned())),
        ("empty", Some(String::new())),
        ("an error while it is loaded", Some(format!("error('loading')\n{good}"))),
        ("no table", Some("return 7\n".to_owned())),
        ("no functions", Some("return { configure = function() end }\n".to_owned())),
        ("an error in submit", Some(good.replace("local trusted = is_trusted(uid)", "error({})"))),
        ("bytes", Some("\u{1b}Lua\u{0}\u{1}".to_owned())),
    ];
    for (name, text) in broken {
        if let Some(text) = &text {
            assert_ne!(*text, good, "{name}: pillion.lua no longer holds what is broken in it");
            std::fs::write(&module, text).unwrap();
        } else {
            std::fs::remove_file(&module).unwrap();
        }
        cluster.stop_slurmctld(Signal::TERM).unwrap();
        cluster.start_slurmctld().unwrap();
        cluster.wait_for_node("w1", "IDLE", SOON).unwrap();
        assert_eq!(difference(&cluster, REQUESTS[0], &[]), "", "{name}");
        println!("{name:30} ok");
    }
    std::fs::write(&module, &good).unwrap();
    cluster.stop_slurmctld(Signal::TERM).unwrap();
    cluster.start_slurmctld().unwrap();
    assert!(is_managed(&cluster, REQUESTS[0]), "the whole module is not taken up again");
}

/// The cluster's `job_submit.lua`, with a job description that fails at the assignment whose number stands in `file`:
/// before anything was written, or after it.
fn failing_at(cluster: &Cluster, file: &str) -> String {
    let text = std::fs::read_to_string(cluster.layout().path("conf/job_submit.lua")).unwrap();
    let call = "ask_pillion(\"submit\", job_desc,";
    assert!(text.contains(call), "job_submit.lua.example no longer holds '{call}'");
    let proxy = format!(
        r#"
local function failing(job_desc)
  local file = io.open("{file}")
  local when, at = file:read("*l", "*l")
  file:close()
  local count = 0
  return setmetatable({{}}, {{
    __index = function(_, name) return job_desc[name] end,
    __newindex = function(_, name, value)
      count = count + 1
      if count == tonumber(at) and when == "before" then error("injected before " .. name) end
      job_desc[name] = value
      if count == tonumber(at) then error("injected after " .. name) end
    end,
  }})
end
"#
    );
    text.replace(call, "ask_pillion(\"submit\", failing(job_desc),")
        .replace("local loaded,", &format!("{proxy}\nlocal loaded,"))
}

#[test]
fn a_failure_at_any_assignment_leaves_the_job_as_it_was_written() {
    let mut cluster = Cluster::start(ClusterSpec::default()).unwrap();
    let file = cluster.layout().path("conf/fail_at");
    let set = |when: &str, at: usize| std::fs::write(&file, format!("{when}\n{at}\n")).unwrap();
    let text = failing_at(&cluster, &file.display().to_string());
    cluster.layout().write("conf/job_submit.lua", text).unwrap();
    set("before", 0);
    cluster.stop_slurmctld(Signal::TERM).unwrap();
    cluster.start_slurmctld().unwrap();
    cluster.wait_for_node("w1", "IDLE", SOON).unwrap();
    for (request, least) in REQUESTS.into_iter().zip([4, 7, 7]) {
        set("before", 0);
        assert!(is_managed(&cluster, request), "{request:?}: not managed without a failure");
        let mut assignments = 0;
        for at in 1..ASSIGNMENTS_MAX {
            set("before", at);
            if is_managed(&cluster, request) {
                assignments = at - 1;
                break;
            }
            for when in ["before", "after"] {
                set(when, at);
                let wrong = difference(&cluster, request, &[]);
                assert_eq!(wrong, "", "{request:?}: failing {when} assignment {at}");
            }
        }
        println!("{request:?}: {assignments} assignments");
        assert!(assignments >= least, "{request:?}: only {assignments} assignments were seen");
    }
}
