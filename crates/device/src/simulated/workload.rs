//! The workloads that can be run on a simulated device: what each demands, as data, and what that means on one machine.
//!
//! A workload is described on a reference machine, as fractions of one cycle there. Carried to another machine its
//! computing scales with the units' rate, its traffic with the bandwidth, a kernel of so many blocks fills as many
//! units, and its gaps stay: they are the host's.

use super::contention::{Cycle, Phase, Seat, evaluate};
use super::hardware::{self, Hardware};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::OnceLock;

const GIB: f64 = 1_073_741_824.0;
const MIB: f64 = 1_048_576.0;

/// The catalogue's three files.
const GENERIC: &str = include_str!("../../data/workloads.toml");
const MISO: &str = include_str!("../../data/miso.toml");
const COSTA: &str = include_str!("../../data/costa2025.toml");

/// One workload of the catalogue at one batch size.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// The name by which `pillion-load` starts it.
    pub name: String,
    /// Its batch size, where it has several.
    pub batch_size: Option<u32>,
    /// What it is, in a few words.
    pub description: String,
    /// How long it takes alone on its reference machine.
    pub seconds: f64,
    /// The most device memory that it holds.
    pub memory_bytes: u64,
    /// The reference machine.
    pub reference: Hardware,
    /// The part of a cycle in which no kernel runs.
    pub gap_fraction: f64,
    /// Resident warps of the most possible, where units are active.
    pub occupancy_fraction: f64,
    /// FP32 pipes active, where units issue.
    pub fp32_fraction: f64,
    /// Bytes a second from the host, alone on the reference machine.
    pub pcie_rx_bytes_per_second: f64,
    /// Bytes a second to the host, alone on the reference machine.
    pub pcie_tx_bytes_per_second: f64,
    /// Its phases, one after the other.
    pub phases: Vec<PhaseDemand>,
    /// How fast it was measured alone in an instance of so many compute slices, of its speed with all of the device.
    pub slice_speeds: BTreeMap<u8, f64>,
}

/// One kernel phase, alone on the reference machine.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseDemand {
    /// Its part of the cycle.
    pub time_fraction: f64,
    /// Blocks of its kernels over the machine's units: below 1 some stay idle, above 1 larger machines are filled too.
    pub width_fraction: f64,
    /// The part of its time in which its units issue; in the rest they wait for memory.
    pub issue_fraction: f64,
    /// Memory bandwidth meanwhile.
    pub memory_fraction: f64,
    /// Cache bandwidth meanwhile.
    pub cache_fraction: f64,
    /// What it touches again and again, MiB.
    pub footprint_mib: f64,
    /// Power of issuing, in terms of an ordinary kernel's.
    #[serde(default = "one")]
    pub power_coefficient: f64,
}

fn one() -> f64 {
    1.0
}

/// A name or a batch size that the catalogue lacks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnknownWorkload {
    /// No such name.
    #[error("there is no workload '{name}'; allowed are {allowed}")]
    Name {
        /// The name asked for.
        name: String,
        /// Those that exist.
        allowed: String,
    },
    /// No such batch size.
    #[error("workload '{name}' has no batch size {asked}; allowed are {allowed}")]
    BatchSize {
        /// The name that was asked for.
        name: String,
        /// The batch size asked for.
        asked: u32,
        /// Those that exist.
        allowed: String,
    },
}

/// A workload on one machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed {
    /// What it does there.
    pub cycle: Cycle,
    /// A cycle alone, with the whole device.
    pub cycle_seconds: f64,
    /// Resident warps of the most possible, where units are active.
    pub occupancy_fraction: f64,
    /// FP32 pipes active, where units issue.
    pub fp32_fraction: f64,
    /// Bytes a cycle from the host.
    pub pcie_rx_bytes: f64,
    /// Bytes a cycle to the host.
    pub pcie_tx_bytes: f64,
    /// How long the whole workload takes alone.
    pub seconds: f64,
    /// How fast it is alone in an instance of so many compute slices, where that was measured.
    pub slice_speeds: BTreeMap<u8, f64>,
}

impl Workload {
    /// What the workload does on `hardware`.
    pub fn on(&self, hardware: &Hardware) -> Placed {
        let phases = self.phases.iter().map(|demand| demand.on(&self.reference, hardware)).collect();
        let cycle = Cycle { gap_seconds: self.gap_fraction, phases };
        let cycle_seconds = alone_seconds(hardware, &cycle);
        let home = Cycle {
            gap_seconds: self.gap_fraction,
            phases: self.phases.iter().map(|demand| demand.on(&self.reference, &self.reference)).collect(),
        };
        let home_seconds = alone_seconds(&self.reference, &home);
        Placed {
            cycle,
            cycle_seconds,
            occupancy_fraction: self.occupancy_fraction,
            fp32_fraction: self.fp32_fraction,
            pcie_rx_bytes: self.pcie_rx_bytes_per_second * home_seconds,
            pcie_tx_bytes: self.pcie_tx_bytes_per_second * home_seconds,
            seconds: self.seconds * cycle_seconds / home_seconds,
            slice_speeds: self.slice_speeds.clone(),
        }
    }
}

