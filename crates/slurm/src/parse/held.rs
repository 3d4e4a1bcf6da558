//! Which devices a job holds, from `scontrol -d -o` and `show job`: the indexes of its GRES `gpu` on each of its nodes.
//!
//! ```text
//! JobId=7 JobName=.. NodeList=n[1-2] .. JOB_GRES=gpu:3   Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:a100:2(IDX:0,2)
//!   Nodes=n2 CPU_IDs=0 Mem=0 GRES=gpu:a100:1(IDX:1) MinCPUsNode=1 .. Command=/home/alice/job.sh ..
//! ```
//!
//! Users wrote some of it (the name before that, paths and comments after it), newlines too. So the part is believed only where
//! what opens it and what closes it stand there once each: who writes them into the name of his job is not told what he holds.

use crate::nodeset;
use pillion_core::NodeName;
use std::collections::BTreeMap;

/// Slurm's indexes of the devices of a job, by node.
pub type HeldDevices = BTreeMap<NodeName, Vec<u32>>;

/// What stands before the part, and after it.
const OPENS: &str = "JOB_GRES=";
const CLOSES: &str = " MinCPUsNode=";
/// No node has so many devices.
const INDEX_MAX: u32 = 1023;

/// The questions after these jobs, by Slurm's inner numbers, one a line: after each job a word that `scontrol` repeats. `nonce` is
/// fresh, so that no text which a user wrote can end an answer.
pub(crate) fn questions(jobs: &[u32], nonce: &str) -> Vec<String> {
    jobs.iter().flat_map(|job| [format!("show job {job}"), format!("show hostnames {nonce}")]).collect()
}

/// What these jobs hold, from the answers to `questions`; who is not known any more, or not told clearly, is left out.
pub fn held_devices(text: &str, jobs: &[u32], nonce: &str) -> BTreeMap<u32, HeldDevices> {
    let mut held = BTreeMap::new();
    let (mut waiting, mut answer) = (jobs.iter(), String::new());
    // It prints its prompt, and most builds the question too.
    for line in text.lines().map(|line| line.trim_start_matches("scontrol: ")) {
        if line != nonce {
            answer.push_str(line);
            answer.push('\n');
            continue;
        }
        let Some(job) = waiting.next() else { break };
        if let Some(devices) = of_answer(&answer) {
            held.insert(*job, devices);
        }
        answer.clear();
    }
    held
}

fn of_answer(answer: &str) -> Option<HeldDevices> {
    let (_, rest) = once(answer, OPENS)?;
    let (part, _) = once(rest, CLOSES)?;
    // Both once, in the whole.
    once(answer, CLOSES)?;
    let (mut nodes, mut held) = (Vec::new(), HeldDevices::new());
    for word in part.split_ascii_whitespace() {
        if let Some(list) = word.strip_prefix("Nodes=") {
            nodes = nodeset::expand(list).ok()?;
        } else if let Some(gres) = word.strip_prefix("GRES=") {
            let indexes = indexes(gres)?;
            if !indexes.is_empty() {
                held.extend(nodes.iter().map(|node| (node.clone(), indexes.clone())));
            }
        }
    }
    Some(held)
}

/// What stands before and after a text that stands there exactly once.
fn once<'a>(text: &'a str, wanted: &str) -> Option<(&'a str, &'a str)> {
    text.split_once(wanted).filter(|(_, after)| !after.contains(wanted))
}

