//! Which effects have a column of the linear model, and which columns may meet. What is particular about two families touches
//! the rows of these two alone: where many families meet, such columns stand in blocks that are eliminated one by one, and
//! the cost grows with the pairs of families that were seen and not with their cube.

use super::effects::{Column, Effects, Group};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::ops::Range;

/// Up to so many columns of pairs of families stand among the others: there are few families, and blocks would be large.
const PAIR_COLUMNS_DENSE_MAX: usize = 400;
/// The most columns that may meet each other: their covariance takes 155 MiB. Beyond, those that were met least have none,
/// and what they stand for counts as never seen.
const DENSE_MAX: usize = 4500;

/// The columns of a model in their order: first those that may meet any other, then block after block.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Layout {
    /// The group of each column.
    pub(super) groups: Vec<Group>,
    /// How many columns may meet any other.
    pub(super) dense_count: usize,
    /// Where each block begins.
    pub(super) firsts: Vec<usize>,
}

impl Layout {
    /// How many columns there are.
    pub(super) fn width(&self) -> usize {
        self.groups.len()
    }
    /// The block of a column; `None` = it may meet any other.
    pub(super) fn block_of(&self, column: usize) -> Option<usize> {
        let before = self.firsts.partition_point(|first| *first <= column);
        before.checked_sub(1)
    }
    /// The columns of a block.
    pub(super) fn columns_of(&self, block: usize) -> Range<usize> {
        self.firsts[block]..self.firsts.get(block + 1).copied().unwrap_or(self.width())
    }
}

/// The number of each column.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Columns {
    places: FxHashMap<Column, usize>,
    pub(super) layout: Layout,
}

/// How an effect was met.
#[derive(Debug, Clone, Copy)]
struct Met {
    column: Column,
    count: usize,
    last: usize,
}

impl Columns {
    /// Numbered in the order in which they are met.
    pub(super) fn of(all: impl Iterator<Item = Effects>) -> Self {
        Self::of_at_most(all, PAIR_COLUMNS_DENSE_MAX, DENSE_MAX)
    }

    pub(super) fn of_at_most(all: impl Iterator<Item = Effects>, pairs_max: usize, dense_max: usize) -> Self {
        let met = met(all);
        let of_pairs = met.iter().filter(|met| met.column.families().is_some()).count();
        let (mut dense, of_blocks): (Vec<_>, Vec<_>) = met
            .into_iter()
            .enumerate()
            .partition(|(_, met)| of_pairs <= pairs_max || met.column.families().is_none());
        if dense.len() > dense_max {
            dense.sort_by_key(|(_, met)| Reverse((met.count, met.last)));
            dense.truncate(dense_max);
            dense.sort_by_key(|(order, _)| *order);
        }
        let mut numbers: FxHashMap<(u32, u32), usize> = FxHashMap::default();
        let mut blocks: Vec<Vec<Column>> = Vec::new();
        for (_, Met { column, .. }) in of_blocks {
            let Some(families) = column.families() else { continue };
            let number = *numbers.entry(families).or_insert(blocks.len());
            if number == blocks.len() {
                blocks.push(Vec::new());
            }
            blocks[number].push(column);
        }
        let mut columns = Self::default();
        for (_, met) in dense {
            columns.push(met.column);
        }
        columns.layout.dense_count = columns.layout.width();
        for block in blocks {
            columns.layout.firsts.push(columns.layout.width());
            for column in block {
                columns.push(column);
            }
        }
        columns
    }

    fn push(&mut self, column: Column) {
        self.places.insert(column, self.layout.width());
        self.layout.groups.push(column.group());
    }

    pub(super) fn place(&self, column: &Column) -> Option<usize> {
        self.places.get(column).copied()
    }

    /// Whether a row of these effects may not have those of pairs of families: they are of several blocks, which must not
    /// meet.
    pub(super) fn are_of_several(&self, effects: &Effects) -> bool {
        let mut families = effects.known.iter().filter_map(|(column, _)| column.families());
        let first = families.next();
        !self.layout.firsts.is_empty() && families.any(|families| Some(families) != first)
    }
}

/// The columns that are met, in their order.
fn met(all: impl Iterator<Item = Effects>) -> Vec<Met> {
    let mut places: FxHashMap<Column, usize> = FxHashMap::default();
    let mut met: Vec<Met> = Vec::new();
    for (row, effects) in all.enumerate() {
        for (column, _) in effects.known {
            let place = *places.entry(column).or_insert(met.len());
            if place == met.len() {
                met.push(Met { column, count: 0, last: row });
            }
            met[place].count += 1;
            met[place].last = row;
        }
    }
    met
}

#[cfg(test)]
mod tests;
