//! The file by which the scheduler tells `pillion.lua` that it is alive and what the pools can run.
//!
//! lua runs under slurmctld's locks, so this is a small local file that is replaced whole (write, rename). It is stale
//! when older than [`STALE_AFTER_SECONDS`]: then lua leaves every job as its user wrote it.
//!
//! ```text
//! pillion1 epoch=1700000000 bound=600 mode=active
//! slowdown=1.250
//! pool=shared cpus=64 memory_mib=515000 features=a100,nvlink gpu_types=a100
//! models=shared a100
//! shape=shared g0,g1,g2,g3
//! plain=shared waiting=2
//! colocate=shared on
//! open=shared 4
//! per_gpu=gpu cpus=8 memory_mib=16000
//! ```
//!
//! A line that lua does not know it passes over, so that one of a later release does no harm.

use crate::gres_types::GresTypes;
use crate::units::SlowdownRatio;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A heartbeat older than this is no heartbeat.
pub const STALE_AFTER_SECONDS: u64 = 30;

/// What the scheduler does with its decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase", try_from = "String")]
pub enum Mode {
    /// Nothing: jobs stay as their users wrote them.
    Off,
    /// Decides on the queue of observed partitions, and only writes it down: jobs stay as their users wrote them.
    Shadow,
    /// Decides and releases.
    #[default]
    Active,
}

impl Mode {
    /// As written in the file and in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Shadow => "shadow",
            Self::Active => "active",
        }
    }
}

/// A word that names no mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a mode; allowed are off, shadow and active")]
pub struct UnknownMode(pub String);

impl TryFrom<String> for Mode {
    type Error = UnknownMode;
    fn try_from(text: String) -> Result<Self, UnknownMode> {
        let known = [Self::Off, Self::Shadow, Self::Active];
        known.into_iter().find(|mode| mode.as_str() == text).ok_or(UnknownMode(text))
    }
}

/// Nodes that are alike to a job that asks for no certain one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeClass {
    /// That jobs may have of each.
    pub cpus: u32,
    /// In MiB, the same.
    pub memory_mib: u64,
    /// All that each has.
    pub features: Vec<String>,
    /// What each has of other GRES, by name and by `name:type`; `None`: some of it cannot be counted.
    pub other_gres: Option<BTreeMap<String, u64>>,
    /// Scratch space in MiB, the same of each.
    pub scratch_mib: u64,
}

impl NodeClass {
    /// Its words in the file. Other GRES come last, and are left out where they cannot be counted.
    fn render(&self) -> String {
        let Self { cpus, memory_mib, features, other_gres, scratch_mib } = self;
        let features = features.join(",");
        let head =
            format!("cpus={cpus} memory_mib={memory_mib} features={features} scratch_mib={scratch_mib}");
        let Some(gres) = other_gres else { return head };
        let gres: Vec<String> = gres.iter().map(|(name, count)| format!("{name}:{count}")).collect();
        format!("{head} gres={}", gres.join(","))
    }
}

/// One pool partition, by what its largest node can run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PoolAbility {
    /// The partition, by its name.
    pub partition: String,
    /// CPUs of the largest node.
    pub cpus: u32,
    /// Memory of the largest node, in MiB.
    pub memory_mib: u64,
    /// Features that some node has.
    pub features: Vec<String>,
    /// How many nodes of each class it has; empty: they are of too many.
    pub nodes: Vec<(NodeClass, usize)>,
    /// GPU type names that users may ask for here (`gpu:a100:1`); Slurm's own types of the pool are `g0`, `g1`, ..
    pub gpu_types: Vec<String>,
    /// Those of them that not all of its GPUs bear. Slurm knows no models here, so that it would start who asks for one on any. `None`: all
    /// that are known bear them, and not all are known.
    pub gpu_types_of_some: Option<Vec<String>>,
    /// The devices that its nodes have, each list once, that of most nodes first: where a job of several GPUs can lie.
    pub shapes: Vec<GresTypes>,
    /// Jobs that did not ask for co-location are let in, with whole GPUs, and so many jobs wait that could run as soon as GPUs are
    /// free; `None`: such jobs are refused.
    pub plain_behind: Option<usize>,
    /// A job that names it and says nothing of co-location counts as one that asks for it.
    pub shares_by_default: bool,
    /// How many of its devices take tenants, by their agents: where there are none nobody waits for a decision of ours who sits in front
    /// of his job.
    pub open_device_count: usize,
}

