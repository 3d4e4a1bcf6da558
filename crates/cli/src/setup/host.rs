//! What a host is, as far as its setup goes by it, and one sentence where it is not what it has to be.

use crate::error::CliError;
use crate::slurm_conf::{Files, Served};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The plugin, and what stamps it for the Slurm that is installed.
const PLUGIN: (&str, &str) = ("/usr/lib/pillion/pillion.so", "pillion-spank");
const FOLLOW: &str = "/usr/lib/pillion/pillion-spank-follow";
/// The unit that watches folders of Slurm's plugins, whose lines are the list of those.
const WATCH: &str = include_str!("../../../../deploy/systemd/pillion-spank-follow.path");
const WATCH_UNIT: &str = "pillion-spank-follow.path";
/// Below a folder of releases of Slurm, where each has its plugins.
const PLUGINS_OF_A_RELEASE: [&str; 2] = ["lib/slurm", "lib64/slurm"];
/// Where dpkg keeps which files are of which package, a list each.
const DPKG_LISTS: &str = "/var/lib/dpkg/info";

/// What a host is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Role {
    /// It runs slurmctld
    Controller,
    /// It is a node of the pool
    Node,
    /// Jobs are submitted from it
    Submit,
}

impl Role {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::Node => "node",
            Self::Submit => "submit",
        }
    }

    /// Its daemons' units, in the order in which they are enabled.
    const fn units(self) -> &'static [&'static str] {
        match self {
            Self::Controller => &["pillion-scheduler.service", "pillion-rescue.timer"],
            Self::Node => &["pillion-agent.service"],
            Self::Submit => &[],
        }
    }

    /// Files that packages of ours bring, and without which what is written would harm or do nothing: each with its package.
    const fn needs(self) -> &'static [(&'static str, &'static str)] {
        const PROLOG: (&str, &str) = ("/etc/slurm/pillion/prolog", "pillion-slurm");
        const EPILOG: (&str, &str) = ("/etc/slurm/pillion/epilog", "pillion-slurm");
        match self {
            Self::Controller => &[
                PLUGIN,
                PROLOG,
                EPILOG,
                ("/etc/slurm/pillion/epilog_slurmctld", "pillion-slurm"),
                ("/etc/slurm/pillion.lua", "pillion-slurm"),
                ("/usr/bin/pillion-scheduler", "pillion-scheduler"),
            ],
            Self::Node => &[PLUGIN, PROLOG, EPILOG, ("/usr/bin/pillion-agent", "pillion-agent")],
            Self::Submit => &[PLUGIN],
        }
    }
}

/// This host.
#[derive(Debug, Clone)]
pub struct Host {
    /// As the system calls it.
    pub name: String,
    /// What absolute paths begin at: `/`, and in tests a folder.
    pub root: PathBuf,
    /// Where slurm.conf is.
    pub slurm: PathBuf,
    /// Whether its Slurm files are slurmctld's, and nobody's to change here (configless).
    pub is_configless: bool,
    /// Whether nobody tells of a change of Slurm's plugins: see [`must_watch_plugins`].
    pub must_watch_plugins: bool,
}

impl Host {
    /// The place of an absolute path.
    pub fn at(&self, path: &str) -> PathBuf {
        at(&self.root, path)
    }

    /// The units that are to be on for a role, in the order in which they are enabled.
    pub fn units(&self, role: Role) -> Vec<&'static str> {
        let watch = self.must_watch_plugins.then_some(WATCH_UNIT);
        role.units().iter().copied().chain(watch).collect()
    }

    /// Whether this is a host of that kind, with what our packages bring.
    ///
    /// # Errors
    /// [`CliError::Data`]: one sentence that says what is missing, or where to run it.
    pub fn check(&self, role: Role, files: &Files) -> Result<(), CliError> {
        let conf = self.slurm.join("slurm.conf");
        let (host, conf) = (&self.name, conf.display());
        match role {
            Role::Controller => {
                let controllers = files.controllers();
                if !controllers.iter().any(|name| is_same_host(name, host)) {
                    let named =
                        if controllers.is_empty() { "nobody".to_owned() } else { controllers.join(", ") };
                    return Err(CliError::Data(format!(
                        "this host is {host}, and {conf} names {named} as SlurmctldHost: run it there"
                    )));
                }
            }
            Role::Node => match files.served_by(|name| is_same_host(name, host)) {
                Served::Shards => {}
                Served::NoShards => {
                    return Err(CliError::Data(format!(
                        "{conf} gives {host} no shards: run 'pillion setup controller' first, and bring its Slurm files to this host"
                    )));
                }
                Served::NoNode => {
                    return Err(CliError::Data(format!(
                        "this host is {host}, and {conf} has no NodeName for it: run it on a node of the pool"
                    )));
                }
            },
            Role::Submit => {}
        }
        let missing = role.needs().iter().find(|(path, _)| !self.at(path).exists());
        match missing {
            None => Ok(()),
            // Stamped for a Slurm, of which there was none when its package was installed.
            Some((path, _)) if *path == PLUGIN.0 && self.at(FOLLOW).exists() => Err(CliError::Data(format!(
                "there is no {path}, for no Slurm was found yet: run {FOLLOW} first"
            ))),
            Some((path, package)) => {
                Err(CliError::Data(format!("there is no {path}: install the package {package} first")))
            }
        }
    }
}

