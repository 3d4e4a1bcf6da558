//! What the real daemon says without failing: its front end ends with 0 whatever it was told, so that only the words tell.
//! What it was seen to print (release 550) is put in the double's place where the double would not say it.

use crate::is_busy;
use crate::node::{Node, is_root, kill, runs, until};
use pillion_core::Fraction;
use pillion_device::{DeviceError, MpsControl, MpsPlace, MpsSettings, MpsState};

/// The control program answers the commands that begin so by itself; all others go to the double.
fn answer_instead(node: &Node, command: &str, answer: &str) {
    let double = node.programs.join("nvidia-cuda-mps-control");
    node.write_control(&format!(
        "if test $# -eq 0; then\nread -r line; case $line in \"{command}\"*) {answer}; exit 0;; esac\n\
         echo \"$line\" | {double}; exit $?\nfi",
        double = double.display()
    ));
}

fn is_refused(result: &Result<(), DeviceError>, words: &str) -> bool {
    matches!(result, Err(DeviceError::Refused { reason, .. }) if reason.contains(words))
}

#[test]
fn a_server_that_ends_between_two_questions_is_no_error() {
    if !is_root() {
        return;
    }
    let node = Node::start();
    let mut daemons = node.daemons();
    daemons.prepare(&MpsPlace::device(0), &node.settings(0)).unwrap();
    assert_eq!(node.says(0, "start_server -uid 0"), (Some(0), String::new()));
    until("a server", || !node.says(0, "get_server_list").1.is_empty());
    for gone in ["get_server_status", "get_client_list"] {
        answer_instead(&node, gone, "echo \"Server ${line##* } not found\"");
        let status = daemons.status(&MpsPlace::device(0)).unwrap().unwrap();
        assert_eq!((status.state, status.client_pids), (MpsState::Up, vec![]), "{gone}");
    }
    node.write_control("");
    until("an active server", || daemons.release(&MpsPlace::device(0)).is_ok());
}

#[test]
fn a_default_that_was_not_taken_is_no_default() {
    if !is_root() {
        return;
    }
    let node = Node::start();
    let capped = MpsSettings { cap_default: Some(Fraction::clamped(0.3)), ..node.settings(0) };
    let limited = MpsSettings { memory_limit_bytes_default: Some(3 << 29), ..node.settings(0) };
    let mut daemons = node.daemons();
    for answer in ["echo 100.0", "true", "echo Insufficient privileges for UID 0."] {
        answer_instead(&node, "set_default_active_thread_percentage", answer);
        let started = daemons.prepare(&MpsPlace::device(0), &capped);
        assert!(is_refused(&started, "took no default cap of 30 percent"), "{answer}: {started:?}");
        assert_eq!(daemons.status(&MpsPlace::device(0)).unwrap(), None, "no daemon without the cap");
    }
    for answer in ["true", "echo Insufficient privileges for UID 0."] {
        answer_instead(&node, "set_default_device_pinned_mem_limit", answer);
        let started = daemons.prepare(&MpsPlace::device(0), &limited);
        assert!(is_refused(&started, "took no default limit of 1536 MiB"), "{answer}: {started:?}");
        assert_eq!(daemons.status(&MpsPlace::device(0)).unwrap(), None, "no daemon without the limit");
    }
    node.write_control("");
    let below_a_mebibyte = MpsSettings { memory_limit_bytes_default: Some(1 << 19), ..node.settings(0) };
    let started = daemons.prepare(&MpsPlace::device(0), &below_a_mebibyte);
    assert!(is_refused(&started, "took no default limit of 0 MiB"), "0M is none: {started:?}");
    let both = MpsSettings { cap_default: capped.cap_default, ..limited };
    daemons.prepare(&MpsPlace::device(0), &both).unwrap();
    assert_eq!(node.says(0, "get_default_active_thread_percentage").1, "30.0");
    assert_eq!(node.says(0, "get_default_device_pinned_mem_limit 0").1, "1G", "it rounds what it prints");
    daemons.release(&MpsPlace::device(0)).unwrap();
}

