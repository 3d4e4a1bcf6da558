//! A squeue of Slurm 23.11, which knows no `ExcNodes`: it says so on stderr, leaves the field empty and ends with 0. Taken for an
//! answer, jobs were pinned to nodes that they exclude.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

use pillion_core::NodeName;
use pillion_slurm::{CommandSettings, CommandSlurm, Slurm as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/slurm-23.11");

/// Answers as 23.11 does, by the fixtures, and writes down by what words it was called.
fn squeue(directory: &Path) -> CommandSlurm {
    let log = directory.join("calls");
    let script = format!(
        r#"#!/bin/sh
echo "$*" >>{log}
case "$*" in *PriorityLong*) file=squeue.txt ;; *%x*) file=squeue-excluded.txt ;; *) exit 1 ;; esac
nonce=$(echo "$*" | sed -E 's/.*(JobArrayID:|%i);([0-9a-f]+);.*/\2/')
sed "s/7f3a9c/$nonce/g" "{FIXTURES}/$file"
case "$*" in *ExcNodes*) cat "{FIXTURES}/squeue-stderr.txt" >&2 ;; esac
"#,
        log = log.display()
    );
    let path = directory.join("squeue");
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    CommandSlurm::new(CommandSettings {
        binary_directory: Some(directory.to_owned()),
        conf: None,
        timeout: Duration::from_secs(20),
    })
}

fn excluded(scan: &pillion_slurm::JobsScan, id: &str) -> Vec<NodeName> {
    let id = id.parse().unwrap();
    scan.jobs.iter().find(|job| job.id == id).map(|job| job.excluded_nodes.clone()).unwrap()
}

#[tokio::test]
async fn excluded_nodes_are_read_from_a_squeue_that_has_no_field_for_them() {
    let directory = tempfile::tempdir().unwrap();
    let slurm = squeue(directory.path());
    for call in ["first", "second"] {
        let scan = slurm.jobs(&["shared".to_owned()]).await.unwrap();
        assert_eq!(excluded(&scan, "4"), [NodeName::new("n2")], "{call}");
        assert_eq!(excluded(&scan, "5_5"), [NodeName::new("n1"), NodeName::new("n2")], "{call}");
        // The components of a het job go by their own ids.
        assert_eq!(excluded(&scan, "14"), [NodeName::new("w1")], "{call}");
        assert_eq!(excluded(&scan, "15"), [], "{call}");
        assert_eq!(excluded(&scan, "2"), [], "{call}");
        // What has ended may be forgotten; of what waits nothing is guessed.
        assert_eq!(excluded(&scan, "8"), [], "{call}");
        assert!(!scan.jobs.iter().any(|job| job.id.to_string() == "7"), "{call}");
        assert_eq!(scan.dropped_line_count, 1, "{call}");
    }
    let calls = std::fs::read_to_string(directory.path().join("calls")).unwrap();
    let asked: Vec<&str> = calls
        .lines()
        .map(|line| ["ExcNodes", "%x"].into_iter().find(|word| line.contains(word)).unwrap_or("queue"))
        .collect();
    // It is tried once whether there is such a field.
    assert_eq!(asked, ["ExcNodes", "queue", "%x", "queue", "%x"]);
    assert!(calls.lines().all(|line| line.ends_with(" -p shared")), "{calls}");
}

#[tokio::test]
async fn where_excluded_nodes_cannot_be_read_there_is_no_queue() {
    let directory = tempfile::tempdir().unwrap();
    let slurm = squeue(directory.path());
    let path = directory.path().join("squeue");
    let script = std::fs::read_to_string(&path).unwrap();
    let broken = script.replace(
        "*%x*) file=squeue-excluded.txt",
        "*%x*) echo 'squeue: error: Invalid job format specification: x' >&2; exit 0",
    );
    assert_ne!(script, broken);
    std::fs::write(&path, broken).unwrap();
    let error = slurm.jobs(&[]).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "squeue does not understand the question: squeue: error: Invalid job format specification: x"
    );
}
