//! Who may import whom, asked of cargo itself. What is written here is the whole list: an arrow that is absent is
//! forbidden (docs/architecture.md says why).

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};
use std::collections::{BTreeMap, BTreeSet};

/// Each package of ours with those of ours that it may import, at run time, in builds and in tests.
const ARROWS: [(&str, &[&str]); 19] = [
    ("level-zero-sys", &[]),
    ("pillion-core", &[]),
    ("pillion-metrics", &[]),
    ("pillion-config", &["pillion-core"]),
    ("pillion-pairing", &["pillion-core"]),
    ("pillion-device", &["pillion-core", "level-zero-sys"]),
    ("pillion-slurm", &["pillion-core"]),
    ("pillion-proto", &["pillion-core"]),
    ("pillion-slurm-spank", &["pillion-core"]),
    (
        "pillion-agent",
        &["pillion-core", "pillion-config", "pillion-metrics", "pillion-proto", "pillion-device"],
    ),
    ("pillion-exporter-double", &["pillion-core", "pillion-device"]),
    ("pillion-mps-double", &["pillion-core", "pillion-device"]),
    (
        "pillion-scheduler",
        &[
            "pillion-core",
            "pillion-config",
            "pillion-metrics",
            "pillion-proto",
            "pillion-pairing",
            "pillion-slurm",
            "pillion-web",
        ],
    ),
    ("pillion-web", &["pillion-core", "pillion-proto"]),
    ("pillion-cli", &["pillion-core", "pillion-config", "pillion-proto", "pillion-pairing", "pillion-slurm"]),
    ("pillion-nvml-double", &["pillion-core", "pillion-device"]),
    ("pillion-gpu-checks", &["pillion-core", "pillion-device", "pillion-agent", "pillion-pairing"]),
    ("pillion-double-level-zero", &["pillion-core", "pillion-device", "level-zero-sys"]),
    (
        "pillion-tests",
        &[
            "pillion-core",
            "pillion-pairing",
            "pillion-device",
            "pillion-metrics",
            "pillion-slurm",
            "pillion-proto",
            "pillion-slurm-spank",
            "pillion-agent",
            "pillion-scheduler",
            "pillion-cli",
        ],
    ),
];

/// Packages of others that only some of ours may name.
const FENCED: [(&str, &[&str]); 4] = [
    // Every other way out of the scheduler is gRPC.
    ("axum", &["pillion-web", "pillion-scheduler"]),
    ("sqlx", &["pillion-scheduler"]),
    ("mlua", &["pillion-tests"]),
    ("nvml-wrapper", &["pillion-device", "pillion-nvml-double"]),
];

/// The pure packages: neither sockets nor threads nor SQL can come in by a dependency.
const PURE: [&str; 3] = ["pillion-core", "pillion-config", "pillion-pairing"];
const IMPURE: [&str; 6] = ["tokio", "async-trait", "tonic", "sqlx", "rustix", "libc"];

fn metadata() -> Metadata {
    MetadataCommand::new().no_deps().exec().expect("cargo metadata works in the checkout")
}

/// Our packages with everything that they name as a dependency, of any kind.
fn dependencies(metadata: &Metadata) -> BTreeMap<String, BTreeSet<String>> {
    let packages = metadata.packages.iter();
    packages
        .map(|package| {
            (package.name.to_string(), package.dependencies.iter().map(|d| d.name.clone()).collect())
        })
        .collect()
}

#[test]
fn nobody_imports_whom_the_architecture_forbids() {
    let all = dependencies(&metadata());
    let ours: BTreeSet<&String> = all.keys().collect();
    let known: BTreeSet<String> = ARROWS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(
        ours,
        known.iter().collect(),
        "a package without a line in ARROWS, or a line without its package"
    );
    for (name, allowed) in ARROWS {
        let used = all[name].iter().filter(|dependency| ours.contains(dependency));
        let forbidden: Vec<&String> =
            used.filter(|dependency| !allowed.contains(&dependency.as_str())).collect();
        assert!(forbidden.is_empty(), "{name} imports {forbidden:?}; allowed are {allowed:?}");
    }
}

#[test]
fn fenced_packages_stay_behind_their_fence() {
    for (name, dependencies) in dependencies(&metadata()) {
        for (fenced, allowed) in FENCED {
            let breaks = dependencies.contains(fenced) && !allowed.contains(&name.as_str());
            assert!(!breaks, "{name} imports {fenced}; only {allowed:?} may");
        }
    }
}

#[test]
fn the_pure_packages_can_do_no_io() {
    let metadata = metadata();
    for package in metadata.packages.iter().filter(|package| PURE.contains(&package.name.as_str())) {
        let normal =
            package.dependencies.iter().filter(|dependency| dependency.kind == DependencyKind::Normal);
        let found: Vec<&str> = normal.map(|d| d.name.as_str()).filter(|name| IMPURE.contains(name)).collect();
        assert!(found.is_empty(), "{} is pure and imports {found:?}", package.name);
    }
}

#[test]
fn no_profile_aborts_on_panic() {
    let root = metadata().workspace_root.join("Cargo.toml");
    let text = std::fs::read_to_string(&root).expect("the workspace has a Cargo.toml");
    let is_set =
        |line: &str| !line.trim_start().starts_with('#') && line.replace(' ', "").starts_with("panic=");
    assert!(!text.lines().any(is_set), "the SPANK plugin must be able to catch its panics");
}
