//! What changes on a host, and in which order. Made from what is there; changes nothing.

use super::file::Made;
use super::host::{Host, Role, kept_elsewhere};
use crate::config::CONFIG_PATH;
use crate::slurm_conf::{Files, Pool, Proposal, SLURM_CONF, propose, propose_plugin};
use std::path::{Path, PathBuf};

const EXAMPLE: &str = include_str!("../../../../deploy/pillion.toml.example");

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

/// A unit that is not on yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    pub name: String,
    /// Somebody has enabled it already: then an undo leaves it so.
    pub is_enabled: bool,
}

/// Which units are enabled, and which run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct On {
    pub enabled: Vec<String>,
    pub active: Vec<String>,
}

/// All of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// In the order in which they are changed: what others name is there before them.
    pub files: Vec<Change>,
    /// Files that are not ours to change: the change, and a sentence why.
    pub left: Vec<(Change, String)>,
    /// Units to be enabled and started, after the files.
    pub units: Vec<Unit>,
    /// The pool's partition; that of a controller.
    pub partition: Option<String>,
    /// What has to be done by hand, whenever.
    pub by_hand: Vec<String>,
    /// What has to be done by hand before anything is changed.
    pub must_first: Vec<String>,
}

/// What changes. `files`: of Slurm, as they are; `on`: the units that are.
pub fn plan(host: &Host, role: Role, files: &Files, wanted: &Wanted, on: &On) -> Plan {
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
    keep_together(host, &mut plan);
    let units = host.units(role).into_iter().map(str::to_owned);
    plan.units = units
        .map(|name| (on.active.contains(&name), Unit { is_enabled: on.enabled.contains(&name), name }))
        .filter(|(is_active, unit)| !(*is_active && unit.is_enabled))
        .map(|(_, unit)| unit)
        .collect();
    plan.partition = wanted.pool.as_ref().map(|pool| pool.partition.clone());
    plan
}

/// Slurm's files are of one piece: with slurm.conf changed and gres.conf not a node drains, with a `job_submit.lua` that is named
/// and not there slurmctld does not start. So where one is left all are.
fn keep_together(host: &Host, plan: &mut Plan) {
    let is_of_the_piece = |change: &Change| {
        let name = change.path.file_name().unwrap_or_default();
        change.path != host.at(CONFIG_PATH) && name != "plugstack.conf"
    };
    let Some(first) = plan.left.iter().map(|(change, _)| change).find(|change| is_of_the_piece(change))
    else {
        return;
    };
    let first = first.path.display().to_string();
    let (together, apart): (Vec<Change>, Vec<Change>) =
        std::mem::take(&mut plan.files).into_iter().partition(is_of_the_piece);
    plan.files = apart;
    plan.left.extend(together.into_iter().map(|change| {
        let said =
            format!("{} is left with {first}, for one without the other would harm", change.path.display());
        (change, said)
    }));
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
    let path = host.at(CONFIG_PATH);
    if path.exists() {
        return None;
    }
    let after = match role {
        Role::Controller => {
            let partition = wanted.pool.as_ref().map_or("shared", |pool| pool.partition.as_str());
            // So that the nodes reach it, and it looks after the pool that is made here.
            let text = EXAMPLE.replace("tcp = \"127.0.0.1:6820\"", "tcp = \"0.0.0.0:6820\"");
            text.replace("\npartitions = [\"shared\"]", &format!("\npartitions = [\"{partition}\"]"))
        }
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
