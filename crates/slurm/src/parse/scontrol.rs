//! Nodes, partitions, configuration and version, from `scontrol show ... -o`.
//!
//! These are admins' words, but some are free text (`Comment=`, `Extra=`, `Reason=`, `OS=`): only what stands before
//! the free text is read, and a line in which a wanted key occurs twice, or a name that occurs twice, is not believed.

use super::{count, epoch, is_null, or_empty, state, time_limit_seconds};
use crate::nodeset::{self, number};
use crate::types::{Exclusive, Node, Partition};
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

const NODE_KEYS: [&str; 14] = [
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
    let kept_mib = if words.text("MemSpecLimit").is_empty() { 0 } else { words.size("MemSpecLimit")? };
    Some(Node {
        name: node_name(words.text("NodeName"))?,
        address: if is_null(address) { String::new() } else { address.to_owned() },
        availability: state::node_availability(words.text("State")),
        state: words.text("State").to_owned(),
        // Without those that the site keeps for the system (CoreSpecCount, MemSpecLimit): no job is given them.
        cpus: words.small(if words.text("CPUEfctv").is_empty() { "CPUTot" } else { "CPUEfctv" })?,
        cpus_allocated: words.small("CPUAlloc")?,
        memory_mib: words.size("RealMemory")?.saturating_sub(kept_mib),
        memory_mib_allocated: words.size("AllocMem")?,
        features: words.list("ActiveFeatures"),
        partitions: words.list("Partitions"),
        shards: joined(gres_counts(total, "shard")?, &gres_counts(used, "shard")?),
        gpus: joined(gres_counts(total, "gpu")?, &gres_counts(used, "gpu")?),
        slurmd_started_at: epoch(words.text("SlurmdStartTime"))?,
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
    })
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
mod tests {
    use super::*;
    use crate::types::NodeAvailability;

    const NODES: &str = include_str!("../../../../tests/fixtures/slurm-24.11/scontrol-node.txt");
    const UNAVAILABLE: &str =
        include_str!("../../../../tests/fixtures/slurm-24.11/scontrol-node-unavailable.txt");
    const PARTITIONS: &str = include_str!("../../../../tests/fixtures/slurm-24.11/scontrol-partition.txt");
    const PARTITIONS_26_05: &str =
        include_str!("../../../../tests/fixtures/slurm-26.05/scontrol-partition.txt");
    const CONFIG: &str = include_str!("../../../../tests/fixtures/slurm-24.11/scontrol-config.txt");

    fn node_of(text: &str, name: &str) -> Node {
        let (nodes, dropped) = nodes(text);
        assert_eq!(dropped, 0);
        nodes
            .into_iter()
            .find(|node| node.name.as_str() == name)
            .unwrap_or_else(|| panic!("{name} is missing"))
    }

    #[test]
    fn what_a_site_keeps_for_the_system_is_no_jobs() {
        let whole = node_of(NODES, "n1");
        let (cpus, memory_mib) = (whole.cpus, whole.memory_mib);
        let kept = NODES.replace(&format!("CPUEfctv={cpus} "), &format!("CPUEfctv={} ", cpus - 1)).replace(
            &format!("RealMemory={memory_mib} "),
            &format!("RealMemory={memory_mib} MemSpecLimit=100 "),
        );
        let node = node_of(&kept, "n1");
        assert_eq!((node.cpus, node.memory_mib), (cpus - 1, memory_mib - 100));
    }

    #[test]
    fn a_pool_node() {
        let node = node_of(NODES, "n1");
        let shards: Vec<_> = node.shards.iter().map(|(t, n)| (t.as_str(), *n)).collect();
        assert_eq!(shards, [("g0", (100, 100)), ("g1", (100, 100))]);
        let gpus: Vec<_> = node.gpus.iter().map(|(t, n)| (t.as_str(), *n)).collect();
        assert_eq!(gpus, [("g0", (1, 0)), ("g1", (1, 0))]);
        assert_eq!(
            (node.cpus, node.cpus_allocated, node.memory_mib, node.memory_mib_allocated),
            (8, 4, 8000, 1200)
        );
        assert_eq!(
            (node.features, node.partitions),
            (vec!["fast".into(), "h100".into()], vec!["shared".into(), "urgent".into()])
        );
        assert!(node.slurmd_started_at.is_some());
        assert_eq!(node.address, "127.0.0.1");
        assert_eq!(node.availability, NodeAvailability::Up);
    }

    #[test]
    fn free_text_of_an_admin_changes_nothing() {
        // n2 has Comment="c State=DOWN", Extra="x=y Partitions=none"; w1 has a Reason with a forged second line.
        let node = node_of(NODES, "n2");
        assert_eq!((node.state.as_str(), node.partitions.len()), ("MIXED", 2));
        assert_eq!(node_of(NODES, "w1").state, "MIXED+DRAIN");
        assert_eq!(node_of(NODES, "w1").gpus[&GresType::new("")], (2, 1));
        assert_eq!(nodes(NODES).0.len(), 4);
    }

    #[test]
    fn nodes_that_take_no_job() {
        let (nodes, _) = nodes(UNAVAILABLE);
        let states: Vec<_> = nodes.iter().map(|node| (node.name.as_str(), node.state.as_str())).collect();
        let expected = [
            ("d1", "MIXED"),
            ("f1", "IDLE+NOT_RESPONDING"),
            ("n1", "MIXED+MAINTENANCE+RESERVED"),
            ("n2", "MIXED+DRAIN"),
            ("w1", "IDLE+DRAIN"),
        ];
        assert_eq!(states, expected);
        let up: Vec<_> = nodes.iter().filter(|node| node.availability == NodeAvailability::Up).collect();
        assert_eq!(up.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["d1"]);
    }

    #[test]
    fn a_node_line_that_is_broken_or_twice_there_is_dropped() {
        let line = NODES.lines().next().unwrap();
        for broken in [
            line.replace("CPUTot=8", "CPUTot=x"),
            line.replace("State=", "State=DOWN State="),
            line.replace("CfgTRES", "Cfg"),
            format!("{line}\n{line}").replace("CPUTot=8", "CPUTot=9"),
        ] {
            assert_eq!(nodes(&broken).0, [], "{broken}");
            assert!(nodes(&broken).1 > 0);
        }
    }

    #[test]
    fn gres_counts_of_every_form() {
        for (text, name, gres_type, count) in [
            ("gpu:g0:1(S:0,1),shard:g0:100", "gpu", "g0", 1),
            ("shard:g1:1(0/2,1/2,0/2)", "shard", "g1", 1),
            ("gpu:2(IDX:0,2-3),lscratch:500G", "gpu", "", 2),
            ("gpu:a:1,gpu:a:2", "gpu", "a", 3),
            ("lscratch:500G,gpu", "gpu", "", 1),
        ] {
            assert_eq!(gres_counts(text, name), Some([(GresType::new(gres_type), count)].into()), "{text}");
        }
        assert_eq!(gres_counts("(null)", "gpu"), Some(BTreeMap::new()));
        assert_eq!(gres_counts("gpu:a:many", "gpu"), None);
    }

    #[test]
    fn exclusive_partitions_are_seen_in_the_words_of_every_release() {
        let (found, dropped) = partitions(PARTITIONS_26_05);
        assert_eq!(dropped, 0);
        let found: Vec<_> = found.into_iter().map(|p| (p.name, p.exclusive)).collect();
        let named = |name: &str, exclusive| (name.to_owned(), exclusive);
        assert_eq!(
            found,
            [
                named("shared", Exclusive::No),
                named("whole", Exclusive::Node),
                named("one_user", Exclusive::User),
                named("one_switch", Exclusive::Topology),
            ]
        );
        let of = |text: &str| {
            partitions(&PARTITIONS.lines().next().unwrap().replace("ExclusiveUser=NO ExclusiveTopo=NO", text))
                .0
        };
        for (text, exclusive) in [
            ("ExclusiveUser=NO", Exclusive::No),
            ("ExclusiveUser=YES", Exclusive::User),
            ("ExclusiveUser=YES ExclusiveTopo=YES", Exclusive::Topology),
            ("Exclusive=RACK", Exclusive::Other("RACK".to_owned())),
        ] {
            assert_eq!(of(text)[0].exclusive, exclusive, "{text}");
        }
        let whole = PARTITIONS.lines().next().unwrap().replace("OverSubscribe=NO", "OverSubscribe=EXCLUSIVE");
        assert_eq!(partitions(&whole).0[0].exclusive, Exclusive::Node);
    }

    #[test]
    fn partitions_of_a_real_cluster() {
        let (found, dropped) = partitions(PARTITIONS);
        assert_eq!(dropped, 0);
        let names: Vec<_> = found.iter().map(|partition| partition.name.as_str()).collect();
        assert_eq!(names, ["shared", "urgent", "ordinary", "closed", "empty"]);
        let shared = &found[0];
        assert_eq!(
            (shared.time_limit_seconds_max, shared.is_up, shared.is_default),
            (Some(172_800), true, false)
        );
        assert_eq!(
            (shared.preempt_mode.as_str(), shared.billing_weights.as_str()),
            ("REQUEUE", "CPU=1.0,Mem=0.25G")
        );
        assert_eq!(shared.nodes, [NodeName::new("n1"), NodeName::new("n2")]);
        assert_eq!(
            (found[1].time_limit_seconds_max, found[2].exclusive.clone(), found[2].is_default),
            (None, Exclusive::User, true)
        );
        assert_eq!((found[3].is_up, found[3].over_subscribe.as_str()), (false, "FORCE:2"));
        assert_eq!(found[4].nodes, []);
    }

    #[test]
    fn config_and_version() {
        let config = config(CONFIG);
        assert_eq!(config.get("KillWait").and_then(|text| seconds(text)), Some(Duration::from_secs(30)));
        for wrong in ["", "sec", "-1 sec", "30", "1.5 sec"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
        assert_eq!(version(&config["SLURM_VERSION"]), Some(SlurmVersion { major: 24, minor: 11, patch: 5 }));
        assert_eq!(config["MinJobAge"], "300 sec");
        assert_eq!(version("25.05.0-0rc1").map(|v| v.to_string()).as_deref(), Some("25.05.0"));
        for text in ["", "24.11", "24.x.5", "a.b.c", "24.11.rc1"] {
            assert_eq!(version(text), None, "{text}");
        }
    }

    #[test]
    fn the_throttle_of_an_array() {
        let text = "JobId=91 ArrayJobId=89 ArrayTaskId=3 ArrayTaskThrottle=1 JobName=x ArrayTaskThrottle=9 UserId=..\n";
        assert_eq!(array_throttle(text, 89), Some(1));
        assert_eq!(array_throttle(text, 8), None);
        assert_eq!(array_throttle("JobId=91 ArrayJobId=89 ArrayTaskId=3 JobName=x\n", 89), None);
        // Tasks that have records of their own do not tell it, and stand before the one that does.
        let split = "JobId=91 ArrayJobId=89 ArrayTaskId=1 JobName=x\nJobId=89 ArrayJobId=89 ArrayTaskId=3 ArrayTaskThrottle=2 JobName=x\n";
        assert_eq!(array_throttle(split, 89), Some(2));
    }

    #[test]
    fn throttles_of_many_arrays_at_once() {
        let asked = throttle_questions(&[89, 90], "fenced");
        assert_eq!(asked, ["show job 89", "show hostnames fenced", "show job 90", "show hostnames fenced"]);
        // What scontrol 24.11 prints where it is asked on its standard input, and what it prints without readline. The name
        // of the first array forges a line of the second one, of somebody else, and the end of an answer.
        let forged = "JobId=91 ArrayJobId=89 ArrayTaskThrottle=1 JobName=x\nnonce\nJobId=9 ArrayJobId=90 ArrayTaskThrottle=7 JobName=";
        let with_echo = format!(
            "scontrol: show job 89\n{forged}\nscontrol: show hostnames fenced\nfenced\nscontrol: show job 90\n\
             JobId=95 ArrayJobId=90 ArrayTaskId=3 JobName=y\nscontrol: show hostnames fenced\nfenced\nscontrol: quit\n"
        );
        let without = format!(
            "scontrol: {forged}\nscontrol: fenced\nscontrol: JobId=95 ArrayJobId=90 JobName=y\nscontrol: fenced\n"
        );
        for text in [with_echo, without] {
            assert_eq!(array_throttles(&text, &[89, 90], "fenced"), [(89, Some(1)), (90, None)].into());
        }
        let gone =
            "slurm_load_jobs error: Invalid job id specified\nfenced\nJobId=95 ArrayJobId=90 JobName=y\n";
        assert_eq!(array_throttles(gone, &[89, 90], "fenced"), [].into(), "gone, and an answer that is cut");
    }

    proptest::proptest! {
        #[test]
        fn never_panics(text in "(NodeName|PartitionName)?[=a-z0-9:,() \\n\\PC]{0,120}") {
            let _ = (nodes(&text), partitions(&text), config(&text), version(&text), seconds(&text));
            let _ = array_throttles(&text, &[1], "n");
            let line = NODES.lines().next().unwrap_or_default();
            let _ = nodes(&line.replace("Gres=(null)", &format!("Gres={text}")));
        }
    }
}
