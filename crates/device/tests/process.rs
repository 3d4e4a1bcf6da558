//! The driver process, the load and the agent's side of the socket, as real processes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use pillion_core::metric::Metric;
use pillion_device::simulated::Simulated;
use pillion_device::{Backend as _, DeviceError, MpsControl as _, MpsSettings};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

#[expect(clippy::disallowed_methods, reason = "a test of programs runs programs")]
fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env_clear().stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A driver process of its own, ended with the test.
struct Driver {
    process: Child,
    directory: tempfile::TempDir,
}

impl Driver {
    fn start(arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let process = command(env!("CARGO_BIN_EXE_pillion-simulated-device"))
            .args([
                "--socket",
                directory.path().join("%n.sock").to_str().unwrap(),
                "--node",
                "n1",
                "--noise",
                "0",
            ])
            .args(arguments)
            .spawn()
            .unwrap();
        let mut driver = Self { process, directory };
        let mut tries = 0;
        while driver.backend().devices().is_err() {
            assert!(driver.process.try_wait().unwrap().is_none(), "the driver process ended");
            tries += 1;
            assert!(tries < 1000, "the driver process does not answer");
            std::thread::sleep(Duration::from_millis(10));
        }
        driver
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("n1.sock")
    }

    fn backend(&self) -> Simulated {
        Simulated::new(self.socket())
    }