/// What a run on the reference machine takes from the socket, alone: for fitting.
pub fn energy_alone_joules(workload: &Workload) -> f64 {
    let placed = workload.on(&workload.reference);
    let seat = Seat { cycle: placed.cycle, engine: 0, context: 0, units_max: workload.reference.units() };
    evaluate(&workload.reference, 1, &[seat]).used.power_watts * placed.seconds
}

/// A cycle alone with the whole device, its power limit included.
fn alone_seconds(hardware: &Hardware, cycle: &Cycle) -> f64 {
    let seat = Seat { cycle: cycle.clone(), engine: 0, context: 0, units_max: hardware.units() };
    1.0 / evaluate(hardware, 1, &[seat]).shares[0].cycles_per_second
}

impl PhaseDemand {
    /// The same kernels on another machine.
    fn on(&self, reference: &Hardware, hardware: &Hardware) -> Phase {
        let blocks = self.width_fraction * reference.units();
        let width_units = blocks.min(hardware.units());
        let work =
            self.time_fraction * self.issue_fraction * blocks.min(reference.units()) * reference.unit_rate;
        let cache_bytes = self.time_fraction * self.cache_fraction * reference.cache_bytes_per_second;
        let miss_bytes = self.time_fraction * self.memory_fraction * reference.memory_bytes_per_second;
        // Kernels are blocked for the cache that they find: half of the difference, in orders of magnitude.
        let blocking = (hardware.cache_bytes / reference.cache_bytes).sqrt();
        let footprint_home = self.footprint_mib * MIB;
        let footprint_bytes = footprint_home * blocking;
        let resident =
            |cache: f64, footprint: f64| if footprint > 0.0 { (cache / footprint).min(1.0) } else { 1.0 };
        // Traffic that no reuse explains streams past the cache: it is as much traffic as it is misses.
        let cache_bytes = cache_bytes.max(miss_bytes);
        let hit_fraction = if cache_bytes > 0.0 { 1.0 - miss_bytes / cache_bytes } else { 0.0 };
        let reuse_fraction = (hit_fraction / resident(reference.cache_bytes, footprint_home)).min(1.0);
        let miss_bytes_alone =
            cache_bytes * (1.0 - reuse_fraction * resident(hardware.cache_bytes, footprint_bytes));
        let more_misses = if miss_bytes > 0.0 { miss_bytes_alone / miss_bytes } else { 1.0 };
        let stall_seconds = self.time_fraction
            * (1.0 - self.issue_fraction)
            * more_misses
            * (reference.memory_bytes_per_second / hardware.memory_bytes_per_second);
        Phase {
            compute_seconds: work / (width_units * hardware.unit_rate),
            width_units,
            stall_seconds,
            cache_bytes,
            footprint_bytes,
            reuse_fraction,
            miss_bytes_alone,
            power_coefficient: self.power_coefficient,
        }
    }
}

/// The whole catalogue, in the order of its files.
pub fn catalogue() -> &'static [Workload] {
    static CATALOGUE: OnceLock<Vec<Workload>> = OnceLock::new();
    CATALOGUE.get_or_init(|| {
        let mut workloads =
            parse_generic(GENERIC).expect("data/workloads.toml is part of the program and tested");
        workloads.extend(parse_generic(MISO).expect("data/miso.toml is part of the program and tested"));
        workloads.extend(parse_costa(COSTA).expect("data/costa2025.toml is part of the program and tested"));
        workloads
    })
}

