//! Why a start failed, as far as that shows from outside: for lack of device memory, or by a fault of the device. Pure.
//!
//! Lack of device memory is a return code within the process: no driver and no kernel tells of it, and the exit code is the
//! program's own (Slurm's `OUT_OF_MEMORY` is the host's memory). So it is inferred: each sign leaves a doubt, the doubts of
//! independent signs multiply, and what is left of them is the confidence. A start that did not fail by itself has no
//! verdict on its memory, whatever it printed and however full the device was.
//!
//! A fault of the device is what the driver numbers as one of the hardware (Xid). The numbers of what a program did wrong
//! itself (13, 31, 43) and of the cleaning up after a killed one (45) are not. A sample a second misses a spike between
//! two: memory that was asked for and refused is never seen used.
//!
//! The agent gathers the signs ([`FaultSigns`]), the scheduler hears from Slurm how the start ended; neither knows both.
//!
//! Sources: NVIDIA "XID Errors"; NVIDIA/cuda-python#2458 (the CUDA code stands for host and address space too).

use crate::clock::UnixTime;
use crate::units::Fraction;
use crate::word::spelt_as_serialized;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A start that ended longer ago than this is not requeued: its user may have acted, and Slurm may forget it any moment
/// (`MinJobAge`).
pub const REQUEUE_AGE_SECONDS_MAX: f64 = 240.0;
/// Who ran longer than this until it ran out of device memory is not started again: so much work is worth a look of its user's first.
pub const RESTART_RUN_SECONDS_MAX: f64 = 3600.0;
/// A failure within this time of a sign is taken for its consequence.
const MEMORY_SECONDS: f64 = 30.0;
/// The same for a fault of the device, after which a program can hang until its next call.
const FAULT_SECONDS: f64 = 120.0;
/// What samples and notices may be late: two of the agent's samples.
const LATE_SECONDS: f64 = 2.0;
/// Memory from here on is full.
const FULL: f64 = 0.97;
/// Below this there is no verdict.
const CONFIDENCE_MIN: f64 = 0.35;
/// From here on a verdict is sure enough to start a job again for it: what device libraries alone print, or all other signs together.
const CONFIDENCE_SURE: f64 = 0.75;

/// How sure each sign of a lack of memory makes by itself. Judged, not measured: no labelled failures are at hand.
const SAID_SURELY: f64 = 0.8;
const SAID_VAGUELY: f64 = 0.4;
const LIMIT_REACHED: f64 = 0.5;
const DEVICE_FULL: f64 = 0.4;
/// No inference, but the agent's own doing.
const DONE_BY_US: f64 = 1.0;
/// What is left of memory's signs where standard error could be read and says nothing of them.
const SILENT: f64 = 0.5;

/// How a start ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Its batch script or task exited with this code.
    Exited(u8),
    /// A signal ended it, and Slurm did not send it.
    Signalled(u8),
    /// Slurm ended it: cancelled, out of time, preempted, requeued.
    EndedBySlurm,
}

/// One sample of the memory of one of the start's devices.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MemorySample {
    /// When the sample was taken, by the node's clock.
    pub at: UnixTime,
    /// All of the device's, or of the MIG instance's.
    pub bytes: u64,
    /// In use by anybody.
    pub bytes_used: Option<u64>,
    /// In use by the greatest of the start's processes: a limit holds for each of them, not for all together.
    pub process_bytes_max: Option<u64>,
}

/// An Xid on the start's device.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct XidSeen {
    /// When the driver reported it, by the node's clock.
    pub at: UnixTime,
    /// Its number in NVIDIA's list of Xids.
    pub code: u64,
    /// Whether the process that it names is one of the start's, or of another of the device; `None` = it names none, or one
    /// of no job's.
    pub is_own: Option<bool>,
}

/// What the end of a start's standard error says of memory. The words themselves are the user's and stay on the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StderrWords {
    /// Nothing, or of the host's memory.
    Silent,
    /// What others than device libraries print as well.
    Vague,
    /// What device libraries and frameworks print, and nothing else.
    Sure,
}

spelt_as_serialized!(StderrWords => "class of words");

/// What the agent saw of one start on one device towards its end.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct FaultSigns {
    /// The last samples of the device, in any order.
    pub memory: Vec<MemorySample>,
    /// The most device memory of each of its processes, where it was held to one.
    pub process_bytes_limit: Option<u64>,
    /// All its processes together held more than the start was let in with, and the agent ended it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub was_over_limit: bool,
    /// What the end of its standard error says; `None` = it could not be read.
    pub stderr: Option<StderrWords>,
    /// Xids on the device towards the end, in any order.
    pub xids: Vec<XidSeen>,
}

