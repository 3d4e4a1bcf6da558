//! Writes the file by which `pillion.lua` knows that we live and what the pools can run. A dead scheduler stops writing, and
//! from then on jobs stay as their users wrote them.

use crate::context::Context;
use crate::scan::Scan;
use crate::tick_error::TickError;
use crate::view::gpu_type_names;
use pillion_core::NodeName;
use pillion_core::heartbeat::{Heartbeat, Mode, PoolAbility};
use pillion_slurm::Node;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The heartbeat's writer.
pub struct Beat {
    context: Arc<Context>,
}

impl Beat {
    pub fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    /// Writes once. Without a fresh scan nothing is written: a scheduler that cannot see Slurm takes no new jobs.
    ///
    /// # Errors
    /// [`TickError::File`].
    pub fn tick(&self) -> Result<(), TickError> {
        let context = &self.context;
        let Some(path) = &context.settings.heartbeat_path else { return Ok(()) };
        let Some(scan) = context.fresh_scan() else { return Ok(()) };
        let mode = if context.refusal().is_none() { context.settings.mode } else { Mode::Off };
        let models = models(context);
        let now = context.now();
        let heartbeat = Heartbeat {
            epoch: now.epoch(),
            bound_seconds: context.settings.bound.as_secs(),
            mode,
            slowdown_ratio_max: Some(context.settings.policy.slowdown_ratio_max),
            pools: context.settings.pool.iter().map(|name| ability(name, &scan, &models)).collect(),
        };
        replace(path, &heartbeat.render())
            .map_err(|source| TickError::File { path: path.clone(), source })?;
        context.board_mut().heartbeat_at = Some(now);
        Ok(())
    }
}

/// Names by which users may ask for the GPUs of each node.
fn models(context: &Context) -> BTreeMap<NodeName, BTreeSet<String>> {
    let mut models: BTreeMap<NodeName, BTreeSet<String>> = BTreeMap::new();
    for (node, agent) in context.agents.all() {
        let names = models.entry(node).or_default();
        for device in &agent.devices {
            names.extend(gpu_type_names(&device.model, &context.settings.gpu_types));
        }
    }
    models
}

fn ability(partition: &str, scan: &Scan, models: &BTreeMap<NodeName, BTreeSet<String>>) -> PoolAbility {
    let nodes: Vec<&Node> =
        scan.nodes.iter().filter(|node| node.partitions.iter().any(|name| name == partition)).collect();
    let features: BTreeSet<String> = nodes.iter().flat_map(|node| node.features.iter().cloned()).collect();
    let gpu_types: BTreeSet<String> =
        nodes.iter().filter_map(|node| models.get(&node.name)).flatten().cloned().collect();
    PoolAbility {
        partition: partition.to_owned(),
        cpus: nodes.iter().map(|node| node.cpus).max().unwrap_or(0),
        memory_mib: nodes.iter().map(|node| node.memory_mib).max().unwrap_or(0),
        features: features.into_iter().collect(),
        gpu_types: gpu_types.into_iter().collect(),
    }
}

/// Where a file of ours lies: itself, or what a link in its place names. By the unit the folder in which everybody looks for
/// it is root's, and has links to a folder of ours.
pub(crate) fn behind_link(path: &Path) -> PathBuf {
    std::fs::read_link(path)
        .map_or_else(|_| path.to_owned(), |target| path.parent().unwrap_or(path).join(target))
}

/// Replaces a file whole, so that lua never reads half of it; a link to it stays.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let path = &behind_link(path);
    let fresh = path.with_extension("new");
    let mut file = std::fs::File::create(&fresh)?;
    file.write_all(text.as_bytes())?;
    drop(file);
    std::fs::rename(&fresh, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_is_written_behind_the_link_by_which_it_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let (shown, own) = (folder.path().join("heartbeat"), folder.path().join("scheduler"));
        std::fs::create_dir(&own).unwrap();
        std::os::unix::fs::symlink("scheduler/heartbeat", &shown).unwrap();
        for text in ["first", "second"] {
            replace(&shown, text).unwrap();
            assert_eq!(std::fs::read_to_string(&shown).unwrap(), text);
        }
        assert!(std::fs::symlink_metadata(&shown).unwrap().is_symlink());
        assert_eq!(behind_link(&shown), own.join("heartbeat"));
        assert_eq!(behind_link(&own), own, "what is no link is itself");
    }
}