/// The workload of that name and batch size; without a batch size the first that the catalogue has.
///
/// # Errors
/// [`UnknownWorkload`] names those that exist.
pub fn find(name: &str, batch_size: Option<u32>) -> Result<&'static Workload, UnknownWorkload> {
    let named: Vec<&Workload> = catalogue().iter().filter(|workload| workload.name == name).collect();
    if named.is_empty() {
        let mut allowed: Vec<&str> = catalogue().iter().map(|workload| workload.name.as_str()).collect();
        allowed.dedup();
        return Err(UnknownWorkload::Name { name: name.to_owned(), allowed: allowed.join(", ") });
    }
    let Some(asked) = batch_size else {
        return Ok(named[0]);
    };
    named.iter().find(|workload| workload.batch_size == Some(asked)).copied().ok_or_else(|| {
        let sizes: Vec<String> =
            named.iter().filter_map(|workload| workload.batch_size).map(|size| size.to_string()).collect();
        let allowed = if sizes.is_empty() { "none: leave it out".to_owned() } else { sizes.join(", ") };
        UnknownWorkload::BatchSize { name: name.to_owned(), asked, allowed }
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GenericFile {
    reference: String,
    workload: Vec<GenericRow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GenericRow {
    name: String,
    description: String,
    seconds: f64,
    memory_gib: f64,
    gap_fraction: f64,
    occupancy_fraction: f64,
    fp32_fraction: f64,
    #[serde(default)]
    pcie_rx_gb_per_second: f64,
    #[serde(default)]
    pcie_tx_gb_per_second: f64,
    #[serde(default)]
    slice_speeds: Vec<(u8, f64)>,
    phase: Vec<PhaseDemand>,
}

impl GenericRow {
    /// `reference`: the device model that its numbers were made up for.
    fn workload(self, reference: &Hardware) -> Workload {
        Workload {
            name: self.name,
            batch_size: None,
            description: self.description,
            seconds: self.seconds,
            memory_bytes: bytes(self.memory_gib),
            reference: reference.clone(),
            gap_fraction: self.gap_fraction,
            occupancy_fraction: self.occupancy_fraction,
            fp32_fraction: self.fp32_fraction,
            pcie_rx_bytes_per_second: self.pcie_rx_gb_per_second * 1e9,
            pcie_tx_bytes_per_second: self.pcie_tx_gb_per_second * 1e9,
            phases: self.phase,
            slice_speeds: self.slice_speeds.into_iter().collect(),
        }
    }
}

fn parse_generic(text: &str) -> Result<Vec<Workload>, Box<dyn std::error::Error>> {
    let file: GenericFile = toml::from_str(text)?;
    let reference = hardware::by_name(&file.reference)?;
    Ok(file.workload.into_iter().map(|row| row.workload(&reference)).collect())
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive number of GiB")]
fn bytes(gib: f64) -> u64 {
    (gib * GIB) as u64
}

/// The measured families: what the batches of one model have in common, and what was fitted for each.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Family {
    /// The model, as the paper names it.
    pub name: String,
    /// What it is.
    pub description: String,
    /// Kernel seconds of the whole run for its samples: the same at every batch size.
    pub kernel_seconds: f64,
    /// Kernel seconds for its steps (optimizer, reductions) at a batch size of 1; they shrink as steps become fewer.
    pub step_seconds: f64,
    /// The batch size from which on kernels fill the tile; below it they fill a part in proportion.
    pub full_width_batch_size: f64,
    /// While a kernel runs and its units are filled, the part of time that they issue.
    pub issue_fraction: f64,
    /// Memory bandwidth of kernels that fill the tile.
    pub memory_fraction: f64,
    /// Cache bandwidth of kernels that fill the tile.
    pub cache_fraction: f64,
    /// What the kernels touch again and again, MiB.
    pub footprint_mib: f64,
    /// Weights and optimizer.
    pub memory_gib: f64,
    /// Activations of one sample more.
    pub memory_gib_per_sample: f64,
    /// One a batch size.
    pub batch: Vec<Batch>,
}

/// One measured row.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Batch {
    /// Samples a step.
    pub size: u32,
    /// Measured seconds of the run, alone.
    pub seconds: f64,
    /// Fitted: no kernel runs.
    pub gap_fraction: f64,
    /// Fitted: power of issuing, in terms of an ordinary kernel's.
    pub power_coefficient: f64,
}

/// The least gap of any run: a step's own launch and synchronisation.
const GAP_FRACTION_MIN: f64 = 0.02;

impl Family {
    /// The part of the tile that kernels of this batch size fill.
    pub fn width_fraction(&self, batch_size: u32) -> f64 {
        (f64::from(batch_size) / self.full_width_batch_size).min(1.0)
    }

    /// The rule behind `Batch::gap_fraction`: what the run took beyond its kernels.
    pub fn gap_fraction(&self, batch_size: u32, seconds: f64) -> f64 {
        let kernels = self.kernel_seconds + self.step_seconds / f64::from(batch_size);
        (1.0 - kernels / seconds).max(GAP_FRACTION_MIN)
    }

    /// One batch size as a workload.
    pub fn workload(&self, batch: &Batch) -> Workload {
        let width_fraction = self.width_fraction(batch.size);
        // Narrow kernels move as many bytes a unit: the rates of the whole tile, scaled by width.
        let phase = PhaseDemand {
            time_fraction: 1.0 - batch.gap_fraction,
            width_fraction,
            issue_fraction: self.issue_fraction,
            memory_fraction: self.memory_fraction * width_fraction,
            cache_fraction: self.cache_fraction * width_fraction,
            footprint_mib: self.footprint_mib,
            power_coefficient: batch.power_coefficient,
        };
        Workload {
            name: self.name.clone(),
            batch_size: Some(batch.size),
            description: self.description.clone(),
            seconds: batch.seconds,
            memory_bytes: bytes(self.memory_gib + self.memory_gib_per_sample * f64::from(batch.size)),
            reference: hardware::by_name("max-1550").expect("the machine of the measurements exists"),
            gap_fraction: batch.gap_fraction,
            occupancy_fraction: 0.5,
            fp32_fraction: 0.3,
            pcie_rx_bytes_per_second: 0.2e9,
            pcie_tx_bytes_per_second: 0.02e9,
            phases: vec![phase],
            slice_speeds: BTreeMap::new(),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CostaFile {
    family: Vec<Family>,
}

/// The measured families of the catalogue.
pub fn families() -> Vec<Family> {
    let file: CostaFile =
        toml::from_str(COSTA).expect("data/costa2025.toml is part of the program and tested");
    file.family
}

fn parse_costa(text: &str) -> Result<Vec<Workload>, toml::de::Error> {
    let file: CostaFile = toml::from_str(text)?;
    let all = file.family.iter().flat_map(|family| family.batch.iter().map(|batch| family.workload(batch)));
    Ok(all.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_is_whole_and_runs_on_every_machine() {
        for workload in catalogue() {
            let name = &workload.name;
            let parts: f64 = workload.phases.iter().map(|phase| phase.time_fraction).sum();
            assert!(
                (parts + workload.gap_fraction - 1.0).abs() < 1e-6,
                "{name}: the cycle has {parts} + gap"
            );
            for phase in &workload.phases {
                assert!(phase.width_fraction > 0.0, "{name}: {phase:?}");
                assert!(phase.issue_fraction > 0.0 && phase.issue_fraction <= 1.0, "{name}: {phase:?}");
                for part in [phase.memory_fraction, phase.cache_fraction] {
                    assert!((0.0..=1.0).contains(&part), "{name}: {phase:?}");
                }
                assert!(phase.power_coefficient > 0.0, "{name}: {phase:?}");
            }
            // At home a workload has the traffic that its row states: no more hits than the footprint allows.
            for (phase, demand) in workload.on(&workload.reference).cycle.phases.iter().zip(&workload.phases)
            {
                let bandwidth = workload.reference.memory_bytes_per_second;
                let stated = demand.memory_fraction * demand.time_fraction * bandwidth;
                assert!((phase.miss_bytes_alone / stated - 1.0).abs() < 1e-6, "{name}: {demand:?} {phase:?}");
            }
            for hardware in hardware::all() {
                let placed = workload.on(&hardware);
                assert!(placed.cycle_seconds > 0.0 && placed.seconds > 0.0, "{name} on {}", hardware.name);
                if workload.batch_size.is_none() {
                    assert!(
                        (100.0..2400.0).contains(&placed.seconds),
                        "{name} on {}: {}",
                        hardware.name,
                        placed.seconds
                    );
                }
            }
        }
    }

    #[test]
    fn the_catalogue_has_the_measured_rows_and_a_dozen_others() {
        assert_eq!(catalogue().iter().filter(|workload| workload.batch_size.is_some()).count(), 24);
        assert!(catalogue().iter().filter(|workload| workload.batch_size.is_none()).count() >= 12);
    }

    #[test]
    fn what_is_missing_is_named_with_what_exists() {
        let text = find("resnet51", None).unwrap_err().to_string();
        assert!(text.contains("'resnet51'") && text.contains("ResNet-50"), "{text}");
        let text = find("ResNet-50", Some(3)).unwrap_err().to_string();
        assert!(text.contains("2, 4, 8, 16, 32, 64"), "{text}");
        assert!(find("launch-bound", Some(3)).is_err());
    }

    #[test]
    fn a_computing_kernel_runs_faster_on_a_faster_machine_and_a_gap_does_not() {
        let v100 = hardware::by_name("v100").unwrap();
        let h200 = hardware::by_name("h200").unwrap();
        let ratio = |name: &str| {
            let workload = find(name, None).unwrap();
            workload.on(&v100).seconds / workload.on(&h200).seconds
        };
        assert!(ratio("gemm-hog") > 2.0, "{}", ratio("gemm-hog"));
        assert!(ratio("launch-bound") < 1.4, "{}", ratio("launch-bound"));
    }
}
