//! Nodes, partitions, configuration and version, from `scontrol show ... -o`.
//!
//! These are admins' words, but some are free text (`Comment=`, `Extra=`, `Reason=`, `OS=`): only what stands before
//! the free text is read, and a line in which a wanted key occurs twice, or a name that occurs twice, is not believed.

use super::{count, epoch, is_null, or_empty, state, time_limit_seconds};
use crate::nodeset::{self, number};
use crate::partition::{Exclusive, Partition};
use crate::reservation::Reservation;
use crate::types::Node;
use crate::version::SlurmVersion;
use pillion_core::{GresType, NodeName};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The `key=value` words of one line, each key once.
struct Words<'l>(BTreeMap<&'l str, &'l str>);

impl<'l> Words<'l> {
    /// `None` where one of `keys` occurs twice.
    fn of(line: &'l str, keys: &[&str]) -> Option<Self> {
        let mut values = BTreeMap::new();
        for word in line.split(' ') {
            if let Some((key, value)) = word.split_once('=')
                && values.insert(key, value).is_some()
                && keys.contains(&key)
            {
                return None;
            }
        }
        Some(Self(values))
    }

    /// A value as it stands there; empty where the key is not there.
    fn text(&self, key: &str) -> &'l str {
        self.0.get(key).copied().unwrap_or_default()
    }

    fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    fn size(&self, key: &str) -> Option<u64> {
        some_number(self.text(key))
    }

    fn small(&self, key: &str) -> Option<u32> {
        small(self.text(key))
    }

    /// Names with commas between them.
    fn list(&self, key: &str) -> Vec<String> {
        let value = self.text(key);
        if is_null(value) { Vec::new() } else { value.split(',').map(str::to_owned).collect() }
    }
}

/// Keeps what has a name of its own.
fn unique<T>(items: Vec<T>, name: impl Fn(&T) -> &str) -> Vec<T> {
    let mut seen = BTreeSet::new();
    let twice: BTreeSet<String> =
        items.iter().map(|item| name(item).to_owned()).filter(|name| !seen.insert(name.clone())).collect();
    items.into_iter().filter(|item| !twice.contains(name(item))).collect()
}

const NODE_KEYS: [&str; 15] = [
    "NodeName",
    "NodeAddr",
    "CPUAlloc",
    "CPUEfctv",
    "CPUTot",
    "ActiveFeatures",
    "Gres",
    "GresUsed",
    "State",
    "RealMemory",
    "MemSpecLimit",
    "AllocMem",
    "Partitions",
    "SlurmdStartTime",
    "TmpDisk",
];

/// Reads `scontrol show node -d -o`, and how many lines were dropped.
pub fn nodes(text: &str) -> (Vec<Node>, u64) {
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("NodeName=")).collect();
    let parsed =
        unique(lines.iter().filter_map(|line| node(line)).collect(), |node: &Node| node.name.as_str());
    let dropped = (lines.len() - parsed.len()) as u64;
    (parsed, dropped)
}

fn node(line: &str) -> Option<Node> {
    // `CfgTRES` is the first word after the last that is read here; free text comes later still.
    let (head, _) = line.split_once(" CfgTRES=")?;
    let words = Words::of(head, &NODE_KEYS)?;
    let (total, used) = (words.text("Gres"), words.text("GresUsed"));
    let address = words.text("NodeAddr");
    let kept_mib = if words.has("MemSpecLimit") { words.size("MemSpecLimit")? } else { 0 };
    Some(Node {
        name: node_name(words.text("NodeName"))?,
        address: if is_null(address) { String::new() } else { address.to_owned() },
        availability: state::node_availability(words.text("State")),
        state: words.text("State").to_owned(),
        // Without those that the site keeps for the system (CoreSpecCount, MemSpecLimit): no job is given them.
        cpus: words.small(if words.has("CPUEfctv") { "CPUEfctv" } else { "CPUTot" })?,
        cpus_allocated: words.small("CPUAlloc")?,
        memory_mib: words.size("RealMemory")?.saturating_sub(kept_mib),
        memory_mib_allocated: words.size("AllocMem")?,
        features: words.list("ActiveFeatures"),
        partitions: words.list("Partitions"),
        shards: joined(gres_counts(total, "shard")?, &gres_counts(used, "shard")?),
        gpus: joined(gres_counts(total, "gpu")?, &gres_counts(used, "gpu")?),
        other_gres: other_gres(total),
        scratch_mib: words.size("TmpDisk").unwrap_or(0),
        slurmd_started_at: epoch(words.text("SlurmdStartTime"))?,
        reserved_from: None,
    })
}

fn node_name(text: &str) -> Option<NodeName> {
    <[NodeName; 1]>::try_from(nodeset::expand(text).ok()?).ok().map(|[name]| name)
}

fn joined(total: BTreeMap<GresType, u32>, used: &BTreeMap<GresType, u32>) -> BTreeMap<GresType, (u32, u32)> {
    total
        .into_iter()
        .map(|(gres_type, total)| {
            let used = used.get(&gres_type).copied().unwrap_or(0);
            (gres_type, (total, used))
        })
        .collect()
}

