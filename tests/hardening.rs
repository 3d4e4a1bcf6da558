//! How far the units of systemd shut their programs in: by systemd's own measure, and by what that does not weigh.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

use pillion_tests::process::Program;
use std::path::{Path, PathBuf};

/// The most that `systemd-analyze security` may say of a unit, of 10: 5 and above is "medium".
const EXPOSURE_MAX: [(&str, f64); 5] = [
    ("pillion-agent.service", 4.5),
    ("pillion-scheduler.service", 2.0),
    ("pillion-rescue.service", 2.0),
    ("pillion-simulated-device.service", 2.7),
    ("pillion-spank-follow.service", 2.0),
];

fn unit(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/systemd").join(name)
}

/// What a unit says of a setting, each time that it says something.
fn settings(name: &str, key: &str) -> Vec<String> {
    let text = std::fs::read_to_string(unit(name)).unwrap();
    let value = |line: &str| Some(line.strip_prefix(key)?.strip_prefix('=')?.to_owned());
    text.lines().filter_map(value).collect()
}

#[test]
fn units_are_shut_in_as_far_as_systemd_can_tell() {
    let program = Path::new("/usr/bin/systemd-analyze");
    if !program.exists() {
        pillion_test_kit::skipped(&format!("there is no {}", program.display()));
        return;
    }
    for (name, exposure_max) in EXPOSURE_MAX {
        let path = unit(name).canonicalize().unwrap();
        let output = Program::new(program)
            .args(["security", "--offline=true", "--no-pager"])
            .arg(path.to_str().unwrap())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let (_, level) = said.rsplit_once("Overall exposure level for ").unwrap_or_else(|| panic!("{said}"));
        let level: f64 = level.split_whitespace().nth(1).unwrap().parse().unwrap();
        println!("{name}: {level}");
        assert!(level <= exposure_max, "{name} is at {level}; {exposure_max} is the most\n{said}");
    }
}

#[test]
fn nobody_leaves_a_core_or_files_for_all() {
    for name in ["pillion-agent.service", "pillion-scheduler.service"] {
        assert_eq!(
            (settings(name, "LimitCORE"), settings(name, "UMask")),
            (vec!["0".into()], vec!["0077".into()])
        );
    }
    // Room for a queue of 100,000 jobs and the private Postgres, and none beyond: docs/benchmarks.md.
    let bounds = ["MemoryMax", "TasksMax"].map(|key| settings("pillion-scheduler.service", key));
    assert_eq!(bounds, [["4G"], ["512"]]);
    // They are in its control group, and serve jobs.
    assert_eq!(settings("pillion-agent.service", "KillMode"), ["process"]);
}

/// What is as good as being root outside, and what nothing of ours asks for.
#[test]
fn the_agent_may_not_administer_the_machine() {
    let kept = settings("pillion-agent.service", "CapabilityBoundingSet").concat();
    let kept: Vec<&str> = kept.split_whitespace().collect();
    assert!(!kept.is_empty(), "without a line all are kept");
    for name in [
        "CAP_SYS_ADMIN",
        "CAP_SYS_MODULE",
        "CAP_SYS_RAWIO",
        "CAP_BPF",
        "CAP_NET_ADMIN",
        "CAP_MKNOD",
        "CAP_SETPCAP",
    ] {
        assert!(!kept.contains(&name), "{name}");
    }
    // Activity counters and engines' times come with it alone.
    assert!(kept.contains(&"CAP_PERFMON"));
}

/// Of control groups the agent writes Slurm's alone, and what it holds is let go however it ends.
#[test]
fn a_held_job_goes_on_whatever_becomes_of_the_agent() {
    const UNIT: &str = "pillion-agent.service";
    assert_eq!(settings(UNIT, "ProtectControlGroups"), ["yes"]);
    assert_eq!(settings(UNIT, "ReadWritePaths"), ["-/sys/fs/cgroup/system.slice -/sys/fs/cgroup/freezer"]);
    assert_eq!(settings(UNIT, "ExecStopPost"), ["-/usr/bin/pillion-agent let-go"]);
}

/// Nothing is generated that could be another than the configuration says: all backends' devices are opened by name, and nothing else.
#[test]
fn the_agent_opens_the_devices_of_its_backends_and_no_disk() {
    const UNIT: &str = "pillion-agent.service";
    assert_eq!(settings(UNIT, "DevicePolicy"), ["closed"]);
    let allowed = ["char-195 rw", "char-nvidia* rw", "char-drm rw", "/dev/kmsg r"];
    assert_eq!(settings(UNIT, "DeviceAllow"), allowed);
    // What they are called is read when the unit starts: the module has to be there by then.
    for key in ["Wants", "After"] {
        assert!(settings(UNIT, key).contains(&"pillion-devices.service".to_owned()), "{key}");
    }
    assert_eq!(settings("pillion-devices.service", "Type"), ["oneshot"]);
}

#[test]
fn what_jobs_write_lies_on_a_file_system_of_its_own() {
    const MOUNT: &str = "run-pillion-progress.mount";
    assert_eq!(settings("pillion-agent.service", "RuntimeDirectory"), ["pillion"]);
    assert_eq!(settings(MOUNT, "Where"), ["/run/pillion/progress"], "where the agent makes its files");
    assert!(settings("pillion-agent.service", "Wants").contains(&MOUNT.to_owned()));
    let options = settings(MOUNT, "Options").concat();
    for option in ["size=64M", "nr_inodes=16384", "mode=0711", "nosuid", "nodev", "noexec"] {
        assert!(options.split(',').any(|it| it == option), "{option}: {options}");
    }
}