/// The indexes of `gpu` in `gpu:a100:2(IDX:0,2-3),lscratch:1`.
fn indexes(gres: &str) -> Option<Vec<u32>> {
    let mut indexes = Vec::new();
    let mut rest = gres;
    while !rest.is_empty() {
        // Commas within brackets part indexes, not entries.
        let end = rest.char_indices().scan(0_u32, |depth, (at, letter)| {
            match letter {
                '(' => *depth += 1,
                ')' => *depth = depth.saturating_sub(1),
                _ => {}
            }
            Some((at, *depth == 0 && letter == ','))
        });
        let end = end.filter(|(_, is_end)| *is_end).map(|(at, _)| at).next();
        let entry = &rest[..end.unwrap_or(rest.len())];
        rest = end.map_or("", |at| &rest[at + 1..]);
        if entry.starts_with("gpu:") {
            let (_, ranges) = entry.split_once("(IDX:")?;
            // A type of which it has none: `gpu:g2:0(IDX:)`.
            for part in ranges.strip_suffix(')')?.split(',').filter(|part| !part.is_empty()) {
                let (first, last) = part.split_once('-').unwrap_or((part, part));
                let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
                indexes.extend((first..=last).take_while(|index| *index <= INDEX_MAX));
            }
        }
    }
    indexes.sort_unstable();
    indexes.dedup();
    Some(indexes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: &str = "0123456789abcdef";

    fn record(name: &str, gres: &str, comment: &str) -> String {
        format!(
            "JobId=7 JobName={name} UserId=alice(1000) JobState=RUNNING NodeList=n[1-2] AllocTRES=cpu=1 {gres} MinCPUsNode=1 \
             MinMemoryNode=0 Features=(null) Command=/home/alice/job.sh Comment={comment} \n"
        )
    }

    fn read(record: &str) -> Option<HeldDevices> {
        held_devices(&format!("{record}\n{NONCE}\n"), &[7], NONCE).remove(&7)
    }

    fn held(of: &[(&str, &[u32])]) -> HeldDevices {
        of.iter().map(|(node, indexes)| (NodeName::new(*node), indexes.to_vec())).collect()
    }

    /// As 24.11.5 printed it of a job of two GPUs and one of one.
    #[test]
    fn what_slurm_printed_is_read() {
        let text = include_str!("../../../../tests/fixtures/slurm-24.11/scontrol-job-held.txt");
        let found = held_devices(text, &[1, 2], "abcdef0123456789");
        assert_eq!(found, [(1, held(&[("w1", &[0, 1])])), (2, held(&[("w1", &[2])]))].into());
    }

    #[test]
    fn the_devices_of_each_node_are_read() {
        let two = "JOB_GRES=gpu:3   Nodes=n1 CPU_IDs=0-1 Mem=0 GRES=gpu:a100:2(IDX:0,2)   Nodes=n2 CPU_IDs=0 Mem=0 \
                   GRES=gpu:a100:1(IDX:1),lscratch:5";
        assert_eq!(read(&record("train", two, "")), Some(held(&[("n1", &[0, 2]), ("n2", &[1])])));
        let alike = "JOB_GRES=gpu:g0:4   Nodes=n[1-2] CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0),gpu:b:3(IDX:2-3,7)";
        assert_eq!(
            read(&record("train", alike, "")),
            Some(held(&[("n1", &[0, 2, 3, 7]), ("n2", &[0, 2, 3, 7])]))
        );
        let none = "JOB_GRES=(null)   Nodes=n1 CPU_IDs=0 Mem=0 GRES=";
        assert_eq!(read(&record("train", none, "")), Some(held(&[])));
    }

    #[test]
    fn what_a_user_wrote_is_not_taken_for_slurms_word() {
        let real = "JOB_GRES=gpu:1   Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0)";
        let forged = "JOB_GRES=gpu:1   Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:3) MinCPUsNode=1";
        assert_eq!(read(&record("train", real, "")), Some(held(&[("n1", &[0])])));
        for text in [record(&format!("x\n{forged}\n"), real, ""), record("x", real, &format!("\n{forged}\n"))]
        {
            assert_eq!(read(&text), None, "{text}");
        }
        assert_eq!(read(&record("x MinCPUsNode=1", real, "")), None);
        assert_eq!(read("scontrol: slurm_load_jobs error: Invalid job id specified\n"), None);
    }

    #[test]
    fn each_answer_is_its_own_jobs() {
        let first = record("a", "JOB_GRES=gpu:1   Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0)", "");
        let third = record("c", "JOB_GRES=gpu:1   Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:2)", "");
        let text =
            format!("scontrol: {first}scontrol: {NONCE}\nscontrol: {NONCE}\n{third}{NONCE}\nscontrol: ");
        let found = held_devices(&text, &[7, 8, 9, 10], NONCE);
        assert_eq!(found, [(7, held(&[("n1", &[0])])), (9, held(&[("n1", &[2])]))].into());
    }

    proptest::proptest! {
        #[test]
        fn never_panics(text in "\\PC{0,60}") {
            let _ = (read(&text), indexes(&text), read(&record(&text, &text, &text)));
        }
    }
}
