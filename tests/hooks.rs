//! The hooks of `deploy/slurm/hooks`, run without Slurm: what the start and the end of a job cost, whatever the daemons do. A job
//! that asked nothing of us pays for no program, and none waits for a scheduler that does not answer.

#![expect(clippy::unwrap_used, reason = "a test may fail where it stands")]

use pillion_tests::process::Program;
use pillion_tests::wait::{Look, now, wait_for};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(20);
const HOOKS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/slurm/hooks");
/// Where each is told what becomes of it: the scheduler's file, and the folder that an agent has where there was one.
const AT_CONTROLLER: (&str, &str) = ("heartbeat", "/run/pillion/heartbeat");
const AT_NODE: (&str, &str) = ("state", "/var/lib/pillion-agent");
const PROGRAMS: &str = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
const HEARTBEAT: &str = "pillion1 epoch=1 bound=600 mode=active\nslowdown=1.25\n\
     pool=shared cpus=8 memory_mib=8000 features= gpu_types=\npool=big cpus=8 memory_mib=8000 features= gpu_types=\n";

/// A hook with paths of its own, and programs that do as they are told.
struct Hook {
    folder: tempfile::TempDir,
}

impl Hook {
    /// `EpilogSlurmctld` beside a scheduler that lives. `programs`: where it looks for programs besides.
    fn new(programs: &str) -> Self {
        let hook = Self::of("epilog_slurmctld", AT_CONTROLLER, programs);
        std::fs::write(hook.path("heartbeat"), HEARTBEAT).unwrap();
        hook
    }

    /// The hook of this name, whose variable `tells` names a file or folder here that is not there yet.
    fn of(name: &str, tells: (&str, &str), programs: &str) -> Self {
        let hook = Self { folder: tempfile::tempdir().unwrap() };
        let mut text = std::fs::read_to_string(Path::new(HOOKS).join(name)).unwrap();
        let path = |name: &str| hook.path(name).display().to_string();
        let (variable, file) = tells;
        for (from, to) in [
            (PROGRAMS, format!("PATH={}{programs}", path("bin"))),
            ("settings=/etc/pillion/hooks.env\n", format!("settings={}\n", path("hooks.env"))),
            (&format!("{variable}={file}\n"), format!("{variable}={}\n", path(variable))),
        ] {
            assert!(text.contains(from), "{name} no longer holds '{from}'");
            text = text.replace(from, &to);
        }
        std::fs::create_dir(hook.path("bin")).unwrap();
        write_program(&hook.path("hook"), &text);
        hook
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A program of this name leaves its name, and its scheduler, in the file `ran`, and then does this.
    fn add_program(&self, name: &str, then: &str) {
        let ran = self.path("ran").display().to_string();
        let text = format!("#!/bin/sh\necho \"{name} ${{PILLION_SCHEDULER-}}\" >>{ran}\n{then}\n");
        write_program(&self.path("bin").join(name), &text);
    }

    fn ran(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path("ran")).unwrap_or_default();
        text.lines().map(|line| line.trim().to_owned()).collect()
    }

    /// A job of this partition has ended; how long Slurm waits.
    fn job_ended(&self, partition: Option<&str>) -> Duration {
        let mut program = Program::new(self.path("hook"));
        if let Some(partition) = partition {
            program = program.env("SLURM_JOB_PARTITION", partition);
        }
        let begun = now();
        let output = program.output().unwrap();
        let took = begun.elapsed();
        let printed = [output.stdout, output.stderr].concat();
        assert!(output.status.success() && printed.is_empty(), "{}", String::from_utf8_lossy(&printed));
        took
    }

    fn wait_for_count(&self, count: usize) {
        wait_for(&format!("{count} pokes"), SOON, || {
            let seen = self.ran().len();
            Ok(if seen >= count { Look::Ready(()) } else { Look::NotYet(seen.to_string()) })
        })
        .unwrap();
    }
}

