//! The plugin inside Slurm's own programs under valgrind (memcheck): sbatch, srun and slurmstepd read nothing that is not theirs
//! because of it, and it leaves nothing behind. What Slurm itself does stands in the same logs and is not looked at.

use pillion_tests::process::Program;
use pillion_tests::wait::{Look, wait_for};
use pillion_tests::{Cluster, ClusterSpec};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

const VALGRIND: &str = "/usr/bin/valgrind";
const SOON: Duration = Duration::from_mins(3);

/// Memcheck's options; each process has a log of its own. A task becomes the user's program, which is not looked into. Slurm
/// unloads the plugin before it ends, and what was leaked is told at the end: without its names kept our frames would be `???`.
fn options(folder: &Path, name: &str) -> Vec<String> {
    let log = folder.join(format!("{name}.%p.log"));
    vec![
        "--leak-check=full".into(),
        "--show-leak-kinds=definite,indirect".into(),
        "--num-callers=40".into(),
        "--keep-debuginfo=yes".into(),
        "--error-limit=no".into(),
        "--trace-children=no".into(),
        format!("--log-file={}", log.display()),
    ]
}

/// What stands in for slurmstepd.
fn stepd(folder: &Path) -> PathBuf {
    let real = ["/usr/sbin/slurmstepd", "/usr/libexec/slurm/slurmstepd", "/usr/lib/slurm-wlm/slurmstepd"];
    let real = real.into_iter().find(|path| Path::new(path).exists()).expect("slurmstepd is installed");
    let path = folder.join("slurmstepd");
    let words = options(folder, "slurmstepd").join(" ");
    std::fs::write(&path, format!("#!/bin/sh\nexec {VALGRIND} {words} {real} \"$@\"\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// The logs of one program.
fn logs(folder: &Path, name: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    let is_its = |path: &PathBuf| {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        stem.starts_with(&format!("{name}.")) && path.extension().is_some_and(|extension| extension == "log")
    };
    let paths = entries.map(|entry| entry.path()).filter(is_its);
    paths.map(|path| String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned()).collect()
}

/// The errors and leaks with our code in their stacks: records stand between lines that hold the process id only.
fn ours(log: &str) -> Vec<String> {
    let plain = |line: &str| line.split_once("== ").map_or(String::new(), |(_, text)| text.to_owned());
    let text: Vec<String> = log.lines().map(plain).collect();
    let is_our = |record: &&[String]| {
        let has_stack = record.iter().any(|line| line.trim_start().starts_with("at 0x"));
        // By its own names, by those that Slurm calls, and by its file while it is loaded.
        let names = ["pillion_slurm_spank", "slurm_spank_", "conf/pillion.so"];
        let frame = |line: &String| names.iter().any(|name| line.contains(name));
        has_stack && record.iter().any(frame)
    };
    text.split(|line| line.trim().is_empty()).filter(is_our).map(|record| record.join("\n")).collect()
}

fn assert_clean(folder: &Path, name: &str) {
    let logs = logs(folder, name);
    let found: Vec<String> = logs.iter().flat_map(|log| ours(log)).collect();
    println!("{name}: {} processes, {} records of ours", logs.len(), found.len());
    assert!(found.is_empty(), "{name}:\n{}", found.join("\n\n"));
    assert!(logs.iter().any(|log| log.contains("ERROR SUMMARY")), "no {name} ended under valgrind");
}

#[test]
fn a_record_with_our_frames_is_found_among_slurms_own() {
    let record = |frame: &str| {
        format!(
            "==7== Invalid read of size 4\n==7==    at 0x484: memcpy (vg_replace.c:1)\n==7==    by 0x5: {frame}\n==7== \n"
        )
    };
    let log = format!(
        "==7== Command: sbatch /x/conf/pillion.so\n==7== \n{}{}{}==7== ERROR SUMMARY: 3 errors\n",
        record("slurm_init (in /usr/lib/libslurmfull.so)"),
        record("pillion_slurm_spank::hooks::init (hooks.rs:112)"),
        record("??? (in /tmp/c/conf/pillion.so)"),
    );
    assert_eq!(ours(&log).len(), 2, "{:?}", ours(&log));
    let unloaded = record("slurm_spank_exit");
    assert_eq!(ours(&unloaded).len(), 1, "of one that is unloaded the name alone is known: {unloaded}");
}

/// A library that loses memory and is unloaded before the program ends, as a plugin is.
const LOSES: &str =
    "#include <stdlib.h>\nvoid slurm_spank_init(void) { volatile char *lost = malloc(123); lost[0] = 1; }\n";
const LOADS: &str = "#include <dlfcn.h>\nint main(int count, char **words) { void *plugin = dlopen(words[1], RTLD_NOW);\n\
                     void (*run)(void) = dlsym(plugin, \"slurm_spank_init\"); run(); return dlclose(plugin); }\n";

#[test]
fn a_leak_of_a_plugin_that_is_unloaded_is_found() {
    let compiler = Path::new("/usr/bin/cc");
    if !Path::new(VALGRIND).exists() || !compiler.exists() {
        pillion_test_kit::skipped(&format!("there is no {VALGRIND} or no {}", compiler.display()));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for (name, text) in [("plugin.c", LOSES), ("program.c", LOADS)] {
        std::fs::write(path(name), text).unwrap();
    }
    // It looks for its linker there.
    let compile =
        |words: &[&str]| Program::new(compiler).env("PATH", "/usr/bin").args(words).stdout().unwrap();
    compile(&["-shared", "-fPIC", "-o", &path("plugin.so"), &path("plugin.c")]);
    compile(&["-o", &path("program"), &path("program.c"), "-ldl"]);
    let program = Program::new(VALGRIND).args(options(folder.path(), "program"));
    program.args([path("program"), path("plugin.so")]).output().unwrap();
    let found: Vec<String> = logs(folder.path(), "program").iter().flat_map(|log| ours(log)).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("123 bytes"), "{found:?}");
}

#[test]
fn the_plugin_in_slurms_programs_is_clean_under_valgrind() {
    if !Path::new(VALGRIND).exists() {
        pillion_test_kit::skipped(&format!("there is no {VALGRIND}"));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let slurmstepd = Some(stepd(folder.path()));
    let mut cluster =
        Cluster::start(ClusterSpec { slurmstepd, bound_seconds: 20, ..ClusterSpec::default() }).unwrap();
    cluster.start_pillion().unwrap();

    let sbatch = |arguments: &[&str]| {
        let program = cluster.program_as("alice", VALGRIND).unwrap().args(options(folder.path(), "sbatch"));
        let srun = format!("{VALGRIND} {} srun true", options(folder.path(), "srun").join(" "));
        let program = program.arg("sbatch").args(arguments).input(format!("#!/bin/sh\n{srun}\n"));
        program.output().unwrap()
    };
    let common = ["--parsable", "--gres=gpu:1", "-c1", "--mem=100", "-t5"];
    let given = sbatch(&[&common[..], &["--colocate=memory=8G,profile=bert"]].concat());
    let job = String::from_utf8_lossy(&given.stdout).trim().parse().unwrap();
    let refused = sbatch(&[&common[..], &["--colocate=memory=lots"]].concat());
    assert!(!refused.status.success());
    let plain = sbatch(&["--parsable", "-p", "gpu", "-c1", "--mem=100", "-t5"]);
    let plain = String::from_utf8_lossy(&plain.stdout).trim().parse().unwrap();
    for job in [job, plain] {
        cluster.wait_for_job(job, &["COMPLETED"], SOON).unwrap();
    }
    wait_for("two slurmstepds that have ended, and a step", SOON, || {
        let ended =
            logs(folder.path(), "slurmstepd").iter().filter(|log| log.contains("ERROR SUMMARY")).count();
        Ok(if ended >= 3 { Look::Ready(()) } else { Look::NotYet(format!("{ended} ended")) })
    })
    .unwrap();
    for name in ["sbatch", "srun", "slurmstepd"] {
        assert_clean(folder.path(), name);
    }
}
