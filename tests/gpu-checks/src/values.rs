//! Our readings of one GPU under load beside those of nvidia-smi, and beside the load's own arithmetic.

use crate::arithmetic;
use crate::kernels::Workload;
use crate::ours::Ours;
use crate::report::{Findings, Measured, table};
use crate::smi::Smi;
use crate::surroundings::Surroundings;
use crate::tenant::{Client, Tenant};
use pillion_core::device::Reading;
use pillion_core::metric::Metric;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

/// How long a load runs before it is measured: power and its mean come up over a second.
const WARM_UP: Duration = Duration::from_secs(2);
/// How long the loop's own rate is taken, beside a reading of the same time.
const RATE_TIME: Duration = Duration::from_secs(1);
/// nvidia-smi's numbers of GPM's metrics (nvml.h, `nvmlGpmMetricId_t`), with what we call them.
const GPM: [(u32, Metric); 4] = [
    (2, Metric::SmActiveFraction),
    (3, Metric::SmOccupancyFraction),
    (10, Metric::MemoryBandwidthFraction),
    (12, Metric::Fp32ActiveFraction),
];

/// How far two values may be apart and still agree.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Tolerance {
    /// Of the other's value.
    Fraction(f64),
    /// In the value's unit.
    Absolute(f64),
    /// Something is there (1), or not (0): on both sides, or it was not seen at all.
    Presence,
}

/// One value, from both sides.
#[derive(Debug, Clone, PartialEq)]
pub struct Pair {
    /// Ours is called so.
    pub name: String,
    /// What we read.
    pub ours: Option<f64>,
    /// What nvidia-smi says, or the loop's own count, in our unit.
    pub theirs: Option<f64>,
    /// How far they may be apart.
    pub tolerance: Tolerance,
}

impl Pair {
    fn verdict(&self) -> &'static str {
        match (self.ours, self.theirs) {
            (Some(ours), Some(theirs)) => {
                let most = match self.tolerance {
                    Tolerance::Fraction(fraction) => theirs.abs() * fraction,
                    Tolerance::Absolute(most) => most,
                    // That nobody lists what runs is no agreement.
                    Tolerance::Presence if ours + theirs <= 0.0 => return "not seen",
                    Tolerance::Presence => 0.0,
                };
                if (ours - theirs).abs() <= most { "agree" } else { "APART" }
            }
            (Some(_), None) => "only ours",
            (None, Some(_)) => "only theirs",
            (None, None) => "neither",
        }
    }

    fn is_gpm_of_nobody(&self) -> bool {
        GPM.iter().any(|(_, metric)| metric.word() == self.name) && self.verdict() == "neither"
    }

    fn row(&self) -> Vec<String> {
        let show =
            |value: Option<f64>| value.map_or_else(|| "none".to_owned(), |value| format!("{value:.4}"));
        let tolerance = match self.tolerance {
            Tolerance::Fraction(fraction) => format!("{:.0} hundredths of it", fraction * 100.0),
            Tolerance::Absolute(most) => format!("{most}"),
            Tolerance::Presence => "on both sides".to_owned(),
        };
        vec![self.name.clone(), show(self.ours), show(self.theirs), tolerance, self.verdict().to_owned()]
    }
}

/// The values of a load in a table, and how many are apart.
pub fn compared(pairs: &[Pair]) -> (String, usize) {
    let text = table(&["value", "ours", "other", "tolerance", ""], pairs.iter().map(Pair::row));
    (text, pairs.iter().filter(|pair| pair.verdict() == "APART").count())
}

