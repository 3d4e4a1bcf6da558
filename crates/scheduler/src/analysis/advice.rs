//! One useful piece of advice on a job that ended: pure, the most pressing first.

use super::slowness::{SlowCause, SlowKind};
use pillion_core::units::keeps_promise;
use pillion_slurm::Ending;

/// Declared memory beyond so many times the peak keeps partners away for nothing.
const MEMORY_DECLARED_RATIO_MAX: f64 = 2.0;
/// What is advised to be declared over the peak.
const MEMORY_MARGIN_RATIO: f64 = 1.2;
/// Less activity than this leaves room for others; more than [`ACTIVE_MIN`] leaves none.
const IDLE_MAX: f64 = 0.4;
const ACTIVE_MIN: f64 = 0.9;
const MIB: f64 = 1_048_576.0;

/// What advice is drawn from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdviceFacts<'a> {
    /// How it ended.
    pub ending: Ending,
    /// Whether it ran out of device memory, as an event says.
    pub is_out_of_device_memory: bool,
    /// Whether it was beside others at any time.
    pub has_shared: bool,
    /// The most device memory that it held.
    pub memory_bytes_peak: Option<u64>,
    /// What it asked for with `memory=`.
    pub memory_bytes_declared: Option<u64>,
    pub slowdown_ratio_max: f64,
    /// Speed beside others over speed alone.
    pub shared_speed_fraction: Option<f64>,
    /// Activity of the compute units while alone, in this run or in those before.
    pub sm_active_fraction: Option<f64>,
    /// Whether its workload was measured alone before this run.
    pub has_profile: bool,
    /// What made it slow.
    pub causes: &'a [SlowCause],
}

/// What to do next time; `None` where all is well and nothing is to be gained.
pub fn advise(facts: &AdviceFacts) -> Option<String> {
    after_failure(facts).or_else(|| after_slowness(facts)).or_else(|| for_more(facts))
}

fn after_failure(facts: &AdviceFacts) -> Option<String> {
    if facts.is_out_of_device_memory && facts.ending == Ending::Failed {
        let peak = facts
            .memory_bytes_peak
            .map_or_else(String::new, |peak| format!(" (it held {})", mebibytes(peak)));
        return Some(format!(
            "It probably ran out of GPU memory{peak}: write memory=SIZE with what it needs, such as memory=24G, or restart=yes to \
             have it started again once with more"
        ));
    }
    match facts.ending {
        Ending::OutOfMemory => {
            Some("Its node's memory ran out, not the GPU's: ask for more with --mem".to_owned())
        }
        Ending::Timeout => {
            Some("It was ended at its time limit: ask for more with --time, or write checkpoints".to_owned())
        }
        _ => None,
    }
}

