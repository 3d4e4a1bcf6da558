//! Sets that tell how workloads run alone, and next to nothing of pairs.

use super::ConvertError;
use super::table::{Pair, Row, Solo, read};
use std::collections::BTreeMap;
use std::path::Path;

/// What the notes of `costa2025_pairs.csv` and the paper's section 4.3 say of two workloads alone: XVE active, stalled, L3
/// and HBM bandwidth, as fractions.
const COSTA_NOTED: [(&str, [Option<f64>; 4]); 3] = [
    ("ResNet-50/2", [Some(0.10), None, Some(0.13), None]),
    ("BERT-Base/8", [Some(0.96), Some(0.02), Some(0.43), Some(0.03)]),
    ("Llama3.1-8B/64", [Some(0.68), Some(0.29), Some(0.41), Some(0.24)]),
];

/// One tile of a Max 1550. Of its pairs only the time of both together is published: the two speeds follow from it where
/// both are the same workload, and are not known elsewhere. Pairs without a batch size name no workload and are left out.
pub(super) fn costa(data: &Path) -> Result<(Vec<Solo>, Vec<Pair>), ConvertError> {
    let mut alone: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    let mut solo = Vec::new();
    for row in &read(&data.join("costa2025_solo.csv"))? {
        let (seconds, joules) = (row.needed("time_seconds")?, row.needed("energy_joules")?);
        let (workload, family) = (sized(row.text("model"), row.text("batch_size")), row.text("model"));
        alone.insert(workload.clone(), (seconds, joules));
        let noted =
            COSTA_NOTED.iter().find(|(name, _)| *name == workload).map_or([None; 4], |(_, noted)| *noted);
        let row = Solo::new(workload, family)
            .with("duration_seconds", Some(seconds))
            .with("energy_joules", Some(joules))
            .with("power_watts_mean", Some(joules / seconds))
            .with("sm_active_fraction", noted[0])
            .with("stall_fraction", noted[1])
            .with("cache_bandwidth_fraction", noted[2])
            .with("memory_bandwidth_fraction", noted[3]);
        solo.push(row);
    }
    let mut pairs = Vec::new();
    for row in &read(&data.join("costa2025_pairs.csv"))? {
        let workloads = [("model_a", "batch_a"), ("model_b", "batch_b")]
            .map(|(model, batch)| sized(row.text(model), row.text(batch)));
        let (Some(a), Some(b)) = (alone.get(&workloads[0]), alone.get(&workloads[1])) else { continue };
        let (time_ratio, energy_ratio) = (row.needed("time_ratio")?, row.needed("energy_ratio")?);
        let speed = (workloads[0] == workloads[1]).then(|| 0.5 / time_ratio);
        pairs.push(Pair {
            workloads,
            caps: [None, None],
            speeds: [speed, speed],
            power_watts: Some(energy_ratio * (a.1 + b.1) / (time_ratio * (a.0 + b.0))),
            fits: true,
            device: "max-1550-tile",
            mechanism: "ccs",
            observations: 1,
            speed_sd: None,
        });
    }
    Ok((solo, pairs))
}

fn sized(model: &str, batch: &str) -> String {
    format!("{model}/{batch}")
}

/// Compute and memory bandwidth, as shares of the greatest possible.
pub(super) fn han(data: &Path) -> Result<Vec<Solo>, ConvertError> {
    let row = |row: &Row| {
        Ok(Solo::new(row.text("workload"), row.text("workload"))
            .with("sm_active_fraction", row.number("compute_fraction")?)
            .with("memory_bandwidth_fraction", row.number("memory_bandwidth_fraction")?))
    };
    read(&data.join("han2025_solo.csv"))?.iter().map(row).collect()
}

/// An A100 in one piece. The slower runs in a part of it are no caps: a MIG slice has less memory and bandwidth, too.
pub(super) fn miso(data: &Path) -> Result<Vec<Solo>, ConvertError> {
    let mut iteration_seconds: BTreeMap<String, f64> = BTreeMap::new();
    for row in &read(&data.join("miso_mig_solo.csv"))? {
        if row.text("mig_profile").starts_with("7g") {
            let workload = sized(row.text("model"), row.text("batch_size"));
            iteration_seconds.insert(workload, row.needed("iter_s_median")?);
        }
    }
    let row = |row: &Row| {
        let workload = sized(row.text("model"), row.text("batch_size"));
        let fraction =
            |column| Ok::<_, ConvertError>(row.number(column)?.map(|percent: f64| percent / 100.0));
        let throughput = iteration_seconds.get(&workload).map(|seconds| seconds.recip());
        Ok(Solo::new(workload, row.text("model"))
            .with("gpu_busy_fraction", fraction("util_sm_pct")?)
            .with("memory_busy_fraction", fraction("util_mem_pct")?)
            .with("memory_bytes_peak", row.number("gpu_mem_mib")?.map(|mebibytes| mebibytes * 1_048_576.0))
            .with("power_watts_mean", row.number("power_w")?)
            .with("throughput_per_second", throughput))
    };
    read(&data.join("miso_solo_metrics.csv"))?.iter().map(row).collect()
}

/// Inference, one batch after the other.
pub(super) fn glet(data: &Path, gpu: &str) -> Result<Vec<Solo>, ConvertError> {
    let row = |row: &Row| {
        let fraction = |column| {
            Ok::<_, ConvertError>(row.number(column)?.map(|percent: f64| (percent / 100.0).min(1.0)))
        };
        let batches = row.number("avg_duration_ms")?.map(|milliseconds| 1000.0 / milliseconds);
        Ok(Solo::new(sized(row.text("model"), row.text("batch_size")), row.text("model"))
            .with("sm_active_fraction", fraction("sm_util_pct")?)
            .with("cache_bandwidth_fraction", fraction("l2_util_pct")?)
            .with("memory_bandwidth_fraction", fraction("dram_util_pct")?)
            .with("sm_occupancy_fraction", fraction("achieved_occupancy_pct")?)
            .with("throughput_per_second", batches))
    };
    read(&data.join("glet_solo.csv"))?.iter().filter(|found| found.text("gpu") == gpu).map(row).collect()
}

/// Results on one node, which are of all its devices together: how long a benchmark took. Power was measured on whole
/// clusters only, and is nobody's solo power.
pub(super) fn mlperf(data: &Path) -> Result<Vec<Solo>, ConvertError> {
    let mut solo: BTreeMap<String, Solo> = BTreeMap::new();
    for row in &read(&data.join("mlperf_v41_scaling.csv"))? {
        if row.text("nodes") == "1" {
            let benchmark = row.text("benchmark");
            let workload = format!("{benchmark}/{}/{}", row.text("submitter"), row.text("system"));
            let minutes = row.number("minutes_olympic_mean")?;
            let found = Solo::new(workload.clone(), benchmark)
                .with("duration_seconds", minutes.map(|minutes| minutes * 60.0));
            solo.insert(workload, found);
        }
    }
    Ok(solo.into_values().collect())
}