/// Reads everything under each kind of load, without MPS.
///
/// # Errors
/// A sentence: why the driver or the client does not work.
pub fn measure(ours: &mut Ours, smi: &Smi, environment: &[(String, String)]) -> Measured {
    let mut found = Findings::default();
    let (mut no_gpm, mut not_seen) = (BTreeSet::new(), BTreeSet::new());
    let described =
        [pair("memory_bytes", bytes(Some(ours.device.memory_bytes)), mib(smi, "memory.total"), 0.02)];
    let (rows, count) = compared(&described);
    // Writing to a string cannot fail.
    let _ = write!(found.text, "Model, as ours: `{}`.\n\n### Described\n\n{rows}", ours.device.model);
    found.apart += count;
    for workload in Workload::ALL {
        let mut tenant = Tenant::start(&Client::new(workload, environment.to_vec()))?;
        let pairs = under_load(ours, smi, workload, &mut tenant);
        tenant.leave();
        let pairs = pairs?;
        let (rows, count) = compared(&pairs);
        let _ = write!(found.text, "\n### Under load: {}\n\n{rows}", workload.name());
        found.apart += count;
        not_seen
            .extend(pairs.iter().filter(|pair| pair.verdict() == "not seen").map(|pair| pair.name.clone()));
        no_gpm.extend(pairs.into_iter().filter(Pair::is_gpm_of_nobody).map(|pair| pair.name));
    }
    if !no_gpm.is_empty() {
        let why = Surroundings::read()
            .why_no_gpm(smi.text("compute_cap").as_deref(), smi.text("mig.mode.current").as_deref());
        let names: Vec<String> = no_gpm.into_iter().collect();
        found.skipped.push(format!("{}: {why}", names.join(", ")));
    }
    if !not_seen.is_empty() {
        found.skipped.push(Surroundings::read().why_not_seen());
    }
    Ok(found)
}

fn under_load(
    ours: &mut Ours,
    smi: &Smi,
    workload: Workload,
    tenant: &mut Tenant,
) -> Result<Vec<Pair>, String> {
    let pid = tenant.pid();
    tenant.run_on(WARM_UP)?;
    ours.state()?;
    let theirs = Theirs::read(smi);
    let after = ours.state()?;
    let mut pairs = theirs.beside(&after.reading);
    let speed = tenant.speed(RATE_TIME)?;
    pairs.extend(arithmetic::beside(workload, speed, &tenant.facts, &ours.state()?.reading));
    let mine = after.processes.iter().find(|process| process.pid == pid);
    let its = theirs.processes.iter().find(|(of, _)| *of == pid);
    pairs.push(Pair {
        name: "processes: the client is there".to_owned(),
        ours: Some(f64::from(u8::from(mine.is_some()))),
        theirs: Some(f64::from(u8::from(its.is_some()))),
        tolerance: Tolerance::Presence,
    });
    let (mine, its) = (mine.and_then(|it| it.memory_bytes), its.and_then(|it| it.1));
    pairs.push(Pair {
        name: "processes: memory_bytes".to_owned(),
        ours: bytes(mine),
        theirs: its.map(|it| it * MIB),
        tolerance: Tolerance::Absolute(64.0 * MIB),
    });
    Ok(pairs)
}

const MIB: f64 = 1_048_576.0;

fn bytes(value: Option<u64>) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "a few percent are allowed")]
    value.map(|value| value as f64)
}

fn mib(smi: &Smi, field: &str) -> Option<f64> {
    smi.number(field).map(|value| value * MIB)
}

fn pair(name: &str, ours: Option<f64>, theirs: Option<f64>, fraction: f64) -> Pair {
    Pair { name: name.to_owned(), ours, theirs, tolerance: Tolerance::Fraction(fraction) }
}

/// What nvidia-smi says under one load, in our units.
struct Theirs {
    power_watts: Option<f64>,
    sm_clock_hertz: Option<f64>,
    gpu_busy: Option<f64>,
    memory_busy: Option<f64>,
    memory_bytes_used: Option<f64>,
    gpm: Vec<Option<f64>>,
    processes: Vec<(u32, Option<f64>)>,
}

impl Theirs {
    fn read(smi: &Smi) -> Self {
        let hundredths = |field: &str| smi.number(field).map(|value| value / 100.0);
        let power_watts =
            ["power.draw", "power.draw.average"].into_iter().find_map(|field| smi.number(field));
        Self {
            power_watts,
            sm_clock_hertz: smi.number("clocks.sm").map(|mega| mega * 1e6),
            gpu_busy: hundredths("utilization.gpu"),
            memory_busy: hundredths("utilization.memory"),
            memory_bytes_used: mib(smi, "memory.used"),
            gpm: smi.gpm(&GPM.map(|(number, _)| number)),
            processes: smi.processes(),
        }
    }