#[test]
fn a_daemon_that_lost_a_server_has_ended_whatever_its_exit_status() {
    if !is_root() {
        return;
    }
    for is_killed in [true, false] {
        let node = Node::start();
        node.write_control(if is_killed { "" } else { "export MPS_DOUBLE_SERVER_STATUS=3" });
        let mut daemons = node.daemons();
        daemons.prepare(&MpsPlace::device(0), &node.settings(0)).unwrap();
        let pid = node.daemon_pid(0);
        assert_eq!(node.says(0, "start_server -uid 0"), (Some(0), String::new()));
        until("its end", || {
            let server = node.says(0, "get_server_list").1;
            if let Some(server) = server.parse().ok().filter(|_| is_killed) {
                kill(server);
            }
            server.is_empty()
        });
        daemons.release(&MpsPlace::device(0)).expect("it has ended, whatever its exit status");
        assert!(!runs(pid) && !node.settings(0).pipe_directory.exists());
        assert_eq!(daemons.notices(), []);
    }
}

#[test]
fn a_daemon_that_refuses_to_quit_goes_on_and_its_words_are_told() {
    if !is_root() {
        return;
    }
    let node = Node::start();
    let mut daemons = node.daemons();
    daemons.prepare(&MpsPlace::device(0), &node.settings(0)).unwrap();
    answer_instead(&node, "quit", "echo Not enough privilege to execute quit command");
    let stopped = daemons.release(&MpsPlace::device(0));
    assert!(is_busy(&stopped), "{stopped:?}");
    assert!(stopped.unwrap_err().to_string().contains("Not enough privilege to execute quit command"));
    assert!(runs(node.daemon_pid(0)));
    node.write_control("");
    daemons.release(&MpsPlace::device(0)).unwrap();
}

#[test]
fn who_is_no_client_of_a_daemon_without_a_server_is_not_terminated() {
    if !is_root() {
        return;
    }
    let node = Node::start();
    let mut daemons = node.daemons();
    daemons.prepare(&MpsPlace::device(0), &node.settings(0)).unwrap();
    assert_eq!(node.says(0, "ps"), (Some(0), "Server not found".to_owned()));
    let terminated = daemons.terminate_client(&MpsPlace::device(0), 77);
    assert!(is_refused(&terminated, "process 77 is no MPS client there"), "{terminated:?}");
    daemons.release(&MpsPlace::device(0)).unwrap();
}

/// In the foreground it writes a few lines for each question, and its directory is in memory.
#[test]
fn what_a_daemon_writes_does_not_grow_for_ever() {
    if !is_root() {
        return;
    }
    let node = Node::start();
    let mut daemons = node.daemons();
    daemons.prepare(&MpsPlace::device(0), &node.settings(0)).unwrap();
    let log = node.settings(0).log_directory.join("start.log");
    let length = || std::fs::metadata(&log).unwrap().len();
    let before = length();
    daemons.status(&MpsPlace::device(0)).unwrap();
    assert!(length() > before, "it writes down that it was asked");
    std::fs::File::options().append(true).open(&log).unwrap().set_len(8 << 20).unwrap();
    daemons.status(&MpsPlace::device(0)).unwrap();
    daemons.status(&MpsPlace::device(0)).unwrap();
    assert!(length() < 1 << 20, "{} bytes", length());
    assert!(std::fs::read_to_string(&log).unwrap().contains("Cmd:get_server_list"), "it goes on");
    daemons.release(&MpsPlace::device(0)).unwrap();
}

#[test]
fn an_option_that_a_release_does_not_know_is_named() {
    if !is_root() {
        return;
    }
    let node = Node::start();
    node.write_control("export MPS_DOUBLE_WITHOUT_MULTIUSER=1 MPS_DOUBLE_WITHOUT_PARTITIONS=1");
    let mut daemons = node.daemons();
    let wanted = MpsSettings { multi_user: true, partitions: true, ..node.settings(0) };
    let refused = daemons.prepare(&MpsPlace::device(0), &wanted).unwrap_err();
    assert!(matches!(refused, DeviceError::Unsupported { .. }), "{refused}");
    let said = "the nvidia-cuda-mps-control of this node does not know -multiuser-server -S";
    assert!(refused.to_string().contains(said), "{refused}");
}
