//! What changes on a host, and in which order. Made from what is there; changes nothing.

use super::file::Made;
use super::host::{Host, Role, kept_elsewhere};
use crate::slurm_conf::{Files, Pool, Proposal, SLURM_CONF, propose, propose_plugin};
use std::path::{Path, PathBuf};

const EXAMPLE: &str = include_str!("../../../../deploy/pillion.toml.example");
/// Our configuration file.
pub(super) const CONFIG: &str = "/etc/pillion/pillion.toml";

/// What is wanted of a host, as it was typed.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Of a controller.
    pub pool: Option<Pool>,
    /// Of a node: what its devices are read by.
    pub backend: Option<String>,
    /// Whose group may read our configuration on a controller: `SlurmUser`'s.
    pub gid: Option<u32>,
}

/// One file that changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub path: PathBuf,
    /// `None`: it is not there.
    pub before: Option<String>,
    pub after: String,
    /// How it is made where it is not there.
    pub made: Made,
}

/// All of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// In the order in which they are changed: what others name is there before them.
    pub files: Vec<Change>,
    /// Files that are not ours to change: the change, and a sentence why.
    pub left: Vec<(Change, String)>,
    /// Units to be enabled, after the files.
    pub units: Vec<String>,
    /// What has to be done by hand, whenever.
    pub by_hand: Vec<String>,
    /// What has to be done by hand before anything is changed.
    pub must_first: Vec<String>,
}

/// What changes. `files`: of Slurm, as they are; `enabled`: units that are.
pub fn plan(host: &Host, role: Role, files: &Files, wanted: &Wanted, enabled: &[String]) -> Plan {
    let proposal = match &wanted.pool {
        Some(pool) if role == Role::Controller => propose(files, pool),
        _ => propose_plugin(files),
    };
    let mut changes = of_slurm(host, files, &proposal);
    changes.extend(configuration(host, role, files, wanted));
    changes.sort_by_key(|change| rank(&change.path));
    let mut plan = Plan { by_hand: proposal.by_hand, must_first: proposal.must_first, ..Plan::default() };
    for change in changes {
        match kept_elsewhere(&change.path, change.before.as_deref().unwrap_or_default()) {
            None => plan.files.push(change),
            Some(why) => {
                let said = format!(
                    "{} {why}: it is left as it is, make its changes where it is kept",
                    change.path.display()
                );
                plan.left.push((change, said));
            }
        }
    }
    let units = role.units().iter().map(|unit| (*unit).to_owned());
    plan.units = units.filter(|unit| !enabled.contains(unit)).collect();
    plan
}

fn of_slurm(host: &Host, before: &Files, proposal: &Proposal) -> Vec<Change> {
    if host.is_configless {
        return Vec::new();
    }
    let changed = proposal.files.0.iter().filter(|(name, text)| before.text(name) != text.as_str());
    let change = |(name, after): (&String, &String)| {
        let path = host.slurm.join(name);
        let before = path.exists().then(|| before.text(name).to_owned());
        Change { path, before, after: after.clone(), made: Made { mode: 0o644, gid: None } }
    };
    changed.map(change).collect()
}

/// Our configuration, where there is none: an admin's is his.
fn configuration(host: &Host, role: Role, files: &Files, wanted: &Wanted) -> Option<Change> {
    let path = host.at(CONFIG);
    if path.exists() {
        return None;
    }
    let after = match role {
        // So that the nodes reach it.
        Role::Controller => EXAMPLE.replace("tcp = \"127.0.0.1:6820\"", "tcp = \"0.0.0.0:6820\""),
        Role::Node => {
            let controllers: Vec<String> =
                files.controllers().iter().map(|name| format!("https://{name}:6820")).collect();
            let backend = wanted.backend.as_deref()?;
            EXAMPLE.replace("backend = \"simulated\"", &format!("backend = \"{backend}\"")).replace(
                "endpoint = \"https://controller:6820\"",
                &format!("endpoint = \"{}\"", controllers.join(",")),
            )
        }
        Role::Submit => return None,
    };
    let gid = if role == Role::Controller { wanted.gid } else { None };
    Some(Change { path, before: None, after, made: Made { mode: 0o640, gid } })
}

/// slurm.conf last: it names the others, and slurmctld does not start without the `job_submit.lua` that it asks for.
fn rank(path: &Path) -> usize {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let order = ["pillion.toml", "job_submit.lua", "plugstack.conf", "gres.conf"];
    match name.as_str() {
        SLURM_CONF => order.len() + 1,
        name => order.iter().position(|known| *known == name).unwrap_or(order.len()),
    }
}
