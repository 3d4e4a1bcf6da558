//! On how many nodes of its partition a run of so many GPUs goes. Pure: by what sinfo says of the nodes, and by what the script says of them.

use super::ask::NodesAsked;
use pillion_slurm::parse::scontrol::gres_counts;
use std::collections::BTreeMap;

/// What `sinfo` is asked for: a line a node and partition. Its list of GRES is the last, for it may hold anything.
pub(super) const SINFO_FORMAT: &str = "%N|%P|%G";
/// What starts work on the other nodes of a job, as words of a script.
const LAUNCHERS: [&str; 9] =
    ["srun", "mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "prun", "ibrun", "jsrun"];

/// GPUs of each node that a script's runs may have, the most first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Nodes(Vec<u32>);

/// Why a count cannot be run, in one sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoPlace {
    #[error(
        "{gpus} GPUs do not fit on one node ({most} at most), and the script asks for one node; take its --nodes out, or leave {gpus} out"
    )]
    OneNode { gpus: u32, most: u32 },
    #[error(
        "{gpus} GPUs do not fit on one node ({most} at most), and nothing in the script starts work on others (srun, mpirun); \
         if something that it calls does, write --nodes=2 or more in it"
    )]
    NoLauncher { gpus: u32, most: u32 },
    #[error("{gpus} GPUs cannot be had with as many on each of several nodes: the partition has {has}")]
    Uneven { gpus: u32, has: String },
}

impl Nodes {
    /// Of what sinfo printed by [`SINFO_FORMAT`], those of the partitions that are named (with commas between them; none: Slurm's default),
    /// with GPUs of this type, if one is named. `None` where no node of them has any.
    pub(super) fn read(sinfo: &str, partition: Option<&str>, gpu_type: Option<&str>) -> Option<Self> {
        let is_own = |name: &str| match partition {
            Some(named) => named.split(',').any(|named| named == name.trim_end_matches('*')),
            None => name.ends_with('*'),
        };
        let mut of_nodes = BTreeMap::new();
        for line in sinfo.lines() {
            let [node, partition, gres] = line.trim().splitn(3, '|').collect::<Vec<_>>()[..] else {
                continue;
            };
            if is_own(partition) {
                of_nodes.insert(node, gpus(gres, gpu_type));
            }
        }
        let mut counts: Vec<u32> = of_nodes.into_values().filter(|count| *count > 0).collect();
        counts.sort_unstable_by(|one, other| other.cmp(one));
        (!counts.is_empty()).then_some(Self(counts))
    }

    /// How many nodes a run takes: one where it fits there, else as few as have as many on each.
    ///
    /// # Errors
    /// [`NoPlace`].
    pub(super) fn for_run(&self, gpus: u32, asked: NodesAsked, text: &str) -> Result<u32, NoPlace> {
        let most = self.0.first().copied().unwrap_or(0);
        if gpus <= most {
            return Ok(1);
        }
        match asked {
            NodesAsked::One => return Err(NoPlace::OneNode { gpus, most }),
            NodesAsked::Nothing if !has_launcher(text) => return Err(NoPlace::NoLauncher { gpus, most }),
            NodesAsked::Nothing | NodesAsked::Several => {}
        }
        let fits = |nodes: &u32| {
            let each = gpus / nodes;
            gpus.is_multiple_of(*nodes) && self.0.get(*nodes as usize - 1).is_some_and(|least| *least >= each)
        };
        let has = || {
            let counts = self.0.iter().fold(BTreeMap::<u32, u32>::new(), |mut counts, gpus| {
                *counts.entry(*gpus).or_default() += 1;
                counts
            });
            let each = counts.iter().rev().map(|(gpus, nodes)| {
                let node = crate::format::counted(*nodes as usize, "node");
                format!("{node} with {}", crate::format::counted(*gpus as usize, "GPU"))
            });
            each.collect::<Vec<_>>().join(", ")
        };
        (2..=u32::try_from(self.0.len()).unwrap_or(u32::MAX))
            .find(fits)
            .ok_or_else(|| NoPlace::Uneven { gpus, has: has() })
    }
}

