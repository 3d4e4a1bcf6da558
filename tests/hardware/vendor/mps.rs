//! The fidelity table of MPS: every command that the agent sends, to NVIDIA's own daemon and to the double, as root and as a
//! stranger, and what each does when it is started, found again, started twice, told to quit and killed. And the agent's
//! own control of MPS over the real daemon.

use super::control::{Driver, STRANGER, Site, folder};
use super::parts;
use super::table::{Said, Table};
use pillion_core::device::NoticeKind;
use pillion_core::{DeviceUuid, Fraction};
use pillion_device::mps::MpsDaemons;
use pillion_device::{DeviceError, MpsControl, MpsPlace, MpsSettings, MpsState};
use pillion_tests::process::{Identity, Program};
use pillion_tests::wait::{Look, wait_for, wait_until};
use std::path::{Path, PathBuf};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(20);

/// As root, in this order: what is set stays. First what the agent sends, as it sends it; then what it must never be told has
/// worked.
const AS_ROOT: [(&str, &str); 43] = [
    ("list_of_no_server", "get_server_list"),
    ("status_of_nobody", "get_server_status 1"),
    ("clients_of_nobody", "get_client_list 1"),
    ("ps_without_a_server", "ps"),
    ("terminate_of_nobodys_client", "terminate_client 1 2"),
    ("percentage_at_first", "get_default_active_thread_percentage"),
    ("percentage_set", "set_default_active_thread_percentage 40"),
    ("percentage_set_with_places", "set_default_active_thread_percentage 62.53"),
    ("percentage_zero_is_ignored", "set_default_active_thread_percentage 0"),
    ("percentage_above_all_is_ignored", "set_default_active_thread_percentage 101"),
    ("percentage_of_letters_is_ignored", "set_default_active_thread_percentage abc"),
    ("percentage_of_nothing_is_ignored", "set_default_active_thread_percentage"),
    ("percentage_too_small_to_print", "set_default_active_thread_percentage 0.01"),
    ("percentage_of_all", "set_default_active_thread_percentage 100"),
    ("percentage_told", "get_default_active_thread_percentage"),
    ("limit_at_first", "get_default_device_pinned_mem_limit 0"),
    ("limit_set", "set_default_device_pinned_mem_limit 0 2048M"),
    ("limit_told", "get_default_device_pinned_mem_limit 0"),
    ("limit_between_gibibytes", "set_default_device_pinned_mem_limit 0 1536M"),
    ("limit_told_rounded_down", "get_default_device_pinned_mem_limit 0"),
    ("limit_with_a_point", "set_default_device_pinned_mem_limit 0 2.5G"),
    ("limit_told_without_the_rest", "get_default_device_pinned_mem_limit 0"),
    ("limit_of_zero", "set_default_device_pinned_mem_limit 0 0M"),
    ("limit_of_zero_is_none", "get_default_device_pinned_mem_limit 0"),
    ("limit_of_another_device", "set_default_device_pinned_mem_limit 31 1G"),
    ("limit_of_another_device_told", "get_default_device_pinned_mem_limit 31"),
    ("limit_of_no_device", "set_default_device_pinned_mem_limit 32 1G"),
    ("limit_of_no_device_told", "get_default_device_pinned_mem_limit 32"),
    ("limit_by_uuid", "set_default_device_pinned_mem_limit GPU-0 1G"),
    ("limit_by_uuid_is_nobodys", "get_default_device_pinned_mem_limit 0"),
    ("percentage_of_nobodys_server", "set_active_thread_percentage 1 30"),
    ("limit_of_nobodys_server", "set_device_pinned_mem_limit 1 0 1G"),
    ("limit_of_a_server_of_letters", "set_device_pinned_mem_limit x"),
    ("partition_table_unknown", "lspart"),
    ("partition_add_unknown", "sm_partition add GPU-0 2"),
    ("partition_rm_unknown", "sm_partition rm GPU-0 D"),
    ("unknown_command", "get_servers now"),
    ("empty_command", ""),
    ("status_without_a_server", "get_server_status"),
    ("clients_without_a_server", "get_client_list"),
    ("ps_of_nobody", "ps -p 1"),
    ("words_after_a_command", "get_server_list now"),
    ("server_for_no_user", "start_server"),
];

