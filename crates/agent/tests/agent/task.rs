//! A job's task: a process of its own (this very test program, started anew), that does what slurmstepd and the job do.

use crate::scheduler::eventually;
use pillion_core::handoff::{HandoffReply, HandoffRequest};
use pillion_device::simulated::{AttachRequest, Environment, JobConnection, VARIABLES};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

pub(crate) const REQUEST: &str = "PILLION_TEST_REQUEST";
pub(crate) const HANDOFF_SOCKET: &str = "PILLION_TEST_HANDOFF_SOCKET";
pub(crate) const DEVICE_SOCKET: &str = "PILLION_TEST_DEVICE_SOCKET";
pub(crate) const ANSWER: &str = "PILLION_TEST_ANSWER";
/// A variable that the task takes away again from what it is given.
pub(crate) const UNSET: &str = "PILLION_TEST_UNSET";

/// Asks as the plugin does.
pub(crate) fn ask(socket: &Path, request: &HandoffRequest) -> io::Result<HandoffReply> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    Ok(serde_json::from_str(&answer)?)
}

/// A running task.
pub(crate) struct Task {
    child: Child,
    answer: PathBuf,
    progress: PathBuf,
}

impl Task {
    pub(crate) fn new(child: Child, answer: PathBuf, progress: PathBuf) -> Self {
        Self { child, answer, progress }
    }

    /// What the agent answered it.
    pub(crate) async fn reply(&mut self) -> HandoffReply {
        eventually("a task's answer", || self.answer.exists()).await;
        serde_json::from_slice(&std::fs::read(&self.answer).unwrap()).unwrap()
    }

    /// Its counter, as it writes it.
    pub(crate) fn progress(&self) -> Option<f64> {
        std::fs::read_to_string(&self.progress).ok()?.trim().parse().ok()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether its process is over, without our doing.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    pub(crate) fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.end();
    }
}

/// A running step of Slurm's own, with a process beneath it.
pub(crate) struct Step {
    child: Child,
    /// The pid of the process beneath it stands there.
    pid_path: PathBuf,
}

impl Step {
    pub(crate) fn new(child: Child, pid_path: PathBuf) -> Self {
        Self { child, pid_path }
    }

    /// The process ends, and its step with it.
    pub(crate) fn end(&mut self) {
        let pid = std::fs::read_to_string(&self.pid_path).ok().and_then(|text| text.parse().ok());
        if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            self.end();
        }
    }
}

/// What runs a step: begins a process of the job, and waits for it.
#[test]
#[ignore = "the process of a step, started by the other tests"]
fn the_step_itself() {
    let Some(path) = std::env::var_os(ANSWER) else { return };
    let path = PathBuf::from(path);
    let mut child = crate::node::program("/proc/self/exe")
        .args(["--exact", "task::the_outsider_itself", "--ignored", "--nocapture"])
        .spawn()
        .unwrap();
    std::fs::write(path.with_extension("new"), child.id().to_string()).unwrap();
    std::fs::rename(path.with_extension("new"), path).unwrap();
    let _ = child.wait();
}

/// A process that came by another way than Slurm: it asks nobody, and works on the device until it is killed.
#[test]
#[ignore = "the process of an outsider, started by the other tests"]
fn the_outsider_itself() {
    let Some(socket) = std::env::var_os(DEVICE_SOCKET) else { return };
    let environment: Environment = [("CUDA_VISIBLE_DEVICES".into(), "1".into())].into();
    let attach = AttachRequest {
        workload: "resnet50-train".into(),
        seconds: Some(600.0),
        memory_bytes: Some(1 << 30),
        environment,
        ..AttachRequest::default()
    };
    let _connection = JobConnection::open(PathBuf::from(socket), attach).expect("a device");
    std::thread::sleep(Duration::from_mins(10));
}

/// The task itself: asks, takes the environment that it is given, works and counts until it is killed.
#[test]
#[ignore = "the process of a task, started by the other tests"]
fn the_task_itself() {
    let Ok(request) = std::env::var(REQUEST) else { return };
    let request: HandoffRequest = serde_json::from_str(&request).unwrap();
    let path = |name: &str| PathBuf::from(std::env::var_os(name).unwrap());
    // The agent may still be starting; slurmstepd would go on without.
    let reply = loop {
        match ask(&path(HANDOFF_SOCKET), &request) {
            Ok(reply) => break reply,
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    let mut environment: Environment =
        reply.set.iter().filter(|(name, _)| VARIABLES.contains(&name.as_str())).cloned().collect();
    if let Ok(name) = std::env::var(UNSET) {
        environment.remove(&name);
    }
    // A step of an interactive job says nothing of it.
    let devices = if request.devices.is_empty() { vec![1] } else { request.devices.clone() };
    let list = devices.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    environment.entry("CUDA_VISIBLE_DEVICES".into()).or_insert_with(|| list.clone());
    environment.entry("SLURM_JOB_GPUS".into()).or_insert(list);
    let attach = |device| AttachRequest {
        workload: "resnet50-train".into(),
        seconds: Some(600.0),
        memory_bytes: Some(1 << 30),
        environment: environment.clone(),
        device,
        ..AttachRequest::default()
    };
    let answer = path(ANSWER);
    std::fs::write(answer.with_extension("new"), serde_json::to_vec(&reply).unwrap()).unwrap();
    std::fs::rename(answer.with_extension("new"), &answer).unwrap();
    let open = |device| JobConnection::open(path(DEVICE_SOCKET), attach(device)).expect("a device");
    let _on_each: Vec<JobConnection> = (0..devices.len()).map(open).collect();
    let progress = reply.set.iter().find(|(name, _)| name == "PILLION_PROGRESS").map(|(_, path)| path);
    for step in 1.. {
        if let Some(path) = progress {
            std::fs::write(path, format!("{step}\n")).unwrap();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
