//! Runs that agents observed: on 1, 2 and 4 GPUs, one of which is slow where there are 4.

use pillion_api::{ScaleRank, ScaleResponse, ScaleRun};

/// What is known of a workload, by its name or its key; of every one where none is named.
pub(crate) fn response(workload: &str) -> ScaleResponse {
    let is_known = ["", "bert", "alice/bert", "alice/1f0c9a"].contains(&workload);
    let mut runs = if is_known { runs() } else { Vec::new() };
    if workload.is_empty() {
        for run in &mut runs {
            run.ranks.clear();
        }
    }
    ScaleResponse { runs, shared_run_count: 1, ..ScaleResponse::default() }
}

fn runs() -> Vec<ScaleRun> {
    vec![
        run(60, 3790.0, &[0.55, 0.55, 0.97, 0.56], 900e6),
        run(55, 4500.0, &[0.75, 0.76], 800e6),
        run(50, 7200.0, &[0.95], 20e6),
    ]
}

fn run(job: u32, elapsed_seconds: f64, active: &[f64], link_bytes_per_second: f64) -> ScaleRun {
    let gpu_count = u32::try_from(active.len()).expect("a few");
    let rank = |(at, active): (usize, &f64)| ScaleRank {
        node: "n1".to_owned(),
        gres_type: format!("g{at}"),
        active_fraction: Some(*active),
        link_bytes_per_second: Some(link_bytes_per_second),
    };
    ScaleRun {
        job_id: job.to_string(),
        user: "alice".to_owned(),
        workload: Some("alice/1f0c9a".to_owned()),
        workload_name: Some("alice/bert".to_owned()),
        device_model: Some("h100".to_owned()),
        gpu_count,
        node_count: 1,
        started_at_seconds: 1_795_000_000.0,
        elapsed_seconds,
        energy_joules: Some(400.0 * f64::from(gpu_count) * elapsed_seconds),
        ranks: active.iter().enumerate().map(rank).collect(),
        // Written where there is one file for it: some minutes of each run are no part of what is counted.
        progress_per_second: (gpu_count < 4).then(|| 36_000.0 / (elapsed_seconds - 300.0)),
    }
}
