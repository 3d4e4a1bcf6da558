//! `NodeName` and `PartitionName` lines: what the pool's nodes serve, and in which partition they stand.

use super::files::SLURM_CONF;
use super::line::Line;
use super::proposal::{Pool, Proposal};
use super::settings::has_slurmdbd;
use pillion_slurm::expand;
use std::collections::BTreeSet;

const WEIGHTS: &str = "TRESBillingWeights=\"GRES/gpu=100,GRES/shard=1\"";

/// The nodes that a hostlist names; none where it is no hostlist (`ALL`, a node set).
pub(super) fn names(hostlist: &str) -> BTreeSet<String> {
    expand(hostlist).into_iter().flatten().map(|node| node.as_str().to_owned()).collect()
}

/// How many devices a `NodeName` line has: those of `gpu`, whatever their types.
fn devices_of(line: &Line) -> usize {
    let gres = line.get("Gres").unwrap_or_default().to_ascii_lowercase();
    gres.split(',').filter_map(gpus_of).sum()
}

/// How many GPUs an entry gives: `gpu:4`, `gpu:a100:4`, `gpu:a100:4(S:0-1)`; one where no count stands, `None` of another GRES.
fn gpus_of(entry: &str) -> Option<usize> {
    let rest = entry.trim().strip_prefix("gpu")?;
    if !rest.is_empty() && !rest.starts_with([':', '(']) {
        return None;
    }
    let rest = rest.split('(').next().unwrap_or_default();
    Some(rest.rsplit(':').next().and_then(|count| count.parse().ok()).unwrap_or(1))
}

/// Whether a GRES is one by which a node's GPUs are handed out.
pub(super) fn is_of_gpus(gres_name: &str) -> bool {
    ["gpu", "shard", "mps"].iter().any(|ours| ours.eq_ignore_ascii_case(gres_name))
}

/// The line, if there is one, that describes exactly pool nodes; how many devices they have.
pub(super) fn device_count(proposal: &Proposal, pool: &Pool) -> usize {
    if !pool.devices.is_empty() {
        return pool.devices.len();
    }
    let lines = proposal.files.read(SLURM_CONF);
    let of_pool = lines.iter().filter(|(_, line)| is_of_pool(line, "NodeName", pool));
    of_pool.map(|(_, line)| devices_of(line)).max().unwrap_or(0)
}

/// Whether a line names pool nodes, and none but those.
pub(super) fn is_of_pool(line: &Line, key: &str, pool: &Pool) -> bool {
    line.get(key).map(names).is_some_and(|names| !names.is_empty() && names.is_subset(&pool.names))
}

/// What the nodes serve, and the partition.
pub(super) fn propose(proposal: &mut Proposal, pool: &Pool) {
    let count = device_count(proposal, pool);
    node_lines(proposal, pool, count);
    partition(proposal, pool);
}

fn node_lines(proposal: &mut Proposal, pool: &Pool, count: usize) {
    let mut described = BTreeSet::new();
    // From the end, so that places before a change stay as they are; includes may repeat a file, and change nothing twice.
    for (file, line) in proposal.files.read(SLURM_CONF).into_iter().rev() {
        let here = line.get("NodeName").map(names).unwrap_or_default();
        let ours: Vec<&String> = here.intersection(&pool.names).collect();
        if ours.is_empty() {
            continue;
        }
        if !here.is_subset(&pool.names) {
            proposal.first(format!(
                "NodeName={} has nodes of the pool and others: split the line, then run this again",
                line.get("NodeName").unwrap_or_default()
            ));
        } else if count > 0 {
            gres(proposal, &file, &line, count);
        }
        described.extend(here);
    }
    let missing: Vec<&String> = pool.names.difference(&described).collect();
    if !missing.is_empty() {
        let missing: Vec<&str> = missing.into_iter().map(String::as_str).collect();
        proposal.first(format!(
            "no NodeName line describes {}: add one with CPUs, RealMemory and Gres",
            missing.join(",")
        ));
    } else if count == 0 {
        proposal.first(
            "the pool's nodes name no gpu in Gres: say how many there are with --devices, '/dev/nvidia[0-3]'",
        );
    }
}