fn write_program(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_frozen_scheduler_keeps_nobody_waiting_and_gathers_no_crowd() {
    let hook = Hook::new(":/usr/sbin:/usr/bin:/sbin:/bin");
    hook.add_program("pillion", "exec sleep 60");
    let spans: Vec<Duration> = (0..100).map(|_| hook.job_ended(Some("shared"))).collect();
    // Slurm waited a second and more for each while the poke was in the foreground. The median, for a busy machine.
    let mut sorted = spans.clone();
    sorted.sort();
    assert!(sorted[50] < Duration::from_millis(100), "a hundred ends took {spans:?}");
    // One that is under way and one that waits, however many ends there were.
    hook.wait_for_count(2);
    let all: Duration = spans.iter().sum();
    // Each poke is given up after a second, and the next one begins.
    let pokes = u64::try_from(hook.ran().len()).unwrap();
    assert!(pokes <= 3 + all.as_secs(), "{pokes} pokes in {all:?}");
}

#[test]
fn an_end_during_a_poke_is_told_by_the_next_one() {
    let hook = Hook::new(":/usr/sbin:/usr/bin:/sbin:/bin");
    hook.add_program("pillion", "sleep 0.3");
    hook.job_ended(Some("shared"));
    hook.wait_for_count(1);
    hook.job_ended(Some("big"));
    hook.wait_for_count(2);
}

#[test]
fn the_end_of_a_job_elsewhere_starts_no_program() {
    let hook = Hook::new("");
    for name in ["pillion", "setsid", "timeout", "flock", "readlink", "sh", "sed", "tail", "cat"] {
        hook.add_program(name, "");
    }
    let elsewhere =
        [None, Some(""), Some("gpu"), Some("share"), Some("shared2"), Some("shared,gpu"), Some("*")];
    for partition in elsewhere {
        hook.job_ended(partition);
    }
    std::fs::write(hook.path("hooks.env"), "PILLION_PARTITIONS=shared huge\n").unwrap();
    for partition in elsewhere.into_iter().chain([Some("big")]) {
        hook.job_ended(partition);
    }
    std::fs::remove_file(hook.path("hooks.env")).unwrap();
    std::fs::remove_file(hook.path("heartbeat")).unwrap();
    hook.job_ended(Some("shared"));
    assert_eq!(hook.ran(), [""; 0]);
    // And this is how one of the pool's is seen.
    std::fs::write(hook.path("heartbeat"), HEARTBEAT).unwrap();
    hook.job_ended(Some("shared"));
    assert_eq!(hook.ran(), ["setsid"]);
}

#[test]
fn settings_are_read_and_never_executed() {
    let hook = Hook::new(":/usr/sbin:/usr/bin:/sbin:/bin");
    hook.add_program("pillion", "");
    let canary = hook.path("canary").display().to_string();
    let settings = format!(
        "# a remark\nPILLION_SCHEDULER=http://c:6820$(touch {canary})\n; touch {canary}\nPILLION_PARTITIONS=huge"
    );
    std::fs::write(hook.path("hooks.env"), settings).unwrap();
    hook.job_ended(Some("huge"));
    hook.wait_for_count(1);
    assert_eq!(hook.ran(), [format!("pillion http://c:6820$(touch {canary})")]);
    assert!(!hook.path("canary").exists());
}

#[test]
fn a_node_where_no_agent_has_ever_run_starts_no_program() {
    for name in ["prolog", "epilog"] {
        let hook = Hook::of(name, AT_NODE, "");
        for program in ["timeout", "pillion-agent", "sh", "cat", "sed"] {
            hook.add_program(program, "exit 1");
        }
        hook.job_ended(Some("gpu"));
        assert_eq!(hook.ran(), [""; 0], "{name}");
        // Once there was one, it is told, or what it left is cleaned up, whether it lives or not.
        std::fs::create_dir(hook.path("state")).unwrap();
        hook.job_ended(Some("gpu"));
        assert_eq!(hook.ran(), ["timeout"], "{name}");
        // Also where its state is elsewhere; the line is read and never executed.
        std::fs::remove_dir(hook.path("state")).unwrap();
        std::fs::create_dir(hook.path("$(touch elsewhere)")).unwrap();
        let elsewhere = hook.path("$(touch elsewhere)").display().to_string();
        std::fs::write(hook.path("hooks.env"), format!("# a remark\nPILLION_AGENT_STATE={elsewhere}"))
            .unwrap();
        hook.job_ended(Some("gpu"));
        assert_eq!(hook.ran(), ["timeout", "timeout"], "{name}");
    }
}

/// How a node's Epilog ends where the cleanup ends so, and what was run.
fn epilog(cleanup: &str, scontrol: Option<&str>) -> (Option<i32>, Vec<String>) {
    let hook = Hook::of("epilog", AT_NODE, ":/usr/bin:/bin");
    std::fs::create_dir(hook.path("state")).unwrap();
    let (bin, ran) = (hook.path("bin"), hook.path("ran").display().to_string());
    let program = |then: &str| format!("#!/bin/sh\necho \"$0 $*\" | sed 's,.*/bin/,,' >>{ran}\n{then}\n");
    write_program(&bin.join("pillion-agent"), &program(cleanup));
    if let Some(scontrol) = scontrol {
        write_program(&bin.join("scontrol"), &program(scontrol));
    }
    let output = Program::new(hook.path("hook")).env("SLURMD_NODENAME", "n7").output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    assert!(printed.is_empty(), "{}", String::from_utf8_lossy(&printed));
    (output.status.code(), hook.ran())
}

#[test]
fn an_epilog_drains_its_node_for_a_device_that_stays_cut_and_for_nothing_else() {
    let cleaned = "pillion-agent cleanup".to_owned();
    for harmless in ["exit 0", "exit 1", "exit 64", "echo said >&2; exit 78", "exit 137", "echo said; exit 0"]
    {
        assert_eq!(epilog(harmless, Some("exit 0")), (Some(0), vec![cleaned.clone()]), "{harmless}");
    }
    let not_whole = "echo \"device g0 is not whole: held by 'x' (process 7)\"; exit 69";
    let asked = "scontrol update NodeName=n7 State=DRAIN Reason=pillion: device g0 is not whole: held by 'x' (process 7)";
    assert_eq!(epilog(not_whole, Some("exit 0")), (Some(0), vec![cleaned.clone(), asked.to_owned()]));
    // Slurm then drains it by itself.
    assert_eq!(epilog(not_whole, Some("exit 1")).0, Some(1));
    assert_eq!(epilog(not_whole, None), (Some(1), vec![cleaned]));
}
