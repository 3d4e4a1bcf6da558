//! How early a tenant's speed can be read from its counter: what the scheduler's watch of promises rests on. Two workloads run
//! beside each other; the mean of the first seconds is held against that of the seconds after the last reading.

use crate::bench::{Bench, Limits};
use crate::kernels::Workload;
use crate::report::{Findings, Measured, table};
use crate::tenant::Tenant;
use std::time::Duration;

/// A speed is read over so long, again and again.
const STEP: Duration = Duration::from_secs(1);
/// After how many seconds a mean is read.
const READINGS: [usize; 5] = [2, 5, 15, 30, 60];
/// The last reading, and the seconds after it.
const STEPS: usize = 80;
/// The pairs: two that want the same units, and two that want different ones.
const PAIRS: [[Workload; 2]; 2] =
    [[Workload::Compute, Workload::Compute], [Workload::Compute, Workload::Bandwidth]];

/// Measures it, as far as there is time.
///
/// # Errors
/// A sentence: why there is no daemon or no client.
pub fn measure(bench: &mut Bench, has_time: &dyn Fn() -> bool) -> Measured {
    bench.start()?;
    let mut rows = Vec::new();
    let mut skipped = Vec::new();
    let mut measured = Ok(());
    for workloads in PAIRS {
        let name = format!("{} beside {}", workloads[0].name(), workloads[1].name());
        if !has_time() {
            skipped.push(format!("{name}: no time was left"));
            continue;
        }
        match both(bench, workloads) {
            Ok(speeds) => {
                let told = |index: usize| {
                    format!("{}, {}", name, if index == 0 { "the first" } else { "the second" })
                };
                rows.extend((0..2).map(|index| row(&told(index), &speeds[index])));
            }
            Err(reason) => {
                measured = Err(reason);
                break;
            }
        }
    }
    bench.stop()?;
    measured?;
    let mut heading = vec!["whose speed".to_owned()];
    heading.extend(READINGS.map(|seconds| format!("first {seconds} s")));
    let heading: Vec<&str> = heading.iter().map(String::as_str).collect();
    let text = format!(
        "The mean of the first seconds over that of the {} s after the last reading, and its standard error.\n\n{}",
        STEPS - READINGS[READINGS.len() - 1],
        table(&heading, rows)
    );
    Ok(Findings { text, apart: 0, skipped })
}

/// The speeds of both, second by second.
fn both(bench: &mut Bench, workloads: [Workload; 2]) -> Result<[Vec<f64>; 2], String> {
    let mut first = bench.tenant(workloads[0], Limits::default())?;
    let mut second = bench.tenant(workloads[1], Limits::default())?;
    let (mut of_first, mut of_second) = (Err(String::new()), Err(String::new()));
    std::thread::scope(|scope| {
        let watched = scope.spawn(|| each_second(&mut first));
        of_second = each_second(&mut second);
        of_first = watched.join().unwrap_or_else(|_| Err("the watch of a client failed".to_owned()));
    });
    first.leave();
    second.leave();
    Ok([of_first?, of_second?])
}

fn each_second(tenant: &mut Tenant) -> Result<Vec<f64>, String> {
    (0..STEPS).map(|_| tenant.speed(STEP)).collect()
}

fn row(name: &str, speeds: &[f64]) -> Vec<String> {
    let last = READINGS[READINGS.len() - 1];
    let (later, _) = mean(&speeds[last.min(speeds.len())..]);
    let cells = READINGS.map(|seconds| {
        let (early, error) = mean(&speeds[..seconds.min(speeds.len())]);
        format!("{:.3} ± {:.3}", early / later, error / later)
    });
    std::iter::once(name.to_owned()).chain(cells).collect()
}

/// The mean, and its standard error if the values were independent; NaN where there are none.
fn mean(values: &[f64]) -> (f64, f64) {
    #[expect(clippy::cast_precision_loss, reason = "some dozen values")]
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let variance = squares / (count - 1.0).max(1.0);
    (mean, (variance / count).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_early_mean_is_held_against_what_came_later() {
        let speeds: Vec<f64> = (0..STEPS).map(|second| if second < 5 { 50.0 } else { 100.0 }).collect();
        let row = row("x", &speeds);
        assert_eq!(row[..3], ["x", "0.500 ± 0.000", "0.500 ± 0.000"]);
        // Fifty-five of sixty seconds ran at full speed.
        assert!(row[5].starts_with("0.958 ± "), "{row:?}");
    }

    #[test]
    fn a_mean_has_its_error() {
        let (value, error) = mean(&[1.0, 3.0]);
        assert!((value - 2.0).abs() < 1e-12 && (error - 1.0).abs() < 1e-12);
        assert!(mean(&[]).0.is_nan());
    }
}
