//! Limits: `MaxTRESPerUser=gres/gpu=2` does not count shards, so each such limit wants its twin of a hundred times as many.

use crate::doctor::facts::Facts;
use crate::doctor::facts::Limit;
use crate::doctor::finding::{Check, Finding};

/// Every limit on gres/gpu has its twin on gres/shard beside it.
pub(super) fn twins(facts: &Facts) -> Vec<Finding> {
    let check = Check("limits");
    let limits = match &facts.limits {
        Ok(limits) => limits,
        Err(why) => return vec![check.skip(why)],
    };
    let wrong = limits.iter().filter_map(|limit| judge(check, limit)).collect();
    check.ok_unless(wrong, format!("{} limits on TRES, none of them on GPUs alone", limits.len()))
}

fn judge(check: Check, limit: &Limit) -> Option<Finding> {
    let Limit { owner, field, value } = limit;
    let gpus = count_of(value, "gres/gpu")?;
    let wanted = gpus * 100;
    match count_of(value, "gres/shard") {
        Some(shards) if shards == wanted => None,
        Some(shards) => Some(check.warn(
            format!(
                "{owner}: {field} allows {gpus} GPUs and {shards} shards, which is another number of GPUs"
            ),
            format!("set {field}=gres/shard={wanted} for {owner} with sacctmgr"),
        )),
        None => Some(check.fail(
            format!(
                "{owner}: {field}=gres/gpu={gpus} does not count shards, so in the pool it limits nothing"
            ),
            format!("set {field}=gres/shard={wanted} beside it for {owner} with sacctmgr"),
        )),
    }
}

/// How many of a TRES a limit allows: 2 of `gres/gpu` in `cpu=10,gres/gpu=2`.
fn count_of(limit: &str, wanted: &str) -> Option<u64> {
    limit.split(',').find_map(|entry| {
        let (tres, count) = entry.split_once('=')?;
        (tres.trim() == wanted).then(|| count.trim().parse().ok())?
    })
}
