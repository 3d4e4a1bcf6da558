//! Writes the file by which `pillion.lua` knows that we live and what the pools can run. A dead scheduler stops writing, and
//! from then on jobs stay as their users wrote them.

use crate::agents::AgentState;
use crate::context::{Context, Settings};
use crate::scan::{Scan, held_reason, is_waiting};
use crate::tick_error::TickError;
use crate::view::{gpu_type_names, links};
use pillion_config::PlainJobs;
use pillion_core::device::DeviceDescription;
use pillion_core::heartbeat::{Heartbeat, Mode, NodeClass, PoolAbility};
use pillion_core::link::Link;
use pillion_core::{GresType, GresTypes, NodeName};
use pillion_slurm::{GpuDefaults, Job, Node, NodeAvailability};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How many classes of nodes are told: slurmctld waits while they are read.
const CLASSES_MAX: usize = 32;

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
        let (agents, settings) = (context.agents.all(), &context.settings);
        let now = context.now();
        let open = context.agents.open_devices();
        let heartbeat = Heartbeat {
            epoch: now.epoch(),
            bound_seconds: settings.bound.as_secs(),
            mode,
            // Where it differs by job it is not told at the submission: account and QOS are not settled then.
            slowdown_ratio_max: settings
                .job_policy
                .promises_all_the_same()
                .then_some(settings.policy.slowdown_ratio_max),
            pools: settings
                .pool
                .iter()
                .map(|name| ability(name, &scan, (&agents, open.keys()), settings))
                .collect(),
            per_gpu: per_gpu(&context.board().gpu_defaults),
        };
        replace(path, &heartbeat.render())
            .map_err(|source| TickError::File { path: path.clone(), source })?;
        context.board_mut().heartbeat_at = Some(now);
        Ok(())
    }
}

fn per_gpu(defaults: &BTreeMap<String, GpuDefaults>) -> Vec<(String, u32, u64)> {
    let row = |(name, all): (&String, &GpuDefaults)| {
        (name.clone(), all.cpus.unwrap_or(0), all.memory_mib.unwrap_or(0))
    };
    defaults.iter().map(row).collect()
}

/// `open`: the devices that take tenants.
fn ability<'a>(
    partition: &str,
    scan: &Scan,
    (agents, open): (&BTreeMap<NodeName, AgentState>, impl Iterator<Item = &'a (NodeName, GresType)>),
    settings: &Settings,
) -> PoolAbility {
    let nodes: Vec<&Node> =
        scan.nodes.iter().filter(|node| node.partitions.iter().any(|name| name == partition)).collect();
    let features: BTreeSet<String> = nodes.iter().flat_map(|node| node.features.iter().cloned()).collect();
    let (gpu_types, gpu_types_of_some) = gpu_types(&nodes, agents, &settings.gpu_types);
    PoolAbility {
        partition: partition.to_owned(),
        cpus: nodes.iter().map(|node| node.cpus).max().unwrap_or(0),
        memory_mib: nodes.iter().map(|node| node.memory_mib).max().unwrap_or(0),
        features: features.into_iter().collect(),
        nodes: classes(&nodes),
        gpu_types,
        gpu_types_of_some,
        shapes: shapes(&nodes, agents),
        plain_behind: (settings.plain_jobs == PlainJobs::Whole).then(|| waiting_count(&nodes, scan)),
        shares_by_default: settings.shared_by_default.contains(partition),
        open_device_count: open_count(partition, scan, open),
    }
}

/// How many nodes there are of each class; none where they are of more than [`CLASSES_MAX`].
fn classes(nodes: &[&Node]) -> Vec<(NodeClass, usize)> {
    let mut counts: BTreeMap<NodeClass, usize> = BTreeMap::new();
    for node in nodes {
        let Node { cpus, memory_mib, features, other_gres, scratch_mib, .. } = node;
        let class = NodeClass {
            cpus: *cpus,
            memory_mib: *memory_mib,
            features: features.clone(),
            other_gres: other_gres.clone(),
            scratch_mib: *scratch_mib,
        };
        *counts.entry(class).or_default() += 1;
    }
    if counts.len() > CLASSES_MAX { Vec::new() } else { counts.into_iter().collect() }
}

