//! The real control of MPS against the doubles: as root, for MPS is set up by root.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod endings;
mod faults;
mod instances;
mod node;
mod partitions;
mod refusals;
mod scopes;
mod sets;
mod strangers;

use node::{Node, command, connected, is_root, runs, until};
use pillion_core::{DeviceUuid, Fraction, UserId};
use pillion_device::mps::{Cleaned, ComputeMode, ComputeModes, ModeControl, MpsDaemons, cleanup};
use pillion_device::simulated::Phase;
use pillion_device::{DeviceError, MpsControl, MpsPlace, MpsSettings, MpsState};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

fn is_busy(result: &Result<(), DeviceError>) -> bool {
    matches!(result, Err(DeviceError::Busy { .. }))
}

#[test]
fn only_root_sets_it_up_and_only_on_devices_that_are_there() {
    let node = Node::start();
    let mut daemons = node.daemons();
    let started = daemons.prepare(&MpsPlace::device(0), &node.settings(0));
    if is_root() {
        started.unwrap();
        assert!(matches!(daemons.status(&MpsPlace::device(7)), Err(DeviceError::NoSuchDevice { index: 7 })));
        daemons.release(&MpsPlace::device(0)).unwrap();
    } else {
        assert!(matches!(started, Err(DeviceError::Refused { .. })), "{started:?}");
    }
}

#[test]
fn a_daemon_comes_answers_and_goes_without_a_trace() {
    if !is_root() {
        return;
    }
    let node = Node::start();
    let (mut daemons, settings) = (node.daemons(), node.settings(0));
    daemons.release(&MpsPlace::device(0)).expect("nothing to do");
    daemons.prepare(&MpsPlace::device(0), &settings).unwrap();
    daemons.prepare(&MpsPlace::device(0), &settings).expect("it runs already");
    let pid = node.daemon_pid(0);
    let status = daemons.status(&MpsPlace::device(0)).unwrap().unwrap();
    assert_eq!((status.state, status.server_uid, status.client_pids), (MpsState::Up, None, vec![]));
    let other = MpsSettings { log_directory: "/tmp/elsewhere".into(), ..settings.clone() };
    assert!(is_busy(&daemons.prepare(&MpsPlace::device(0), &other)));
    assert_eq!(daemons.status(&MpsPlace::device(1)).unwrap(), None);
    let environ = std::fs::read_to_string(format!("/proc/{pid}/environ")).unwrap();
    let names: Vec<&str> = environ.split('\0').filter_map(|it| Some(it.split_once('=')?.0)).collect();
    // The last as we have it ourselves, which is seen below.
    let is_ours = |name: &&str| !["PILLION_SIMULATED_DEVICE", "PWD", "LD_LIBRARY_PATH"].contains(name);
    let mut names: Vec<&str> = names.into_iter().filter(is_ours).collect();
    names.sort_unstable();
    let expected = ["CUDA_MPS_LOG_DIRECTORY", "CUDA_MPS_PIPE_DIRECTORY", "CUDA_VISIBLE_DEVICES", "PATH"];
    assert_eq!(names, expected, "nothing else of ours");
    let value = |name: &str| environ.split('\0').find_map(|it| it.strip_prefix(name)?.strip_prefix('='));
    assert_eq!(value("LD_LIBRARY_PATH").map(str::to_owned), std::env::var("LD_LIBRARY_PATH").ok());
    let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", node.directory.path().display());
    assert_eq!(value("PATH"), Some(path.as_str()), "the control program's own directory first");
    daemons.release(&MpsPlace::device(0)).unwrap();
    assert!(!runs(pid) && !settings.pipe_directory.exists() && !settings.log_directory.exists());
    assert_eq!(daemons.status(&MpsPlace::device(0)).unwrap(), None);
    assert_eq!(daemons.notices(), []);
}

