//! The machines that can be simulated, by their data sheets: units, bandwidths, memory and power.
//!
//! Knows nothing of workloads or tenants. A "unit" is what a block of threads is scheduled on: an SM, or an Xe core of
//! eight XVEs. Data-sheet values are public; the power terms of the Max 1550 are fitted (data/README.md), those of the
//! others are set so that idle and full load meet what the vendors state.

use pillion_core::device::Mechanism;

const GIB: u64 = 1 << 30;

/// Who made a device: decides which environment variables its driver reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vendor {
    /// CUDA: `CUDA_VISIBLE_DEVICES` and MPS.
    Nvidia,
    /// Level Zero: `ZE_AFFINITY_MASK` and CCS modes.
    Intel,
}

/// One device model.
#[derive(Debug, Clone, PartialEq)]
pub struct Hardware {
    /// As in `DeviceDescription::model`.
    pub name: &'static str,
    /// Whose driver it has.
    pub vendor: Vendor,
    /// The device memory in all.
    pub memory_bytes: u64,
    /// Memory that each process takes before its first allocation.
    pub context_bytes: u64,
    /// Compute units of the whole device.
    pub unit_count: u32,
    /// A cap is rounded down to a multiple of this many units.
    pub unit_granularity: u32,
    /// Work of one unit a second at full clock; one SM of a V100 is 1.
    pub unit_rate: f64,
    /// Device memory bandwidth.
    pub memory_bytes_per_second: f64,
    /// Last-level cache bandwidth.
    pub cache_bytes_per_second: f64,
    /// Last-level cache capacity.
    pub cache_bytes: f64,
    /// More time to compute on an engine that is a part of the device: the last blocks of each kernel fill it worse.
    pub split_fraction: f64,
    /// Time lost by a change of context, as a fraction of a time slice.
    pub switch_fraction: f64,
    /// How much longer a miss waits when the others use all bandwidth: 0.5 = half as long again.
    pub latency_growth: f64,
    /// Where its watts go.
    pub power: Power,
}

/// Where the watts of one device go.
#[derive(Debug, Clone, PartialEq)]
pub struct Power {
    /// Nobody on it.
    pub idle_watts: f64,
    /// More while any process is at work on it, in its gaps too: clocks and memory stay up.
    pub awake_watts: f64,
    /// More while any kernel runs: fabric and clocks.
    pub busy_watts: f64,
    /// More while all units issue at full clock, for a workload of power coefficient 1.
    pub issue_watts: f64,
    /// More while all units wait with threads resident.
    pub stall_watts: f64,
    /// More at full memory bandwidth.
    pub memory_watts: f64,
    /// The limit; the clock falls until it is kept.
    pub watts_max: f64,
}

impl Hardware {
    /// How it is shared unless the configuration says otherwise.
    pub fn mechanism(&self) -> Mechanism {
        match self.vendor {
            Vendor::Nvidia => Mechanism::Mps,
            Vendor::Intel => Mechanism::Ccs,
        }
    }

    /// All units together.
    pub fn units(&self) -> f64 {
        f64::from(self.unit_count)
    }
}

fn nvidia(name: &'static str, memory_gib: u64, unit_count: u32, unit_rate: f64, power: Power) -> Hardware {
    Hardware {
        name,
        vendor: Vendor::Nvidia,
        memory_bytes: memory_gib * GIB,
        context_bytes: 300 << 20,
        unit_count,
        unit_granularity: 2,
        unit_rate,
        memory_bytes_per_second: 0.0,
        cache_bytes_per_second: 0.0,
        cache_bytes: 0.0,
        split_fraction: 0.0,
        switch_fraction: 0.06,
        latency_growth: 0.6,
        power,
    }
}

