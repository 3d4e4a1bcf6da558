//! gres.conf: each device of a pool node under a type of its own, with 100 shards.

use super::nodes::{device_count, is_of_gpus, is_of_pool, names};
use super::proposal::{Pool, Proposal};

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
    let mut has = Vec::new();
    for (file, line) in lines.iter().rev().filter(|(_, line)| line.get("Name").is_some_and(is_of_gpus)) {
        if is_of_pool(line, "NodeName", pool) {
            let text = proposal.files.text(file)[line.place.clone()].trim_end().to_owned();
            if wanted.contains(&text) && !has.contains(&text) {
                has.push(text);
            } else {
                proposal.files.replace(file, line.place.clone(), "");
            }
        } else if line.get("NodeName").is_none_or(|nodes| !names(nodes).is_disjoint(&pool.names)) {
            proposal.first(format!(
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
    // Slurm would otherwise look for the devices itself, and not find our types.
    let off = if detects { " AutoDetect=off" } else { "" };
    let nodes = &pool.nodes;
    let (mut gpus, mut shards) = (Vec::new(), Vec::new());
    for index in 0..count {
        let file = pool.devices.get(index).cloned().unwrap_or_else(|| format!("/dev/nvidia{index}"));
        gpus.push(format!("NodeName={nodes}{off} Name=gpu Type=g{index} File={file}"));
        shards.push(format!("NodeName={nodes} Name=shard Type=g{index} Count=100 File={file}"));
    }
    gpus.extend(shards);
    gpus
}