const AS_STRANGER: [(&str, &str); 14] = [
    ("list_of_servers", "get_server_list"),
    ("status_of_nobody", "get_server_status 1"),
    ("clients_of_nobody", "get_client_list 1"),
    ("ps_without_a_server", "ps"),
    ("percentage_set", "set_default_active_thread_percentage 40"),
    ("percentage_told", "get_default_active_thread_percentage"),
    ("limit_set", "set_default_device_pinned_mem_limit 0 1G"),
    ("limit_told", "get_default_device_pinned_mem_limit 0"),
    ("limit_of_nobodys_server", "set_device_pinned_mem_limit 1 0 1G"),
    ("terminate_of_nobodys_client", "terminate_client 1 2"),
    ("partition_table_unknown", "lspart"),
    ("unknown_command", "get_servers"),
    ("server_for_root", "start_server -uid 0"),
    ("quit", "quit"),
];

/// With a server that comes up; `SERVER` is its process.
const WITH_SERVER: [(&str, Option<Identity>, &str); 12] = [
    ("server_listed", None, "get_server_list"),
    ("server_initialises", None, "get_server_status SERVER"),
    ("server_without_clients", None, "get_client_list SERVER"),
    ("limit_while_it_initialises", None, "set_device_pinned_mem_limit SERVER 0 1G"),
    ("percentage_while_it_initialises", None, "set_active_thread_percentage SERVER 30"),
    ("stranger_limits_it", Some(STRANGER), "set_device_pinned_mem_limit SERVER 0 1G"),
    ("ps_of_all", None, "ps"),
    ("ps_of_the_server", None, "ps -p SERVER"),
    ("terminate_a_client", None, "terminate_client SERVER 77"),
    ("stranger_sees_the_server", Some(STRANGER), "get_server_status SERVER"),
    ("stranger_terminates_a_client", Some(STRANGER), "terminate_client SERVER 77"),
    ("another_users_server_waits", None, "start_server -uid 0"),
];

/// Words of answers that take a server; they stand in the program's text, or do not.
const OF_SERVERS: [(&str, &[&str]); 3] = [
    ("server_is_active", &["ACTIVE"]),
    ("server_has_a_fault", &["FAULT"]),
    ("ps_of_clients", &["PID", "ID", "SERVER", "DEVICE", "NAMESPACE", "COMMAND"]),
];

/// The two, and what is done with both.
struct Pair([Site; 2]);

impl Pair {
    fn of(parts: &Path, driver: &Driver, slow_server: bool) -> Self {
        Self([Site::real(parts, &driver.device, slow_server), Site::double(driver)])
    }

    fn both(&mut self, ask: impl FnMut(&mut Site) -> Said) -> [Said; 2] {
        self.0.each_mut().map(ask)
    }
}

#[test]
fn the_double_of_mps_says_what_the_real_daemon_says() {
    let Some(parts) = parts("nvidia") else { return };
    let (driver, mut table) = (Driver::start(), Table::default());
    commands(&mut Pair::of(&parts, &driver, false), &mut table);
    lives(&mut Pair::of(&parts, &driver, false), &mut table);
    servers(&mut Pair::of(&parts, &driver, true), &mut table);
    killed_server(&mut Pair::of(&parts, &driver, true), &mut table);
    failed_server(&mut Pair::of(&parts, &driver, false), &mut table);
    let program = std::fs::read(parts.join("nvidia-cuda-mps-control")).unwrap();
    for (name, words) in OF_SERVERS {
        table.simulated(name, &stand_in(&program, words));
    }
    for name in ["clients_of_a_server", "client_terminated", "client_refused_by_a_fault"] {
        table.simulated(name, &Ok("nothing".to_owned()));
    }
    for name in ["several_users_in_one_server", "partitions_given_and_taken"] {
        table.simulated(name, &Ok("nothing: this release does not have it".to_owned()));
    }
    table.check();
}