/// The GRES of a node with so many devices: a type of its own and 100 shards each.
fn gres_of(count: usize) -> String {
    let gpus = (0..count).map(|index| format!("gpu:g{index}:1"));
    let shards = (0..count).map(|index| format!("shard:g{index}:100"));
    gpus.chain(shards).collect::<Vec<_>>().join(",")
}

/// Gives a `NodeName` line its shards; other GRES of the site stay.
fn gres(proposal: &mut Proposal, file: &str, line: &Line, count: usize) {
    let Some(pair) = line.pairs.iter().find(|pair| pair.is("Gres")) else {
        let end = line.pairs.last().map_or(line.place.start, |pair| pair.place.end);
        return proposal.files.replace(file, end..end, &format!(" Gres={}", gres_of(count)));
    };
    let mut wanted = gres_of(count);
    for word in pair.words() {
        if !is_of_gpus(word.split(':').next().unwrap_or_default()) {
            wanted = format!("{wanted},{word}");
        }
    }
    if pair.value != wanted {
        proposal.files.replace(file, pair.place.clone(), &format!("Gres={wanted}"));
    }
}

fn partition(proposal: &mut Proposal, pool: &Pool) {
    let lines = proposal.files.read(SLURM_CONF);
    let mut own = None;
    for (_, line) in &lines {
        let Some(name) = line.get("PartitionName") else { continue };
        if name == pool.partition {
            own.get_or_insert(line);
            continue;
        }
        let nodes = line.get("Nodes").unwrap_or_default();
        let shared = names(nodes).intersection(&pool.names).count();
        if shared > 0 || nodes.eq_ignore_ascii_case("ALL") {
            proposal.first(format!(
                "PartitionName={name} Nodes={nodes} has nodes of the pool: take {} out of it, for whole-GPU jobs there would \
                 get GPUs that others hold shards of",
                pool.nodes
            ));
        }
    }
    let Some(line) = own else {
        let weights = if has_slurmdbd(proposal) { format!(" {WEIGHTS}") } else { String::new() };
        let memory = memory_per_cpu(&lines, pool).map_or(String::new(), |mib| format!(" DefMemPerCPU={mib}"));
        if memory.is_empty() {
            proposal.note(format!("set DefMemPerCPU for PartitionName={}: without it a job that names no memory takes all of a node's", pool.partition));
        }
        proposal.note(format!(
            "give PartitionName={} the MaxTime and DefaultTime of the partitions from which jobs come",
            pool.partition
        ));
        let text = format!("PartitionName={} Nodes={}{memory}{weights}\n", pool.partition, pool.nodes);
        return proposal.files.append(SLURM_CONF, &text);
    };
    if names(line.get("Nodes").unwrap_or_default()) != pool.names {
        proposal.first(format!(
            "PartitionName={} has Nodes={}, and the pool is {}",
            pool.partition,
            line.get("Nodes").unwrap_or_default(),
            pool.nodes
        ));
    }
    if has_slurmdbd(proposal) && line.get("TRESBillingWeights").is_none() {
        proposal.note(format!("add {WEIGHTS} to PartitionName={}", pool.partition));
    }
    if line.get("DefMemPerCPU").is_none() && line.get("DefMemPerNode").is_none() {
        proposal.note(format!("set DefMemPerCPU for PartitionName={}: without it a job that names no memory takes all of a node's", pool.partition));
    }
}

/// A CPU's part of its node's memory in MiB, the least of the pool's nodes.
fn memory_per_cpu(lines: &[(String, Line)], pool: &Pool) -> Option<u64> {
    let of_pool = lines.iter().filter(|(_, line)| is_of_pool(line, "NodeName", pool));
    of_pool.filter_map(|(_, line)| number(line, "RealMemory")?.checked_div(number(line, "CPUs")?)).min()
}

fn number(line: &Line, key: &str) -> Option<u64> {
    line.get(key)?.parse().ok()
}
