//! What jobs and kernels write on a node: counters, standard error, `/proc`, and the line that the plugin sends.

use crate::fuzz;
use crate::values::{bytes_like, text_like};
use pillion_agent::handoff_server::Poke;
use pillion_agent::procfs::{JobGroup, ProcFs};
use pillion_agent::progress::ProgressFiles;
use pillion_agent::stderr_tail::classify;
use pillion_core::handoff::{HandoffReply, HandoffRequest};
use pillion_core::{JobStart, SlurmJobId, UserId};
use pillion_slurm_spank::env;

const JOB: JobStart = JobStart { job_id: SlurmJobId::plain(33), restart_count: 0 };

fn texts(examples: &[&str]) -> Vec<Vec<u8>> {
    examples.iter().map(|text| text.as_bytes().to_vec()).collect()
}

#[test]
fn progress() {
    let directory = tempfile::tempdir().unwrap();
    let files = ProgressFiles::new(directory.path()).unwrap();
    let user = UserId(rustix::process::getuid().as_raw());
    let path = files.make(JOB, user, rustix::process::getgid().as_raw()).unwrap();
    let examples = texts(&["1\n2\n3\n", "7", " 2.5e3 \n", "1e15\n", "2e307\n", "inf\nNaN\n-0\n"]);
    fuzz("progress", &bytes_like(examples), |bytes| {
        std::fs::write(&path, &bytes).unwrap();
        if let Some(counter) = files.read(JOB, user) {
            assert!((0.0..=1e15).contains(&counter), "{counter}");
        }
    });
}

#[test]
fn standard_error() {
    let examples = [
        "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY\nTraceback (most recent call last):\n",
    ];
    fuzz("standard error", &text_like(&examples), |text| {
        let class = classify(&text);
        // What is said stays said, whatever is printed before it.
        assert!(classify(&format!("\n\n{text}")) >= class);
    });
}

#[test]
fn proc_and_cgroups() {
    let directory = tempfile::tempdir().unwrap();
    let process = directory.path().join("42");
    std::fs::create_dir(&process).unwrap();
    let examples = texts(&[
        "42 (a) R 1 (b) S 7 42 42 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 98765 0 0\n",
        "0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0\n",
        "4:memory:/slurm_n1/uid_1000/job_33/step_batch/task_0\n1:name=systemd:/\n",
        "0::/system.slice/n1_slurmstepd.scope/s5K1KKYAYG5D00/step_extern\n",
        "0::/user.slice/slurmstepd.scope/job_12/step_0\n",
        "pos:\t0\nflags:\t0100001\n",
    ]);
    let proc = ProcFs::new(directory.path());
    fuzz("proc", &bytes_like(examples), |bytes| {
        for file in ["stat", "cgroup"] {
            std::fs::write(process.join(file), &bytes).unwrap();
        }
        if let Some(stat) = proc.stat(42) {
            assert!(!stat.is_dead || proc.identify(42).is_none());
        }
        if let Some(group) = proc.job_group(42) {
            let text = String::from_utf8(bytes).expect("a cgroup that is no text names no job");
            let name = match group {
                JobGroup::Number(number) => number.to_string(),
                JobGroup::Sluid(sluid) => sluid,
            };
            let is_slurms = |line: &str| line.contains("/slurm") || line.contains(":/system.slice/");
            assert!(text.lines().any(|line| is_slurms(line) && line.contains(&name)), "{text}: {name}");
        }
    });
}

#[test]
fn handoff() {
    let request = r#"{"version":1,"start":{"job_id":{"id":33,"task":null},"restart_count":0},"inner_job_id":33,"uid":1000,"gid":100,"step_id":4294967291,"devices":[1],"shards":40,"option":"memory=8G"}"#;
    let reply = r#"{"verdict":"decided","decision_id":7,"set":[["A","1"],["B","2"]],"unset":["C"],"container_bind":"/run/p"}"#;
    let lines = texts(&[request, reply, r#"{"poke":1}"#]);
    fuzz("handoff", &bytes_like(lines), |line| {
        if let Ok(request) = serde_json::from_slice::<HandoffRequest>(&line) {
            let written = serde_json::to_vec(&request).unwrap();
            assert_eq!(serde_json::from_slice::<HandoffRequest>(&written).unwrap(), request);
        }
        if let Ok(reply) = serde_json::from_slice::<HandoffReply>(&line) {
            for (name, value) in &reply.set {
                let fits = env::is_variable_name(name) && env::is_variable_value(value);
                assert!(!fits || !name.contains('=') && !value.contains(['\n', '\0']), "{name}={value}");
            }
        }
        let _ = serde_json::from_slice::<Poke>(&line);
    });
}

#[test]
fn words_of_the_plugin() {
    let examples = [
        "0,2,4-6",
        "0-4294967295",
        "gres/gpu=1,cpu=2",
        "socket=/run/%n/agent.sock",
        "--deadline=now",
        "GPU-1,2",
    ];
    fuzz("words of the plugin", &text_like(&examples), |text| {
        assert!(env::parse_devices(&text).len() <= env::DEVICES_MAX);
        if let Some(rest) = env::without_gpus(&text) {
            assert_eq!(env::without_gpus(&rest), None, "{text}: {rest}");
        }
        let printable = env::printable(&text);
        assert!(
            printable.len() <= 300 && printable.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())
        );
        env::PluginArguments::parse([text.as_str()]);
        let bound = env::container_binds(|_| Some(text.clone()), "/p");
        assert!(bound.iter().all(|(_, list)| list.ends_with("/p")));
    });
}
