//! Whether a run had more GPUs than it was worth, where that is sure, and what fewer would have been.

use crate::estimate::Estimate;
use crate::table::{Row, Source, Table};
use serde::Serialize;

/// Fewer GPUs than a run had.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Advice {
    /// What is advised.
    pub gpus: u32,
    /// What the run had.
    pub instead_of: u32,
    /// The time with fewer over the time that it took; at least 1.
    pub time_ratio: Estimate,
    /// The part of its GPU-hours that would have been saved.
    pub saved_gpu_hours_fraction: Estimate,
}

/// What a run with so many GPUs could do with less: the largest count that keeps the efficiency. Only where nine of ten times it is so: the run is
/// below the efficiency at the best that its interval allows, the advised count above it at the worst, and it costs less at the worst. Between measured
/// counts only, and never where runs of one of the two counts lie so far apart that they hardly did the same.
pub fn advise(table: &Table, gpus: u32, efficiency: f64) -> Option<Advice> {
    let own = table.row(gpus).filter(|row| row.source == Source::Measured)?;
    let is_wasted = own.efficiency_ratio.high < efficiency;
    let keeps = |row: &&Row| {
        row.gpus < gpus
            && matches!(row.source, Source::Measured | Source::Inside)
            && row.efficiency_ratio.low >= efficiency
            && row.gpu_hours.high < own.gpu_hours.low
    };
    let fewer = table.rows.iter().rev().find(keeps).filter(|_| is_wasted)?;
    if [gpus, fewer.gpus].iter().any(|count| table.apart.contains(count)) {
        return None;
    }
    // How much longer: the time of its own is as much in doubt as the other's.
    let time_ratio = own.time_seconds.under(fewer.time_seconds);
    let part = f64::from(fewer.gpus) / f64::from(gpus);
    let saved = |ratio: f64| 1.0 - part * ratio;
    Some(Advice {
        gpus: fewer.gpus,
        instead_of: gpus,
        time_ratio,
        saved_gpu_hours_fraction: Estimate {
            low: saved(time_ratio.high),
            expected: saved(time_ratio.expected),
            high: saved(time_ratio.low),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Measure, Run};
    use crate::shape::NodeShape;

    /// Runs three times each, within a hundredth of each other.
    fn table(times: &[(u32, f64)], spread: f64) -> Table {
        let run =
            |gpus: u32, seconds: f64| Run { nodes: Some(1), gpus, cpus: None, seconds, power_watts: None };
        let runs: Vec<Run> = times
            .iter()
            .flat_map(|(gpus, time)| [1.0, spread, 1.0 / spread].map(|factor| run(*gpus, time * factor)))
            .collect();
        Table::of(Measure::Elapsed, &runs, NodeShape::of(4), 1.0).unwrap()
    }

    #[test]
    fn what_is_sure_is_advised_with_what_it_costs_and_saves() {
        let table = table(&[(1, 7200.0), (2, 4500.0), (4, 4300.0)], 1.01);
        let advice = advise(&table, 4, 0.5).unwrap();
        assert_eq!((advice.gpus, advice.instead_of), (2, 4));
        assert!((advice.time_ratio.expected - 4500.0 / 4300.0).abs() < 1e-9);
        assert!((advice.saved_gpu_hours_fraction.expected - (1.0 - 0.5 * 4500.0 / 4300.0)).abs() < 1e-9);
        assert!(advice.saved_gpu_hours_fraction.low > 0.0 && advice.time_ratio.low <= advice.time_ratio.high);
        assert_eq!(advise(&table, 2, 0.5), None, "it is worth its two");
        assert_eq!(advise(&table, 8, 0.5), None, "nobody ran it with eight");
    }

    #[test]
    fn what_is_not_sure_is_not_advised() {
        // Efficiency .475: below by less than runs differ.
        assert_eq!(advise(&table(&[(1, 7200.0), (2, 4500.0), (4, 3790.0)], 1.05), 4, 0.5), None);
        assert_eq!(
            advise(&table(&[(1, 7200.0), (2, 4500.0), (4, 4300.0)], 1.3), 4, 0.5),
            None,
            "they lie apart"
        );
    }
}
