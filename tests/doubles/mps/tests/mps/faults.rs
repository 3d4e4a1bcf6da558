//! What goes wrong under clients, and when the device may be used again.

use crate::is_busy;
use crate::node::{Node, connected, is_root, kill, runs, until};
use pillion_core::device::NoticeKind;
use pillion_device::mps::MpsDaemons;
use pillion_device::simulated::Phase;
use pillion_device::{DeviceError, MpsControl, MpsPlace, MpsSettings, MpsState};

/// Waits for the next notice, which must be the only one.
fn notice(daemons: &mut MpsDaemons) -> NoticeKind {
    let mut notices = Vec::new();
    until("a notice", || {
        notices = daemons.notices();
        !notices.is_empty()
    });
    assert!(notices.len() == 1 && notices[0].index == 0, "{notices:?}");
    notices[0].kind
}

fn is_quiet(daemons: &mut MpsDaemons) -> bool {
    (0..10).all(|_| daemons.notices().is_empty())
}

#[test]
fn a_fault_is_told_keeps_tenants_out_and_clears() {
    if !is_root() {
        return;
    }
    let node = Node::start();
    let mut daemons = node.daemons();
    daemons.prepare(&MpsPlace::device(0), &node.settings(0)).unwrap();
    let mut clients = [node.client(0, &[]), node.client(0, &[])];
    node.driver().fault_mps(0).unwrap();
    assert_eq!(notice(&mut daemons), NoticeKind::MpsFault);
    assert!(is_quiet(&mut daemons));
    assert!(clients.iter_mut().all(|client| client.progress().phase == Phase::Failed));
    assert_eq!(daemons.status(&MpsPlace::device(0)).unwrap().unwrap().state, MpsState::Fault);
    let refused = daemons.prepare(&MpsPlace::device(0), &node.settings(0));
    assert!(is_busy(&refused), "{refused:?}");
    assert!(is_busy(&daemons.release(&MpsPlace::device(0))));
    let [one, other] = clients;
    one.leave();
    assert!(is_quiet(&mut daemons), "one is still there");
    other.leave();
    assert_eq!(notice(&mut daemons), NoticeKind::MpsClear);
    daemons.prepare(&MpsPlace::device(0), &node.settings(0)).unwrap();
    let mut next = node.client(0, &[]);
    assert_eq!(next.progress().phase, Phase::Running);
    assert!(is_quiet(&mut daemons));
}

#[test]
fn a_killed_daemon_takes_its_clients_along_and_is_started_anew_when_they_have_gone() {
    if !is_root() {
        return;
    }
    let node = Node::start();
    let mut daemons = node.daemons();
    daemons.prepare(&MpsPlace::device(0), &node.settings(0)).unwrap();
    let mut client = node.client(0, &[]);
    connected(&mut daemons, 0, &[client.pid()]);
    let pid = node.daemon_pid(0);
    kill(pid);
    assert_eq!(notice(&mut daemons), NoticeKind::MpsDied);
    assert!(is_quiet(&mut daemons));
    until("its failure", || client.progress().phase == Phase::Failed);
    let status = daemons.status(&MpsPlace::device(0)).unwrap().unwrap();
    assert_eq!((status.state, status.client_pids), (MpsState::Died, vec![client.pid()]), "the suspects");
    assert!(
        is_busy(&daemons.prepare(&MpsPlace::device(0), &node.settings(0)))
            && is_busy(&daemons.release(&MpsPlace::device(0)))
    );
    client.leave();
    daemons.prepare(&MpsPlace::device(0), &node.settings(0)).unwrap();
    assert_ne!(node.daemon_pid(0), pid);
    assert_eq!(notice(&mut daemons), NoticeKind::MpsClear);
    assert_eq!(daemons.status(&MpsPlace::device(0)).unwrap().unwrap().state, MpsState::Up);
}

