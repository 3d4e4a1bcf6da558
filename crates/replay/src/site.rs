//! The nodes that jobs are replayed on: from what `scontrol show nodes` prints, or by their shape.

use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

const GIB: u64 = 1 << 30;

/// One node with GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeShape {
    /// Slurm's name for it; of shapes that were given by number one is made up.
    pub name: String,
    /// The partitions that it stands in; empty: in all of them.
    pub partitions: BTreeSet<String>,
    /// The type of its GPUs; empty where Slurm has none.
    pub gpu_type: String,
    /// How many it has.
    pub gpus: u32,
    /// Its CPUs; 0: as many as anybody asks for.
    pub cpus: u32,
    /// Its memory in MiB; 0: as much as anybody asks for.
    pub memory_mib: u64,
}

/// A description of nodes that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodesError {
    /// No node with a GPU.
    #[error("it describes no node with a GPU; give what 'scontrol show nodes' prints")]
    NoGpu,
    /// A shape that cannot be read.
    #[error("'{0}' is no shape of nodes; write COUNTxGPUS[:TYPE[:CPUS[:MEMORY_GIB]]], as 16x4:a100:64:512")]
    Shape(String),
    /// A GPU's memory that cannot be read.
    #[error("'{0}' is no memory of a GPU; write TYPE=GIB, as a100=80, or gpu=GIB where GPUs have no type")]
    Memory(String),
}

/// What was read of `scontrol show nodes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nodes {
    /// Those with GPUs.
    pub shapes: Vec<NodeShape>,
    /// Those without, which are left out.
    pub without_gpus: usize,
    /// Those whose GPUs are of several types, or that cannot be read: left out as well.
    pub unread: usize,
}

/// Reads `scontrol show nodes`, with `-o` or without.
///
/// # Errors
/// [`NodesError::NoGpu`].
pub fn read_nodes(text: &str) -> Result<Nodes, NodesError> {
    let mut nodes = Nodes { shapes: Vec::new(), without_gpus: 0, unread: 0 };
    let mut seen = BTreeSet::new();
    for block in blocks(text) {
        match shape(&block) {
            Some(shape) if shape.gpus == 0 => nodes.without_gpus += 1,
            Some(shape) if seen.insert(shape.name.clone()) => nodes.shapes.push(shape),
            _ => nodes.unread += 1,
        }
    }
    if nodes.shapes.is_empty() { Err(NodesError::NoGpu) } else { Ok(nodes) }
}

/// The words of each node, up to where free text begins.
fn blocks(text: &str) -> Vec<Vec<&str>> {
    let mut blocks: Vec<Vec<&str>> = Vec::new();
    for line in text.lines() {
        if line.starts_with("NodeName=") {
            blocks.push(Vec::new());
        }
        let Some(block) = blocks.last_mut() else { continue };
        for word in line.split_ascii_whitespace() {
            // Free text may hold anything, words that look like ours among them: the first of a name is believed.
            block.push(word);
        }
    }
    blocks
}

fn value<'t>(words: &[&'t str], key: &str) -> Option<&'t str> {
    words.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

fn shape(words: &[&str]) -> Option<NodeShape> {
    let name = value(words, "NodeName").filter(|name| !name.is_empty())?;
    let cpus = value(words, "CPUTot")?.parse().ok().filter(|count| *count < COUNT_MAX)?;
    let memory_mib = value(words, "RealMemory")?.parse().ok()?;
    let (gpu_type, gpus) = gpus(value(words, "Gres").unwrap_or_default())?;
    let partitions = value(words, "Partitions").unwrap_or_default();
    let partitions = partitions.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
    Some(NodeShape { name: name.to_owned(), partitions, gpu_type, gpus, cpus, memory_mib })
}

/// No node has more GPUs or CPUs.
const COUNT_MAX: u32 = 1 << 16;

