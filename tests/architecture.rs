//! Who may import whom, asked of cargo itself. What is written here is the whole list: an arrow that is absent is
//! forbidden (docs/architecture.md says why). And which packages of others may come with us at all.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

use cargo_metadata::{Dependency, DependencyKind, Metadata, MetadataCommand};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Each package of ours with those of ours that it may import, at run time, in builds and in tests.
const ARROWS: [(&str, &[&str]); 32] = [
    ("level-zero-sys", &[]),
    ("pillion-core", &[]),
    ("pillion-doors", &[]),
    ("pillion-log", &["pillion-core"]),
    ("pillion-metrics", &["pillion-doors"]),
    ("pillion-config", &["pillion-core"]),
    ("pillion-auth", &["pillion-core", "pillion-config", "pillion-doors"]),
    ("pillion-linear", &[]),
    ("pillion-pairing", &["pillion-core", "pillion-linear", "pillion-test-kit"]),
    ("pillion-replay", &["pillion-core", "pillion-pairing"]),
    ("pillion-scale", &["pillion-replay"]),
    ("pillion-device", &["pillion-core", "level-zero-sys", "pillion-test-kit"]),
    ("pillion-slurm", &["pillion-core", "pillion-fake-slurm"]),
    ("pillion-fake-slurm", &["pillion-core", "pillion-slurm"]),
    ("pillion-proto", &["pillion-core"]),
    ("pillion-api", &["pillion-core", "pillion-proto"]),
    ("pillion-slurm-spank", &["pillion-core"]),
    ("pillion-spank-follow", &["pillion-config", "pillion-slurm-spank"]),
    (
        "pillion-agent",
        &[
            "pillion-core",
            "pillion-auth",
            "pillion-config",
            "pillion-log",
            "pillion-metrics",
            "pillion-proto",
            "pillion-device",
            "pillion-test-kit",
        ],
    ),
    ("pillion-exporter-double", &["pillion-core", "pillion-device"]),
    ("pillion-mps-double", &["pillion-core", "pillion-device", "pillion-test-kit"]),
    (
        "pillion-scheduler",
        &[
            "pillion-core",
            "pillion-api",
            "pillion-auth",
            "pillion-config",
            "pillion-doors",
            "pillion-log",
            "pillion-metrics",
            "pillion-proto",
            "pillion-pairing",
            "pillion-scale",
            "pillion-slurm",
            "pillion-fake-slurm",
            "pillion-store",
            "pillion-memory-store",
            "pillion-web",
            "pillion-test-kit",
        ],
    ),
    (
        "pillion-store",
        &[
            "pillion-core",
            "pillion-config",
            "pillion-metrics",
            "pillion-pairing",
            "pillion-slurm",
            "pillion-memory-store",
            "pillion-test-kit",
        ],
    ),
    ("pillion-memory-store", &["pillion-core", "pillion-pairing", "pillion-store"]),
    ("pillion-web", &["pillion-core", "pillion-api", "pillion-scale"]),
    (
        "pillion-cli",
        &[
            "pillion-core",
            "pillion-api",
            "pillion-auth",
            "pillion-config",
            "pillion-proto",
            "pillion-pairing",
            "pillion-replay",
            "pillion-scale",
            "pillion-slurm",
            "pillion-fake-slurm",
        ],
    ),
    ("pillion-nvml-double", &["pillion-core", "pillion-device"]),
    ("pillion-spank-neighbour", &[]),
    ("pillion-gpu-checks", &["pillion-core", "pillion-device", "pillion-agent", "pillion-pairing"]),
    ("pillion-double-level-zero", &["pillion-core", "pillion-device", "level-zero-sys"]),
    ("pillion-test-kit", &["pillion-core"]),
    (
        "pillion-tests",
        &[
            "pillion-test-kit",
            "pillion-core",
            "pillion-pairing",
            "pillion-replay",
            "pillion-device",
            "pillion-metrics",
            "pillion-slurm",
            "pillion-fake-slurm",
            "pillion-store",
            "pillion-memory-store",
            "pillion-proto",
            "pillion-slurm-spank",
            "pillion-spank-follow",
            "pillion-agent",
            "pillion-scheduler",
            "pillion-cli",
            "pillion-web",
            "pillion-auth",
            "pillion-api",
            "pillion-config",
        ],
    ),
];

