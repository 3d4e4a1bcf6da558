//! The pool: nodes that serve shards only, each GPU under a type of its own with 100 shards, and in no other partition.

use crate::doctor::facts::Facts;
use crate::doctor::finding::{Check, Finding};
use crate::format::listed;
use pillion_slurm::{Exclusive, Node, Partition};
use std::collections::BTreeMap;

/// The pool must be named, and exist.
pub(super) fn partitions(facts: &Facts) -> Vec<Finding> {
    let check = Check("pool-partitions");
    let all = match &facts.partitions {
        Ok(all) => all,
        Err(why) => return vec![check.skip(why)],
    };
    let names = facts.pool_names();
    if names.is_empty() {
        return vec![check.fail(
            "no pool partition is named",
            "write pool.partitions = [\"shared\"] into /etc/pillion/pillion.toml",
        )];
    }
    let mut wrong = Vec::new();
    for name in names {
        match all.iter().find(|partition| partition.name == *name) {
            None => wrong.push(check.fail(
                format!("pool partition {name} does not exist in Slurm"),
                "correct pool.partitions in /etc/pillion/pillion.toml, or add the partition to slurm.conf",
            )),
            Some(partition) if partition.nodes.is_empty() => wrong.push(check.fail(
                format!("pool partition {name} has no nodes"),
                format!("give PartitionName={name} its Nodes= in slurm.conf"),
            )),
            Some(partition) if !partition.is_up => wrong.push(check.warn(
                format!("pool partition {name} is not up"),
                format!("scontrol update PartitionName={name} State=UP"),
            )),
            Some(_) => {}
        }
    }
    let nodes = facts.pool_nodes().len();
    check.ok_unless(wrong, format!("{} with {nodes} nodes", names.join(",")))
}

/// Runs a check on the pool's nodes, or says why it cannot.
fn on_nodes(
    facts: &Facts,
    check: Check,
    fine: &str,
    look: impl Fn(&Node) -> Option<Finding>,
) -> Vec<Finding> {
    if let Err(why) = &facts.nodes {
        return vec![check.skip(why)];
    }
    let nodes = facts.pool_nodes();
    if nodes.is_empty() {
        return vec![check.skip("the pool has no nodes")];
    }
    check.ok_unless(nodes.into_iter().filter_map(look).collect(), fine)
}

/// Runs a check on the pool's partitions, or says why it cannot.
fn on_partitions(
    facts: &Facts,
    check: Check,
    fine: &str,
    look: impl Fn(&Partition) -> Option<Finding>,
) -> Vec<Finding> {
    if let Err(why) = &facts.partitions {
        return vec![check.skip(why)];
    }
    let partitions = facts.pool_partitions();
    if partitions.is_empty() {
        return vec![check.skip("the pool has no partitions")];
    }
    check.ok_unless(partitions.into_iter().filter_map(look).collect(), fine)
}

/// A whole-GPU job on a pool node could be given a GPU that shards are booked on.
pub(super) fn overlap(facts: &Facts) -> Vec<Finding> {
    let check = Check("pool-overlap");
    if let Err(why) = &facts.nodes {
        return vec![check.skip(why)];
    }
    let pool = facts.pool_names();
    let mut strangers: BTreeMap<&str, Vec<&Node>> = BTreeMap::new();
    for node in facts.pool_nodes() {
        for name in node.partitions.iter().filter(|name| !pool.contains(name)) {
            strangers.entry(name).or_default().push(node);
        }
    }
    let wrong = strangers.iter().map(|(name, nodes)| {
        let nodes = listed(nodes.iter().map(|node| &node.name));
        check.fail(
            format!("pool nodes {nodes} also stand in partition {name}, where jobs may ask for whole GPUs"),
            format!("take {nodes} out of PartitionName={name} in slurm.conf, or add {name} to pool.partitions, then 'scontrol reconfigure'"),
        )
    });
    check.ok_unless(wrong.collect(), "pool nodes stand in pool partitions only")
}

/// Only a GPU with a type of its own can be asked for.
pub(super) fn gres_types(facts: &Facts) -> Vec<Finding> {
    let check = Check("gres-types");
    let mend = "give each GPU a type of its own in gres.conf and slurm.conf (gpu:g0:1,gpu:g1:1,shard:g0:100,shard:g1:100); \
                drain the node first, and restart slurmctld twice";
    on_nodes(facts, check, "each GPU has a type of its own and its shards", |node| {
        if node.shards.is_empty() {
            return Some(check.fail(format!("node {} has no shards", node.name), mend));
        }
        if let Some((_, (count, _))) = node.gpus.iter().find(|(gres_type, _)| gres_type.as_str().is_empty()) {
            return Some(check.fail(format!("node {} has {count} GPUs without a type", node.name), mend));
        }
        if let Some((gres_type, (count, _))) = node.gpus.iter().find(|(_, (count, _))| *count != 1) {
            return Some(
                check.fail(format!("node {} has {count} GPUs of one type {gres_type}", node.name), mend),
            );
        }
        let lonely_gpu = node.gpus.keys().find(|gres_type| !node.shards.contains_key(gres_type));
        let lonely_shard = node.shards.keys().find(|gres_type| !node.gpus.contains_key(gres_type));
        let found = match (lonely_gpu, lonely_shard) {
            (Some(gpu), _) => format!("node {}: gpu:{gpu} has no shard:{gpu} beside it", node.name),
            (None, Some(shard)) if shard.as_str().is_empty() => {
                format!("node {} has shards without a type", node.name)
            }
            (None, Some(shard)) => format!("node {}: shard:{shard} has no gpu:{shard} beside it", node.name),
            (None, None) => return None,
        };
        Some(check.fail(found, mend))
    })
}