/// What is known of one start after its end.
#[derive(Debug, Clone, PartialEq)]
pub struct StartSeen {
    /// When and how it ended; `None` if nobody says how. The time is by the clock that the signs were dated by.
    pub ended: Option<(UnixTime, Ending)>,
    /// What was seen of it.
    pub signs: FaultSigns,
}

/// What was lacking or broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// The device's memory ran out.
    OutOfMemory,
    /// The device itself.
    DeviceFault,
}

/// The strongest sign of a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultRule {
    /// Standard error speaks of memory.
    SaidOutOfMemory,
    /// It held more memory than its share allows, and was ended for that.
    LimitExceeded,
    /// A process came up to its memory limit just before the end.
    LimitReached,
    /// The device was full just before the end.
    DeviceFull,
    /// The driver told of a fault of the hardware just before the end.
    HardwareXid,
}

spelt_as_serialized!(FailureKind => "kind of failure");
spelt_as_serialized!(FaultRule => "rule");

impl FaultRule {
    /// What the rule is about.
    pub const fn kind(self) -> FailureKind {
        match self {
            Self::SaidOutOfMemory | Self::LimitExceeded | Self::LimitReached | Self::DeviceFull => {
                FailureKind::OutOfMemory
            }
            Self::HardwareXid => FailureKind::DeviceFault,
        }
    }
}

/// Why a start failed.
#[derive(Debug, Clone, PartialEq)]
pub struct FaultVerdict {
    /// The strongest sign.
    pub rule: FaultRule,
    /// Each sign in words, the strongest first, and last how the start ended.
    pub evidence: Vec<String>,
    /// How sure all signs together make.
    pub confidence: Fraction,
}

impl FaultVerdict {
    /// Whether device memory ran out for certain.
    pub fn is_surely_out_of_memory(&self) -> bool {
        self.rule.kind() == FailureKind::OutOfMemory && self.confidence.value() >= CONFIDENCE_SURE
    }
}

impl fmt::Display for FaultVerdict {
    /// One sentence: the rule, how sure it is, and on what evidence.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = self.confidence.value() * 100.0;
        write!(f, "by rule {}, {percent:.0} % sure: {}", self.rule, self.evidence.join("; "))
    }
}

/// One sign and how sure it makes by itself, 0..1.
#[derive(Debug, Clone)]
struct Sign {
    rule: FaultRule,
    weight: f64,
    words: String,
}

/// The verdict on one start, if its signs suffice for one; of two the surer.
pub fn verdict(seen: &StartSeen) -> Option<FaultVerdict> {
    let (ended_at, ending) = seen.ended?;
    let of_device = weighed(device_signs(seen, ended_at, ending), 1.0, ending);
    let (signs, doubt) = memory_signs(seen, ended_at, ending);
    let of_memory = weighed(signs, doubt, ending);
    let sureness = |verdict: &FaultVerdict| verdict.confidence.value();
    match (of_device, of_memory) {
        (Some(device), Some(memory)) if sureness(&memory) > sureness(&device) => Some(memory),
        (Some(device), _) => Some(device),
        (None, memory) => memory,
    }
}

/// All signs of one kind as a verdict; `factor` is how far they can be trusted altogether.
fn weighed(mut signs: Vec<Sign>, factor: f64, ending: Ending) -> Option<FaultVerdict> {
    signs.sort_by(|a, b| b.weight.total_cmp(&a.weight));
    let rule = signs.first()?.rule;
    let doubt: f64 = signs.iter().map(|sign| 1.0 - sign.weight).product();
    let confidence = (1.0 - doubt) * factor;
    let mut evidence: Vec<String> = signs.into_iter().map(|sign| sign.words).collect();
    evidence.push(in_words(ending));
    (confidence >= CONFIDENCE_MIN).then(|| FaultVerdict {
        rule,
        evidence,
        confidence: Fraction::clamped(confidence),
    })
}

fn in_words(ending: Ending) -> String {
    match ending {
        Ending::Exited(code) => format!("it exited with code {code}"),
        Ending::Signalled(signal) => format!("signal {signal} ended it"),
        Ending::EndedBySlurm => "Slurm ended it".to_owned(),
    }
}

/// Whether the program gave up by itself. Killed from outside (hang-up, interrupt, kill, terminate; also as a shell tells
/// of it) it did not, and it is never killed for device memory.
pub fn failed_by_itself(ending: Ending) -> bool {
    const OUTSIDE: [u8; 4] = [1, 2, 9, 15];
    match ending {
        Ending::Exited(code) => {
            code != 0 && !code.checked_sub(128).is_some_and(|signal| OUTSIDE.contains(&signal))
        }
        Ending::Signalled(signal) => !OUTSIDE.contains(&signal),
        Ending::EndedBySlurm => false,
    }
}

