//! The script where there is nothing to measure.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use gpu_checks::programs::{Said, command, run};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

/// Runs `tests/gpu` with a path of its own. `smi`: what stands in for nvidia-smi there.
fn script(smi: Option<&str>, arguments: &[&str]) -> Said {
    let directory =
        std::env::temp_dir().join(format!("pillion-gpu-script-{}-{}", std::process::id(), arguments.len()));
    std::fs::create_dir_all(&directory).unwrap();
    if let Some(smi) = smi {
        let program = directory.join("nvidia-smi");
        std::fs::write(&program, format!("#!/bin/sh\n{smi}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut program = command(Path::new(env!("CARGO_MANIFEST_DIR")).join("../gpu"));
    program.args(arguments).env("PATH", format!("{}:/usr/bin:/bin", directory.display()));
    let said = run(program, "", Duration::from_secs(30));
    std::fs::remove_dir_all(&directory).unwrap();
    said.unwrap()
}

#[test]
fn without_a_gpu_it_says_so_in_one_sentence() {
    let said = script(Some("echo 'No devices were found'"), &[]);
    let expected = "skipped: there is no NVIDIA GPU here: nvidia-smi lists none\n";
    assert_eq!((said.code, said.out.as_str()), (Some(2), expected), "{}", said.errors);
}

#[test]
fn a_wrong_argument_is_no_measurement() {
    let said = script(Some("exit 1"), &["many"]);
    assert_eq!(said.code, Some(1));
    assert_eq!(said.errors, "error: KILLS is a number; found 'many'\n");
}