/// Shards are hundredths.
pub(super) fn shard_counts(facts: &Facts) -> Vec<Finding> {
    let check = Check("shard-counts");
    on_nodes(facts, check, "100 shards a GPU", |node| {
        let (gres_type, (count, _)) = node.shards.iter().find(|(_, (count, _))| *count != 100)?;
        Some(check.fail(
            format!("node {}: shard:{gres_type} has {count} shards, 100 are needed", node.name),
            "set Count=100 in gres.conf and shard:TYPE:100 in slurm.conf; drain the node first, and restart slurmctld twice",
        ))
    })
}

/// `GRES/gpu=100,GRES/shard=1`: a share costs its hundredths. Slurm truncates fractions of a weighted sum.
pub(super) fn billing_weights(facts: &Facts) -> Vec<Finding> {
    let check = Check("billing-weights");
    // Slurm knows GRES as billable only where slurmdbd keeps them.
    if facts.slurm_conf.as_ref().is_ok_and(|conf| !conf.get("AccountingStorageType").contains("slurmdbd")) {
        return vec![check.skip("no slurmdbd: nothing is billed")];
    }
    on_partitions(facts, check, "a shard is billed as a hundredth of a GPU", |partition| {
        let name = &partition.name;
        let mend = format!(
            "set TRESBillingWeights=\"GRES/gpu=100,GRES/shard=1\" for PartitionName={name} in slurm.conf, then 'scontrol reconfigure'"
        );
        let (gpu, shard) = (billing_weight(partition, "GRES/gpu"), billing_weight(partition, "GRES/shard"));
        let Some(shard) = shard else {
            return Some(
                check.warn(
                    format!("partition {name} does not bill shards, so a share costs no GPU time"),
                    mend,
                ),
            );
        };
        let Some(shard_weight) = whole(shard) else {
            return Some(check.fail(
                format!("partition {name} bills GRES/shard={shard}: Slurm cuts off what is below 1, so a share costs nothing"),
                mend,
            ));
        };
        let is_hundredfold = gpu.and_then(whole).is_some_and(|gpu| (gpu - 100.0 * shard_weight).abs() < 0.5);
        if is_hundredfold {
            return None;
        }
        let gpu = gpu.unwrap_or("nothing");
        Some(check.warn(
            format!("partition {name} bills GRES/shard={shard} and GRES/gpu={gpu}: a whole GPU should cost 100 shards"),
            mend,
        ))
    })
}

fn billing_weight<'a>(partition: &'a Partition, wanted: &str) -> Option<&'a str> {
    partition.billing_weights.split(',').find_map(|entry| {
        let (tres, weight) = entry.split_once('=')?;
        tres.trim().eq_ignore_ascii_case(wanted).then(|| weight.trim())
    })
}

/// The weight, where Slurm bills by it: it cuts off what is behind the point.
fn whole(weight: &str) -> Option<f64> {
    weight.parse::<f64>().ok().filter(|weight| weight.fract() == 0.0 && *weight > 0.0)
}

/// Suspended tenants keep their device memory and come back at any time.
pub(super) fn preemption(facts: &Facts) -> Vec<Finding> {
    let check = Check("preemption");
    on_partitions(facts, check, "no tenant is ever suspended", |partition| {
        let mode = partition.preempt_mode.to_ascii_uppercase();
        if !mode.contains("SUSPEND") && !mode.contains("GANG") {
            return None;
        }
        Some(check.fail(
            format!(
                "partition {} has PreemptMode={mode}: a suspended tenant keeps its device memory",
                partition.name
            ),
            format!("set PreemptMode=OFF or REQUEUE for PartitionName={} in slurm.conf", partition.name),
        ))
    })
}

/// A node of one job or one user has no partners of others.
pub(super) fn exclusive(facts: &Facts) -> Vec<Finding> {
    let check = Check("exclusive");
    on_partitions(facts, check, "jobs of several users may share a node", |partition| {
        let name = &partition.name;
        let found = match &partition.exclusive {
            Exclusive::No => return None,
            Exclusive::Node => {
                "gives every job a whole node (OverSubscribe=EXCLUSIVE, Exclusive=NODE)".to_owned()
            }
            Exclusive::User => "gives whole nodes to one user (ExclusiveUser=YES, Exclusive=USER)".to_owned(),
            Exclusive::Topology => {
                "gives every job a whole part of the network (ExclusiveTopo=YES, Exclusive=TOPO)".to_owned()
            }
            Exclusive::Other(word) => {
                format!("has Exclusive={}, which this release does not know", word.escape_debug())
            }
        };
        Some(check.fail(
            format!("partition {name} {found}"),
            format!(
                "take that out of PartitionName={name} in slurm.conf: Exclusive=NO, and before Slurm 26.05 OverSubscribe=NO and ExclusiveUser=NO"
            ),
        ))
    })
}

/// `FORCE` puts several jobs on one CPU.
pub(super) fn over_subscribe(facts: &Facts) -> Vec<Finding> {
    let check = Check("over-subscribe");
    on_partitions(facts, check, "nodes are shared, CPUs are not", |partition| {
        let mode = partition.over_subscribe.to_ascii_uppercase();
        mode.starts_with("FORCE").then(|| {
            check.warn(
                format!("partition {} puts several jobs on one CPU (OverSubscribe={mode})", partition.name),
                format!("set OverSubscribe=NO for PartitionName={} in slurm.conf", partition.name),
            )
        })
    })
}