#[test]
fn a_server_killed_under_its_clients_is_a_death_too() {
    if !is_root() {
        return;
    }
    let node = Node::start();
    let mut daemons = node.daemons();
    daemons.prepare(&MpsPlace::device(0), &node.settings(0)).unwrap();
    let client = node.client(0, &[]);
    connected(&mut daemons, 0, &[client.pid()]);
    let server: u32 = node.says(0, "get_server_list").1.parse().unwrap();
    kill(server);
    assert_eq!(notice(&mut daemons), NoticeKind::MpsDied);
    assert!(is_busy(&daemons.prepare(&MpsPlace::device(0), &node.settings(0))));
    client.leave();
    daemons.release(&MpsPlace::device(0)).unwrap();
    assert_eq!(notice(&mut daemons), NoticeKind::MpsClear);
    assert!(!node.settings(0).pipe_directory.exists() && node.settings(0).log_directory.exists());
}

#[test]
fn a_server_killed_without_clients_harms_nobody() {
    if !is_root() {
        return;
    }
    let node = Node::start();
    let mut daemons = node.daemons();
    daemons.prepare(&MpsPlace::device(0), &node.settings(0)).unwrap();
    node.client(0, &[]).leave();
    until("no client", || daemons.status(&MpsPlace::device(0)).unwrap().unwrap().client_pids.is_empty());
    let server: u32 = node.says(0, "get_server_list").1.parse().unwrap();
    kill(server);
    until("its end", || !runs(server));
    assert!(is_quiet(&mut daemons));
    daemons.prepare(&MpsPlace::device(0), &node.settings(0)).unwrap();
    let mut next = node.client(0, &[]);
    assert_eq!(next.progress().phase, Phase::Running);
    connected(&mut daemons, 0, &[next.pid()]);
}

#[test]
fn a_daemon_that_is_long_in_ending_did_not_die() {
    if !is_root() {
        return;
    }
    let node = Node::start();
    // Longer than the answer to a command is waited for.
    node.write_control("export MPS_DOUBLE_QUIT_MS=2300");
    for starts_anew in [false, true] {
        let mut daemons = node.daemons();
        daemons.prepare(&MpsPlace::device(0), &node.settings(0)).unwrap();
        let pid = node.daemon_pid(0);
        let stopped = daemons.release(&MpsPlace::device(0));
        assert!(stopped.as_ref().is_err_and(DeviceError::is_transient), "{stopped:?}");
        until("its end", || !runs(pid));
        assert!(is_quiet(&mut daemons), "nobody's daemon died");
        assert_eq!(daemons.status(&MpsPlace::device(0)).unwrap(), None);
        if starts_anew {
            daemons.prepare(&MpsPlace::device(0), &node.settings(0)).unwrap();
            assert_ne!(node.daemon_pid(0), pid);
            assert_eq!(daemons.status(&MpsPlace::device(0)).unwrap().unwrap().state, MpsState::Up);
        } else {
            daemons.release(&MpsPlace::device(0)).unwrap();
            let MpsSettings { pipe_directory, log_directory, .. } = node.settings(0);
            assert!(!pipe_directory.exists() && !log_directory.exists());
        }
    }
}

#[test]
fn a_daemon_that_died_while_no_agent_looked_is_told_once() {
    if !is_root() {
        return;
    }
    let node = Node::start();
    let mut daemons = node.daemons();
    daemons.prepare(&MpsPlace::device(0), &node.settings(0)).unwrap();
    daemons.prepare(&MpsPlace::device(1), &node.settings(1)).unwrap();
    daemons.release(&MpsPlace::device(1)).unwrap();
    let pid = node.daemon_pid(0);
    drop(daemons);
    kill(pid);
    until("its end", || !runs(pid));
    let mut daemons = node.daemons();
    assert_eq!(notice(&mut daemons), NoticeKind::MpsDied);
    assert!(is_quiet(&mut daemons));
    assert_eq!(daemons.status(&MpsPlace::device(0)).unwrap().unwrap().state, MpsState::Died);
    until("its server's end", || daemons.prepare(&MpsPlace::device(0), &node.settings(0)).is_ok());
    assert_eq!(notice(&mut daemons), NoticeKind::MpsClear);
    assert_eq!(daemons.status(&MpsPlace::device(0)).unwrap().unwrap().state, MpsState::Up);
}