/// The whole file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Heartbeat {
    /// When it was written.
    pub epoch: u64,
    /// The longest that a job may be held back.
    pub bound_seconds: u64,
    /// What the scheduler does.
    pub mode: Mode,
    /// The promise of a job whose user gave none.
    pub slowdown_ratio_max: Option<SlowdownRatio>,
    /// Where jobs may be routed, in order of preference.
    pub pools: Vec<PoolAbility>,
    /// What jobs of these partitions get by GPU where they ask for nothing, by name: CPUs and MiB, 0 = nothing.
    pub per_gpu: Vec<(String, u32, u64)>,
}

impl Heartbeat {
    /// The file's text.
    pub fn render(&self) -> String {
        let mut text = format!(
            "pillion1 epoch={} bound={} mode={}\n",
            self.epoch,
            self.bound_seconds,
            self.mode.as_str()
        );
        if let Some(ratio) = self.slowdown_ratio_max {
            let _ = writeln!(text, "slowdown={:.3}", ratio.value());
        }
        for pool in &self.pools {
            let _ = writeln!(
                text,
                "pool={} cpus={} memory_mib={} features={} gpu_types={}",
                pool.partition,
                pool.cpus,
                pool.memory_mib,
                pool.features.join(","),
                pool.gpu_types.join(",")
            );
            for (class, count) in &pool.nodes {
                let _ = writeln!(text, "nodes={} count={count} {}", pool.partition, class.render());
            }
            if let Some(of_some) = &pool.gpu_types_of_some {
                let models = format!("models={} {}", pool.partition, of_some.join(","));
                let _ = writeln!(text, "{}", models.trim_end());
            }
            for shape in &pool.shapes {
                let _ = writeln!(text, "shape={} {shape}", pool.partition);
            }
            if let Some(waiting_count) = pool.plain_behind {
                let _ = writeln!(text, "plain={} waiting={waiting_count}", pool.partition);
            }
            if pool.shares_by_default {
                let _ = writeln!(text, "colocate={} on", pool.partition);
            }
            let _ = writeln!(text, "open={} {}", pool.partition, pool.open_device_count);
        }
        for (partition, cpus, memory_mib) in &self.per_gpu {
            let _ = writeln!(text, "per_gpu={partition} cpus={cpus} memory_mib={memory_mib}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renders_one_line_a_pool_and_a_shape() {
        let gres =
            [("lscratch", 500), ("nic", 4), ("nic:x", 2)].map(|(name, count)| (name.to_owned(), count));
        let class = NodeClass {
            cpus: 64,
            memory_mib: 515_000,
            features: vec!["a100".into()],
            other_gres: Some(gres.into()),
            scratch_mib: 900,
        };
        let pool = PoolAbility {
            partition: "shared".into(),
            cpus: 64,
            memory_mib: 515_000,
            features: vec!["a100".into(), "nvlink".into()],
            nodes: vec![(class.clone(), 2), (NodeClass { other_gres: None, ..class }, 1)],
            gpu_types: vec!["a100".into()],
            gpu_types_of_some: Some(vec!["a100".into()]),
            shapes: vec!["g0,g1".parse().unwrap()],
            plain_behind: Some(2),
            shares_by_default: true,
            open_device_count: 4,
        };
        let heartbeat = Heartbeat {
            epoch: 1_700_000_000,
            bound_seconds: 600,
            mode: Mode::Active,
            slowdown_ratio_max: SlowdownRatio::try_promise(1.25).ok(),
            pools: vec![pool],
            per_gpu: vec![("gpu".into(), 8, 16_000)],
        };
        assert_eq!(
            heartbeat.render(),
            "pillion1 epoch=1700000000 bound=600 mode=active\n\
             slowdown=1.250\n\
             pool=shared cpus=64 memory_mib=515000 features=a100,nvlink gpu_types=a100\n\
             nodes=shared count=2 cpus=64 memory_mib=515000 features=a100 scratch_mib=900 gres=lscratch:500,nic:4,nic:x:2\n\
             nodes=shared count=1 cpus=64 memory_mib=515000 features=a100 scratch_mib=900\n\
             models=shared a100\n\
             shape=shared g0,g1\n\
             plain=shared waiting=2\n\
             colocate=shared on\n\
             open=shared 4\n\
             per_gpu=gpu cpus=8 memory_mib=16000\n"
        );
    }
}
