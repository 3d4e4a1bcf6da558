//! That columns in blocks say the same as columns that all meet, and what is left out where there are too many.

use super::super::fact::{Fact, rows_of};
use super::super::features::{Point, SIZE};
use super::super::fit::Evidence;
use super::super::row::{Row, Variances};
use super::*;
use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const FAMILIES: u32 = 6;
const WORKLOADS: u32 = 15;

fn actor(rng: &mut ChaCha8Rng, workload: u32, families: u32) -> (u32, Option<u32>, Point) {
    let mut point = Point::default();
    for coordinate in &mut point {
        *coordinate = rng.random_range(-1.0..1.0);
    }
    point[SIZE] = f64::from(workload / families) - 1.0;
    (workload, Some(workload % families), point)
}

/// What was measured of so many together, half of it under caps.
fn facts(seed: u64, count: usize, together: usize, families: u32) -> Vec<Fact> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut fact = || {
        let actors = (0..together).map(|_| rng.random_range(0..WORKLOADS)).collect::<Vec<_>>();
        let overlap = if rng.random_bool(0.5) { 1.0 } else { 0.3 };
        Fact {
            actors: actors.into_iter().map(|workload| actor(&mut rng, workload, families)).collect(),
            expected: (0.7, 0.9, overlap, if overlap < 1.0 { 0.6 } else { 1.0 }),
            speed_fraction: rng.random_range(0.3..1.0),
            solo_deviation: 0.0,
            deviation: 0.03,
            is_shared: rng.random_bool(0.9),
        }
    };
    (0..count).map(|_| fact()).collect()
}

fn columns(facts: &[Fact], pairs_max: usize, dense_max: usize) -> Columns {
    Columns::of_at_most(facts.iter().map(Fact::effects), pairs_max, dense_max)
}

/// Each row's prediction by a model that was fitted to all rows with variances of its own.
fn said(facts: &[Fact], columns: &Columns) -> (Variances, Vec<[f64; 2]>) {
    let rows: Vec<Row> = rows_of(facts, columns).0;
    let evidence = Evidence::of(rows.iter(), &columns.layout);
    let variances = evidence.variances(3);
    let posterior = evidence.into_posterior(&variances).expect("it is positive definite");
    let known = rows.iter().map(|row| (row, Some(row.combination)));
    let unknown = rows.iter().map(|row| (row, None));
    let said = known.chain(unknown).map(|(row, combination)| {
        let said = posterior.predict(&row.effects, row.pair, combination, &variances);
        [said.mean, said.variance]
    });
    (variances.clone(), said.collect())
}

fn are_near(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-9 * (1.0 + one.abs())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10))]

    #[test]
    fn columns_in_blocks_say_the_same_as_columns_that_all_meet(
        seed in any::<u64>(),
        families in 1..=FAMILIES,
        count in 1..60_usize,
    ) {
        let facts = facts(seed, count, 2, families);
        let (dense, blocks) = (columns(&facts, usize::MAX, usize::MAX), columns(&facts, 0, usize::MAX));
        prop_assert!(dense.layout.firsts.is_empty());
        let is_taught = facts.iter().any(|fact| fact.is_shared);
        prop_assert_eq!(!blocks.layout.firsts.is_empty(), is_taught);
        prop_assert_eq!(blocks.layout.dense_count < dense.layout.dense_count, is_taught);
        let ((of_dense, one), (of_blocks, other)) = (said(&facts, &dense), said(&facts, &blocks));
        for (group, variance) in &of_dense.of_group {
            prop_assert!(are_near(*variance, of_blocks.of_group[group]), "{group:?}");
        }
        prop_assert!(are_near(of_dense.noise, of_blocks.noise));
        for (one, other) in one.iter().zip(&other) {
            prop_assert!(are_near(one[0], other[0]) && are_near(one[1], other[1]), "{one:?} {other:?}");
        }
    }
}

/// What holds for the workload alone is learnt of a row that teaches nothing of families; with them it meets in the
/// combination's own effect.
#[test]
fn columns_of_two_rows_of_one_combination_meet_though_no_row_has_both() {
    let mut facts = facts(4, 30, 2, 3);
    for at in 0..facts.len() / 2 {
        let (shared, own) = (2 * at, 2 * at + 1);
        facts[shared].expected = (0.7, 0.9, 1.0, 1.0);
        facts[shared].is_shared = true;
        facts[own] = Fact { is_shared: false, expected: (0.7, 0.9, 0.3, 0.6), ..facts[shared].clone() };
    }
    let (one, other) = (columns(&facts, usize::MAX, usize::MAX), columns(&facts, 0, usize::MAX));
    let (one, other) = (said(&facts, &one).1, said(&facts, &other).1);
    assert!(one.iter().flatten().zip(other.iter().flatten()).all(|(one, other)| are_near(*one, *other)));
}

#[test]
fn three_together_teach_nothing_of_two_families_where_these_stand_in_blocks() {
    let mut facts = facts(1, 60, 2, FAMILIES);
    let of_three = self::facts(2, 30, 3, FAMILIES);
    facts.extend(of_three.clone());
    let columns = columns(&facts, 0, usize::MAX);
    let rows = rows_of(&facts, &columns).0;
    let mut left_out = 0;
    for (row, fact) in rows.iter().zip(&facts) {
        let blocks: Vec<_> =
            row.effects.iter().filter_map(|(column, _)| columns.layout.block_of(*column)).collect();
        assert!(blocks.windows(2).all(|pair| pair[0] == pair[1]), "of one block at most");
        let own = (fact.deviation / 0.9).powi(2);
        left_out += usize::from(blocks.is_empty() && fact.actors.len() == 3);
        assert!(row.noise > own || !blocks.is_empty() || fact.actors.len() == 2 || !fact.is_shared);
    }
    assert!(left_out > 15, "{left_out}");
    let predictions = said(&facts, &columns).1;
    assert!(predictions.iter().flatten().all(|said| said.is_finite()));
}

#[test]
fn what_was_met_least_has_no_column_where_there_are_too_many() {
    let facts = facts(3, 200, 2, FAMILIES);
    let (all, most) = (columns(&facts, 0, usize::MAX), columns(&facts, 0, 60));
    assert!(all.layout.dense_count > 60);
    assert_eq!(most.layout.dense_count, 60);
    let mut counts: FxHashMap<Column, usize> = FxHashMap::default();
    for (column, _) in facts.iter().flat_map(|fact| fact.effects().known) {
        *counts.entry(column).or_default() += 1;
    }
    let kept = |column: &&Column| most.place(column).is_some();
    let alone = counts.keys().filter(|column| column.families().is_none());
    let least_kept = alone.clone().filter(kept).map(|column| counts[column]).min();
    let most_left_out = alone.filter(|column| !kept(column)).map(|column| counts[column]).max();
    assert!(least_kept >= most_left_out, "{least_kept:?} {most_left_out:?}");
    assert!(said(&facts, &most).1.iter().flatten().all(|said| said.is_finite()));
}