/// `gpu:g0:1(S:0),shard:g1:80(80/100),lscratch:500G`: the counts of `name` by type; no type is the empty one, and no count is one.
/// `None`: a count of it is not ours to read.
pub fn gres_counts(text: &str, name: &str) -> Option<BTreeMap<GresType, u32>> {
    let mut counts = BTreeMap::new();
    if is_null(text) {
        return Some(counts);
    }
    for entry in split_outside_parentheses(text) {
        let entry = entry.split('(').next().unwrap_or_default();
        let entry = if entry == name { &format!("{name}:1") } else { entry };
        let Some(rest) = entry.strip_prefix(name).and_then(|rest| rest.strip_prefix(':')) else { continue };
        let (gres_type, amount) = rest.rsplit_once(':').unwrap_or(("", rest));
        // `gpu:2:no_consume` and the like are not ours to read.
        let amount = u32::try_from(count(amount)?).ok()?;
        let sum = counts.entry(GresType::new(gres_type)).or_insert(0_u32);
        *sum = sum.checked_add(amount)?;
    }
    Some(counts)
}

/// What there is of all that is neither `gpu` nor `shard`: of each name in all, and of each of its types.
fn other_gres(text: &str) -> Option<BTreeMap<String, u64>> {
    let mut counts = BTreeMap::new();
    for entry in split_outside_parentheses(or_empty(text)) {
        let entry = entry.split('(').next().unwrap_or_default();
        let (name, rest) = entry.split_once(':').unwrap_or((entry, "1"));
        if matches!(name, "" | "gpu" | "shard") {
            continue;
        }
        let (gres_type, amount) = rest.rsplit_once(':').unwrap_or(("", rest));
        let is_counted = !gres_type.split(':').any(|word| word == "no_consume");
        let amount = count(amount).filter(|_| is_counted)?;
        let typed = Some(format!("{name}:{gres_type}")).filter(|_| !gres_type.is_empty());
        for key in [Some(name.to_owned()), typed].into_iter().flatten() {
            let sum = counts.entry(key).or_insert(0_u64);
            *sum = sum.checked_add(amount)?;
        }
    }
    Some(counts)
}

fn split_outside_parentheses(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    text.split(move |character| {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        character == ',' && depth <= 0
    })
}

const PARTITION_KEYS: [&str; 11] = [
    "PartitionName",
    "Default",
    "State",
    "Nodes",
    "MaxTime",
    "PreemptMode",
    "Exclusive",
    "ExclusiveUser",
    "ExclusiveTopo",
    "OverSubscribe",
    "DefMemPerNode",
];

/// Reads `scontrol show partition -o`, and how many lines were dropped.
pub fn partitions(text: &str) -> (Vec<Partition>, u64) {
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("PartitionName=")).collect();
    let parsed =
        unique(lines.iter().filter_map(|line| partition(line)).collect(), |p: &Partition| p.name.as_str());
    let dropped = (lines.len() - parsed.len()) as u64;
    (parsed, dropped)
}

fn partition(line: &str) -> Option<Partition> {
    let words = Words::of(line, &PARTITION_KEYS)?;
    Some(Partition {
        name: Some(words.text("PartitionName")).filter(|name| !name.is_empty())?.to_owned(),
        is_default: words.text("Default") == "YES",
        is_up: words.text("State") == "UP",
        nodes: nodeset::expand(words.text("Nodes")).ok()?,
        time_limit_seconds_max: time_limit_seconds(words.text("MaxTime"))?,
        billing_weights: or_empty(words.text("TRESBillingWeights")).to_owned(),
        preempt_mode: words.text("PreemptMode").to_owned(),
        exclusive: exclusive(&words),
        over_subscribe: words.text("OverSubscribe").to_owned(),
        default_memory_mib: words.size("DefMemPerNode"),
        job_defaults: or_empty(words.text("JobDefaults")).to_owned(),
    })
}

const RESERVATION_KEYS: [&str; 6] =
    ["ReservationName", "StartTime", "EndTime", "Nodes", "Flags", "MaxStartDelay"];

/// Reads `scontrol show reservation -o`, and how many lines were dropped. Left out: those of no node, and those beside which, or in
/// which, Slurm may start somebody who did not ask for them (a part of a node's cores, `MAGNETIC`, `MaxStartDelay`).
pub fn reservations(text: &str) -> (Vec<Reservation>, u64) {
    let lines = text.lines().filter(|line| line.starts_with("ReservationName="));
    let (mut reservations, mut dropped) = (Vec::new(), 0);
    for line in lines {
        match reservation(line) {
            Some(Some(reservation)) => reservations.push(reservation),
            Some(None) => {}
            None => dropped += 1,
        }
    }
    (reservations, dropped)
}

