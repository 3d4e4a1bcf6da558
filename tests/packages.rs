//! What the packages are described by, as far as it can be held together without building one: deploy/packages, and the scripts and
//! units that come with them. What they do on a machine: tests/install.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

use pillion_tests::process::Program;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(name).canonicalize().unwrap()
}

fn text(name: &str) -> String {
    fs::read_to_string(deploy(name)).unwrap()
}

/// What the generator of systemd makes of a slurm.conf: the drop-ins of both units.
fn drop_ins(slurm_conf: &str, others: &[(&str, &str)]) -> [String; 2] {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("slurm.conf");
    fs::write(&path, slurm_conf).unwrap();
    for (name, text) in others {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let generator = deploy("systemd/pillion-slurm-user");
    let units = folder.path().join("units");
    let said = Program::new(generator).arg(&units).env("SLURM_CONF", &path).output().unwrap();
    assert!(said.status.success() && said.stderr.is_empty(), "{}", String::from_utf8_lossy(&said.stderr));
    ["pillion-scheduler", "pillion-rescue"]
        .map(|unit| fs::read_to_string(units.join(format!("{unit}.service.d/10-slurm-user.conf"))).unwrap())
}

#[test]
fn the_scheduler_runs_as_whom_slurm_names() {
    let as_user = |user: &str| format!("[Service]\nUser={user}\nGroup=\n");
    for (slurm_conf, user) in [
        ("SlurmUser=slurm\n", "slurm"),
        ("# SlurmUser=nobody\n  slurmuser = hpc-admin  # ours\nSlurmdUser=root\n", "hpc-admin"),
        ("SlurmUser=one\nSlurmUser=two\n", "two"),
        ("SlurmUser=64030\n", "64030"),
        // As Slurm has it where nobody is named.
        ("ClusterName=site\n", "root"),
        ("Include users.conf\n", "included"),
        // What would be a line of its own in a unit is no name.
        ("SlurmUser=\u{2028}ExecStart=/bin/sh\n", "root"),
    ] {
        for drop_in in drop_ins(slurm_conf, &[("users.conf", "SlurmUser=included\n")]) {
            let (comment, rest) = drop_in.split_once('\n').unwrap();
            assert!(comment.starts_with("# SlurmUser of /"), "{comment}");
            assert_eq!(rest, as_user(user), "of {slurm_conf:?}");
        }
    }
}

/// Where there is no Slurm the generator says nothing, and the units are as they are.
#[test]
fn without_a_slurm_conf_nothing_is_generated() {
    if Path::new("/etc/slurm/slurm.conf").exists() {
        pillion_test_kit::skipped("this machine has a slurm.conf of its own");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let units = folder.path().join("units");
    let said = Program::new(deploy("systemd/pillion-slurm-user"))
        .arg(&units)
        .env("SLURM_CONF", folder.path().join("none"))
        .output()
        .unwrap();
    assert!(said.status.success() && !units.exists());
}

/// Three lists of one thing: what is looked into, what dpkg tells of, and what a unit watches.
#[test]
fn every_folder_of_plugins_is_followed() {
    let (plugins, releases) = (pillion_spank_follow::PLUGIN_FOLDERS, pillion_spank_follow::RELEASES_FOLDERS);
    let known: BTreeSet<String> = plugins.iter().chain(&releases).map(|it| (*it).to_owned()).collect();
    let listed = |name: &str, before: &str| -> BTreeSet<String> {
        let text = text(name);
        let lines = text.lines().filter_map(|line| line.trim().strip_prefix(before));
        lines.filter(|it| it.starts_with('/')).map(str::to_owned).collect()
    };
    assert_eq!(listed("systemd/pillion-spank-follow.path", "PathChanged="), known);
    // dpkg tells of all below a folder; a Slurm of one's own is not there yet when its folder is named.
    let triggers = listed("packages/pillion-spank.yaml", "- ");
    for folder in known {
        assert!(triggers.iter().any(|it| Path::new(&folder).starts_with(it)), "{folder}");
    }
}

/// Each unit, hook and page of ours is in a package.
#[test]
fn everything_that_a_site_installs_is_packed() {
    let mut packed = String::new();
    for entry in fs::read_dir(deploy("packages")).unwrap().flatten() {
        if entry.path().extension().is_some_and(|it| it == "yaml") {
            packed += &fs::read_to_string(entry.path()).unwrap();
        }
    }
    let mut count = 0;
    for folder in ["systemd", "slurm/hooks"] {
        for entry in fs::read_dir(deploy(folder)).unwrap().flatten() {
            let name = format!("deploy/{folder}/{}", entry.file_name().to_string_lossy());
            assert!(packed.contains(&name), "{name} is in no package");
            count += 1;
        }
    }
    assert!(count > 8, "only {count} files were found");
}

/// Each package with a program asks for the runtime of its compiler: by the name of its package with dpkg, and with RPM by that of the
/// library, for what EL calls `libgcc` is `libgcc_s1` on SLES.
#[test]
fn the_compilers_runtime_is_asked_for_by_a_name_that_every_distribution_has() {
    let mut count = 0;
    for entry in fs::read_dir(deploy("packages")).unwrap().flatten() {
        let is_package = entry.path().extension().is_some_and(|it| it == "yaml");
        let text = if is_package { fs::read_to_string(entry.path()).unwrap() } else { continue };
        if !text.contains("src: stage/bin/") {
            continue;
        }
        count += 1;
        let (of_deb, of_rpm) = text.split_once("overrides:\n  rpm:\n").unwrap();
        let asks = |text: &str| -> Vec<String> {
            let names = text.lines().filter_map(|line| line.trim().strip_prefix("- "));
            names.filter(|it| it.starts_with("libgcc")).map(str::to_owned).collect()
        };
        assert_eq!(asks(of_deb), ["libgcc-s1"], "{}", entry.path().display());
        assert_eq!(asks(of_rpm), ["libgcc_s.so.1()(64bit)"], "{}", entry.path().display());
    }
    assert_eq!(count, 4, "scheduler, agent, client and plugin");
}

/// Whatever Slurm names survives a removal, and no package enables or starts anything with dpkg.
#[test]
fn packages_ship_off() {
    let slurm = text("packages/pillion-slurm.yaml");
    for line in slurm.lines().filter(|line| line.contains("dst: /etc/")) {
        assert!(line.contains("config|noreplace"), "{line}");
    }
    for entry in fs::read_dir(deploy("packages/scripts")).unwrap().flatten() {
        let text = fs::read_to_string(entry.path()).unwrap();
        let is_watch = |line: &str| line.contains("enable --now pillion-spank-follow.path");
        for line in text.lines().filter(|line| !line.trim_start().starts_with('#') && !is_watch(line)) {
            for word in [" start ", " restart ", " enable ", "try-restart"] {
                assert!(!line.contains(word), "{}: {line}", entry.path().display());
            }
        }
    }
    assert!(text("pillion.toml.example").contains("\nmode = \"off\"\n"));
}
