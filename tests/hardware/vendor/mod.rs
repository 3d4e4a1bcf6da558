//! Vendors' own parts that run without a device, and what of ours they are held against: NVIDIA's MPS control daemon beside its
//! double and under the agent's control, NVML without a driver and Intel's runtime without a device under the agent.
//! `deploy/lib/setup.sh` fetches them from Debian; where they are not to be had, each test says that it did not run.

mod control;
mod libraries;
mod mps;
mod table;

use pillion_tests::daemons::built;
use std::path::PathBuf;

/// The folder of a vendor's parts; `None`, and a line that says so, where there is none.
fn parts(vendor: &str) -> Option<PathBuf> {
    let Ok(folder) = built(&format!("vendor/{vendor}")) else {
        println!(
            "{vendor:14} not_run                              read nothing: its packages were not to be had"
        );
        return None;
    };
    let versions = std::fs::read_to_string(folder.join("versions")).unwrap();
    let versions: Vec<&str> = versions.lines().collect();
    println!("{vendor:14} packages                             read {}", versions.join(", "));
    Some(folder)
}