/// Packages of others that only some of ours may name.
const FENCED: [(&str, &[&str]); 5] = [
    // Who is believed is told apart in one place.
    ("rustls", &["pillion-auth"]),
    // Every other way out of the scheduler is gRPC.
    ("axum", &["pillion-web", "pillion-scheduler"]),
    // The scheduler's tests and benchmarks look at its database themselves.
    ("sqlx", &["pillion-store", "pillion-scheduler"]),
    ("mlua", &["pillion-tests"]),
    ("nvml-wrapper", &["pillion-device", "pillion-nvml-double"]),
];

/// The pure packages: neither sockets nor threads nor SQL can come in by a dependency.
const PURE: [&str; 6] = [
    "pillion-core",
    "pillion-config",
    "pillion-linear",
    "pillion-pairing",
    "pillion-replay",
    "pillion-scale",
];
const IMPURE: [&str; 6] = ["tokio", "async-trait", "tonic", "sqlx", "rustix", "libc"];

/// The files that may hold unsafe code, besides the doubles of C libraries (docs/architecture.md names them).
const UNSAFE: [&str; 9] = [
    "crates/auth/src/munge/ffi.rs",
    "crates/device/src/intel/calls.rs",
    "crates/device/src/intel/open.rs",
    "crates/device/src/nvidia/mig/calls.rs",
    "crates/device/src/nvidia/open.rs",
    "crates/level-zero-sys/src/lib.rs",
    "slurm-spank/src/ffi/slurm.rs",
    "slurm-spank/src/ffi/unix.rs",
    "tests/gpu-checks/src/cuda.rs",
];

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

/// The name of a package of ours, as documents call it.
fn short(package: &str) -> &str {
    package.strip_prefix("pillion-").unwrap_or(package)
}

/// Each once, in order.
fn shorts<'p>(dependencies: &[&'p Dependency]) -> Vec<&'p str> {
    let names: BTreeSet<&str> = dependencies.iter().map(|it| short(&it.name)).collect();
    names.into_iter().collect()
}

/// Who imports whom, a line a package: those that others need first, and what only tests and builds import in brackets.
fn map_of_imports(metadata: &Metadata) -> String {
    let ours: BTreeSet<&str> = metadata.packages.iter().map(|package| package.name.as_str()).collect();
    let mut lines = String::new();
    for (name, _) in ARROWS {
        let package = metadata.packages.iter().find(|package| package.name.as_str() == name).unwrap();
        let of_ours = package.dependencies.iter().filter(|it| ours.contains(it.name.as_str()));
        let (product, tests): (Vec<_>, Vec<_>) = of_ours.partition(|it| it.kind == DependencyKind::Normal);
        let product = shorts(&product);
        let mut tests = shorts(&tests);
        tests.retain(|name| !product.contains(name));
        let product = if product.is_empty() { "nobody".to_owned() } else { product.join(", ") };
        let tests =
            if tests.is_empty() { String::new() } else { format!(" (in tests: {})", tests.join(", ")) };
        writeln!(lines, "{:<19} <- {product}{tests}", short(name)).unwrap();
    }
    lines
}

#[test]
fn the_document_draws_these_arrows() {
    const BEGIN: &str = "<!-- who imports whom: written by PILLION_BLESS=1 cargo test -p pillion-tests --test architecture -->\n```text\n";
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/architecture.md");
    let text = std::fs::read_to_string(&file).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("docs/architecture.md says where the map stands");
    let (drawn, after) = rest.split_once("```").unwrap();
    let map = map_of_imports(&metadata());
    if std::env::var_os("PILLION_BLESS").is_some() {
        std::fs::write(&file, format!("{before}{BEGIN}{map}```{after}")).unwrap();
    } else {
        assert_eq!(
            drawn, map,
            "PILLION_BLESS=1 cargo test -p pillion-tests --test architecture writes it anew"
        );
    }
}