/// `gpu:a100:4(S:0-1),lscratch:500G`: the type and the number. `None` where there are several types, or no number.
fn gpus(gres: &str) -> Option<(String, u32)> {
    let mut found = (String::new(), 0_u32);
    let mut depth = 0_i32;
    let entries = gres.split(|letter| {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        letter == ',' && depth <= 0
    });
    for entry in entries {
        let entry = entry.split('(').next().unwrap_or_default();
        let Some(rest) = entry.strip_prefix("gpu:") else { continue };
        let (gpu_type, count) = rest.rsplit_once(':').unwrap_or(("", rest));
        let count: u32 = count.parse().ok().filter(|count| *count < COUNT_MAX)?;
        if found.1 > 0 && count > 0 && found.0 != gpu_type {
            return None;
        }
        if count > 0 {
            found = (gpu_type.to_owned(), found.1.checked_add(count)?);
        }
    }
    Some(found)
}

/// Nodes by number and shape: `16x4:a100:64:512` are 16 nodes with four GPUs, 64 CPUs and 512 GiB each.
///
/// # Errors
/// [`NodesError::Shape`].
pub fn parse_shape(text: &str) -> Result<Vec<NodeShape>, NodesError> {
    let wrong = || NodesError::Shape(pillion_core::text::quoted(text).trim_matches('\'').to_owned());
    let mut parts = text.split(':');
    let (count, gpus) = parts.next().and_then(|part| part.split_once('x')).ok_or_else(wrong)?;
    let number = |text: &str, most: u32| {
        text.parse::<u32>().ok().filter(|number| (1..=most).contains(number)).ok_or_else(wrong)
    };
    let (count, gpus) = (number(count, COUNT_MAX)?, number(gpus, 64)?);
    let gpu_type = parts.next().unwrap_or_default().to_owned();
    let cpus = parts.next().map_or(Ok(0), |text| number(text, COUNT_MAX))?;
    let memory_gib = parts.next().map_or(Ok(0), |text| number(text, 1 << 20))?;
    if parts.next().is_some() {
        return Err(wrong());
    }
    let named = |at: u32| NodeShape {
        name: format!("{}{at}", if gpu_type.is_empty() { "node" } else { &gpu_type }),
        partitions: BTreeSet::new(),
        gpu_type: gpu_type.clone(),
        gpus,
        cpus,
        memory_mib: u64::from(memory_gib) * 1024,
    };
    Ok((1..=count).map(named).collect())
}

/// The device memory of each type of GPU.
#[derive(Debug, Clone, Default)]
pub struct GpuMemory {
    /// By the site's own word.
    given: FxHashMap<String, u64>,
    /// As jobs saw it.
    seen: FxHashMap<String, u64>,
}

/// Types that come with one size of memory only, in GiB. Of those with several nobody can know.
const KNOWN_GIB: [(&str, u64); 14] = [
    ("h100", 80),
    ("h200", 141),
    ("l4", 24),
    ("l40", 48),
    ("l40s", 48),
    ("a10", 24),
    ("a30", 24),
    ("a40", 48),
    ("p100", 16),
    ("k80", 12),
    ("t4", 16),
    ("rtx3090", 24),
    ("rtx4090", 24),
    ("b200", 180),
];

