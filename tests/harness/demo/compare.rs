//! The decision against what a job found: the environment inside it, and what Slurm booked. Pure.

use super::answers::Decided;
use std::collections::BTreeMap;

const MIB: u64 = 1 << 20;

/// Everything that is different, one sentence each; empty where the job found what was decided.
///
/// `uuid`: the vendor's name of the device. `booked`: `TresPerNode` of the job, as Slurm says it.
pub(super) fn differences(
    decided: &Decided,
    uuid: &str,
    environment: &BTreeMap<String, String>,
    booked: &str,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut expect = |name: &str, wanted: Option<String>| {
        let found = environment.get(name);
        if found != wanted.as_ref() {
            let shown = |value: Option<&String>| value.map_or("nothing".to_owned(), Clone::clone);
            wrong.push(format!("{name} is {}, decided was {}", shown(found), shown(wanted.as_ref())));
        }
    };
    expect("PILLION_DECISION", Some(decided.decision.to_string()));
    let is_mps = decided.mechanism == "mps";
    let is_ccs = decided.mechanism == "ccs";
    let limit = decided.memory_limit_bytes.map(|bytes| format!("0={}M", bytes / MIB));
    let percentage = decided.cap_fraction.map(|cap| ((cap * 10_000.0).round() / 100.0).to_string());
    expect("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", percentage.filter(|_| is_mps));
    expect("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", limit.filter(|_| is_mps));
    expect("ZEX_NUMBER_OF_CCS", decided.ccs_mode.filter(|_| is_ccs).map(|mode| format!("0:{mode}")));
    if is_mps {
        expect("CUDA_VISIBLE_DEVICES", Some(uuid.to_owned()));
    }
    if is_ccs {
        expect("ZE_AFFINITY_MASK", tile(&decided.device));
    }
    let pipe = environment.get("CUDA_MPS_PIPE_DIRECTORY");
    let is_own_pipe = |pipe: &String| pipe.ends_with(&format!("/mps/{}/pipe", decided.device));
    if is_mps != pipe.is_some_and(is_own_pipe) {
        wrong.push(format!("CUDA_MPS_PIPE_DIRECTORY is {pipe:?} with mechanism {}", decided.mechanism));
    }
    // An exclusive first run asks for any free device: `gres/shard:100`.
    let wanted =
        [format!("shard:{}:{}", decided.device, decided.shards), format!("shard:{}", decided.shards)];
    if !wanted.iter().any(|wanted| booked.ends_with(wanted.as_str())) {
        wrong.push(format!("Slurm booked {booked}, decided was {}", wanted[0]));
    }
    wrong
}

/// `card.tile` of a device of the demo's Intel-like node, whose cards have two tiles: `g3` is `1.1`.
fn tile(device: &str) -> Option<String> {
    let index: u32 = device.strip_prefix('g')?.parse().ok()?;
    Some(format!("{}.{}", index / 2, index % 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn capped() -> (Decided, BTreeMap<String, String>) {
        let decided = Decided {
            decision: 7,
            device: "g1".into(),
            mechanism: "mps".into(),
            cap_fraction: Some(0.9),
            shards: 40,
            memory_limit_bytes: Some(3 * MIB + 5),
            ..Decided::default()
        };
        let found = environment(&[
            ("PILLION_DECISION", "7"),
            ("CUDA_VISIBLE_DEVICES", "GPU-1"),
            ("CUDA_MPS_PIPE_DIRECTORY", "/run/n1/mps/g1/pipe"),
            ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "90"),
            ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=3M"),
        ]);
        (decided, found)
    }

    #[test]
    fn what_was_decided_is_found() {
        let (decided, found) = capped();
        assert_eq!(differences(&decided, "GPU-1", &found, "gres/shard:g1:40"), [""; 0]);
        let alone = Decided { decision: 3, mechanism: "none".into(), shards: 100, ..Decided::default() };
        let found = environment(&[("PILLION_DECISION", "3"), ("CUDA_VISIBLE_DEVICES", "2")]);
        assert_eq!(differences(&alone, "GPU-1", &found, "gres/shard:100"), [""; 0]);
    }

    #[test]
    fn each_variable_that_is_wrong_missing_or_too_much_is_named() {
        for name in capped().1.keys() {
            let (decided, mut found) = capped();
            found.insert(name.clone(), "other".into());
            let wrong = differences(&decided, "GPU-1", &found, "gres/shard:g1:40");
            assert!(wrong.len() == 1 && wrong[0].contains(name), "{wrong:?}");
            found.remove(name);
            let wrong = differences(&decided, "GPU-1", &found, "gres/shard:g1:40");
            assert!(wrong.len() == 1 && wrong[0].contains(name), "{wrong:?}");
        }
        let (decided, found) = capped();
        let uncapped = Decided { cap_fraction: None, ..decided.clone() };
        assert_eq!(differences(&uncapped, "GPU-1", &found, "gres/shard:g1:40").len(), 1);
        assert!(differences(&decided, "GPU-1", &found, "gres/shard:g2:40")[0].starts_with("Slurm booked"));
        let ccs = Decided { mechanism: "ccs".into(), ccs_mode: Some(2), device: "g3".into(), ..decided };
        let found = environment(&[
            ("PILLION_DECISION", "7"),
            ("ZE_AFFINITY_MASK", "1.0"),
            ("ZEX_NUMBER_OF_CCS", "0:2"),
        ]);
        let wrong = differences(&ccs, "", &found, "gres/shard:g3:40");
        assert_eq!(wrong, ["ZE_AFFINITY_MASK is 1.0, decided was 1.1"]);
    }
}