/// How long before the end something was, in seconds, if it can have led to it.
fn before(at: UnixTime, ended_at: UnixTime, seconds_max: f64) -> Option<f64> {
    let is_after = at.seconds_since(ended_at) > LATE_SECONDS;
    let seconds = ended_at.seconds_since(at);
    (!is_after && seconds <= seconds_max).then_some(seconds)
}

/// The signs of a lack of device memory, and how far they can be trusted altogether.
fn memory_signs(seen: &StartSeen, ended_at: UnixTime, ending: Ending) -> (Vec<Sign>, f64) {
    if seen.signs.was_over_limit && !matches!(ending, Ending::Exited(0) | Ending::EndedBySlurm) {
        let words = "its processes together held more device memory than its share allows, and it was ended";
        let rule = FaultRule::LimitExceeded;
        return (vec![Sign { rule, weight: DONE_BY_US, words: words.to_owned() }], 1.0);
    }
    if !failed_by_itself(ending) {
        return (Vec::new(), 1.0);
    }
    let said = seen.signs.stderr.and_then(said);
    let is_silent = seen.signs.stderr == Some(StderrWords::Silent);
    let own =
        fullest(seen, ended_at, |sample| Some((sample.process_bytes_max?, seen.signs.process_bytes_limit?)));
    let limit = own.map(|(part, seconds)| Sign {
        rule: FaultRule::LimitReached,
        weight: LIMIT_REACHED,
        words: format!("{part:.1} % of its memory limit in use {seconds:.0} s before the end"),
    });
    let device = fullest(seen, ended_at, |sample| Some((sample.bytes_used?, sample.bytes)));
    let device = device.map(|(_, seconds)| Sign {
        rule: FaultRule::DeviceFull,
        weight: DEVICE_FULL,
        // Less its own, the number would be the neighbour's.
        words: format!("the device's memory was full {seconds:.0} s before the end"),
    });
    let signs = [said, limit, device].into_iter().flatten().collect();
    (signs, if is_silent { SILENT } else { 1.0 })
}

/// The fullest sample just before the end, in percent, if it was full, and how long before.
fn fullest(
    seen: &StartSeen,
    ended_at: UnixTime,
    used_of: impl Fn(&MemorySample) -> Option<(u64, u64)>,
) -> Option<(f64, f64)> {
    let samples = seen.signs.memory.iter().filter_map(|sample| {
        let seconds = before(sample.at, ended_at, MEMORY_SECONDS)?;
        let (used, all) = used_of(sample).filter(|(_, all)| *all > 0)?;
        Some((ratio(used, all), seconds))
    });
    let (part, seconds) = samples.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (part >= FULL).then_some((part * 100.0, seconds))
}

#[expect(clippy::cast_precision_loss, reason = "a ratio of sizes needs no last bit")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

fn said(words: StderrWords) -> Option<Sign> {
    let (weight, what) = match words {
        StderrWords::Silent => return None,
        StderrWords::Vague => (SAID_VAGUELY, "standard error says that memory ran out"),
        StderrWords::Sure => (SAID_SURELY, "standard error says that device memory ran out"),
    };
    Some(Sign { rule: FaultRule::SaidOutOfMemory, weight, words: what.to_owned() })
}

/// The signs of a fault of the hardware. Also a start that Slurm had to end counts: it may have hung.
fn device_signs(seen: &StartSeen, ended_at: UnixTime, ending: Ending) -> Vec<Sign> {
    if ending == Ending::Exited(0) {
        return Vec::new();
    }
    // Several Xids are mostly one fault told several times: they are no independent signs.
    let signs = seen.signs.xids.iter().filter_map(|xid| {
        let seconds = before(xid.at, ended_at, FAULT_SECONDS)?;
        let weight = hardware_weight(xid.code, xid.is_own)?;
        let whom = match xid.is_own {
            Some(true) => "named a process of it",
            Some(false) | None => "named no process of it",
        };
        let words = format!("Xid {} {whom} {seconds:.0} s before the end", xid.code);
        Some(Sign { rule: FaultRule::HardwareXid, weight, words })
    });
    signs.max_by(|a, b| a.weight.total_cmp(&b.weight)).into_iter().collect()
}

/// How sure an Xid makes that a start on its device failed by the hardware: all are hit by 48 (memory, two bits), 64 (no
/// row to put in), 79 (fallen off the bus) and 95 (memory, not contained); only the process named by 94 (contained). 63 tells
/// that a row was put in, which by itself ends nobody. Other numbers are no faults of the hardware.
fn hardware_weight(code: u64, is_own: Option<bool>) -> Option<f64> {
    match (code, is_own) {
        (48 | 64 | 79 | 94 | 95, Some(true)) => Some(0.95),
        (48 | 64 | 79 | 95, None) => Some(0.8),
        (48 | 64 | 79 | 95, Some(false)) => Some(0.6),
        (63, Some(true)) => Some(0.5),
        (94, None) => Some(0.4),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