/// The names by which users may ask for the GPUs of these nodes, and those of the names that not all of them bear. After a start of
/// ours agents come one after the other, and that of a node that is down when it is up again: while one is missed, that all bear the same
/// is not said.
fn gpu_types(
    nodes: &[&Node],
    agents: &BTreeMap<NodeName, AgentState>,
    given: &BTreeMap<String, Vec<String>>,
) -> (Vec<String>, Option<Vec<String>>) {
    let (mut models, mut is_one_missed) = (BTreeSet::new(), false);
    for node in nodes {
        let devices = agents.get(&node.name).map(|agent| agent.devices.as_slice()).unwrap_or_default();
        models.extend(devices.iter().map(|device| device.model.as_str()));
        is_one_missed |= devices.is_empty();
    }
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for model in &models {
        let names: BTreeSet<String> = gpu_type_names(model, given).into_iter().collect();
        for name in names {
            *counts.entry(name).or_default() += 1;
        }
    }
    let of_some = counts.iter().filter(|(_, count)| **count < models.len());
    let of_some: Vec<String> = of_some.map(|(name, _)| name.clone()).collect();
    let is_known = !is_one_missed || !of_some.is_empty();
    (counts.into_keys().collect(), is_known.then_some(of_some))
}

/// How many of these devices are on nodes of a partition that are up.
fn open_count<'a>(
    partition: &str,
    scan: &Scan,
    open: impl Iterator<Item = &'a (NodeName, GresType)>,
) -> usize {
    let is_there = |node: &Node| {
        node.availability == NodeAvailability::Up && node.partitions.iter().any(|name| name == partition)
    };
    open.filter(|(node, _)| scan.node(node).is_some_and(is_there)).count()
}

/// How many jobs wait on these nodes for nothing but devices, in whichever partition: whoever comes now comes after them.
fn waiting_count(nodes: &[&Node], scan: &Scan) -> usize {
    let partitions: BTreeSet<&str> =
        nodes.iter().flat_map(|node| node.partitions.iter().map(String::as_str)).collect();
    let waits = |job: &&Job| {
        partitions.contains(job.partition.as_str()) && is_waiting(job) && held_reason(job, scan).is_none()
    };
    scan.jobs.values().filter(waits).count()
}

/// The devices that Slurm gives shards of, node by node: each list once, that of most nodes first.
fn shapes(nodes: &[&Node], agents: &BTreeMap<NodeName, AgentState>) -> Vec<GresTypes> {
    let mut counts: BTreeMap<GresTypes, usize> = BTreeMap::new();
    for node in nodes {
        let known = agents.get(&node.name).map(|agent| agent.devices.as_slice()).unwrap_or_default();
        if let Ok(shape) = GresTypes::try_new(in_order(node, known)) {
            *counts.entry(shape).or_default() += 1;
        }
    }
    let mut shapes: Vec<(GresTypes, usize)> = counts.into_iter().collect();
    shapes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    shapes.into_iter().map(|(shape, _)| shape).collect()
}

/// A node's devices, near ones side by side and else by their indexes, as its agent tells them; before it has, by the numbers in their
/// names.
fn in_order(node: &Node, known: &[DeviceDescription]) -> Vec<GresType> {
    let place = |gres_type: &GresType| {
        let index = known.iter().find(|device| device.gres_type == *gres_type).map(|device| device.index);
        let digits = gres_type.as_str().trim_start_matches(|letter: char| !letter.is_ascii_digit());
        index.or_else(|| digits.parse().ok()).unwrap_or(u32::MAX)
    };
    let mut devices: Vec<GresType> = node.shards.keys().cloned().collect();
    devices.sort_by_key(place);
    side_by_side(devices, known)
}

