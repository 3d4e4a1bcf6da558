//! gres.conf: each device of a pool node under a type of its own, with 100 shards.

use super::line::Line;
use super::nodes::{device_count, is_of_pool, names};
use super::{Pool, Proposal};

const GRES_CONF: &str = "gres.conf";

/// The lines of the pool's devices; other lines on `gpu` and `shard` of these nodes go.
pub(super) fn propose(proposal: &mut Proposal, pool: &Pool) {
    let count = device_count(proposal, pool);
    if count == 0 {
        return;
    }
    let lines = proposal.files.read(GRES_CONF);
    let detects = lines.iter().any(|(_, line)| {
        line.get("NodeName").is_none()
            && line.get("AutoDetect").is_some_and(|how| !how.eq_ignore_ascii_case("off"))
    });
    let wanted = wanted(pool, count, detects);
    let is_device = |line: &Line| {
        line.get("Name")
            .is_some_and(|name| ["gpu", "shard", "mps"].iter().any(|ours| ours.eq_ignore_ascii_case(name)))
    };
    let mut has = Vec::new();
    for (file, line) in lines.iter().rev().filter(|(_, line)| is_device(line)) {
        if is_of_pool(line, "NodeName", pool) {
            let text = proposal.files.text(file)[line.place.clone()].trim_end().to_owned();
            if wanted.contains(&text) && !has.contains(&text) {
                has.push(text);
            } else {
                proposal.files.replace(file, line.place.clone(), "");
            }
        } else if line.get("NodeName").is_none_or(|nodes| !names(nodes).is_disjoint(&pool.names)) {
            proposal.note(format!(
                "{file} has '{}', which holds for nodes of the pool and others: give the others a line of their own with NodeName=",
                proposal.files.text(file)[line.place.clone()].trim_end()
            ));
        }
    }
    for line in wanted.into_iter().filter(|line| !has.contains(line)) {
        proposal.files.append(GRES_CONF, &format!("{line}\n"));
    }
}

fn wanted(pool: &Pool, count: usize, detects: bool) -> Vec<String> {
    let device =
        |index: usize| pool.devices.get(index).cloned().unwrap_or_else(|| format!("/dev/nvidia{index}"));
    // Slurm would otherwise look for the devices itself, and not find our types.
    let off = if detects { " AutoDetect=off" } else { "" };
    let nodes = &pool.nodes;
    let gpu = |index| format!("NodeName={nodes}{off} Name=gpu Type=g{index} File={}", device(index));
    let shard = |index| format!("NodeName={nodes} Name=shard Type=g{index} Count=100 File={}", device(index));
    (0..count).map(gpu).chain((0..count).map(shard)).collect()
}
