//! What is asked of Slurm for jobs that are only observed, word for word: every command line and every question must be one that
//! Slurm answers without changing anything.

use pillion_core::SlurmJobId;
use pillion_slurm::{CommandSettings, CommandSlurm, Slurm as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

/// What changes nothing: programs, and the words that such a call begins with.
const READING: [&[&str]; 7] = [
    &["squeue"],
    &["sacct"],
    &["scontrol", "show"],
    &["scontrol", "-d", "-o", "show", "job"],
    &["scontrol", "-d", "-o", "show", "hostnames"],
    &["scontrol", "-d", "-o", "quit"],
    &["scontrol", "write", "batch_script"],
];

/// A program that writes down by what words it was called, and what stood in its input, each line after those words.
fn install(directory: &Path, program: &str) {
    let log = directory.join("calls");
    let text = format!(
        "#!/bin/sh\nif [ $# -gt 2 ]; then echo \"{program} $*\" >> {log}\nelse while read -r line; do echo \"{program} $* $line\" >> {log}; done\nfi\n",
        log = log.display()
    );
    let path = directory.join(program);
    std::fs::write(&path, text).expect("it can be written");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
}

#[tokio::test]
async fn observing_asks_nothing_that_could_change_anything() {
    let directory = tempfile::tempdir().unwrap();
    for program in ["squeue", "scontrol", "sacct"] {
        install(directory.path(), program);
    }
    let slurm = CommandSlurm::new(CommandSettings {
        binary_directory: Some(directory.path().to_owned()),
        conf: None,
        timeout: Duration::from_secs(20),
    });
    let _ = slurm.jobs(&["gpu".to_owned()]).await;
    let _ = slurm.nodes().await;
    let _ = slurm.job_names(&[SlurmJobId::plain(7)]).await;
    let _ = slurm.node_counts(&[SlurmJobId::plain(7)]).await;
    let _ = slurm.held_devices(&[7, 8]).await;
    let _ = slurm.batch_script(7).await;
    let _ = slurm.submit_line(7).await;
    let calls = std::fs::read_to_string(directory.path().join("calls")).unwrap();
    for call in calls.lines() {
        let words: Vec<&str> = call.split(' ').collect();
        assert!(READING.iter().any(|reading| words.starts_with(reading)), "{call}");
    }
    for expected in [
        "sacct -a -X -n -P -j 7 -o SubmitLine",
        "scontrol write batch_script 7 -",
        "scontrol -d -o show job 8",
    ] {
        assert!(calls.lines().any(|call| call == expected), "{expected} in {calls}");
    }
    assert!(calls.lines().any(|call| call.starts_with("squeue -a -r --local -h -t all -O ")), "{calls}");
}
