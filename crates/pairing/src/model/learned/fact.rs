//! What was measured, in the numbers of one model: facts, and how they are rows of the linear model.

use super::columns::Columns;
use super::effects::{Actor, Effects};
use super::features::Point;
use super::prior::Expected;
use super::row::Row;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One measured speed of one tenant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Fact {
    /// The tenant first, then those beside it: workload by number, family by number, place.
    pub(super) actors: Vec<(u32, Option<u32>, Point)>,
    /// The prior as it was: speed, doubt, overlap and cap.
    pub(super) expected: (f64, f64, f64, f64),
    /// Standard deviation of that prior for how solo rates vary; models of earlier releases took no account of it.
    #[serde(default)]
    pub(super) solo_deviation: f64,
    /// What was measured.
    pub(super) speed_fraction: f64,
    /// Standard deviation of the measurement.
    pub(super) deviation: f64,
    /// Whether it may teach about others' workloads.
    pub(super) is_shared: bool,
}

impl Fact {
    pub(super) fn expected(&self) -> Expected {
        let (speed_fraction, doubt, overlap, cap) = self.expected;
        Expected { speed_fraction, doubt, overlap, cap, solo_deviation: self.solo_deviation }
    }
    pub(super) fn effects(&self) -> Effects {
        let actors = self.actors.iter().map(|(workload, family, point)| Actor {
            workload: Some(*workload),
            family: family.map(Some),
            point: *point,
        });
        let actors: Vec<Actor> = actors.collect();
        let others: Vec<&Actor> = actors.iter().skip(1).collect();
        let mut effects = Effects::on(&actors[0], &others, &self.expected());
        if !self.is_shared {
            effects.known.retain(|(column, _)| !column.group().0.is_shared());
        }
        effects
    }
    /// The tenant and those beside it, as one combination.
    pub(super) fn combination(&self) -> Combination {
        let mut others: Vec<u32> = self.actors[1..].iter().map(|(workload, _, _)| *workload).collect();
        others.sort_unstable();
        (self.actors[0].0, others)
    }
}

/// The workloads of a tenant and, in the order of their numbers, of those beside it.
pub(super) type Combination = (u32, Vec<u32>);
/// Numbers of combinations, as they came.
pub(super) type Combinations = FxHashMap<Combination, usize>;

/// Facts as rows of the linear model, with the columns and combinations that they need. An effect without a column is one
/// more doubt about the row.
pub(super) fn rows(facts: &[Fact]) -> (Vec<Row>, Columns, Combinations) {
    let columns = Columns::of(facts.iter().map(Fact::effects));
    let (rows, combinations) = rows_of(facts, &columns);
    (rows, columns, combinations)
}

pub(super) fn rows_of(facts: &[Fact], columns: &Columns) -> (Vec<Row>, Combinations) {
    let mut combinations = Combinations::default();
    let rows = facts.iter().map(|fact| {
        let (effects, expected) = (fact.effects(), fact.expected());
        let scale = expected.doubt;
        let are_of_several = columns.are_of_several(&effects);
        let (mut by_column, mut left_out) = (BTreeMap::<usize, f64>::new(), 0.0);
        for (column, amount) in &effects.known {
            let has_place = !are_of_several || column.families().is_none();
            if let Some(place) = columns.place(column).filter(|_| has_place) {
                *by_column.entry(place).or_default() += amount;
            } else {
                let (kind, regime) = column.group();
                left_out += amount * amount * kind.expected_variance(regime);
            }
        }
        let next = combinations.len();
        Row {
            effects: by_column.into_iter().collect(),
            pair: effects.pair,
            combination: *combinations.entry(fact.combination()).or_insert(next),
            distance: (fact.speed_fraction - expected.speed_fraction) / scale,
            noise: (fact.deviation / scale).powi(2) + left_out,
        }
    });
    (rows.collect(), combinations)
}