#[test]
fn the_double_refuses_what_the_real_one_does() {
    if !is_root() {
        return;
    }
    let node = Node::start();
    let mut daemons = node.daemons();
    assert_eq!(node.says(0, "get_server_list").1, "Cannot find MPS control daemon process");
    daemons.prepare(&MpsPlace::device(0), &node.settings(0)).unwrap();
    assert_eq!(node.says(0, "get_servers now"), (Some(0), "Unknown command \"get_servers\"".to_owned()));
    assert_eq!(node.says(0, "get_server_status 1"), (Some(0), "Server 1 not found".to_owned()));
    let second = command(node.control())
        .arg("-f")
        .env("CUDA_MPS_PIPE_DIRECTORY", node.settings(0).pipe_directory)
        .env("CUDA_MPS_LOG_DIRECTORY", node.settings(0).log_directory)
        .env("CUDA_VISIBLE_DEVICES", Node::devices()[1].1.as_str())
        .output()
        .unwrap();
    assert_eq!(second.stdout, b"An instance of this daemon is already running\n");
    assert_eq!(second.status.code(), Some(1));
    // `quit` returns when the last client has gone.
    let client = node.client(0, &[]);
    let mut quit = node.say(0, "quit");
    assert_eq!(node.says(0, "get_server_list").0, Some(0));
    assert!(quit.try_wait().unwrap().is_none(), "a client is there");
    client.leave();
    drop(quit.stdin.take());
    assert!(quit.wait().unwrap().success());
}

#[test]
fn the_next_agent_goes_on_with_a_daemon_and_its_clients() {
    if !is_root() {
        return;
    }
    let node = Node::start();
    let mut daemons = node.daemons();
    daemons.prepare(&MpsPlace::device(1), &node.settings(1)).unwrap();
    let pid = node.daemon_pid(1);
    let mut client = node.client(1, &[]);
    drop(daemons);
    let mut daemons = node.daemons();
    let status = connected(&mut daemons, 1, &[client.pid()]);
    assert_eq!((status.state, status.settings), (MpsState::Up, node.settings(1)));
    assert_eq!(status.server_uid, Some(UserId(0)));
    daemons.prepare(&MpsPlace::device(1), &node.settings(1)).unwrap();
    assert_eq!(node.daemon_pid(1), pid);
    assert!(is_busy(&daemons.release(&MpsPlace::device(1))));
    assert_eq!(daemons.status(&MpsPlace::device(1)).unwrap().unwrap().state, MpsState::Draining);
    daemons.prepare(&MpsPlace::device(1), &node.settings(1)).expect("a new tenant stops the draining");
    assert_eq!(daemons.status(&MpsPlace::device(1)).unwrap().unwrap().state, MpsState::Up);
    assert_eq!(client.progress().phase, Phase::Running);
    client.leave();
    daemons.release(&MpsPlace::device(1)).unwrap();
    until("the daemon's end", || !runs(pid));
}

