//! Gavel: throughputs alone and in pairs, plain processes that take turns, several GPUs.

use super::ConvertError;
use super::table::{Pair, Row, Solo, read};
use std::collections::BTreeMap;
use std::path::Path;

pub(super) fn convert(data: &Path, gpu: &'static str) -> Result<(Vec<Solo>, Vec<Pair>), ConvertError> {
    let of_gpu = |row: &Row| row.text("gpu") == gpu;
    let mut solo: BTreeMap<String, Solo> = BTreeMap::new();
    let mut know = |job: &str, batch: &str, speed: Option<f64>| {
        let workload = workload(job, batch);
        let known = Solo::new(workload.clone(), job).with("throughput_per_second", speed);
        solo.entry(workload).or_insert(known);
    };
    let one_device = |row: &&Row| row.text("scale_factor_gpus") == "1" && row.text("consolidated") == "1";
    let isolated = read(&data.join("gavel_isolated.csv"))?;
    for row in isolated.iter().filter(|row| of_gpu(row)).filter(one_device) {
        know(row.text("job_type"), row.text("batch_size"), row.number("steps_per_s")?);
    }
    let mut pairs = Vec::new();
    for row in read(&data.join("gavel_pairs.csv"))?.iter().filter(|row| of_gpu(row)) {
        know(row.text("job_a"), row.text("batch_a"), row.number("solo_steps_per_s_a")?);
        know(row.text("job_b"), row.text("batch_b"), row.number("solo_steps_per_s_b")?);
        pairs.push(pair(row, gpu)?);
    }
    Ok((solo.into_values().collect(), pairs))
}

/// `ResNet-18/16`; some jobs have no batch size.
fn workload(job: &str, batch: &str) -> String {
    let batch = batch.strip_suffix(".0").unwrap_or(batch);
    if batch.is_empty() { job.to_owned() } else { format!("{job}/{batch}") }
}

fn pair(row: &Row, gpu: &'static str) -> Result<Pair, ConvertError> {
    let fits = row.text("fits") == "1";
    let speed = |column| if fits { row.number(column) } else { Ok(None) };
    Ok(Pair {
        workloads: [
            workload(row.text("job_a"), row.text("batch_a")),
            workload(row.text("job_b"), row.text("batch_b")),
        ],
        caps: [None, None],
        speeds: [speed("norm_a")?, speed("norm_b")?],
        power_watts: None,
        fits,
        device: gpu,
        mechanism: "none",
        observations: 1,
        speed_sd: None,
    })
}