    fn load(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Command {
        let mut load = command(env!("CARGO_BIN_EXE_pillion-load"));
        load.args(arguments)
            .env("PILLION_SIMULATED_DEVICE", self.directory.path().join("%n.sock"))
            .env("SLURMD_NODENAME", "n1")
            .envs(environment.iter().copied());
        load
    }

    /// Runs a load to its end: its result line.
    fn result(&self, arguments: &[&str], environment: &[(&str, &str)]) -> serde_json::Value {
        let output = self.load(arguments, environment).output().unwrap();
        assert!(output.status.success(), "{}", words(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn mps(&self, index: u32) -> MpsSettings {
        MpsSettings {
            pipe_directory: self.directory.path().join(format!("mps{index}")),
            log_directory: self.directory.path().join("log"),
            multi_user: false,
            partitions: false,
            users: std::collections::BTreeSet::new(),
            cap_default: None,
            memory_limit_bytes_default: None,
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Already gone is as good.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn speed(result: &serde_json::Value) -> f64 {
    result["speed_fraction_mean"].as_f64().unwrap()
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

#[test]
fn a_wrong_percentage_shows_as_a_wrong_speed() {
    let driver = Driver::start(&["--model", "h200", "--count", "2", "--time-scale", "300"]);
    let settings = driver.mps(1);
    let started = driver.backend().prepare(&pillion_device::MpsPlace::device(1), &settings);
    if !is_root() {
        assert!(matches!(started, Err(DeviceError::Refused { .. })), "{started:?}");
        pillion_test_kit::skipped("MPS is set up by root");
        return;
    }
    started.unwrap();
    let pipe = settings.pipe_directory.to_str().unwrap();
    let run = |percentage: &str| {
        let environment =
            [("CUDA_MPS_PIPE_DIRECTORY", pipe), ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", percentage)];
        driver.result(&["gemm-hog", "--seconds", "30"], &environment)
    };
    let (half, quarter) = (run("50"), run("25"));
    assert!((speed(&half) - 0.5).abs() < 0.03, "{half}");
    assert!((speed(&quarter) - 0.25).abs() < 0.03, "{quarter}");
    assert_eq!(quarter["environment"]["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"], "25");
    let stray = driver.result(
        &["gemm-hog", "--seconds", "30"],
        &[("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "25"), ("CUDA_VISIBLE_DEVICES", "1")],
    );
    assert!((speed(&stray) - 1.0).abs() < 0.03, "no daemon, no cap: {stray}");
}

#[test]
fn loads_slow_each_other_and_all_are_seen() {
    let driver = Driver::start(&["--model", "a100-40,h100", "--time-scale", "200"]);
    let mut backend = driver.backend();
    assert_eq!(backend.devices().unwrap()[1].model, "h100");
    let on_it = [("CUDA_VISIBLE_DEVICES", "1")];
    let endless = ["spmv-bandwidth", "--seconds", "100000000"];
    let mut loads: Vec<Child> = (0..2).map(|_| driver.load(&endless, &on_it).spawn().unwrap()).collect();
    let mut pids: Vec<u32> = loads.iter().map(Child::id).collect();
    pids.sort_unstable();
    loop {
        let states = backend.read_all().unwrap();
        let on_device = &states[1].1.as_ref().unwrap().processes;
        let mut seen: Vec<u32> = on_device.iter().map(|process| process.pid).collect();
        seen.sort_unstable();
        assert!(states[0].1.as_ref().unwrap().processes.is_empty());
        if seen == pids {
            break;
        }
        assert!(loads.iter_mut().all(|load| load.try_wait().unwrap().is_none()), "one ended by itself");
    }
    let third = driver.result(&["spmv-bandwidth", "--seconds", "20"], &on_it);
    assert!(speed(&third) < 0.5, "beside two others: {third}");
    for load in &mut loads {
        load.kill().unwrap();
        load.wait().unwrap();
    }
    let alone = driver.result(&["spmv-bandwidth", "--seconds", "20"], &[("CUDA_VISIBLE_DEVICES", "0")]);
    assert!((speed(&alone) - 1.0).abs() < 0.01, "{alone}");
}

#[test]
fn a_terminated_process_leaves_nothing_on_the_device() {
    let driver = Driver::start(&["--model", "h100"]);
    let mut backend = driver.backend();
    let mut load = driver.load(&["spmv-bandwidth", "--seconds", "1000000"], &[]).spawn().unwrap();
    while backend.processes(0).unwrap().is_empty() {
        assert!(load.try_wait().unwrap().is_none(), "it ended by itself");
    }
    assert!(backend.read(0).unwrap().metrics.bytes(Metric::MemoryBytesUsed).unwrap() > 1 << 30);
    // As Slurm ends a job: the process is gone at once.
    rustix::process::kill_process(rustix::process::Pid::from_child(&load), rustix::process::Signal::TERM)
        .unwrap();
    load.wait().unwrap();
    let mut tries = 0;
    while !backend.processes(0).unwrap().is_empty() {
        tries += 1;
        assert!(tries < 100_000, "it is still there");
    }
    assert_eq!(backend.read(0).unwrap().metrics.bytes(Metric::MemoryBytesUsed), Some(0));
}

#[test]
fn progress_and_result_are_written() {
    let driver = Driver::start(&["--model", "max-1550", "--time-scale", "100"]);
    let (counter, line) = (driver.directory.path().join("progress"), driver.directory.path().join("result"));
    let arguments =
        ["ResNet-50", "--batch-size", "2", "--seconds", "120", "--result", line.to_str().unwrap()];
    let environment = [("PILLION_PROGRESS", counter.to_str().unwrap()), ("ZEX_NUMBER_OF_CCS", "0:1")];
    let printed = driver.result(&arguments, &environment);
    let written: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(line).unwrap()).unwrap();
    assert_eq!(printed, written);
    let numbers: Vec<f64> =
        std::fs::read_to_string(counter).unwrap().lines().map(|number| number.parse().unwrap()).collect();
    assert!(numbers.len() >= 2, "{numbers:?}");
    assert!(numbers.is_sorted(), "{numbers:?}");
    assert!((numbers.last().unwrap() - 120.0).abs() < 1e-6, "{numbers:?}");
}

#[test]
fn a_load_fails_as_a_program_on_a_real_device_would() {
    let driver = Driver::start(&["--model", "v100", "--time-scale", "1000"]);
    let fails = |arguments: &[&str], environment: &[(&str, &str)], expected: &str| {
        let output = driver.load(arguments, environment).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", words(&output));
        assert!(words(&output).contains(expected), "{} does not say {expected}", words(&output));
    };
    fails(&["gromacs"], &[("CUDA_VISIBLE_DEVICES", "3")], "no CUDA-capable device is detected");
    fails(&["gromacs", "--memory", "64G"], &[], "CUDA out of memory. Tried to allocate");
    fails(&["gromacs", "--memory", "40G"], &[], "CUDA out of memory. Tried to allocate");
    fails(&["no-such-load"], &[], "there is no workload 'no-such-load'");
    fails(
        &["gromacs"],
        &[("PILLION_SIMULATED_DEVICE", "/nowhere/x.sock")],
        "cannot reach the driver at /nowhere/x.sock",
    );
}

#[test]
fn nonsense_on_the_socket_harms_nobody() {
    let driver = Driver::start(&["--model", "v100"]);
    for nonsense in [&b"\n"[..], b"{}\n", b"\xff\xfe\n", b"{\"op\":\"progress\"}\n", &vec![b'x'; 300_000]] {
        let mut stream = UnixStream::connect(driver.socket()).unwrap();
        // The driver may close before all is written.
        let _ = stream.write_all(nonsense);
    }
    assert_eq!(driver.backend().devices().unwrap().len(), 1);
}

#[test]
fn a_second_driver_is_refused_and_a_dead_ones_socket_replaced() {
    let mut driver = Driver::start(&["--model", "v100"]);
    let again = |socket: &Path| {
        let mut second = command(env!("CARGO_BIN_EXE_pillion-simulated-device"));
        second.args(["--model", "v100", "--socket", socket.to_str().unwrap()]);
        second
    };
    let output = again(&driver.socket()).output().unwrap();
    assert!(
        !output.status.success() && words(&output).contains("another driver process serves"),
        "{}",
        words(&output)
    );
    driver.process.kill().unwrap();
    driver.process.wait().unwrap();
    assert!(driver.socket().exists(), "a killed process leaves its socket");
    driver.process = again(&driver.socket()).spawn().unwrap();
    while driver.backend().devices().is_err() {
        assert!(driver.process.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_bad_configuration_is_told_and_exits_64() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("driver.toml");
    let fails = |text: &str, expected: &str| {
        std::fs::write(&file, text).unwrap();
        let output = command(env!("CARGO_BIN_EXE_pillion-simulated-device"))
            .args(["--config", file.to_str().unwrap(), "--socket", "/nowhere/x.sock"])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(64), "{}", words(&output));
        assert!(words(&output).contains(expected), "{} does not say {expected}", words(&output));
    };
    fails("", "at least one device");
    fails("[machine]\ndevices = [{ model = \"k80\" }]", "'k80' is not a device model");
    fails("[machine]\ntimescale = 2", "timescale");
    fails("[machine]\ntime_scale = -1\ndevices = [{ model = \"v100\" }]", "time_scale is -1");
}

#[test]
fn a_reader_of_the_list_who_leaves_early_is_no_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = command(env!("CARGO_BIN_EXE_pillion-load")).arg("--list").stdout(writer).output().unwrap();
    assert!(output.status.success(), "{}", words(&output));
}
