//! Users who have no business with a daemon: they call their processes as its, write into its pid file, or knock at its socket.

use crate::is_busy;
use crate::node::{Node, command, is_root, kill, runs, until};
use pillion_core::UserId;
use pillion_device::{MpsControl, MpsPlace, MpsSettings, MpsState};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Stdio};

const TENANT: UserId = UserId(60_001);
const STRANGER: UserId = UserId(60_002);
/// What the control program says to whoever cannot reach its daemon.
const NOBODY_THERE: &str = "Cannot find MPS control daemon process";

/// Ended with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    /// `sleep` under another name, with the pipe directory of a device in its environment.
    fn called(node: &Node, name: &str) -> Self {
        let mut shell = command("bash");
        shell.args(["-c", "exec -a \"$0\" sleep 60", name]);
        let process = Self::on(node, shell);
        until("its new name", || {
            let line = std::fs::read_to_string(format!("/proc/{}/cmdline", process.0.id()));
            line.unwrap_or_default().starts_with(name)
        });
        process
    }

    fn on(node: &Node, mut program: std::process::Command) -> Self {
        let program = program.env("CUDA_MPS_PIPE_DIRECTORY", node.settings(0).pipe_directory);
        Self(program.uid(STRANGER.0).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }
}

#[test]
fn a_process_that_calls_itself_a_server_keeps_nobody_from_a_device() {
    if !is_root() {
        return;
    }
    let node = Node::for_all_users();
    let named = Process::called(&node, "nvidia-cuda-mps-server");
    // NVIDIA's own program, begun by a user.
    let genuine = Process::on(&node, command(node.programs.join("nvidia-cuda-mps-server")));
    let mut daemons = node.daemons();
    daemons.prepare(&MpsPlace::device(0), &node.settings(0)).expect("nobody's server is there");
    let pid = node.daemon_pid(0);
    kill(pid);
    until("its end", || !runs(pid));
    until("the next one", || daemons.prepare(&MpsPlace::device(0), &node.settings(0)).is_ok());
    daemons.release(&MpsPlace::device(0)).unwrap();
    for process in [named, genuine] {
        assert!(runs(process.0.id()), "nor is it anybody's to end");
    }
}

#[test]
fn a_server_that_outlives_its_daemon_is_known_by_where_it_comes_from() {
    if !is_root() {
        return;
    }
    let node = Node::for_all_users();
    let mut daemons = node.daemons();
    daemons.prepare(&MpsPlace::device(0), &node.settings(0)).unwrap();
    let daemon = node.daemon_pid(0);
    // It stands where a server of a daemon that is killed stands: in its process group, ours to wait for.
    let mut program = command(node.programs.join("nvidia-cuda-mps-server"));
    let program = program.env("CUDA_MPS_PIPE_DIRECTORY", "/elsewhere").stdin(Stdio::piped());
    let orphan = Process(program.process_group(i32::try_from(daemon).unwrap()).spawn().unwrap());
    drop(daemons);
    kill(daemon);
    until("its end", || !runs(daemon));
    let mut daemons = node.daemons();
    let refused = daemons.prepare(&MpsPlace::device(0), &node.settings(0));
    assert!(is_busy(&refused), "{refused:?}");
    assert!(refused.unwrap_err().to_string().contains(&format!("MPS server {}", orphan.0.id())));
    drop(orphan);
    daemons.prepare(&MpsPlace::device(0), &node.settings(0)).unwrap();
    daemons.release(&MpsPlace::device(0)).unwrap();
}

#[test]
fn a_pid_file_that_a_tenant_writes_names_no_daemon() {
    if !is_root() {
        return;
    }
    let node = Node::for_all_users();
    let mut daemons = node.daemons();
    daemons.prepare(&MpsPlace::device(0), &node.settings(0)).unwrap();
    drop(daemons);
    let (daemon, forged) = (node.daemon_pid(0), Process::called(&node, "nvidia-cuda-mps-control"));
    let file = node.settings(0).pipe_directory.join("nvidia-cuda-mps-control.pid");
    std::fs::write(&file, forged.0.id().to_string()).unwrap();
    let mut daemons = node.daemons();
    assert_eq!(
        daemons.status(&MpsPlace::device(0)).unwrap().unwrap().state,
        MpsState::Up,
        "the one that was started"
    );
    drop(daemons);
    kill(daemon);
    until("its end", || !runs(daemon));
    std::fs::write(&file, forged.0.id().to_string()).unwrap();
    let mut daemons = node.daemons();
    assert_eq!(daemons.status(&MpsPlace::device(0)).unwrap().unwrap().state, MpsState::Died);
    until("the next one", || daemons.prepare(&MpsPlace::device(0), &node.settings(0)).is_ok());
    daemons.release(&MpsPlace::device(0)).unwrap();
}

/// What the daemon answers to a user, or what the control program says instead.
fn answer_to(node: &Node, user: UserId) -> String {
    let mut program = command(node.programs.join("nvidia-cuda-mps-control"));
    let program = program.env("CUDA_MPS_PIPE_DIRECTORY", node.settings(0).pipe_directory);
    let program =
        program.uid(user.0).gid(user.0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = program.spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"get_default_active_thread_percentage\n")
        .unwrap();
    let output = child.wait_with_output().unwrap();
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap().trim().to_owned()
}

#[test]
fn only_a_devices_users_reach_its_daemon() {
    if !is_root() {
        return;
    }
    let node = Node::for_all_users();
    let of = |users: &[UserId]| MpsSettings { users: users.iter().copied().collect(), ..node.settings(0) };
    let mut daemons = node.daemons();
    daemons.prepare(&MpsPlace::device(0), &of(&[TENANT])).unwrap();
    assert_eq!((answer_to(&node, TENANT), answer_to(&node, STRANGER)), ("100.0".into(), NOBODY_THERE.into()));
    let pipe = node.settings(0).pipe_directory;
    let made = command("touch").arg(pipe.join("x")).uid(TENANT.0).stderr(Stdio::null()).status().unwrap();
    assert!(!made.success(), "a tenant changes nothing in it");
    let read = command("cat").arg(pipe.join("pillion.json")).uid(TENANT.0).output().unwrap();
    assert!(read.stdout.is_empty(), "nor learns who else is there");
    daemons.prepare(&MpsPlace::device(0), &of(&[TENANT, STRANGER])).expect("one more");
    assert_eq!(answer_to(&node, STRANGER), "100.0");
    daemons.prepare(&MpsPlace::device(0), &of(&[STRANGER])).expect("one has left");
    assert_eq!(answer_to(&node, TENANT), NOBODY_THERE);
    daemons.release(&MpsPlace::device(0)).unwrap();
}