#[test]
fn what_is_for_tests_is_imported_by_tests_alone() {
    let is_for_tests = |package: &str, dependency: &str| {
        let is_ours = ["pillion-test-kit", "pillion-memory-store"].contains(&dependency);
        is_ours || (package, dependency) == ("pillion-scheduler", "sqlx")
    };
    for package in metadata().packages.iter().filter(|package| package.name != "pillion-tests") {
        let named = package.dependencies.iter();
        for dependency in named.filter(|dependency| is_for_tests(&package.name, &dependency.name)) {
            let DependencyKind::Development = dependency.kind else {
                panic!("{} imports {} in what is shipped", package.name, dependency.name);
            };
        }
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

/// What doubles Slurm is for tests: no program of ours holds it.
#[test]
fn the_fake_slurm_is_in_no_product() {
    for package in
        metadata().packages.iter().filter(|package| !package.manifest_path.as_str().contains("/tests/"))
    {
        let mut built = package.dependencies.iter().filter(|it| it.kind != DependencyKind::Development);
        assert!(built.all(|it| it.name != "pillion-fake-slurm"), "{} holds the fake Slurm", package.name);
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

/// The files below a folder that say that they hold unsafe code.
fn unsafe_below(folder: &Path, found: &mut BTreeSet<PathBuf>) {
    let says_so = ["expect", "allow"].map(|word| format!("[{word}(unsafe_code"));
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            unsafe_below(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            if says_so.iter().any(|it| text.contains(it)) {
                found.insert(path);
            }
        }
    }
}

#[test]
fn unsafe_code_stays_in_its_files() {
    let (root, mut found) = (metadata().workspace_root, BTreeSet::new());
    for folder in ["crates", "slurm-spank", "tests"] {
        unsafe_below(root.join(folder).as_std_path(), &mut found);
    }
    let found = found.iter().map(|path| path.strip_prefix(&root).unwrap().to_str().unwrap());
    let found: BTreeSet<&str> = found.filter(|path| !path.starts_with("tests/doubles/")).collect();
    assert_eq!(found, BTreeSet::from(UNSAFE), "every other file is denied it by the workspace's lints");
}

/// Every package that is built here with all its kin, as far as this machine has fetched them.
fn everything() -> Metadata {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let options = ["--locked", "--offline", "--filter-platform", &target].map(str::to_owned).to_vec();
    MetadataCommand::new().current_dir(env!("CARGO_MANIFEST_DIR")).other_options(options).exec().unwrap()
}

/// The lists that cargo-deny reads too.
fn deny() -> toml::Table {
    let path = metadata().workspace_root.join(".cargo/deny.toml");
    std::fs::read_to_string(path).unwrap().parse().unwrap()
}

fn texts(list: &toml::Value) -> BTreeSet<String> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// Whether a package may be used by what it says of its licence (SPDX; `/` is an old `OR`): a term of each part between
/// `AND`s must be allowed.
fn is_licence_allowed(expression: &str, allowed: &BTreeSet<String>, used: &mut BTreeSet<String>) -> bool {
    let expression = expression.replace('/', " OR ");
    expression.split(" AND ").all(|part| {
        let part = part.trim().trim_start_matches('(').trim_end_matches(')');
        let found: Vec<&str> = part.split(" OR ").map(str::trim).filter(|it| allowed.contains(*it)).collect();
        used.extend(found.iter().map(|&term| term.to_owned()));
        !found.is_empty()
    })
}

#[test]
fn every_package_has_a_licence_that_ours_may_hold() {
    let (deny, mut used) = (deny(), BTreeSet::new());
    let allowed = texts(&deny["licenses"]["allow"]);
    let packages = everything().packages;
    assert!(packages.len() > 200, "cargo metadata tells of {} packages only", packages.len());
    for package in packages {
        let licence = package.license.clone().unwrap_or_default();
        // A form that the reader here does not know is refused, not guessed at.
        let is_plain = licence.matches('(').count() < 2 && !licence.contains(") OR");
        let is_allowed = is_plain && is_licence_allowed(&licence, &allowed, &mut used);
        assert!(is_allowed, "{} {}: '{licence}' is none of {allowed:?}", package.name, package.version);
    }
    assert_eq!(used, allowed, "a licence is allowed that no package needs");
}

#[test]
fn every_package_comes_from_the_registry_and_none_is_banned() {
    let deny = deny();
    assert_eq!(deny["sources"]["unknown-registry"].as_str(), Some("deny"));
    let registries = texts(&deny["sources"]["allow-registry"]);
    let banned = deny["bans"]["deny"].as_array().unwrap();
    let banned: BTreeSet<&str> = banned.iter().map(|ban| ban["name"].as_str().unwrap()).collect();
    let ours: BTreeSet<&str> = ARROWS.iter().map(|(name, _)| *name).collect();
    for package in everything().packages {
        let name = package.name.as_str();
        let source = package.source.map(|source| source.to_string());
        let is_known = match &source {
            None => ours.contains(name),
            Some(source) => registries.iter().any(|known| source == &format!("registry+{known}")),
        };
        assert!(is_known, "{name} comes from {source:?}; allowed are {registries:?}");
        assert!(!banned.contains(name), "{name} is banned (.cargo/deny.toml)");
    }
}

#[test]
fn licences_are_read_as_they_are_written() {
    let allowed = BTreeSet::from(["MIT", "Zlib"].map(str::to_owned));
    let is_allowed = |text| is_licence_allowed(text, &allowed, &mut BTreeSet::new());
    for text in [
        "MIT",
        "GPL-3.0 OR MIT",
        "Unlicense/MIT",
        "(MIT OR Apache-2.0) AND Zlib",
        "Zlib AND (GPL-3.0 OR MIT)",
    ] {
        assert!(is_allowed(text), "{text}");
    }
    for text in ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT OR Apache-2.0) AND Unicode-3.0", "MIT WITH a-twist"]
    {
        assert!(!is_allowed(text), "{text}");
    }
}

/// The files of production code: tests may compare as they like.
fn production_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let is_test = ["tests", "benches", "examples", "target"].contains(&name.as_str())
            || name.ends_with("tests.rs")
            || name == "testing.rs";
        if is_test {
            continue;
        }
        if path.is_dir() {
            production_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Where a way to share a device is compared with one of its kind, or matched with a rest: a new one would pass there in silence.
/// What a mechanism can do is asked by name (`Mechanism::can_cap`), or in a `match` of all.
fn silent_matches(text: &str) -> Vec<&str> {
    let is_inline = |pieces: &str| pieces.lines().next().is_some_and(|first| first.ends_with('{'));
    let pieces = text.split("#[cfg(test)]\n").enumerate();
    let production = pieces.take_while(|(at, piece)| *at == 0 || !is_inline(piece)).map(|(_, piece)| piece);
    let lines: Vec<&str> = production.flat_map(str::lines).collect();
    let depth = |line: &str| line.len() - line.trim_start().len();
    let names = |line: &str| line.contains("Mechanism::") || line.contains("Sharing::");
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let compared = line.split_once("== ").or_else(|| line.split_once("!= "));
        let is_compared =
            compared.is_some_and(|(_, right)| names(right.split(['&', '|', '{']).next().unwrap_or("")));
        if is_compared || (line.contains("matches!(") && names(line)) {
            found.push(*line);
        }
        let is_arm = line.contains("=>")
            && (line.trim_start().starts_with("Mechanism::") || line.trim_start().starts_with("Sharing::"));
        if is_arm {
            let block =
                lines[at..].iter().take_while(|other| other.is_empty() || depth(other) >= depth(line));
            let rest =
                block.filter(|other| depth(other) == depth(line) && other.trim_start().starts_with("_ "));
            found.extend(rest);
        }
    }
    found
}

#[test]
fn no_mechanism_passes_in_silence() {
    let mut files = Vec::new();
    for folder in ["crates", "slurm-spank"] {
        production_files(&metadata().workspace_root.join(folder).into_std_path_buf(), &mut files);
    }
    assert!(files.len() > 300, "{} files only", files.len());
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(silent_matches(&text), [""; 0], "{}", file.display());
    }
}

#[test]
fn a_comparison_with_a_mechanism_is_found() {
    let rest = "match it {\n    Mechanism::Mps => 1,\n    _ => 2,\n}\n";
    for text in [
        "if a == Mechanism::Mps {",
        "a != Sharing::TimeSliced && b",
        "matches!(it, Sharing::Ccs { .. })",
        rest,
    ] {
        assert_eq!(silent_matches(text).len(), 1, "{text}");
    }
    for text in [
        "Mechanism::Mps => match x {\n    _ => 1,\n}\n",
        "a == b && c(Mechanism::Mps)",
        "let a = Mechanism::Mps;",
    ] {
        assert_eq!(silent_matches(text), [""; 0], "{text}");
    }
}