/// Whether plugins of a Slurm lie below `root` in a folder that no package of dpkg brought (`make install`): dpkg, which tells our
/// package of a change of its own, does not tell of theirs, and after an upgrade of that Slurm `--colocate` would be no option. Where
/// there is no dpkg this is so of each Slurm, and the package has begun to watch already.
pub fn must_watch_plugins(root: &Path) -> bool {
    let of_packages = of_packages(root);
    plugin_folders(root).iter().any(|folder| !of_packages.contains(folder))
}

/// The folders below `root` in which Slurm's plugins lie, as they are called there.
fn plugin_folders(root: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for watched in WATCH.lines().filter_map(|line| line.strip_prefix("PathChanged=")) {
        let mut folders = vec![watched.to_owned()];
        for entry in entries(&at(root, watched)) {
            // A link to the release that runs is no folder of its own.
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let name = entry.file_name().to_string_lossy().into_owned();
                folders.extend(PLUGINS_OF_A_RELEASE.map(|plugins| format!("{watched}/{name}/{plugins}")));
            }
        }
        found.extend(folders.into_iter().filter(|folder| has_plugin(&at(root, folder))));
    }
    found
}

fn has_plugin(folder: &Path) -> bool {
    entries(folder).any(|entry| entry.path().extension().is_some_and(|end| end == "so"))
}

/// All that dpkg's packages have in folders of plugins, by its lists.
fn of_packages(root: &Path) -> BTreeSet<String> {
    let lists = entries(&at(root, DPKG_LISTS)).map(|entry| entry.path());
    let lists = lists.filter(|path| path.extension().is_some_and(|end| end == "list"));
    // One that cannot be read names nothing: to watch in vain harms nobody.
    let texts = lists.filter_map(|path| std::fs::read_to_string(path).ok());
    texts
        .flat_map(|text| {
            text.lines().filter(|line| line.contains("/slurm")).map(str::to_owned).collect::<Vec<_>>()
        })
        .collect()
}

/// What is in a folder; nothing where there is none.
fn entries(folder: &Path) -> impl Iterator<Item = std::fs::DirEntry> + use<> {
    std::fs::read_dir(folder).into_iter().flatten().flatten()
}

fn at(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

/// Slurm goes by short names; a site may write either.
fn is_same_host(one: &str, other: &str) -> bool {
    short(one).eq_ignore_ascii_case(short(other))
}

fn short(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

/// Why a file is not ours to change, whatever it says: a link, one of several names, or another program's.
pub(super) fn kept_elsewhere(path: &Path, text: &str) -> Option<String> {
    use std::os::unix::fs::MetadataExt as _;
    let there = std::fs::symlink_metadata(path).ok()?;
    if there.is_symlink() {
        let target =
            std::fs::read_link(path).map_or_else(|_| String::new(), |target| target.display().to_string());
        return Some(format!("is a link to {target}"));
    }
    if there.nlink() > 1 {
        return Some("has several names (hard links)".to_owned());
    }
    let head = text.lines().take(20).filter(|line| line.trim_start().starts_with('#'));
    head.into_iter()
        .find(|line| names_a_program(line))
        .map(|line| format!("says of itself '{}'", line.trim_start_matches(['#', ' ']).trim()))
}

fn names_a_program(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    // Slurm's own form (`slurm.conf file generated by configurator.html.`) makes a file once, and is where most begin.
    let is_form = line.contains("configurator");
    !is_form && ["managed by", "do not edit", "generated by"].iter().any(|words| line.contains(words))
        || line.contains("ansible managed")
}