impl GpuMemory {
    /// With what a site says: `a100=80`.
    ///
    /// # Errors
    /// [`NodesError::Memory`].
    pub fn of(settings: &[String]) -> Result<Self, NodesError> {
        let mut memory = Self::default();
        for setting in settings {
            let wrong = || {
                NodesError::Memory(setting.chars().filter(|letter| !letter.is_control()).take(64).collect())
            };
            let (gpu_type, gib) = setting.split_once('=').ok_or_else(wrong)?;
            let gib: f64 = gib.parse().ok().filter(|gib| (1.0..=10_000.0).contains(gib)).ok_or_else(wrong)?;
            memory.given.insert(gpu_type.to_ascii_lowercase(), gib_to_bytes(gib));
        }
        Ok(memory)
    }
    /// Of a type, where anybody knows: by the site's own word, else as jobs saw it, else as that type is sold.
    pub fn bytes(&self, gpu_type: &str) -> Option<u64> {
        let name = gpu_type.to_ascii_lowercase();
        let sold = || KNOWN_GIB.iter().find(|(known, _)| *known == name).map(|(_, gib)| gib * GIB);
        self.given.get(&name).or_else(|| self.seen.get(&name)).copied().or_else(sold)
    }
    /// What a job saw; of several the least.
    pub(crate) fn learn(&mut self, gpu_type: &str, bytes: u64) {
        let least = self.seen.entry(gpu_type.to_ascii_lowercase()).or_insert(bytes);
        *least = bytes.min(*least);
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "1 to 10,000 GiB"
)]
fn gib_to_bytes(gib: f64) -> u64 {
    (gib * GIB as f64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: &str = "NodeName=n1 Arch=x86_64 CoresPerSocket=32 \n   CPUAlloc=3 CPUEfctv=64 CPUTot=64 CPULoad=1.0\n   \
        Gres=gpu:a100:4(S:0-1),lscratch:500G\n   NodeAddr=n1 RealMemory=512000 AllocMem=0\n   State=IDLE\n   Partitions=gpu,long \n   \
        BootTime=2026-11-01T00:00:00\n   Comment=NodeName=x Gres=gpu:99\n\nNodeName=c1 CPUTot=128 RealMemory=1000 Gres=(null) Partitions=cpu\n\
        NodeName=m1 CPUTot=8 RealMemory=1000 Gres=gpu:a100:1,gpu:v100:1 Partitions=gpu\nNodeName=broken CPUTot=x\n";

    #[test]
    fn nodes_are_read_as_scontrol_prints_them() {
        let nodes = read_nodes(SHOWN).unwrap();
        assert_eq!((nodes.shapes.len(), nodes.without_gpus, nodes.unread), (1, 1, 2));
        let n1 = &nodes.shapes[0];
        assert_eq!((n1.gpus, n1.cpus, n1.memory_mib, n1.gpu_type.as_str()), (4, 64, 512_000, "a100"));
        assert_eq!(n1.partitions.len(), 2);
        assert_eq!(read_nodes("hello"), Err(NodesError::NoGpu));
    }

    #[test]
    fn shapes_and_memory_are_read_or_refused() {
        let nodes = parse_shape("3x4:a100:64:512").unwrap();
        assert_eq!((nodes.len(), nodes[2].gpus, nodes[2].cpus, nodes[2].memory_mib), (3, 4, 64, 512 * 1024));
        assert_eq!(parse_shape("1x8").unwrap()[0].cpus, 0);
        for wrong in ["", "4", "0x4", "4x0", "4x4:a:0", "4x4:a:1:1:1", "4xé", "-1x4"] {
            assert!(parse_shape(wrong).is_err(), "{wrong}");
        }
        let memory = GpuMemory::of(&["A100=40".to_owned()]).unwrap();
        assert_eq!(
            (memory.bytes("a100"), memory.bytes("h100"), memory.bytes("v100")),
            (Some(40 * GIB), Some(80 * GIB), None)
        );
        let mut seen = memory;
        seen.learn("h100", 94 * GIB);
        seen.learn("H100", 96 * GIB);
        seen.learn("a100", 80 * GIB);
        assert_eq!(
            (seen.bytes("h100"), seen.bytes("a100")),
            (Some(94 * GIB), Some(40 * GIB)),
            "what was measured goes before what is sold, and the site's word before both"
        );
        for wrong in ["a100", "a100=", "a100=0", "a100=nan", "a100=1e9"] {
            assert!(GpuMemory::of(&[wrong.to_owned()]).is_err(), "{wrong}");
        }
    }
}