/// The same devices with those side by side that reach each other best: `pillion.lua` takes neighbours of the list for a job of
/// several. Groups of which each reaches each by NVLink, of these groups those that one PCIe switch joins, and so on outwards.
fn side_by_side(devices: Vec<GresType>, known: &[DeviceDescription]) -> Vec<GresType> {
    let links: BTreeMap<&GresType, BTreeMap<GresType, Link>> =
        known.iter().map(|device| (&device.gres_type, links(device, known))).collect();
    let way = |one: &GresType, other: &GresType| {
        links.get(one).and_then(|ways| ways.get(other)).copied().unwrap_or(Link::Sys)
    };
    let mut groups: Vec<Vec<GresType>> = devices.into_iter().map(|device| vec![device]).collect();
    for worst in Link::ALL {
        let mut joined: Vec<Vec<GresType>> = Vec::new();
        for group in groups {
            let reaches = |other: &&mut Vec<GresType>| {
                other.iter().all(|one| group.iter().all(|own| way(one, own) <= worst))
            };
            match joined.iter_mut().find(reaches) {
                Some(other) => other.extend(group),
                None => joined.push(group),
            }
        }
        groups = joined;
    }
    groups.concat()
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
    use crate::testing::{self, node};

    #[test]
    fn devices_are_told_as_open_where_somebody_decides_on_them() {
        let up = testing::scan(None, NodeAvailability::Up);
        let down = testing::scan(None, NodeAvailability::Unavailable("DOWN".into()));
        let open = [(NodeName::new("n1"), GresType::new("g0")), (NodeName::new("n9"), GresType::new("g0"))];
        let count = |partition, scan| open_count(partition, scan, open.iter());
        assert_eq!((count("shared", &up), count("other", &up), count("shared", &down)), (1, 0, 0));
    }

    #[test]
    fn what_partitions_give_by_gpu_is_told_with_nothing_as_zero() {
        let of = |cpus, memory_mib| GpuDefaults { cpus, memory_mib };
        let all = [("a".to_owned(), of(Some(8), None)), ("b".to_owned(), of(None, Some(16_000)))];
        assert_eq!(per_gpu(&all.into()), [("a".to_owned(), 8, 0), ("b".to_owned(), 0, 16_000)]);
    }

    /// As it was: plain jobs of one partition started at once on what was set apart for who waited in the other.
    #[test]
    fn who_waits_on_the_same_nodes_waits_before_whichever_his_partition_is() {
        let mark = pillion_core::mark::Mark::default();
        let waits = Job {
            partition: "long".into(),
            mark: Ok(Some(mark)),
            ..testing::job(pillion_slurm::JobState::Pending)
        };
        let of_both = Node { partitions: vec!["shared".into(), "long".into()], ..node(NodeAvailability::Up) };
        let elsewhere = Node {
            name: NodeName::new("n2"),
            partitions: vec!["other".into()],
            ..node(NodeAvailability::Up)
        };
        let pool = ["shared", "long", "other"].map(str::to_owned);
        let scan =
            Scan::new(testing::at(testing::NOW), vec![waits.into()], vec![of_both, elsewhere], &pool, 0);
        let behind = |name: &str| {
            let nodes = scan.nodes.iter().filter(|node| node.partitions.iter().any(|own| own == name));
            waiting_count(&nodes.collect::<Vec<_>>(), &scan)
        };
        assert_eq!(pool.each_ref().map(|name| behind(name)), [1, 1, 0]);
    }

    #[test]
    fn nodes_are_told_by_classes_and_not_where_there_are_too_many() {
        let with = |cpus: u32| Node { cpus, ..node(NodeAvailability::Up) };
        let told = |cpus: &[u32]| {
            let nodes: Vec<Node> = cpus.iter().map(|cpus| with(*cpus)).collect();
            let told = classes(&nodes.iter().collect::<Vec<_>>()).into_iter();
            told.map(|(class, count)| (class.cpus, count)).collect::<Vec<_>>()
        };
        assert_eq!(told(&[64, 8, 64]), [(8, 1), (64, 2)]);
        assert_eq!(told(&(0..33).collect::<Vec<u32>>()), []);
    }

    #[test]
    fn names_that_only_some_models_bear_are_told_apart() {
        let given: BTreeMap<String, Vec<String>> =
            [("NVIDIA H100", &["h100", "hopper"][..]), ("NVIDIA H200", &["h200", "hopper"])]
                .map(|(model, names)| {
                    (model.to_owned(), names.iter().map(|name| (*name).to_owned()).collect())
                })
                .into();
        let told = |models: &[Option<&str>]| {
            let names: Vec<NodeName> = (0..models.len()).map(|at| NodeName::new(format!("n{at}"))).collect();
            let with = |name: &NodeName| Node { name: name.clone(), ..node(NodeAvailability::Up) };
            let nodes: Vec<Node> = names.iter().map(with).collect();
            let agent = |model: &str| {
                let model = model.to_owned();
                testing::agent(vec![DeviceDescription { model, ..pillion_test_kit::device(0) }])
            };
            let agents =
                names.into_iter().zip(models).filter_map(|(name, model)| Some((name, agent((*model)?))));
            let (all, some) = gpu_types(&nodes.iter().collect::<Vec<_>>(), &agents.collect(), &given);
            (all.join(" "), some.map(|some| some.join(" ")))
        };
        let (h100, h200) = (Some("NVIDIA H100"), Some("NVIDIA H200"));
        assert_eq!(told(&[h100, h100]), ("NVIDIA H100 h100 hopper".to_owned(), Some(String::new())));
        let of_some = Some("NVIDIA H100 NVIDIA H200 h100 h200".to_owned());
        assert_eq!((told(&[h100, h200]).1, told(&[h100, None, h200]).1), (of_some.clone(), of_some));
        assert_eq!((told(&[h100, None]).1, told(&[None]).1), (None, None), "the other may be of any");
        assert_eq!(told(&[]), (String::new(), Some(String::new())));
    }

    #[test]
    fn shapes_are_told_once_each_by_index_and_those_of_most_nodes_first() {
        let with = |names: &[&str]| Node {
            shards: names.iter().map(|name| (GresType::new(*name), (100, 0))).collect(),
            ..node(NodeAvailability::Up)
        };
        let nodes = [with(&["g10", "g2"]), with(&["g0"]), with(&["g2", "g10"]), with(&[])];
        let nodes: Vec<&Node> = nodes.iter().collect();
        let told = shapes(&nodes, &BTreeMap::new());
        assert_eq!(told.iter().map(GresTypes::to_string).collect::<Vec<_>>(), ["g2,g10", "g0"]);
    }

    /// Neighbours of the list, for a node of eight with these ways.
    fn listed(way: impl Fn(u32, u32) -> Option<Link>) -> String {
        let name = |index: u32| GresType::new(format!("g{index}"));
        let links = |own| {
            (0..8).filter(|other| *other != own).filter_map(|other| Some((other, way(own, other)?))).collect()
        };
        let device = |index| DeviceDescription {
            gres_type: name(index),
            links: links(index),
            ..pillion_test_kit::device(index)
        };
        let known: Vec<DeviceDescription> = (0..8).map(device).collect();
        GresTypes::try_new(side_by_side((0..8).map(name).collect(), &known)).unwrap().to_string()
    }

    #[test]
    fn devices_that_reach_each_other_best_are_told_side_by_side() {
        let in_order = "g0,g1,g2,g3,g4,g5,g6,g7";
        assert_eq!(listed(|_, _| None), in_order, "nobody knows");
        assert_eq!(listed(|_, _| Some(Link::NvLink)), in_order, "all are alike");
        assert_eq!(
            listed(|one, other| Some(if one / 4 == other / 4 { Link::Phb } else { Link::Sys })),
            in_order
        );
        let alternate = |one, other| Some(if one % 2 == other % 2 { Link::Node } else { Link::Sys });
        assert_eq!(listed(alternate), "g0,g2,g4,g6,g1,g3,g5,g7");
        // Bridges of two, across the board, on two NUMA nodes.
        let bridges = |one: u32, other: u32| {
            let is_bridged = one.abs_diff(other) == 2 && one.min(other) % 4 < 2;
            Some(if is_bridged {
                Link::NvLink
            } else if one / 4 == other / 4 {
                Link::Node
            } else {
                Link::Sys
            })
        };
        assert_eq!(listed(bridges), "g0,g2,g1,g3,g4,g6,g5,g7");
        // Each is near the next, and none is near all.
        let ring = |one: u32, other: u32| (one.abs_diff(other) == 1).then_some(Link::Pix);
        assert_eq!(listed(ring), in_order);
    }

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
