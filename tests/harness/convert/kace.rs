//! KACE: pairs of training and inference under MPS on a V100, every pair at ten splits.

use super::ConvertError;
use super::table::{Pair, Row, Solo, read};
use std::collections::BTreeMap;
use std::path::Path;

/// A cap in percent; 100 = none.
type Percent = u32;
type Key = [(String, Percent); 2];

const AT_CAP: [(&str, &str); 9] = [
    ("items_per_s_mps010", "throughput_per_second_at_cap_0.1"),
    ("items_per_s_mps020", "throughput_per_second_at_cap_0.2"),
    ("items_per_s_mps030", "throughput_per_second_at_cap_0.3"),
    ("items_per_s_mps040", "throughput_per_second_at_cap_0.4"),
    ("items_per_s_mps050", "throughput_per_second_at_cap_0.5"),
    ("items_per_s_mps060", "throughput_per_second_at_cap_0.6"),
    ("items_per_s_mps070", "throughput_per_second_at_cap_0.7"),
    ("items_per_s_mps080", "throughput_per_second_at_cap_0.8"),
    ("items_per_s_mps090", "throughput_per_second_at_cap_0.9"),
];

pub(super) fn convert(data: &Path) -> Result<(Vec<Solo>, Vec<Pair>), ConvertError> {
    let solo = read(&data.join("kace_solo.csv"))?.iter().map(solo).collect::<Result<_, _>>()?;
    let mut runs: BTreeMap<Key, Vec<[f64; 2]>> = BTreeMap::new();
    for row in read(&data.join("kace_pairs.csv"))?.iter().filter(|row| row.text("clean") == "1") {
        let (key, speeds) = run(row)?;
        runs.entry(key).or_default().push(speeds);
    }
    Ok((solo, runs.into_iter().map(|(key, speeds)| pair(key, &speeds)).collect()))
}

fn solo(row: &Row) -> Result<Solo, ConvertError> {
    let fraction =
        |column| Ok::<_, ConvertError>(row.number(column)?.map(|percent| (percent / 100.0).min(1.0)));
    let busy = fraction("nvsmi_sm_pct")?;
    // Counters of kernels, averaged over the time in which kernels ran: taken for the whole time here, as DCGM counts.
    let over_time = |column| {
        let counter = fraction(column)?;
        Ok::<_, ConvertError>(counter.map(|counter| counter * busy.unwrap_or(1.0)))
    };
    let full = row
        .number("items_per_s_mps100")?
        .map_or_else(|| row.number("items_per_s_label_mps100"), |n| Ok(Some(n)));
    let mut solo = Solo::new(row.text("workload"), row.text("model"))
        .with("gpu_busy_fraction", busy)
        .with("memory_busy_fraction", fraction("nvsmi_mem_pct")?)
        .with("memory_bytes_peak", row.number("gpu_mem_gb")?.map(|gigabytes| gigabytes * 1e9))
        .with("sm_active_fraction", over_time("ncu_sm_throughput_pct")?)
        .with("memory_bandwidth_fraction", over_time("ncu_dram_throughput_pct")?)
        .with("throughput_per_second", full?);
    for (theirs, ours) in AT_CAP {
        solo = solo.with(ours, row.number(theirs)?);
    }
    Ok(solo)
}

/// One run, the lower workload first, so that both orders of a pair meet.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a percentage")]
fn run(row: &Row) -> Result<(Key, [f64; 2]), ConvertError> {
    let percent = |column| Ok::<_, ConvertError>(row.needed(column)?.clamp(0.0, 100.0) as Percent);
    let a = (row.text("workload_a").to_owned(), percent("mps_pct_a")?);
    let b = (row.text("workload_b").to_owned(), percent("mps_pct_b")?);
    let speeds = [row.needed("norm_a")?, row.needed("norm_b")?];
    Ok(if a <= b { ([a, b], speeds) } else { ([b, a], [speeds[1], speeds[0]]) })
}

#[expect(clippy::cast_precision_loss, reason = "a handful of runs")]
fn pair([a, b]: Key, runs: &[[f64; 2]]) -> Pair {
    let count = runs.len() as f64;
    let means = [0, 1].map(|end| runs.iter().map(|run| run[end]).sum::<f64>() / count);
    let squares: f64 =
        runs.iter().flat_map(|run| [0, 1].map(|end: usize| (run[end] - means[end]).powi(2))).sum();
    let cap = |percent: Percent| (percent < 100).then(|| f64::from(percent) / 100.0);
    Pair {
        caps: [cap(a.1), cap(b.1)],
        workloads: [a.0, b.0],
        speeds: means.map(Some),
        power_watts: None,
        fits: true,
        device: "v100",
        mechanism: "mps",
        observations: runs.len(),
        speed_sd: (runs.len() > 1).then(|| (squares / (2.0 * (count - 1.0))).sqrt()),
    }
}