/// Every machine that can be simulated.
pub fn all() -> Vec<Hardware> {
    let power = |idle_watts, awake_watts, busy_watts, issue_watts, stall_watts, memory_watts, watts_max| {
        Power { idle_watts, awake_watts, busy_watts, issue_watts, stall_watts, memory_watts, watts_max }
    };
    vec![
        Hardware {
            memory_bytes_per_second: 0.9e12,
            cache_bytes_per_second: 2.5e12,
            cache_bytes: 6e6,
            ..nvidia("v100", 32, 80, 1.0, power(39.0, 16.0, 10.0, 175.0, 30.0, 60.0, 300.0))
        },
        Hardware {
            memory_bytes_per_second: 0.933e12,
            cache_bytes_per_second: 2.6e12,
            cache_bytes: 24e6,
            ..nvidia("a30", 24, 56, 1.5, power(30.0, 12.0, 8.0, 85.0, 15.0, 30.0, 165.0))
        },
        Hardware {
            memory_bytes_per_second: 1.555e12,
            cache_bytes_per_second: 5.1e12,
            cache_bytes: 40e6,
            ..nvidia("a100-40", 40, 108, 1.5, power(52.0, 22.0, 13.0, 235.0, 40.0, 80.0, 400.0))
        },
        Hardware {
            memory_bytes_per_second: 3.35e12,
            cache_bytes_per_second: 7.5e12,
            cache_bytes: 50e6,
            ..nvidia("h100", 80, 132, 2.6, power(70.0, 40.0, 15.0, 430.0, 70.0, 130.0, 700.0))
        },
        Hardware {
            memory_bytes_per_second: 4.8e12,
            cache_bytes_per_second: 7.5e12,
            cache_bytes: 50e6,
            ..nvidia("h200", 141, 132, 2.6, power(76.0, 40.0, 15.0, 430.0, 70.0, 150.0, 700.0))
        },
        max_1550(power(214.0, 100.0, 12.0, 100.0, 60.0, 160.0, 600.0)),
    ]
}

/// One tile of a Max 1550: that is what Aurora books, and what the calibration was measured on. The card's two tiles
/// are two devices; the power terms are what the card's counter showed while one tile worked.
fn max_1550(power: Power) -> Hardware {
    Hardware {
        name: "max-1550",
        vendor: Vendor::Intel,
        memory_bytes: 64 * GIB,
        context_bytes: 100 << 20,
        unit_count: 56,
        unit_granularity: 1,
        unit_rate: 2.8,
        memory_bytes_per_second: 1.638e12,
        cache_bytes_per_second: 6.5e12,
        cache_bytes: 204e6,
        split_fraction: 0.04,
        switch_fraction: 0.05,
        latency_growth: 0.6,
        power,
    }
}

/// The machine of that name, or the names that are allowed.
///
/// # Errors
/// [`UnknownHardware`] for any other name.
pub fn by_name(name: &str) -> Result<Hardware, UnknownHardware> {
    all().into_iter().find(|hardware| hardware.name == name).ok_or_else(|| UnknownHardware(name.to_owned()))
}

/// A name of no machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a device model; allowed are v100, a30, a100-40, h100, h200 and max-1550")]
pub struct UnknownHardware(pub String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_is_found_by_its_name_and_others_are_named_in_the_refusal() {
        for hardware in all() {
            assert_eq!(by_name(hardware.name).unwrap(), hardware);
            let text = UnknownHardware("x".into()).to_string();
            assert!(text.contains(hardware.name), "{text} does not name {}", hardware.name);
        }
        assert!(by_name("h200x8").is_err());
    }

    #[test]
    fn full_load_of_an_ordinary_kernel_stays_near_the_limit() {
        for Hardware { name, power, .. } in all() {
            let full = power.idle_watts
                + power.awake_watts
                + power.busy_watts
                + power.issue_watts
                + power.memory_watts;
            assert!(full < power.watts_max * 1.15, "{name}: {full} W of {} W", power.watts_max);
            assert!(full > power.watts_max * 0.8, "{name}: {full} W of {} W", power.watts_max);
        }
    }
}