/// The outer `None`: it cannot be read; the inner: it is none that keeps everybody else from whole nodes.
#[expect(clippy::option_option, reason = "unreadable and of no concern are two things, and both occur")]
fn reservation(line: &str) -> Option<Option<Reservation>> {
    // Free text comes last (`Comment=`, since 24.05).
    let head = line.split(" Comment=").next()?;
    // Each node of which it has a part is named with its cores.
    if head.contains(" CoreIDs=") {
        return Some(None);
    }
    let words = Words::of(head, &RESERVATION_KEYS)?;
    let is_for_others_too =
        words.list("Flags").iter().any(|flag| flag == "MAGNETIC") || !is_null(words.text("MaxStartDelay"));
    if is_for_others_too || is_null(words.text("Nodes")) {
        return Some(None);
    }
    Some(Some(Reservation {
        nodes: nodeset::expand(words.text("Nodes")).ok()?,
        starts_at: epoch(words.text("StartTime"))??,
        ends_at: epoch(words.text("EndTime"))??,
    }))
}

/// One word since 26.05; before, of several settings the one that leaves a node to the fewest.
fn exclusive(words: &Words<'_>) -> Exclusive {
    match words.text("Exclusive") {
        "" if words.text("ExclusiveTopo") == "YES" => Exclusive::Topology,
        "" if words.text("OverSubscribe") == "EXCLUSIVE" => Exclusive::Node,
        "" if words.text("ExclusiveUser") == "YES" => Exclusive::User,
        "" | "NO" => Exclusive::No,
        "NODE" => Exclusive::Node,
        "USER" => Exclusive::User,
        "TOPO" => Exclusive::Topology,
        other => Exclusive::Other(other.to_owned()),
    }
}

/// Reads `scontrol show config`: every `Name = value`, the first of each name.
pub fn config(text: &str) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    for (key, value) in text.lines().filter_map(|line| line.split_once('=')) {
        let key = key.trim();
        if !key.is_empty() && !key.contains(' ') {
            values.entry(key.to_owned()).or_insert_with(|| value.trim().to_owned());
        }
    }
    values
}

/// Reads a time of the configuration: `30 sec`.
pub fn seconds(text: &str) -> Option<Duration> {
    let seconds = some_number(text.trim().strip_suffix("sec")?.trim_end())?;
    Some(Duration::from_secs(seconds))
}

/// Reads a release: `24.11.5`, `25.05.0-0rc1`.
pub fn version(text: &str) -> Option<SlurmVersion> {
    let mut parts = text.trim().splitn(3, '.');
    let [major, minor] = [parts.next()?, parts.next()?].map(small);
    let patch = parts.next()?;
    let digits = patch.split(|character: char| !character.is_ascii_digit()).next()?;
    Some(SlurmVersion { major: major?, minor: minor?, patch: small(digits)? })
}

/// The questions after the throttles of these arrays, one a line: after each array a word that `scontrol` repeats. `nonce` is
/// fresh, so that no text which a user wrote can end an answer.
pub(crate) fn throttle_questions(arrays: &[u32], nonce: &str) -> Vec<String> {
    let questions =
        arrays.iter().flat_map(|array| [format!("show job {array}"), format!("show hostnames {nonce}")]);
    questions.collect()
}

/// The throttles of these arrays from the answers to `throttle_questions`; an array whose answer is not there whole, or that is
/// not known any more, is left out.
pub fn array_throttles(text: &str, arrays: &[u32], nonce: &str) -> BTreeMap<u32, Option<u32>> {
    let mut throttles = BTreeMap::new();
    let (mut waiting, mut answer) = (arrays.iter(), String::new());
    // It prints its prompt, and most builds the question too.
    for line in text.lines().map(|line| line.trim_start_matches("scontrol: ")) {
        if line != nonce {
            answer.push_str(line);
            answer.push('\n');
            continue;
        }
        let Some(array) = waiting.next() else { break };
        if answer.contains("JobId=") {
            throttles.insert(*array, array_throttle(&answer, *array));
        }
        answer.clear();
    }
    throttles
}

/// The throttle of `array` from `scontrol -o`, asked to `show job ARRAY`: one line tells it, that of the tasks which have no record of their own yet
/// or, where each has, of the last one. It stands before `JobName=`, the first text that a user wrote; a line that a name forges is that
/// of a job of the same array's owner and can only slow his own.
fn array_throttle(text: &str, array: u32) -> Option<u32> {
    let wanted = format!("ArrayJobId={array}");
    let heads = text.lines().filter_map(|line| line.split_once(" JobName=")).map(|(head, _)| head);
    let mut of_array =
        heads.filter(|head| head.starts_with("JobId=") && head.split(' ').any(|word| word == wanted));
    of_array.find_map(|head| {
        let throttle = head.split(' ').find_map(|word| word.strip_prefix("ArrayTaskThrottle="))?;
        small(throttle).filter(|most| *most > 0)
    })
}

fn some_number(text: &str) -> Option<u64> {
    number(text).filter(|_| !text.is_empty())
}

fn small(text: &str) -> Option<u32> {
    some_number(text).and_then(|value| u32::try_from(value).ok())
}

#[cfg(test)]
mod tests;
