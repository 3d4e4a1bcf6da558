//! Each workload alone under `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE`: its speed, the multiprocessors that it sees, and without a
//! cap what our backend reads of it. Runs alternate, so that clocks and heat weigh on all caps alike.

use crate::bench::{Bench, Limits};
use crate::kernels::Workload;
use crate::ours::Ours;
use crate::report::{Findings, Measured, table};
use crate::results::{Results, Solo};
use crate::stats::cell;
use crate::tenant::Tenant;
use std::collections::BTreeMap;
use std::time::Duration;

const ROUNDS: usize = 2;
const WARM_UP: Duration = Duration::from_millis(300);
const RUN: Duration = Duration::from_secs(1);
/// In hundredths; 100 is none.
pub const CAPS: [u32; 4] = [100, 70, 50, 30];
/// Of the share of the device: hardware takes whole multiprocessors and groups of them.
const COMPUTE_TOLERANCE: f64 = 0.08;

/// The runs of one workload: its speeds, and the multiprocessors that it saw under each cap.
#[derive(Debug, Clone, Default, PartialEq)]
struct Runs {
    solo: Solo,
    multiprocessors: BTreeMap<u32, u32>,
}

/// Measures all workloads, and leaves what was measured in `results`.
///
/// # Errors
/// A sentence: why there is no daemon or no client.
pub fn alone(
    bench: &mut Bench,
    ours: &mut Ours,
    results: &mut Results,
    has_time: &dyn Fn() -> bool,
) -> Measured {
    bench.start()?;
    let measured = all(bench, ours, has_time);
    bench.stop()?;
    let (mut rows, mut apart) = (Vec::new(), 0);
    let (measured, missing) = measured?;
    for (workload, runs) in measured {
        apart += rows_of(workload, &runs, &mut rows);
        let solo = Solo { family: workload.entry().to_owned(), ..runs.solo };
        results.solo.insert(workload.name().to_owned(), solo);
    }
    let text = table(&["workload", "cap", "multiprocessors seen", "speed, of that without a cap", ""], rows);
    let text =
        format!("{ROUNDS} runs of {} s each, alternating; median (range).\n\n{text}", RUN.as_secs_f64());
    let skipped = missing.iter().map(|workload| format!("{}: no time was left", workload.name())).collect();
    Ok(Findings { text, apart, skipped })
}

type AllRuns = (Vec<(Workload, Runs)>, Vec<Workload>);

fn all(bench: &mut Bench, ours: &mut Ours, has_time: &dyn Fn() -> bool) -> Result<AllRuns, String> {
    let (mut measured, mut missing) = (Vec::new(), Vec::new());
    for workload in Workload::ALL {
        if has_time() {
            measured.push((workload, all_caps(bench, ours, workload)?));
        } else {
            missing.push(workload);
        }
    }
    Ok((measured, missing))
}

fn all_caps(bench: &mut Bench, ours: &mut Ours, workload: Workload) -> Result<Runs, String> {
    let mut runs = Runs::default();
    for _ in 0..ROUNDS {
        for cap in CAPS {
            let mut tenant = bench.tenant(workload, Limits::cap(cap))?;
            bench.has_client(&tenant)?;
            tenant.run_on(WARM_UP)?;
            if cap == 100 {
                // What comes after is the mean of the time between.
                ours.state()?;
            }
            runs.solo.speeds.entry(cap).or_default().push(tenant.speed(RUN)?);
            if cap == 100 {
                read(ours, &tenant, &mut runs.solo)?;
            }
            runs.multiprocessors.insert(cap, tenant.facts.multiprocessors);
            tenant.leave();
        }
    }
    Ok(runs)
}

fn read(ours: &mut Ours, tenant: &Tenant, solo: &mut Solo) -> Result<(), String> {
    let state = ours.state()?;
    let mine = state.processes.iter().find(|process| process.pid == tenant.pid());
    solo.memory_bytes_peak = solo.memory_bytes_peak.max(mine.and_then(|process| process.memory_bytes));
    solo.reading = state.reading;
    Ok(())
}

/// Adds the rows of one workload. Returns how many ratios of compute, which fills the GPU, are not the share of
/// multiprocessors: the others may well have their speed with half of them.
fn rows_of(workload: Workload, runs: &Runs, rows: &mut Vec<Vec<String>>) -> usize {
    let whole = runs.solo.speed(100).unwrap_or(f64::NAN);
    let seen = |cap: u32| runs.multiprocessors.get(&cap).copied().unwrap_or_default();
    let mut apart = 0;
    for (cap, speeds) in runs.solo.speeds.iter().rev() {
        let ratios: Vec<f64> = speeds.iter().map(|speed| speed / whole).collect();
        let expected = f64::from(seen(*cap)) / f64::from(seen(100).max(1));
        // A client that misses the daemon runs without MPS, uncapped: it sees them all.
        let is_capped = seen(*cap) > 0 && expected <= f64::from(*cap) / 100.0 + COMPUTE_TOLERANCE;
        let ratio = crate::stats::median(&ratios).unwrap_or(f64::NAN);
        let said = match workload {
            _ if !is_capped => "APART: not the multiprocessors of the cap",
            Workload::Compute if (ratio - expected).abs() > COMPUTE_TOLERANCE => {
                "APART: not as the multiprocessors"
            }
            Workload::Compute => "as the multiprocessors",
            _ => "for reading",
        };
        apart += usize::from(said.starts_with("APART"));
        rows.push(vec![
            workload.name().to_owned(),
            cap.to_string(),
            seen(*cap).to_string(),
            cell(&ratios),
            said.to_owned(),
        ]);
    }
    apart
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(of: [(u32, u32, f64); 3]) -> Runs {
        let mut runs = Runs::default();
        for (cap, multiprocessors, speed) in of {
            runs.multiprocessors.insert(cap, multiprocessors);
            runs.solo.speeds.insert(cap, vec![speed, speed * 1.02, speed * 0.98]);
        }
        runs
    }

    #[test]
    fn compute_is_held_against_the_multiprocessors_and_the_rest_is_not() {
        let three = runs([(100, 132, 100.0), (50, 66, 50.0), (30, 38, 90.0)]);
        let mut rows = Vec::new();
        assert_eq!(rows_of(Workload::Compute, &three, &mut rows), 1);
        assert_eq!(rows[1], ["compute", "50", "66", "0.500 (0.490 to 0.510)", "as the multiprocessors"]);
        assert_eq!(rows[2][4], "APART: not as the multiprocessors");
        assert_eq!(rows_of(Workload::BandwidthSmall, &three, &mut rows), 0);
        assert_eq!(rows.len(), 6);
    }

    #[test]
    fn a_cap_that_is_not_seen_is_apart_whatever_the_speed() {
        let uncapped = runs([(100, 132, 1.0), (50, 132, 1.0), (30, 132, 1.0)]);
        assert_eq!(rows_of(Workload::Launch, &uncapped, &mut Vec::new()), 2, "it missed the daemon");
        let dark = runs([(100, 0, 1.0), (50, 0, 0.5), (30, 0, 0.3)]);
        assert_eq!(rows_of(Workload::Bandwidth, &dark, &mut Vec::new()), 3, "it tells no multiprocessors");
    }
}