fn commands(pair: &mut Pair, table: &mut Table) {
    pair.both(|site| {
        site.start();
        Said::seen(String::new())
    });
    for (name, line) in AS_ROOT {
        table.row("mps-root", name, &pair.both(|site| site.says(line, None)));
    }
    for (name, line) in AS_STRANGER {
        table.row("mps-stranger", name, &pair.both(|site| site.says(line, Some(STRANGER))));
    }
    table.row("mps-root", "still_there_for_root", &pair.both(|site| site.says("get_server_list", None)));
}

fn lives(pair: &mut Pair, table: &mut Table) {
    let mut row = |name: &str, pair: &mut Pair, ask: fn(&mut Site) -> Said| {
        table.row("mps-life", name, &pair.both(ask));
    };
    let nothing = || Said::seen(String::new());
    row("nobody_there", pair, |site| site.says("get_server_list", None));
    row("unknown_option_and_nobody_there", pair, |site| site.with_options(&["-f", "-multiuser-server"]));
    row("partitions_and_nobody_there", pair, |site| site.with_options(&["-f", "-S"]));
    pair.both(|site| {
        site.start();
        nothing()
    });
    row("files_when_started", pair, |site| site.files());
    row("pid_file", pair, pid_file);
    row("found_again_by_its_process", pair, process);
    row("started_twice", pair, |site| site.with_options(&["-f"]));
    row("unknown_option_is_no_daemon", pair, |site| site.with_options(&["-f", "-multiuser-server"]));
    row("goes_on", pair, |site| site.says("get_server_list", None));
    row("quit", pair, |site| site.says("quit", None));
    row("ends_with", pair, Site::ended);
    row("files_left_by_quit", pair, |site| site.files());
    row("gone", pair, |site| site.says("get_server_list", None));
    pair.both(|site| {
        site.start();
        nothing()
    });
    row("started_over_what_was_left", pair, |site| site.files());
    pair.both(|site| {
        site.kill();
        nothing()
    });
    row("files_left_when_killed", pair, |site| site.files());
    row("gone_when_killed", pair, |site| site.says("get_server_list", None));
    row("quit_to_nobody", pair, |site| site.says("quit", None));
    pair.both(|site| {
        site.start();
        nothing()
    });
    row("started_over_a_death", pair, |site| site.files());
    row("pid_file_is_of_the_new_one", pair, pid_file);
}

fn servers(pair: &mut Pair, table: &mut Table) {
    pair.both(|site| {
        site.start();
        Said::seen(String::new())
    });
    let line = format!("start_server -uid {}", STRANGER.uid);
    table.row("mps-server", "stranger_starts_his_own", &pair.both(|site| site.says(&line, Some(STRANGER))));
    for (name, who, line) in WITH_SERVER {
        let said = pair.both(|site| {
            let server = server(site);
            let said = site.says(&line.replace("SERVER", &server), who);
            Said { out: said.out.replace(&server, "SERVER"), ..said }
        });
        table.row("mps-server", name, &said);
    }
}