fn after_slowness(facts: &AdviceFacts) -> Option<String> {
    let is_broken =
        facts.shared_speed_fraction.is_some_and(|speed| !keeps_promise(speed, facts.slowdown_ratio_max));
    match facts.causes.first()?.kind {
        SlowKind::Neighbour if is_broken => Some(
            "Its neighbour slowed it beyond its promise, and Pillion has learnt from that; for a GPU of its own write \
             --colocate=no"
                .to_owned(),
        ),
        SlowKind::Neighbour => None,
        SlowKind::Throttling => {
            Some("The GPU held its clock down, with or without a neighbour: tell your admins if it lasts".to_owned())
        }
        SlowKind::OwnPhase => Some(
            "If it does other work than before, give it a name of its own with profile=NAME; if not, look at what it \
             waits for besides the GPU"
                .to_owned(),
        ),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a ratio of sizes needs no last digit")]
fn for_more(facts: &AdviceFacts) -> Option<String> {
    if let (Some(declared), Some(peak)) = (facts.memory_bytes_declared, facts.memory_bytes_peak)
        && peak > 0
        && declared as f64 > MEMORY_DECLARED_RATIO_MAX * peak as f64
    {
        let enough = (peak as f64 * MEMORY_MARGIN_RATIO / MIB).ceil();
        return Some(format!(
            "It held {} of GPU memory at most and declared {}: with memory={enough:.0}M it finds a partner more often",
            mebibytes(peak),
            mebibytes(declared)
        ));
    }
    if facts.has_shared && facts.shared_speed_fraction.is_none() {
        return Some(
            "Nobody knows how fast it went beside its neighbour: let it write its progress to $PILLION_PROGRESS".to_owned(),
        );
    }
    let was_measured = facts.ending == Ending::Completed && facts.memory_bytes_peak.is_some();
    if was_measured && !facts.has_profile && !facts.has_shared {
        return Some("This run was measured alone; from the next one on it may share".to_owned());
    }
    let active = facts.sm_active_fraction?;
    if active >= ACTIVE_MIN {
        let busy = "It keeps its GPU busy";
        return Some(format!(
            "{busy} ({:.0} %): a second one would be used too, if it can use more than one",
            active * 100.0
        ));
    }
    (active <= IDLE_MAX && !facts.has_shared).then(|| {
        format!(
            "It uses {:.0} % of its GPU and found no partner: with a greater max-slowdown it finds one more often",
            active * 100.0
        )
    })
}

#[expect(clippy::cast_precision_loss, reason = "printed whole")]
pub(crate) fn mebibytes(bytes: u64) -> String {
    let mebibytes = bytes as f64 / MIB;
    if mebibytes >= 1024.0 { format!("{:.1} GiB", mebibytes / 1024.0) } else { format!("{mebibytes:.0} MiB") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WELL: AdviceFacts<'static> = AdviceFacts {
        ending: Ending::Completed,
        is_out_of_device_memory: false,
        has_shared: true,
        memory_bytes_peak: Some(4 << 30),
        memory_bytes_declared: None,
        slowdown_ratio_max: 1.25,
        shared_speed_fraction: Some(0.9),
        sm_active_fraction: Some(0.6),
        has_profile: true,
        causes: &[],
    };

    fn cause(kind: SlowKind) -> [SlowCause; 1] {
        [SlowCause { kind, evidence: String::new() }]
    }

    #[test]
    fn a_run_that_went_well_needs_no_advice() {
        assert_eq!(advise(&WELL), None);
        assert_eq!(advise(&AdviceFacts { causes: &cause(SlowKind::Neighbour), ..WELL }), None, "as promised");
    }

    #[test]
    fn each_advice_names_what_to_write() {
        let neighbour = cause(SlowKind::Neighbour);
        let own = cause(SlowKind::OwnPhase);
        let hot = cause(SlowKind::Throttling);
        let alone = AdviceFacts { has_shared: false, shared_speed_fraction: None, ..WELL };
        let cases: [(AdviceFacts, &str); 11] = [
            (
                AdviceFacts { is_out_of_device_memory: true, ending: Ending::Failed, ..WELL },
                "It probably ran out of GPU memory (it held 4.0 GiB): write memory=",
            ),
            (AdviceFacts { ending: Ending::OutOfMemory, ..WELL }, "--mem"),
            (AdviceFacts { ending: Ending::Timeout, ..WELL }, "--time"),
            (AdviceFacts { shared_speed_fraction: Some(0.79), causes: &neighbour, ..WELL }, "--colocate=no"),
            (AdviceFacts { causes: &own, ..WELL }, "profile=NAME"),
            (AdviceFacts { causes: &hot, ..WELL }, "tell your admins"),
            (AdviceFacts { memory_bytes_declared: Some(16 << 30), ..WELL }, "memory=4916M"),
            (AdviceFacts { shared_speed_fraction: None, ..WELL }, "$PILLION_PROGRESS"),
            (AdviceFacts { has_profile: false, ..alone }, "from the next one on"),
            (AdviceFacts { sm_active_fraction: Some(0.95), ..alone }, "a second one would be used"),
            (AdviceFacts { sm_active_fraction: Some(0.2), ..alone }, "with a greater max-slowdown"),
        ];
        for (facts, expected) in cases {
            let advice = advise(&facts).unwrap_or_default();
            assert!(advice.contains(expected), "{advice:?} lacks {expected:?}");
        }
    }

    #[test]
    fn a_failure_comes_before_everything_else() {
        let own = cause(SlowKind::OwnPhase);
        let facts =
            AdviceFacts { is_out_of_device_memory: true, ending: Ending::Failed, causes: &own, ..WELL };
        assert!(advise(&facts).unwrap_or_default().starts_with("It probably ran out of GPU memory"));
    }
}
