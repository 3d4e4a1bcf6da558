//! What people ask of a table, each answer a count with the counts between which it lies.
//!
//! The count is judged by expected values. Its low and its high are what it would be at the worst and at the best that each row's
//! interval allows, so a wide interval moves both.

use crate::table::{Row, Source, Table};
use serde::Serialize;

/// A count that answers a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// What is expected to be it.
    pub gpus: u32,
    /// The least that it may be; absent where it may be none of them.
    pub low: Option<u32>,
    /// The most that it may be; absent where it may be none of them.
    pub high: Option<u32>,
}

/// From which count on more GPUs no longer pay.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BreakEven {
    /// The least efficiency that pays.
    pub efficiency_ratio: f64,
    /// The largest measured count that keeps it, against the smallest measured one.
    pub measured_gpus: u32,
    /// The largest count that keeps it where those that were not measured are estimated.
    pub estimated: Choice,
    /// Whether nothing that may be estimated breaks it: it lies at `estimated` or further.
    pub is_at_least: bool,
}

/// The largest count whose efficiency against the smallest measured is at least `efficiency`. It does not ask whether one before it
/// was below: a curve that dips at 16 and comes back at 64 is worth 64. Absent only of a table without rows.
pub fn break_even(table: &Table, efficiency: f64) -> Option<BreakEven> {
    let largest =
        |keeps: &dyn Fn(&Row) -> bool| table.rows.iter().rev().find(|row| keeps(row)).map(|row| row.gpus);
    let bound = efficiency - 1e-9;
    let gpus = largest(&|row| row.efficiency_for_counts_ratio >= bound)?;
    let estimated = Choice {
        gpus,
        low: largest(&|row| row.efficiency_ratio.low >= bound && row.efficiency_for_counts_ratio >= bound),
        high: largest(&|row| row.efficiency_ratio.high >= bound || row.efficiency_for_counts_ratio >= bound),
    };
    Some(BreakEven {
        efficiency_ratio: efficiency,
        measured_gpus: table.measured_break_even(efficiency)?,
        estimated,
        is_at_least: table.rows.last().is_some_and(|last| last.gpus == gpus),
    })
}

/// The count with most speed a GPU, so of least GPU-hours; low and high: the counts that cannot be told from it.
pub fn best_per_gpu(table: &Table) -> Option<Choice> {
    best(&table.rows, |row| {
        Some((row.efficiency_ratio.low, row.efficiency_ratio.expected, row.efficiency_ratio.high))
    })
}

/// The count with most speed a watt, so of least energy, of those whose power was measured; `None` where that is fewer than two.
pub fn best_per_watt(table: &Table) -> Option<Choice> {
    let metered: Vec<Row> = table
        .rows
        .iter()
        .filter(|row| row.source == Source::Measured && row.energy_joules.is_some())
        .cloned()
        .collect();
    if metered.len() < 2 {
        return None;
    }
    // Of energy the least is the best.
    best(&metered, |row| {
        row.energy_joules.map(|energy| (1.0 / energy.high, 1.0 / energy.expected, 1.0 / energy.low))
    })
}

/// The row of the greatest value; the first of those and the last whose high reaches its low. `value`: low, expected, high.
fn best(rows: &[Row], value: impl Fn(&Row) -> Option<(f64, f64, f64)>) -> Option<Choice> {
    let known: Vec<(u32, (f64, f64, f64))> =
        rows.iter().filter_map(|row| Some((row.gpus, value(row)?))).collect();
    // Of equal ones the fewest GPUs.
    let (gpus, (least, _, _)) = *known.iter().rev().max_by(|one, other| one.1.1.total_cmp(&other.1.1))?;
    let mut near = known.iter().filter(|(_, (_, _, high))| *high >= least).map(|(gpus, _)| *gpus);
    let low = near.next();
    Some(Choice { gpus, low, high: near.next_back().or(low) })
}