/// How a daemon ends whose server was killed: as if nothing had been.
fn killed_server(pair: &mut Pair, table: &mut Table) {
    let said = pair.both(|site| {
        site.start();
        site.says("start_server -uid 0", None);
        let pid = rustix::process::Pid::from_raw(server(site).parse().unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        without_server(site);
        site.says("quit", None)
    });
    table.row("mps-life", "quit_after_a_server_was_killed", &said);
    table.row("mps-life", "ends_well_whose_server_was_killed", &pair.both(Site::ended));
}

/// How a daemon ends whose server ended by itself with a failure: with that one's exit status. The real one's does so
/// because there is no driver.
fn failed_server(pair: &mut Pair, table: &mut Table) {
    pair.0[1].set("MPS_DOUBLE_SERVER_STATUS", "1");
    let said = pair.both(|site| {
        site.start();
        site.says("start_server -uid 0", None);
        without_server(site);
        // The real front end gives its daemon's status or 0, as chance will have it; the double always the former.
        Said { status: None, ..site.says("quit", None) }
    });
    table.row("mps-life", "quit_after_a_server_failed", &said);
    table.row("mps-life", "ends_with_the_failure_of_its_server", &pair.both(Site::ended));
}

fn without_server(site: &Site) {
    wait_until("no server", SOON, || Ok(site.says("get_server_list", None).out.is_empty())).unwrap();
}

fn server(site: &Site) -> String {
    wait_for("a server", SOON, || {
        let text = site.says("get_server_list", None).out;
        let first = text.lines().next().map(str::to_owned);
        Ok(first.map_or_else(|| Look::NotYet("there is none".to_owned()), Look::Ready))
    })
    .unwrap()
}

fn pid_file(site: &mut Site) -> Said {
    let text = std::fs::read_to_string(site.pipe_directory().join("nvidia-cuda-mps-control.pid")).unwrap();
    let is_its = text == site.pid().to_string();
    Said::seen(if is_its { "its number, without an end of line".to_owned() } else { text })
}

/// By what an agent that comes later knows the daemon.
fn process(site: &mut Site) -> Said {
    let read = |file: &str| std::fs::read(format!("/proc/{}/{file}", site.pid())).unwrap();
    let cmdline = String::from_utf8(read("cmdline")).unwrap();
    let mut words = cmdline.split_terminator('\0');
    let program = Path::new(words.next().unwrap()).file_name().unwrap().to_string_lossy().into_owned();
    let wanted = format!("CUDA_MPS_PIPE_DIRECTORY={}", site.pipe_directory().display());
    let environ = String::from_utf8(read("environ")).unwrap();
    let is_there = environ.split('\0').any(|variable| variable == wanted);
    Said::seen(format!(
        "{program} {}, its directory in its environment: {is_there}",
        words.collect::<Vec<_>>().join(" ")
    ))
}

fn stand_in(program: &[u8], words: &[&str]) -> Result<String, String> {
    // As the end of a string: linkers fold one that ends another.
    let is_in = |word: &&&str| program.windows(word.len() + 1).any(|it| it == format!("{word}\0").as_bytes());
    match words.iter().find(|word| !is_in(word)) {
        None => Ok(format!("only that the words stand in the program: {}", words.join(" "))),
        Some(word) => Err(format!("not even the word {word} in the program")),
    }
}

/// The agent's control of MPS over the real daemon.
struct Agents {
    folder: tempfile::TempDir,
    program: PathBuf,
}

impl Agents {
    fn daemons(&self) -> MpsDaemons {
        let device = DeviceUuid::new("GPU-01234567-89ab-cdef-0123-456789abcdef");
        MpsDaemons::new(self.program.clone(), &self.folder.path().join("mps"), None, [(0, device)])
    }

    fn settings(&self) -> MpsSettings {
        let directory = self.folder.path().join("mps/g0");
        MpsSettings {
            pipe_directory: directory.join("pipe"),
            log_directory: directory.join("log"),
            multi_user: false,
            partitions: false,
            users: std::collections::BTreeSet::new(),
            cap_default: None,
            memory_limit_bytes_default: None,
        }
    }

    fn says(&self, line: &str) -> String {
        let program =
            Program::new(&self.program).env("CUDA_MPS_PIPE_DIRECTORY", self.settings().pipe_directory);
        program.input(format!("{line}\n")).stdout().unwrap().trim().to_owned()
    }

    fn pid(&self) -> i32 {
        let file = self.settings().pipe_directory.join("nvidia-cuda-mps-control.pid");
        std::fs::read_to_string(file).unwrap().parse().unwrap()
    }
}

fn told(name: &str, what: &str) {
    println!("{:14} {name:36} read {what}", "mps-agent");
}

#[test]
fn the_agent_controls_the_real_mps_daemon() {
    let Some(parts) = parts("nvidia") else { return };
    let node = Agents { folder: folder(), program: parts.join("nvidia-cuda-mps-control") };
    let mut daemons = node.daemons();
    let limits = MpsSettings {
        cap_default: Some(Fraction::clamped(0.4)),
        memory_limit_bytes_default: Some(3 << 29),
        ..node.settings()
    };
    daemons.prepare(&MpsPlace::device(0), &limits).unwrap();
    let both = ["get_default_active_thread_percentage", "get_default_device_pinned_mem_limit 0"];
    assert_eq!(both.map(|line| node.says(line)), ["40.0", "1G"]);
    told("started_with_a_cap_and_a_limit", "both taken");
    drop(daemons);
    let mut daemons = node.daemons();
    let status = daemons.status(&MpsPlace::device(0)).unwrap().unwrap();
    assert_eq!((status.state, status.client_pids), (MpsState::Up, vec![]));
    daemons.prepare(&MpsPlace::device(0), &limits).expect("it goes on with it");
    told("found_again_by_the_next_agent", "up, with its settings");
    assert!(matches!(daemons.terminate_client(&MpsPlace::device(0), 77), Err(DeviceError::Refused { .. })));
    // Without a driver it ends at once: the agent may ask in the midst of it.
    node.says("start_server -uid 0");
    wait_until("no server", SOON, || {
        assert!(daemons.status(&MpsPlace::device(0)).unwrap().unwrap().client_pids.is_empty());
        Ok(node.says("get_server_list").is_empty())
    })
    .unwrap();
    daemons.release(&MpsPlace::device(0)).expect("it ends, although with a failure for the server");
    assert!(!limits.pipe_directory.exists() && !limits.log_directory.exists());
    told("stopped_after_a_server_was_lost", "gone without a trace");
    refusals(&node, &mut daemons);
    daemons.prepare(&MpsPlace::device(0), &node.settings()).unwrap();
    let pid = rustix::process::Pid::from_raw(node.pid()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    wait_until("its death to be told", SOON, || {
        Ok(daemons.notices().iter().any(|notice| notice.kind == NoticeKind::MpsDied))
    })
    .unwrap();
    daemons.prepare(&MpsPlace::device(0), &node.settings()).expect("over what it left");
    daemons.release(&MpsPlace::device(0)).unwrap();
    told("killed_and_started_anew", "its death told, the next one up");
}

/// What is refused is never taken for done.
fn refusals(node: &Agents, daemons: &mut MpsDaemons) {
    let nothing = MpsSettings { cap_default: Some(Fraction::clamped(0.0)), ..node.settings() };
    let too_little = MpsSettings { memory_limit_bytes_default: Some(1 << 19), ..node.settings() };
    for (name, settings) in [("cap_of_zero", nothing), ("limit_of_half_a_mebibyte", too_little)] {
        let refused = daemons.prepare(&MpsPlace::device(0), &settings).unwrap_err();
        assert!(matches!(refused, DeviceError::Refused { .. }), "{refused}");
        told(name, &refused.to_string());
    }
    let several = MpsSettings { multi_user: true, ..node.settings() };
    let partitions = MpsSettings { partitions: true, ..node.settings() };
    for (name, settings) in [("several_users", several), ("static_partitions", partitions)] {
        let refused = daemons.prepare(&MpsPlace::device(0), &settings).unwrap_err();
        assert!(matches!(refused, DeviceError::Unsupported { .. }), "{refused}");
        assert!(refused.to_string().contains("does not know -"), "{refused}");
        told(name, &refused.to_string());
    }
    assert_eq!(daemons.status(&MpsPlace::device(0)).unwrap(), None, "no daemon is left of them");
}