    /// Beside ours. The fractions that a sampling window of their own makes differ by a few hundredths.
    fn beside(&self, reading: &Reading) -> Vec<Pair> {
        let busy = |metric: Metric, theirs: Option<f64>| Pair {
            name: metric.to_string(),
            ours: reading.metrics.get(metric),
            theirs,
            tolerance: Tolerance::Absolute(0.1),
        };
        let mut pairs = vec![
            pair("power_watts", reading.metrics.get(Metric::PowerWatts), self.power_watts, 0.1),
            pair("sm_clock_hertz", reading.metrics.get(Metric::SmClockHertz), self.sm_clock_hertz, 0.05),
            pair(
                "memory_bytes_used",
                reading.metrics.get(Metric::MemoryBytesUsed),
                self.memory_bytes_used,
                0.02,
            ),
            busy(Metric::GpuBusyFraction, self.gpu_busy),
            busy(Metric::MemoryBusyFraction, self.memory_busy),
        ];
        for ((_, metric), theirs) in GPM.into_iter().zip(&self.gpm) {
            pairs.push(busy(metric, theirs.map(|value| value / 100.0)));
        }
        pairs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_agree_within_their_tolerance_only() {
        let with = |ours, theirs, tolerance| Pair { name: "x".into(), ours, theirs, tolerance }.verdict();
        assert_eq!(with(Some(109.0), Some(100.0), Tolerance::Fraction(0.1)), "agree");
        assert_eq!(with(Some(111.0), Some(100.0), Tolerance::Fraction(0.1)), "APART");
        assert_eq!(with(Some(0.0), Some(0.1), Tolerance::Absolute(0.1)), "agree");
        assert_eq!(with(Some(0.0), Some(0.2), Tolerance::Absolute(0.1)), "APART");
        assert_eq!(with(None, Some(0.2), Tolerance::Absolute(0.1)), "only theirs");
        assert_eq!(with(Some(0.2), None, Tolerance::Absolute(0.1)), "only ours");
        assert_eq!(with(None, None, Tolerance::Absolute(0.1)), "neither");
        assert_eq!(with(Some(1.0), Some(1.0), Tolerance::Presence), "agree");
        assert_eq!(with(Some(1.0), Some(0.0), Tolerance::Presence), "APART");
        assert_eq!(with(Some(0.0), Some(1.0), Tolerance::Presence), "APART");
        assert_eq!(with(Some(0.0), Some(0.0), Tolerance::Presence), "not seen");
    }

    #[test]
    fn nvidia_smis_units_become_ours() {
        let theirs = Theirs {
            power_watts: Some(700.0),
            sm_clock_hertz: Some(1.98e9),
            gpu_busy: Some(1.0),
            memory_busy: Some(0.4),
            memory_bytes_used: Some(600.0 * MIB),
            gpm: vec![Some(99.0), Some(50.0), None, Some(40.0)],
            processes: Vec::new(),
        };
        let reading = Reading::from([
            (Metric::PowerWatts, 690.0),
            (Metric::SmActiveFraction, 0.98),
            (Metric::Fp32ActiveFraction, 0.9),
            (Metric::MemoryBytesUsed, 610.0 * MIB),
        ]);
        let (text, apart) = compared(&theirs.beside(&reading));
        assert_eq!(apart, 1, "{text}");
        assert!(text.contains("| sm_active_fraction | 0.9800 | 0.9900 | 0.1 | agree |"), "{text}");
        assert!(text.contains("| fp32_active_fraction | 0.9000 | 0.4000 | 0.1 | APART |"), "{text}");
        assert!(text.contains("| memory_bandwidth_fraction | none | none | 0.1 | neither |"), "{text}");
    }
}