/// The fewest GPUs that are done within so many seconds; `None` where no count is expected to be.
pub fn within_deadline(table: &Table, seconds: f64) -> Option<Choice> {
    let fewest =
        |time: fn(&Row) -> f64| table.rows.iter().find(|row| time(row) <= seconds).map(|row| row.gpus);
    Some(Choice {
        gpus: fewest(|row| row.time_seconds.expected)?,
        low: fewest(|row| row.time_seconds.low),
        high: fewest(|row| row.time_seconds.high),
    })
}

/// What is limited.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Budget {
    /// GPU-hours.
    GpuHours(f64),
    /// Joules from the meter.
    Joules(f64),
}

/// The fastest count that costs no more than this; `None` where every one costs more, or where nobody measured what is limited.
pub fn within_budget(table: &Table, budget: Budget) -> Option<Choice> {
    let costs = |row: &Row| match budget {
        Budget::GpuHours(hours) => Some((row.gpu_hours, hours)),
        Budget::Joules(joules) => row.energy_joules.map(|energy| (energy, joules)),
    };
    let affordable = |part: fn(crate::Estimate) -> f64| {
        let rows =
            table.rows.iter().filter(move |row| costs(row).is_some_and(|(cost, limit)| part(cost) <= limit));
        rows.min_by(|one, other| one.time_seconds.expected.total_cmp(&other.time_seconds.expected))
            .map(|row| row.gpus)
    };
    Some(Choice {
        gpus: affordable(|cost| cost.expected)?,
        low: affordable(|cost| cost.high),
        high: affordable(|cost| cost.low),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Measure, Run};
    use crate::shape::NodeShape;

    /// S2's three points: an hour with one A100, 1.6 and 1.9 times as fast with two and four.
    fn table() -> Table {
        let run = |gpus: u32, speedup: f64| Run {
            nodes: Some(1),
            gpus,
            cpus: None,
            seconds: 3600.0 / speedup,
            power_watts: Some(200.0 * f64::from(gpus)),
        };
        let runs = [run(1, 1.0), run(2, 1.6), run(4, 1.9)];
        Table::of(Measure::Elapsed, &runs, NodeShape::of(4), 1.0).unwrap()
    }

    #[test]
    fn the_paper_s_advice_is_two() {
        let table = table();
        let found = break_even(&table, 0.5).unwrap();
        assert_eq!((found.measured_gpus, found.estimated.gpus, found.is_at_least), (2, 2, false));
        assert_eq!(best_per_gpu(&table).unwrap().gpus, 1);
        assert_eq!(best_per_watt(&table).unwrap().gpus, 1);
    }

    #[test]
    fn a_curve_that_nothing_breaks_lies_at_its_end_or_further() {
        let run = |gpus: u32| Run {
            nodes: None,
            gpus,
            cpus: None,
            seconds: 64.0 / f64::from(gpus),
            power_watts: None,
        };
        let runs = [1, 2, 4, 8].map(run);
        let table = Table::of(Measure::Elapsed, &runs, NodeShape::of(8), 1.0).unwrap();
        let found = break_even(&table, 0.5).unwrap();
        assert!(found.is_at_least && found.estimated.gpus == 32 && found.measured_gpus == 8, "{found:?}");
        assert_eq!(best_per_watt(&table), None, "nobody metered it");
        assert_eq!(within_budget(&table, Budget::Joules(1e9)), None);
    }

    #[test]
    fn deadlines_take_the_fewest_and_budgets_buy_the_fastest() {
        let table = table();
        let deadline = within_deadline(&table, 2400.0).unwrap();
        assert_eq!(deadline.gpus, 2);
        assert!(deadline.low <= Some(2) && deadline.high >= Some(2), "{deadline:?}");
        assert_eq!(within_deadline(&table, 60.0), None, "no count is that fast");
        let tight = within_deadline(&table, 2251.0).unwrap();
        assert_eq!((tight.gpus, tight.high), (2, Some(4)), "it may take longer with two");
        assert_eq!(within_budget(&table, Budget::GpuHours(1.5)).unwrap().gpus, 2);
        assert_eq!(within_budget(&table, Budget::GpuHours(0.5)), None);
        // One GPU of 200 W for an hour.
        assert_eq!(within_budget(&table, Budget::Joules(0.73e6)).unwrap().gpus, 1);
    }
}
