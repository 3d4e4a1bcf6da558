//! Speeds under `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE`: of one client alone, and of two that are capped at a half each. Only
//! ratios are told, of runs that alternate, so that clocks and heat weigh on all alike.

use crate::bench::Bench;
use crate::kernels::Kernel;
use crate::report::{Measured, table};
use crate::stats::{cell, median};
use std::time::Duration;

const ROUNDS: usize = 3;
const RUN: Duration = Duration::from_millis(1500);
const CAPS: [u32; 3] = [100, 50, 25];
/// Of the share of the device: hardware takes whole multiprocessors and groups of them.
const COMPUTE_TOLERANCE: f64 = 0.08;

fn variable(cap: u32) -> (&'static str, String) {
    ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", cap.to_string())
}

/// The runs of one kernel under one cap.
#[derive(Debug, Clone, Default, PartialEq)]
struct Runs {
    multiprocessors: u32,
    speeds: Vec<f64>,
}

/// One client under each cap.
///
/// # Errors
/// A sentence: why there is no daemon or no client.
pub fn alone(bench: &mut Bench) -> Measured {
    bench.start()?;
    let measured = [Kernel::Compute, Kernel::Bandwidth].map(|kernel| (kernel, all_caps(bench, kernel)));
    bench.stop()?;
    let (mut rows, mut apart) = (Vec::new(), 0);
    for (kernel, runs) in measured {
        let runs = runs?;
        apart += rows_of(kernel, &runs, &mut rows);
    }
    let text = table(&["kernel", "cap", "multiprocessors seen", "speed, of that at 100", ""], rows);
    Ok((
        format!("{ROUNDS} runs of {} s each, alternating; median (range).\n\n{text}", RUN.as_secs_f64()),
        apart,
    ))
}

fn all_caps(bench: &Bench, kernel: Kernel) -> Result<[Runs; CAPS.len()], String> {
    let mut runs: [Runs; CAPS.len()] = Default::default();
    for _ in 0..ROUNDS {
        for (cap, runs) in CAPS.into_iter().zip(&mut runs) {
            let mut tenant = bench.tenant(kernel, &[variable(cap)])?;
            runs.speeds.push(tenant.speed(RUN)?);
            runs.multiprocessors = tenant.multiprocessors;
            tenant.leave();
        }
    }
    Ok(runs)
}

/// Adds the rows of one kernel. Returns how many compute ratios are not the share of multiprocessors: bandwidth may well be
/// had with half of them.
fn rows_of(kernel: Kernel, runs: &[Runs; CAPS.len()], rows: &mut Vec<Vec<String>>) -> usize {
    let whole = median(&runs[0].speeds).unwrap_or(f64::NAN);
    let mut apart = 0;
    for (cap, run) in CAPS.into_iter().zip(runs) {
        let ratios: Vec<f64> = run.speeds.iter().map(|speed| speed / whole).collect();
        let expected = f64::from(run.multiprocessors) / f64::from(runs[0].multiprocessors.max(1));
        let ratio = median(&ratios).unwrap_or(f64::NAN);
        // A client that misses the daemon runs without MPS, uncapped: it sees them all.
        let is_capped = expected <= f64::from(cap) / 100.0 + COMPUTE_TOLERANCE;
        let is_as_expected = is_capped && (ratio - expected).abs() <= COMPUTE_TOLERANCE;
        let said = match kernel {
            Kernel::Bandwidth => "for reading",
            Kernel::Compute if is_as_expected => "as the multiprocessors",
            Kernel::Compute => "APART",
        };
        apart += usize::from(said == "APART");
        rows.push(vec![
            kernel.entry().to_owned(),
            cap.to_string(),
            run.multiprocessors.to_string(),
            cell(&ratios),
            said.to_owned(),
        ]);
    }
    apart
}

/// Two clients at 50 each, beside one at 50 alone.
///
/// # Errors
/// As [`alone`].
pub fn together(bench: &mut Bench) -> Measured {
    bench.start()?;
    let kinds = [
        (Kernel::Compute, Kernel::Compute),
        (Kernel::Bandwidth, Kernel::Bandwidth),
        (Kernel::Compute, Kernel::Bandwidth),
    ];
    let measured = kinds.map(|kinds| (kinds, pair(bench, kinds)));
    bench.stop()?;
    let mut rows = Vec::new();
    for ((first, second), ratios) in measured {
        let [of_first, of_second] = ratios?;
        rows.push(vec![
            format!("{} beside {}", first.entry(), second.entry()),
            cell(&of_first),
            cell(&of_second),
        ]);
    }
    let heading = ["kernels, each capped at 50", "first: speed, of that alone at 50", "second: the same"];
    let text = table(&heading, rows);
    Ok((
        format!("{ROUNDS} rounds of alone, alone, together; median (range). 1 = no interference.\n\n{text}"),
        0,
    ))
}

fn pair(bench: &Bench, (first, second): (Kernel, Kernel)) -> Result<[Vec<f64>; 2], String> {
    let half = [variable(50)];
    let mut ratios: [Vec<f64>; 2] = Default::default();
    for _ in 0..ROUNDS {
        let mut alone = [0.0; 2];
        for (kernel, speed) in [first, second].into_iter().zip(&mut alone) {
            let mut tenant = bench.tenant(kernel, &half)?;
            *speed = tenant.speed(RUN)?;
            tenant.leave();
        }
        let mut one = bench.tenant(first, &half)?;
        let mut other = bench.tenant(second, &half)?;
        // Both watch the same time: the second's lines wait until they are read.
        let (mut of_one, mut of_other) = (Err(String::new()), Err(String::new()));
        std::thread::scope(|scope| {
            let watched = scope.spawn(|| one.speed(RUN));
            of_other = other.speed(RUN);
            of_one = watched.join().unwrap_or_else(|_| Err("the watch of a client failed".to_owned()));
        });
        ratios[0].push(of_one? / alone[0]);
        ratios[1].push(of_other? / alone[1]);
        one.leave();
        other.leave();
    }
    Ok(ratios)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(multiprocessors: u32, speeds: [f64; 3]) -> Runs {
        Runs { multiprocessors, speeds: speeds.to_vec() }
    }

    #[test]
    fn compute_is_held_against_the_multiprocessors_and_bandwidth_is_not() {
        let three =
            [runs(132, [100.0, 101.0, 99.0]), runs(66, [50.0, 51.0, 49.0]), runs(32, [90.0, 91.0, 89.0])];
        let mut rows = Vec::new();
        assert_eq!(rows_of(Kernel::Compute, &three, &mut rows), 1);
        assert_eq!(rows[1], ["compute", "50", "66", "0.500 (0.490 to 0.510)", "as the multiprocessors"]);
        assert_eq!(rows[2][4], "APART");
        assert_eq!(rows_of(Kernel::Bandwidth, &three, &mut rows), 0);
        assert_eq!(rows.len(), 6);
        let uncapped = [[1.0; 3]; 3].map(|speeds| runs(132, speeds));
        assert_eq!(rows_of(Kernel::Compute, &uncapped, &mut rows), 2, "as fast as it sees, and yet no cap");
    }

    #[test]
    fn a_device_that_tells_no_multiprocessors_is_apart() {
        let none = [runs(0, [1.0, 1.0, 1.0]), runs(0, [0.5, 0.5, 0.5]), runs(0, [0.25, 0.25, 0.25])];
        assert_eq!(rows_of(Kernel::Compute, &none, &mut Vec::new()), 3);
    }
}
