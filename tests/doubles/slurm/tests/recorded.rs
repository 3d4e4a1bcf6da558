//! What releases of Slurm printed of one and the same cluster (`tests/fixtures/recorded`) reads alike.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

use pillion_fake_slurm::{reading, tape};
use pillion_slurm::Slurm as _;
use std::path::Path;

const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/recorded");

#[tokio::test]
async fn every_release_that_was_recorded_is_read_as_what_was_submitted() {
    let expected = std::fs::read_to_string(Path::new(RECORDED).join("reading.txt")).unwrap();
    let mut releases = Vec::new();
    for entry in std::fs::read_dir(RECORDED).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let folder = tempfile::tempdir().unwrap();
        let slurm = tape::player(&std::fs::read_to_string(&path).unwrap(), folder.path()).unwrap();
        assert_eq!(slurm.version().await.unwrap().to_string(), name);
        reading::assert_reads(&expected, &reading::reading(&slurm).await.unwrap(), &name);
        releases.push(name);
    }
    assert!(releases.len() > 1, "{releases:?}");
}