/// Of `gpu:a100:4(S:0-1),gpu:h100:2,lscratch:100` those of a type, or all; none where a count cannot be read.
fn gpus(gres: &str, gpu_type: Option<&str>) -> u32 {
    let counts = gres_counts(gres, "gpu").unwrap_or_default();
    let own = counts.into_iter().filter(|(kind, _)| gpu_type.is_none_or(|wanted| kind.as_str() == wanted));
    own.map(|(_, count)| count).fold(0, u32::saturating_add)
}

/// Whether a command of the script is one that starts work on all nodes.
fn has_launcher(text: &str) -> bool {
    let commands = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let mut words = commands.flat_map(|line| {
        line.split(|character: char| character.is_whitespace() || "\"'`$(){};|&=".contains(character))
    });
    words.any(|word| LAUNCHERS.contains(&word.rsplit('/').next().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SINFO: &str = "w1|gpu*|gpu:a100:4(S:0-1),lscratch:100\nw2|gpu*|gpu:a100:4(S:0,1)\nw2|all|gpu:a100:4\n\
        w3|gpu*|gpu:a100:2,gpu:h100:2\nc1|cpu|(null)\nx1|big|gpu:8\nodd\n";
    const WITH_SRUN: &str = "#!/bin/sh\nexec /usr/bin/srun python train.py\n";

    fn nodes(partition: Option<&str>, gpu_type: Option<&str>) -> Nodes {
        Nodes::read(SINFO, partition, gpu_type).unwrap()
    }

    #[test]
    fn a_node_has_the_gpus_that_sinfo_says() {
        assert_eq!(nodes(None, None), Nodes(vec![4, 4, 4]));
        assert_eq!(nodes(None, Some("a100")), Nodes(vec![4, 4, 2]));
        assert_eq!(nodes(Some("all,big"), None), Nodes(vec![8, 4]));
        assert_eq!(Nodes::read(SINFO, Some("cpu"), None), None);
        assert_eq!(Nodes::read(SINFO, Some("none"), None), None);
        assert_eq!(Nodes::read("", None, None), None);
    }

    #[test]
    fn what_does_not_fit_one_node_takes_the_fewest_that_have_as_many_each() {
        let on = |gpus| nodes(None, Some("a100")).for_run(gpus, NodesAsked::Nothing, WITH_SRUN);
        assert_eq!([1, 4, 8, 6].map(on), [Ok(1), Ok(1), Ok(2), Ok(2)]);
        assert_eq!(nodes(None, None).for_run(9, NodesAsked::Nothing, WITH_SRUN), Ok(3));
        let told = on(16).unwrap_err().to_string();
        assert!(told.ends_with("the partition has 2 nodes with 4 GPUs, 1 node with 2 GPUs"), "{told}");
        assert!(on(7).is_err(), "not as many on each");
    }

    #[test]
    fn several_nodes_are_for_scripts_that_use_them() {
        let on = |asked, text: &str| nodes(None, None).for_run(8, asked, text);
        let plain = "#!/bin/sh\n# srun is not for us\n#SBATCH -J srun\npython train.py --srun-like x\n";
        assert!(matches!(on(NodesAsked::Nothing, plain), Err(NoPlace::NoLauncher { gpus: 8, most: 4 })));
        assert_eq!(on(NodesAsked::Several, plain), Ok(2), "who asks for several knows why");
        assert!(matches!(on(NodesAsked::One, WITH_SRUN), Err(NoPlace::OneNode { .. })));
        for launches in ["out=$(srun hostname)\n", "time mpirun -n 8 x\n", "/opt/ompi/bin/mpiexec x &\n"] {
            assert_eq!(on(NodesAsked::Nothing, launches), Ok(2), "{launches}");
        }
    }
}
