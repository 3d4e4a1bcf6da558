//! Control groups of their own for daemons: asked for once, with the daemon's number, and served without.

use super::*;
use pillion_device::mps::Scopes;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// A program in `busctl`'s place: writes down what it is told, a line a call, and does what `then` says.
fn busctl(node: &Node, then: &str) -> Scopes {
    let (directory, path) = (node.directory.path(), node.directory.path().join("busctl"));
    let text =
        format!("#!/bin/sh\nPATH=/usr/bin:/bin\ncd {}\necho \"$*\" >> asked\n{then}\n", directory.display());
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    Scopes::by(path, directory.join("proc"))
}

/// Shows the process in the scope that was asked for, as /proc does once systemd has moved it.
const MOVE: &str = "pid=$(echo \"$*\" | sed 's/.* PIDs au 1 \\([0-9]*\\) .*/\\1/')\nmkdir -p proc/$pid\n\
                    echo \"0::/system.slice/pillion-mps-g0-$pid.scope\" > proc/$pid/cgroup";

fn asked(node: &Node) -> Vec<String> {
    let text = std::fs::read_to_string(node.directory.path().join("asked")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_daemon_is_moved_into_a_scope_of_its_own_before_it_has_a_client() {
    if !is_root() {
        return;
    }
    let node = Node::start();
    let mut daemons = node.daemons().with_scopes(Some(busctl(&node, MOVE)));
    daemons.prepare(&MpsPlace::device(0), &node.settings(0)).unwrap();
    let pid = node.daemon_pid(0);
    let client = node.client(0, &[]);
    connected(&mut daemons, 0, &[client.pid()]);
    daemons.prepare(&MpsPlace::device(0), &node.settings(0)).unwrap();
    let asked = asked(&node);
    assert_eq!(asked.len(), 1, "once: {asked:?}");
    let call = format!("StartTransientUnit ssa(sv)a(sa(sv)) pillion-mps-g0-{pid}.scope fail 5 Description s");
    assert!(asked[0].contains(&call) && asked[0].contains(&format!(" PIDs au 1 {pid} ")), "{}", asked[0]);
    assert!(asked[0].ends_with(" OOMPolicy s continue 0"), "{}", asked[0]);
    client.leave();
    daemons.release(&MpsPlace::device(0)).unwrap();
    assert!(!runs(pid));
}

#[test]
fn one_that_gets_no_scope_serves_as_before_and_is_found_again() {
    if !is_root() {
        return;
    }
    // Refused; not there; never answering; said to be done, and not done.
    let never = "exec sleep 60";
    for then in ["exit 1", never, "exit 0"] {
        let node = Node::start();
        let scopes = busctl(&node, then);
        let mut daemons = node.daemons().with_scopes(Some(scopes.clone()));
        let begun = Instant::now();
        daemons.prepare(&MpsPlace::device(0), &node.settings(0)).unwrap();
        assert!(begun.elapsed() < Duration::from_secs(7), "{then}: a job waits for it");
        let (pid, client) = (node.daemon_pid(0), node.client(0, &[]));
        drop(daemons);
        let mut daemons = node.daemons().with_scopes(Some(scopes));
        connected(&mut daemons, 0, &[client.pid()]);
        daemons.prepare(&MpsPlace::device(0), &node.settings(0)).unwrap();
        assert_eq!(node.daemon_pid(0), pid, "{then}");
        client.leave();
        daemons.release(&MpsPlace::device(0)).unwrap();
        assert!(asked(&node).iter().all(|line| line.contains(&pid.to_string())), "{then}");
    }
    let node = Node::start();
    let mut daemons = node.daemons().with_scopes(Some(Scopes::by(Path::new("/nowhere/busctl"), "/proc")));
    daemons.prepare(&MpsPlace::device(0), &node.settings(0)).unwrap();
    daemons.release(&MpsPlace::device(0)).unwrap();
}
