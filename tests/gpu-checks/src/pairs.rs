//! Two workloads at the same time under MPS: every pair of them under one split of caps. What a speed is a fraction of was
//! measured at the same temperature: each workload alone, without a cap, before the pairs of each split.

use crate::bench::{Bench, Limits};
use crate::kernels::Workload;
use crate::ours::Ours;
use crate::report::{Findings, Measured, table};
use crate::results::{Results, Together};
use crate::tenant::Tenant;
use pillion_core::metric::Metric;
use std::collections::BTreeMap;
use std::time::Duration;

const WARM_UP: Duration = Duration::from_millis(200);
const RUN: Duration = Duration::from_millis(800);

/// The two caps of every pair, in hundredths; 100 is none.
pub const SPLITS: [[u32; 2]; 4] = [[100, 100], [50, 50], [30, 70], [70, 30]];

/// The pairs of a split: each two workloads once, and two of a kind only where turning the caps round is something else.
fn pairs(caps: [u32; 2]) -> Vec<[Workload; 2]> {
    let mut pairs = Vec::new();
    for (index, first) in Workload::ALL.into_iter().enumerate() {
        for second in Workload::ALL.into_iter().skip(index) {
            if first != second || caps[0] <= caps[1] {
                pairs.push([first, second]);
            }
        }
    }
    pairs
}

/// Measures all pairs under one split, as far as there is time, and leaves them in `results`.
///
/// # Errors
/// A sentence: why there is no daemon or no client.
pub fn together(
    bench: &mut Bench,
    ours: &mut Ours,
    results: &mut Results,
    caps: [u32; 2],
    has_time: &dyn Fn() -> bool,
) -> Measured {
    bench.start()?;
    let (mut found, mut missing) = (Vec::new(), 0);
    let measured = alone(bench).and_then(|alone| {
        for workloads in pairs(caps) {
            if has_time() {
                found.push(pair(bench, ours, &alone, workloads, caps)?);
            } else {
                missing += 1;
            }
        }
        Ok(())
    });
    // What was measured before something failed is measured.
    let text = text(&found, RUN);
    results.pairs.append(&mut found);
    bench.stop()?;
    measured?;
    let skipped = (missing > 0).then(|| format!("{missing} pairs: no time was left"));
    Ok(Findings { text, apart: 0, skipped: skipped.into_iter().collect() })
}

fn alone(bench: &Bench) -> Result<BTreeMap<Workload, f64>, String> {
    let mut speeds = BTreeMap::new();
    for workload in Workload::ALL {
        let mut tenant = bench.tenant(workload, Limits::default())?;
        tenant.run_on(WARM_UP)?;
        speeds.insert(workload, tenant.speed(RUN)?);
        tenant.leave();
    }
    Ok(speeds)
}

fn pair(
    bench: &mut Bench,
    ours: &mut Ours,
    alone: &BTreeMap<Workload, f64>,
    workloads: [Workload; 2],
    caps: [u32; 2],
) -> Result<Together, String> {
    let mut first = bench.tenant(workloads[0], Limits::cap(caps[0]))?;
    let mut second = bench.tenant(workloads[1], Limits::cap(caps[1]))?;
    bench.has_client(&first)?;
    bench.has_client(&second)?;
    let speeds = both(&mut first, &mut second)?;
    let power_watts = ours.reading()?.metrics.get(Metric::PowerWatts);
    first.leave();
    second.leave();
    let of = |index: usize| {
        let alone = alone.get(&workloads[index]).ok_or("a workload was not measured alone")?;
        Ok::<f64, String>(speeds[index] / alone)
    };
    let workloads = workloads.map(|workload| workload.name().to_owned());
    Ok(Together { workloads, caps, speed_fractions: [of(0)?, of(1)?], power_watts })
}

/// The speeds of two clients over the same time.
fn both(first: &mut Tenant, second: &mut Tenant) -> Result<[f64; 2], String> {
    std::thread::sleep(WARM_UP);
    let (mut of_first, mut of_second) = (Err(String::new()), Err(String::new()));
    std::thread::scope(|scope| {
        let watched = scope.spawn(|| first.speed(RUN));
        of_second = second.speed(RUN);
        of_first = watched.join().unwrap_or_else(|_| Err("the watch of a client failed".to_owned()));
    });
    Ok([of_first?, of_second?])
}

/// What was measured of pairs, each over `run`, in a table.
pub fn text(pairs: &[Together], run: Duration) -> String {
    let rows = pairs.iter().map(|pair| {
        let [first, second] = &pair.workloads;
        let [of_first, of_second] = pair.speed_fractions.map(|speed| format!("{speed:.3}"));
        let sum = pair.speed_fractions.iter().sum::<f64>();
        vec![format!("{first} beside {second}"), of_first, of_second, format!("{sum:.3}")]
    });
    let heading = ["workloads", "first: speed, of that alone without a cap", "second: the same", "sum"];
    format!("Over {} s each. A sum above 1 is a gain.\n\n{}", run.as_secs_f64(), table(&heading, rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_is_measured_once_under_a_split() {
        assert_eq!(pairs([100, 100]).len(), 15);
        assert_eq!(pairs([30, 70]).len(), 15);
        assert_eq!(pairs([70, 30]).len(), 10, "two of a kind were measured at 30 and 70");
        assert!(!pairs([70, 30]).contains(&[Workload::Compute, Workload::Compute]));
    }

    #[test]
    fn a_pair_is_told_with_its_sum() {
        let pair = Together {
            workloads: ["compute", "bandwidth"].map(str::to_owned),
            caps: [50, 50],
            speed_fractions: [0.5, 0.75],
            power_watts: None,
        };
        assert!(text(&[pair], RUN).ends_with("| compute beside bandwidth | 0.500 | 0.750 | 1.250 |\n"));
    }
}
