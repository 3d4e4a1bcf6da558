//! What Slurm prints, and what stands in its fields: marks, `squeue`, `scontrol`, lists of nodes.

use crate::fuzz;
use crate::values::text_like;
use pillion_core::mark::{MARK_LENGTH_MAX, Mark};
use pillion_slurm::nodeset;
use pillion_slurm::parse::{queue, scontrol, squeue, state, time_limit_seconds};
use std::collections::BTreeSet;
use std::path::Path;

const NONCE: &str = "0123456789abcdef";

fn fixture(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/slurm-24.11");
    String::from_utf8_lossy(&std::fs::read(folder.join(name)).unwrap()).into_owned()
}

/// A few lines of a fixture at a time: changes in one of thousands would say little.
fn pieces(text: &str, lines: usize) -> Vec<String> {
    let all: Vec<&str> = text.lines().collect();
    all.chunks(lines).map(|piece| piece.join("\n") + "\n").collect()
}

#[test]
fn marks() {
    let examples = [
        "pillion1;w=0123456789abcdef;part=gpu;field=node;gres=gpu:1;other=;begin=0",
        "pillion1;w=00;s=1.15;m=8192;part=a,b;field=job;gres=gpu:a100:1;other=lscratch:5;begin=1794999940;lease=1795000000;r=3;u=7",
        "pillion1;w=00;c=0.5;part=;field=node;gres=gpu:1;other=;begin=0;alone=1;left=1;later=x",
        "jobstats: nothing of ours",
    ];
    fuzz("marks", &text_like(&examples), |text| {
        let Ok(Some(mark)) = Mark::parse(&text) else { return };
        assert!(text.len() <= MARK_LENGTH_MAX);
        let written = mark.to_string();
        let again = Mark::parse(&written);
        assert!(matches!(&again, Ok(Some(again)) if *again == mark), "{written}: {again:?}");
    });
}

#[test]
fn queues() {
    let fixtures = ["squeue.txt", "squeue-hostile-comments.txt"].map(fixture);
    let texts: Vec<String> = fixtures.iter().flat_map(|text| pieces(text, 3)).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    fuzz("queues", &text_like(&texts), |text| {
        let nonce = fixture_nonce(&text).unwrap_or(NONCE);
        let scan = queue::parse(&text, nonce);
        let ids: BTreeSet<_> = scan.jobs.iter().map(|job| job.id).collect();
        assert_eq!(ids.len(), scan.jobs.len(), "a job is told once or not at all");
        let end = format!(";{nonce}.\n");
        assert!(scan.jobs.len() <= text.matches(&end).count(), "each record has its own end");
        squeue::names(&text, nonce);
        squeue::allows_requeue(&text);
    });
}

/// The nonce that a recorded output was asked with: what stands between the first two semicolons.
fn fixture_nonce(text: &str) -> Option<&str> {
    text.split(';').nth(1).filter(|nonce| nonce.len() >= 8)
}

#[test]
fn nodes_partitions_and_settings() {
    let names = [
        "scontrol-node.txt",
        "scontrol-node-unavailable.txt",
        "scontrol-partition.txt",
        "scontrol-config.txt",
    ];
    let texts: Vec<String> = names.iter().flat_map(|name| pieces(&fixture(name), 4)).collect();
    let texts: Vec<&str> =
        texts.iter().map(String::as_str).chain(["slurm 24.11.5\n", "slurm 25.05.0-0rc1"]).collect();
    fuzz("scontrol", &text_like(&texts), |text| {
        let (nodes, dropped) = scontrol::nodes(&text);
        let names: BTreeSet<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(names.len(), nodes.len(), "a node is told once or not at all");
        assert!(nodes.len() as u64 + dropped <= text.lines().count() as u64);
        let (partitions, _) = scontrol::partitions(&text);
        assert!(partitions.len() <= text.lines().count());
        scontrol::config(&text);
        scontrol::version(&text);
        assert!(scontrol::array_throttles(&text, &[33, 34], "fenced").len() <= 2);
    });
}

#[test]
fn words_and_lists() {
    let long = format!("[1-65536]{}", "a".repeat(2_000));
    let wide = format!("n[{}1-65536]", "0".repeat(2_000));
    let examples = [
        long.as_str(),
        &wide,
        "n[1-3,7]",
        "gpu[001-128]-ib",
        "a,b[2-4]c",
        "RUNNING",
        "COMPLETED+DRAIN*",
        "1-02:03:04",
        "UNLIMITED",
        "n[1-4294967295]",
    ];
    fuzz("words and lists", &text_like(&examples), |text| {
        if let Ok(nodes) = nodeset::expand(&text) {
            let bytes: usize = nodes.iter().map(|node| node.as_str().len()).sum();
            assert!(nodes.len() <= nodeset::NODES_MAX, "{} nodes", nodes.len());
            assert!(bytes <= nodeset::TEXT_BYTES_MAX, "{bytes} bytes of names");
        }
        state::job_state(&text);
        state::reason(&text, "");
        state::node_availability(&text);
        time_limit_seconds(&text);
    });
}
