//! What was measured of the workloads alone and together, as `pillion backtest --solo SOLO.csv --pairs PAIRS.csv` reads it
//! (docs/planning-on-files.md). Pure.

use crate::stats::median;
use pillion_core::device::Reading;
use pillion_core::metric::Metric;
use std::collections::BTreeMap;

/// One workload alone on the GPU.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Solo {
    /// What kind of workload it is.
    pub family: String,
    /// Under no cap: what our backend read meanwhile.
    pub reading: Reading,
    /// Its memory, as our backend reads it.
    pub memory_bytes_peak: Option<u64>,
    /// Launches a second of each run, by its cap in hundredths; 100 = none.
    pub speeds: BTreeMap<u32, Vec<f64>>,
}

impl Solo {
    /// Launches a second under this cap.
    pub fn speed(&self, cap: u32) -> Option<f64> {
        median(self.speeds.get(&cap)?)
    }
}

/// Two workloads at the same time.
#[derive(Debug, Clone, PartialEq)]
pub struct Together {
    /// Which, by their names.
    pub workloads: [String; 2],
    /// Their caps in hundredths; 100 = none.
    pub caps: [u32; 2],
    /// Of the speed alone, without a cap.
    pub speed_fractions: [f64; 2],
    /// The GPU's power meanwhile.
    pub power_watts: Option<f64>,
}

/// Three and more at the same time, without caps.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// Which, by their names.
    pub workloads: Vec<String>,
    /// Of the speed alone, in their order.
    pub speed_fractions: Vec<f64>,
}

impl Group {
    /// The least of its speeds; infinite where there is none.
    pub fn slowest(&self) -> f64 {
        self.speed_fractions.iter().copied().fold(f64::INFINITY, f64::min)
    }
}

/// All of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Results {
    /// The GPU's model, as our backend names it.
    pub device_model: String,
    /// Alone, by their names.
    pub solo: BTreeMap<String, Solo>,
    /// Two together.
    pub pairs: Vec<Together>,
    /// More than two together, and copies.
    pub groups: Vec<Group>,
}

/// The columns of SOLO.csv between the family and the memory.
const METRICS: [Metric; 8] = [
    Metric::SmActiveFraction,
    Metric::SmOccupancyFraction,
    Metric::Fp32ActiveFraction,
    Metric::GpuBusyFraction,
    Metric::MemoryBusyFraction,
    Metric::MemoryBandwidthFraction,
    Metric::PcieTxBytesPerSecond,
    Metric::PcieRxBytesPerSecond,
];

impl Results {
    /// SOLO.csv; empty where no workload was measured. What is not known is an empty cell.
    pub fn solo_csv(&self) -> String {
        if self.solo.is_empty() {
            return String::new();
        }
        let caps = (1..10).map(|tenth| format!("throughput_per_second_at_cap_0.{tenth}"));
        let heading = ["workload", "family"].into_iter().chain(METRICS.map(Metric::word));
        let more = ["memory_bytes_peak", "power_watts_mean", "throughput_per_second"];
        let heading = heading.chain(more).map(str::to_owned).chain(caps);
        let mut lines = vec![heading.collect::<Vec<_>>().join(",")];
        for (workload, solo) in &self.solo {
            let reading = &solo.reading;
            let mut cells = vec![workload.clone(), solo.family.clone()];
            cells.extend(METRICS.map(|metric| cell(reading.metrics.get(metric))));
            cells.push(solo.memory_bytes_peak.map(|bytes| bytes.to_string()).unwrap_or_default());
            cells.push(cell(reading.metrics.get(Metric::PowerWatts)));
            cells.push(cell(solo.speed(100)));
            cells.extend((1..10).map(|tenth| cell(solo.speed(10 * tenth))));
            lines.push(cells.join(","));
        }
        lines.join("\n") + "\n"
    }

    /// PAIRS.csv; empty where no pair was measured.
    pub fn pairs_csv(&self) -> String {
        if self.pairs.is_empty() {
            return String::new();
        }
        let heading = "workload_a,workload_b,cap_fraction_a,cap_fraction_b,speed_fraction_a,speed_fraction_b,\
                       power_watts,fits,device,mechanism,observations";
        let mut lines = vec![heading.to_owned()];
        for pair in &self.pairs {
            let [a, b] = &pair.workloads;
            let caps = pair.caps.map(|cap| cell((cap < 100).then(|| f64::from(cap) / 100.0)));
            let speeds = pair.speed_fractions.map(|speed| cell(Some(speed)));
            let power = cell(pair.power_watts);
            let (device, caps, speeds) = (&self.device_model, caps.join(","), speeds.join(","));
            lines.push(format!("{a},{b},{caps},{speeds},{power},1,{device},mps,1"));
        }
        lines.join("\n") + "\n"
    }

    /// GROUPS.csv, a tenant a line; empty where no group was measured.
    pub fn groups_csv(&self) -> String {
        if self.groups.is_empty() {
            return String::new();
        }
        let mut lines = vec!["group,workload,speed_fraction,device,mechanism".to_owned()];
        for (number, group) in self.groups.iter().enumerate() {
            for (workload, speed) in group.workloads.iter().zip(&group.speed_fractions) {
                let speed = cell(Some(*speed));
                lines.push(format!("{},{workload},{speed},{},mps", number + 1, self.device_model));
            }
        }
        lines.join("\n") + "\n"
    }
}

/// Four digits after the point: finer than the noise. Absent is empty.
fn cell(value: Option<f64>) -> String {
    value.map(|value| format!("{value:.4}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_an_empty_cell() {
        let mut results = Results { device_model: "h100".to_owned(), ..Results::default() };
        assert_eq!((results.solo_csv(), results.pairs_csv()), (String::new(), String::new()));
        let speeds = BTreeMap::from([(100, vec![10.0, 12.0, 11.0]), (50, vec![6.0])]);
        let reading = Reading::from([(Metric::PowerWatts, 310.5)]);
        let solo = Solo { family: "launch".to_owned(), reading, memory_bytes_peak: None, speeds };
        results.solo.insert("launch".to_owned(), solo);
        let text = results.solo_csv();
        let row = text.lines().nth(1).unwrap();
        assert_eq!(row, "launch,launch,,,,,,,,,,310.5000,11.0000,,,,,6.0000,,,,");
        assert_eq!(row.split(',').count(), text.lines().next().unwrap().split(',').count());
        results.pairs.push(Together {
            workloads: ["compute", "launch"].map(str::to_owned),
            caps: [30, 100],
            speed_fractions: [0.29, 0.0],
            power_watts: None,
        });
        let text = results.pairs_csv();
        let row = text.lines().nth(1).unwrap();
        assert_eq!(row, "compute,launch,0.3000,,0.2900,0.0000,,1,h100,mps,1");
        assert_eq!(row.split(',').count(), text.lines().next().unwrap().split(',').count());
        let workloads = vec!["launch".to_owned(); 2];
        results.groups.push(Group { workloads, speed_fractions: vec![0.9, 0.8] });
        assert_eq!(
            results.groups_csv(),
            "group,workload,speed_fraction,device,mechanism\n1,launch,0.9000,h100,mps\n1,launch,0.8000,h100,mps\n"
        );
    }
}
