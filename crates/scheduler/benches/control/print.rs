//! What `squeue` and `scontrol` would print of the double.

use crate::site::{CPUS_PER_JOB, CPUS_PER_NODE, digest, node_name, user_name};
use crate::world::{Place, State, World};
use pillion_core::{GresType, UnixTime};
use pillion_slurm::{Node, NodeAvailability};
use std::fmt::Write as _;
use std::ops::Bound;

/// Jobs that are printed at once, before an update has its turn.
const JOBS_AT_ONCE: usize = 250;

/// The jobs after that one, in the format of `pillion_slurm::parse::squeue`, and the last of them; `None` where there are no more.
pub(crate) fn queue(world: &World, after: Option<u32>, nonce: &str) -> Option<(u32, String)> {
    let mut text = String::with_capacity(JOBS_AT_ONCE * 400);
    let mut last = None;
    let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
    for (id, row) in world.rows.range((begin, Bound::Unbounded)).take(JOBS_AT_ONCE) {
        // A text takes whatever is written to it.
        let _ = record(&mut text, world, *id, row, nonce);
        last = Some(*id);
    }
    Some((last?, text))
}

fn record(
    text: &mut String,
    world: &World,
    id: u32,
    row: &crate::world::Row,
    nonce: &str,
) -> std::fmt::Result {
    let (user, _) = world.whose(id);
    let (state, reason, started, ended) = match row.state {
        State::Waiting if row.place.is_some() => ("PENDING", "Resources", None, None),
        State::Waiting => ("PENDING", "BeginTime", None, None),
        State::Running { since } => ("RUNNING", "None", Some(since), Some(since + 86_400)),
        State::Ended { since, at } => ("COMPLETED", "None", Some(since), Some(at)),
    };
    write!(
        text,
        "{id};{nonce};{id};{state};{reason};{};{};physics;shared;normal;1000;",
        2000 + user,
        user_name(user)
    )?;
    write!(text, "{};{};", row.submitted, row.begin)?;
    for time in [started, ended] {
        match time {
            Some(time) => write!(text, "{time};")?,
            None => text.push_str("N/A;"),
        }
    }
    text.push_str("1-00:00:00;gres/shard:");
    let is_placed = row.state != State::Waiting;
    match row.place {
        Some(Place { device, shards, .. }) if row.lease.is_some() => write!(text, "g{device}:{shards}")?,
        _ => text.push_str("100"),
    }
    text.push_str(";N/A;N/A;N/A;");
    match row.place {
        Some(place) if is_placed => write!(text, "{};", node_name(place.node))?,
        _ => text.push(';'),
    }
    match row.place {
        Some(place) if row.lease.is_some() => write!(text, "{};;", node_name(place.node))?,
        _ => text.push_str(";;"),
    }
    write!(
        text,
        "(null);{CPUS_PER_JOB};cpu={CPUS_PER_JOB},mem=4G,node=1,billing=2;(null);(null);0:0;0;{nonce};"
    )?;
    comment(text, world, id, row)?;
    writeln!(text, ";{nonce}.")
}

/// The mark, as the scheduler would write it.
fn comment(text: &mut String, world: &World, id: u32, row: &crate::world::Row) -> std::fmt::Result {
    let (user, number) = world.whose(id);
    write!(text, "pillion1;w={};part=gpu;field=node;gres=gpu:1;other=;begin=0", digest(user, number))?;
    if let Some(lease) = row.lease {
        write!(text, ";lease={lease};r=0")?;
    }
    if let Some(undone) = row.undone {
        write!(text, ";u={undone}")?;
    }
    if row.is_alone {
        text.push_str(";alone=1");
    }
    Ok(())
}

/// All nodes.
pub(crate) fn nodes(world: &World) -> Vec<Node> {
    let mut jobs = vec![0_u32; usize::from(world.nodes)];
    for row in world.rows.values() {
        if let (State::Running { .. }, Some(place)) = (row.state, row.place) {
            jobs[usize::from(place.node)] += 1;
        }
    }
    let node = |number: u16| {
        let count = jobs[usize::from(number)];
        let shards = |device| {
            (GresType::new(format!("g{device}")), (100, u32::from(world.shards_used(number, device))))
        };
        Node {
            name: node_name(number),
            address: String::new(),
            availability: NodeAvailability::Up,
            state: if count == 0 { "IDLE".to_owned() } else { "MIXED".to_owned() },
            cpus: CPUS_PER_NODE,
            cpus_allocated: count * CPUS_PER_JOB,
            memory_mib: 1 << 20,
            memory_mib_allocated: u64::from(count) * 4096,
            features: Vec::new(),
            partitions: vec!["shared".to_owned()],
            shards: (0..world.devices_per_node).map(shards).collect(),
            gpus: (0..world.devices_per_node)
                .map(|device| (GresType::new(format!("g{device}")), (1, 0)))
                .collect(),
            other_gres: None,
            scratch_mib: 0,
            slurmd_started_at: Some(UnixTime::from_epoch(1_700_000_000)),
            reserved_from: None,
        }
    };
    (0..world.nodes).map(node).collect()
}