#[test]
fn a_client_has_its_own_percentage_below_the_daemons() {
    if !is_root() {
        return;
    }
    let node = Node::start();
    let mut daemons = node.daemons();
    let speed = |environment: &[(&str, &str)]| node.client(0, environment).progress().speed_fraction;
    let half = ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "50");
    daemons.prepare(&MpsPlace::device(0), &node.settings(0)).unwrap();
    assert!((speed(&[half]) - 0.5).abs() < 0.03 && (speed(&[]) - 1.0).abs() < 0.01);
    until("no client", || daemons.release(&MpsPlace::device(0)).is_ok());
    let limits = MpsSettings {
        cap_default: Some(Fraction::clamped(0.25)),
        memory_limit_bytes_default: Some(2 << 30),
        ..node.settings(0)
    };
    daemons.prepare(&MpsPlace::device(0), &limits).unwrap();
    assert_eq!(node.says(0, "get_default_active_thread_percentage").1, "25.0");
    assert!((speed(&[half]) - 0.25).abs() < 0.03, "the daemon's is less");
    let client = node.client(0, &[half, ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=3G")]);
    let tenants = node.driver().tenants(0).unwrap();
    let tenant = tenants.iter().find(|tenant| tenant.pid == client.pid()).unwrap();
    assert_eq!((tenant.is_mps, tenant.memory_bytes_max), (true, Some(2 << 30)), "{tenant:?}");
    assert!((tenant.units_fraction_max - 0.25).abs() < 0.02, "{tenant:?}");
    assert!(tenant.units_fraction <= tenant.units_fraction_max + 1e-9, "{tenant:?}");
    client.leave();
    until("no client", || daemons.release(&MpsPlace::device(0)).is_ok());
}

#[test]
fn who_unsets_his_limits_is_held_to_the_daemons_as_they_are_when_he_comes() {
    if !is_root() {
        return;
    }
    let node = Node::start();
    let mut daemons = node.daemons();
    let limits = |gib: u64, cap: f64| MpsSettings {
        cap_default: Some(Fraction::clamped(cap)),
        memory_limit_bytes_default: Some(gib << 30),
        ..node.settings(0)
    };
    let held = |client: &node::Client| {
        let tenants = node.driver().tenants(0).unwrap();
        let tenant = *tenants.iter().find(|tenant| tenant.pid == client.pid()).unwrap();
        (tenant.memory_bytes_max, (tenant.units_fraction_max * 10.0).round() / 10.0)
    };
    daemons.prepare(&MpsPlace::device(0), &limits(2, 0.3)).unwrap();
    let first = node.client(0, &[]);
    assert_eq!(held(&first), (Some(2 << 30), 0.3), "no variable of its own");
    // A server that comes up takes no word: that is waited for.
    daemons.prepare(&MpsPlace::device(0), &limits(8, 0.6)).unwrap();
    let second = node.client(0, &[]);
    assert_eq!((held(&first), held(&second)), ((Some(2 << 30), 0.3), (Some(8 << 30), 0.6)));
    daemons.prepare(&MpsPlace::device(0), &limits(4, 0.6)).unwrap();
    assert_eq!(held(&node.client(0, &[])).0, Some(4 << 30), "as one who had more left");
    let status = connected(&mut daemons, 0, &[first.pid(), second.pid()]);
    assert_eq!(status.settings, limits(4, 0.6));
}

#[test]
fn a_server_initialises_before_it_has_clients_and_names_them_in_no_order() {
    if !is_root() {
        return;
    }
    let node = Node::start();
    let mut daemons = node.daemons();
    daemons.prepare(&MpsPlace::device(0), &node.settings(0)).unwrap();
    let (one, other) = (node.client(0, &[]), node.client(0, &[]));
    let mut server = String::new();
    until("a server", || {
        server = node.says(0, "get_server_list").1;
        !server.is_empty()
    });
    let status = || node.says(0, &format!("get_server_status {server}")).1;
    if status() == "INITIALIZING" {
        let early = daemons.status(&MpsPlace::device(0)).unwrap().unwrap();
        assert!(early.state.takes_clients(), "{early:?}");
        assert!(
            is_busy(&daemons.release(&MpsPlace::device(0))),
            "it comes up for a client that nobody names yet"
        );
    }
    until("an active server", || status() == "ACTIVE");
    let told = connected(&mut daemons, 0, &[one.pid(), other.pid()]);
    assert_eq!(told.client_pids, [other.pid(), one.pid()], "the double does not sort them");
    daemons.terminate_client(&MpsPlace::device(0), one.pid()).unwrap();
    assert_eq!(daemons.notices(), [], "none of this is a fault");
}

#[test]
fn a_client_is_let_go_in_the_clean_way() {
    if !is_root() {
        return;
    }
    let node = Node::start();
    let mut daemons = node.daemons();
    daemons.prepare(&MpsPlace::device(0), &node.settings(0)).unwrap();
    let (mut one, mut other) = (node.client(0, &[]), node.client(0, &[]));
    connected(&mut daemons, 0, &[one.pid(), other.pid()]);
    daemons.terminate_client(&MpsPlace::device(0), one.pid()).unwrap();
    assert_eq!((one.progress().phase, other.progress().phase), (Phase::Failed, Phase::Running));
    let stranger = daemons.terminate_client(&MpsPlace::device(0), std::process::id());
    assert!(matches!(stranger, Err(DeviceError::Refused { .. })), "{stranger:?}");
    assert!(matches!(
        daemons.terminate_client(&MpsPlace::device(1), one.pid()),
        Err(DeviceError::Refused { .. })
    ));
}

#[test]
fn users_wait_for_each_other_or_are_served_at_once() {
    if !is_root() {
        return;
    }
    let node = Node::for_all_users();
    let (alice, bob) = (UserId(60_001), UserId(60_002));
    for multi_user in [false, true] {
        let mut daemons = node.daemons();
        daemons.prepare(&MpsPlace::device(0), &MpsSettings { multi_user, ..node.settings(0) }).unwrap();
        let first = node.client_of(alice, 0, &[]);
        let mut second = node.client_of(bob, 0, &[]);
        let running: &[u32] = if multi_user { &[first.pid(), second.pid()] } else { &[first.pid()] };
        let status = connected(&mut daemons, 0, running);
        if multi_user {
            assert_eq!((status.server_uid, second.progress().phase), (Some(UserId(0)), Phase::Running));
        } else {
            assert_eq!((status.server_uid, second.progress().phase), (Some(alice), Phase::Waiting));
        }
        first.leave();
        until("the second runs", || second.progress().phase == Phase::Running);
        second.leave();
        until("no client", || daemons.release(&MpsPlace::device(0)).is_ok());
        assert_eq!(daemons.notices(), [], "another user's server is no death");
    }
}

#[test]
fn a_driver_without_the_multi_user_mode_is_told_from_one_that_has_it() {
    if !is_root() {
        return;
    }
    let node = Node::start();
    node.write_control("export MPS_DOUBLE_WITHOUT_MULTIUSER=1");
    let mut daemons = node.daemons();
    let refused = daemons
        .prepare(&MpsPlace::device(0), &MpsSettings { multi_user: true, ..node.settings(0) })
        .unwrap_err();
    assert!(matches!(refused, DeviceError::Unsupported { .. }), "{refused}");
    assert!(refused.to_string().contains("does not know -multiuser-server"), "{refused}");
    assert_eq!(daemons.status(&MpsPlace::device(0)).unwrap(), None);
    daemons.prepare(&MpsPlace::device(0), &node.settings(0)).expect("it serves one user at a time");
    daemons.release(&MpsPlace::device(0)).unwrap();
}

#[test]
fn a_control_program_that_is_not_there_or_does_not_answer_is_an_error_in_time() {
    if !is_root() {
        return;
    }
    let node = Node::start();
    let mut daemons =
        MpsDaemons::new(PathBuf::from("/nowhere/mps"), &node.mps_directory(), None, Node::devices());
    let missing = daemons.prepare(&MpsPlace::device(0), &node.settings(0));
    assert!(matches!(missing, Err(DeviceError::NoLibrary { .. })), "{missing:?}");
    node.write_control("test $# -gt 0 || exec sleep 60");
    let mut daemons = node.daemons();
    let silent = daemons.prepare(&MpsPlace::device(0), &node.settings(0));
    assert!(matches!(silent, Err(DeviceError::NoAnswer { .. })), "{silent:?}");
    assert!(!node.settings(0).pipe_directory.exists(), "a daemon that was not to be talked to is ended");
}

#[test]
fn a_daemon_that_is_slow_to_listen_or_writes_no_pid_file_is_a_daemon() {
    if !is_root() {
        return;
    }
    let node = Node::start();
    // Longer than until a daemon's end is waited for.
    node.write_control("export MPS_DOUBLE_DEAF_MS=2500");
    let mut daemons = node.daemons();
    daemons.prepare(&MpsPlace::device(0), &node.settings(0)).unwrap();
    node.write_control("export MPS_DOUBLE_WITHOUT_PID_FILE=1");
    daemons.prepare(&MpsPlace::device(1), &node.settings(1)).unwrap();
    drop(daemons);
    let mut daemons = node.daemons();
    for index in [0, 1] {
        assert_eq!(
            daemons.status(&MpsPlace::device(index)).unwrap().unwrap().state,
            MpsState::Up,
            "the next agent finds it"
        );
        daemons.release(&MpsPlace::device(index)).unwrap();
    }
}

/// Writes down what it is told.
#[derive(Clone, Default)]
struct Modes(Arc<Mutex<Vec<ComputeMode>>>, bool);

impl ComputeModes for Modes {
    fn set_compute_mode(&mut self, device: &DeviceUuid, mode: ComputeMode) -> Result<(), DeviceError> {
        assert!(device.as_str().starts_with("GPU-"));
        if self.1 {
            return Err(DeviceError::Refused { index: 0, reason: "no permission".to_owned() });
        }
        self.0.lock().unwrap().push(mode);
        Ok(())
    }
}

impl Modes {
    fn control(&self, is_strict: bool) -> ModeControl {
        ModeControl { modes: Box::new(self.clone()), is_strict }
    }

    fn take(&self) -> Vec<ComputeMode> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

#[test]
fn a_strict_site_closes_devices_while_their_daemon_is_up() {
    if !is_root() {
        return;
    }
    let node = Node::start();
    let modes = Modes::default();
    let told = || modes.take();
    let mut daemons = node.daemons_with(modes.control(true));
    daemons.prepare(&MpsPlace::device(0), &node.settings(0)).unwrap();
    assert_eq!(told(), [ComputeMode::ExclusiveProcess]);
    daemons.release(&MpsPlace::device(0)).unwrap();
    assert_eq!(told(), [ComputeMode::Default]);
    node.write_control("exit 1");
    assert!(daemons.prepare(&MpsPlace::device(0), &node.settings(0)).is_err());
    assert_eq!(told(), [ComputeMode::ExclusiveProcess, ComputeMode::Default]);
    node.write_control("");
    let mut refused = node.daemons_with(Modes(Arc::default(), true).control(true));
    assert!(matches!(
        refused.prepare(&MpsPlace::device(0), &node.settings(0)),
        Err(DeviceError::Refused { .. })
    ));
    assert_eq!(
        refused.status(&MpsPlace::device(0)).unwrap(),
        None,
        "a device that cannot be closed is not shared"
    );
}

#[test]
fn a_site_that_is_not_strict_any_more_opens_what_it_closed() {
    if !is_root() {
        return;
    }
    let node = Node::start();
    let modes = Modes::default();
    let both = || node.settings(0);
    let strict = |is_strict| node.daemons_with(modes.control(is_strict));
    strict(true).prepare(&MpsPlace::device(0), &both()).unwrap();
    assert_eq!(modes.take(), [ComputeMode::ExclusiveProcess]);
    // The next agent; the node's Epilog without one; the next agent, that finds the daemon gone.
    let mut daemons = strict(false);
    daemons.prepare(&MpsPlace::device(0), &both()).expect("it goes on");
    assert_eq!(modes.take(), []);
    daemons.release(&MpsPlace::device(0)).unwrap();
    assert_eq!(modes.take(), [ComputeMode::Default]);
    daemons.prepare(&MpsPlace::device(0), &both()).unwrap();
    daemons.release(&MpsPlace::device(0)).unwrap();
    assert_eq!(modes.take(), [], "nothing was closed");
    strict(true).prepare(&MpsPlace::device(0), &both()).unwrap();
    let cleaned = cleanup(&node.control(), &node.mps_directory(), Some(&mut modes.control(false)), |_| false);
    assert!(matches!(cleaned[..], [(_, Ok(Cleaned::Ended))]), "{cleaned:?}");
    assert_eq!(modes.take(), [ComputeMode::ExclusiveProcess, ComputeMode::Default]);
    strict(true).prepare(&MpsPlace::device(0), &both()).unwrap();
    node::kill(node.daemon_pid(0));
    let mut daemons = strict(false);
    until("its end", || daemons.release(&MpsPlace::device(0)).is_ok());
    assert_eq!(modes.take(), [ComputeMode::ExclusiveProcess, ComputeMode::Default]);
}

#[test]
fn a_device_that_could_not_be_opened_is_opened_by_the_next_try() {
    if !is_root() {
        return;
    }
    let node = Node::start();
    let modes = Modes::default();
    node.daemons_with(modes.control(true)).prepare(&MpsPlace::device(0), &node.settings(0)).unwrap();
    let mut fails = node.daemons_with(Modes(Arc::default(), true).control(false));
    let refused = fails.release(&MpsPlace::device(0));
    assert!(matches!(refused, Err(DeviceError::Refused { .. })), "{refused:?}");
    assert_eq!(fails.status(&MpsPlace::device(0)).unwrap(), None, "its daemon has ended");
    assert_eq!(fails.notices(), []);
    node.daemons_with(modes.control(false)).release(&MpsPlace::device(0)).unwrap();
    assert_eq!(modes.take(), [ComputeMode::ExclusiveProcess, ComputeMode::Default]);
    assert!(!node.settings(0).pipe_directory.exists());
}

#[test]
fn cleanup_ends_what_nobody_uses_without_an_agent() {
    if !is_root() {
        return;
    }
    let node = Node::start();
    let modes = Modes::default();
    let mut control = modes.control(true);
    let mut clean = |is_wanted: fn(&str) -> bool| {
        cleanup(&node.control(), &node.mps_directory(), Some(&mut control), is_wanted)
    };
    assert!(clean(|_| false).is_empty(), "no daemon, no directory");
    let mut daemons = node.daemons();
    for index in [0, 1] {
        daemons.prepare(&MpsPlace::device(index), &node.settings(index)).unwrap();
    }
    drop(daemons);
    let pids = [node.daemon_pid(0), node.daemon_pid(1)];
    let client = node.client(0, &[]);
    let found = clean(|name| name == "g1");
    assert!(matches!(found[0], (_, Err(DeviceError::Busy { .. }))), "{found:?}");
    assert!(matches!(found[1], (_, Ok(Cleaned::Kept))), "{found:?}");
    client.leave();
    node::kill(pids[1]);
    until("its end", || !runs(pids[1]));
    let mut cleaned = Vec::new();
    until("both are gone", || {
        cleaned.extend(clean(|_| false).into_iter().filter_map(|(_, it)| it.ok()));
        cleaned.len() == 2
    });
    assert!(cleaned.contains(&Cleaned::Ended) && cleaned.contains(&Cleaned::Cleared), "{cleaned:?}");
    assert!(!runs(pids[0]) && clean(|_| false).is_empty());
    assert!(modes.0.lock().unwrap().iter().all(|mode| *mode == ComputeMode::Default));
}
