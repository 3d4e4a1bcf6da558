//! A symmetric matrix in which most columns meet all others and some meet only these and the few of their own block:
//!
//! ```text
//! dense  crossᵀ crossᵀ ..
//! cross  own
//! cross         own
//! ```
//!
//! Blocks are eliminated one after the other (Schur's complement), so that only the dense part is inverted. It knows no
//! model.

use super::columns::Layout;
use pillion_linear::Matrix;

/// The matrix; of the dense part only the lower triangle counts.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Arrow {
    pub(super) dense: Matrix,
    pub(super) blocks: Vec<Block>,
}

/// Some columns that meet no other block.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Block {
    /// Its first column, and how many there are.
    pub(super) first: usize,
    pub(super) width: usize,
    /// Where they meet each other, row after row.
    pub(super) own: Vec<f64>,
    /// The dense columns that they meet, in growing order, and for each of these a cell for each of their own.
    pub(super) touched: Vec<usize>,
    pub(super) cross: Vec<f64>,
}

/// What is left of a block that was eliminated.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Eliminated {
    pub(super) first: usize,
    pub(super) width: usize,
    pub(super) touched: Vec<usize>,
    /// How its columns follow the dense ones: for each that is touched a number for each of its own.
    pub(super) follows: Vec<f64>,
    /// The inverse where its columns meet each other, row after row: given all others at first, then of the whole.
    pub(super) inverse: Vec<f64>,
}

impl Arrow {
    /// One without cells.
    pub(super) fn empty() -> Self {
        Self { dense: Matrix::zeros(0), blocks: Vec::new() }
    }

    /// Zeros where these lists of columns, each in growing order and of one block at most, will be added.
    pub(super) fn zeros<L>(layout: &Layout, lists: impl Iterator<Item = L>) -> Self
    where
        L: DoubleEndedIterator<Item = usize> + Clone,
    {
        let mut touched: Vec<Vec<usize>> = vec![Vec::new(); layout.firsts.len()];
        for list in lists {
            let Some(block) = list.clone().next_back().and_then(|last| layout.block_of(last)) else {
                continue;
            };
            touched[block].extend(list.filter(|column| *column < layout.dense_count));
        }
        let blocks = touched.into_iter().enumerate().map(|(number, mut touched)| {
            touched.sort_unstable();
            touched.dedup();
            let columns = layout.columns_of(number);
            let width = columns.len();
            Block {
                first: columns.start,
                width,
                own: vec![0.0; width * width],
                cross: vec![0.0; width * touched.len()],
                touched,
            }
        });
        Self { dense: Matrix::zeros(layout.dense_count), blocks: blocks.collect() }
    }

    /// Adds `cell` of what two columns have, where they meet.
    pub(super) fn add<T>(&mut self, amounts: &[(usize, T)], cell: impl Fn(&T, &T) -> f64) {
        let dense_count = self.dense.width();
        let (dense, own) = amounts.split_at(amounts.partition_point(|(column, _)| *column < dense_count));
        for (place, (a, left)) in dense.iter().enumerate() {
            for (b, right) in &dense[..=place] {
                self.dense[(*a, *b)] += cell(left, right);
            }
        }
        let Some((first, _)) = own.first() else { return };
        let number = self.blocks.partition_point(|block| block.first <= *first) - 1;
        let Block { first, width, own: cells, touched, cross } = &mut self.blocks[number];
        for (a, left) in own {
            for (b, right) in own {
                cells[(a - *first) * *width + b - *first] += cell(left, right);
            }
        }
        for (b, right) in dense {
            let Ok(place) = touched.binary_search(b) else {
                debug_assert!(false, "columns {b} and {first} were not said to meet");
                continue;
            };
            for (a, left) in own {
                cross[place * *width + a - *first] += cell(left, right);
            }
        }
    }

    /// Every cell over `noise`, and on the diagonal `prior` of the column more.
    pub(super) fn into_precision(mut self, noise: f64, prior: impl Fn(usize) -> f64) -> Self {
        for b in 0..self.dense.width() {
            for a in b..self.dense.width() {
                let own = if a == b { prior(a) } else { 0.0 };
                self.dense[(a, b)] = self.dense[(a, b)] / noise + own;
            }
        }
        for block in &mut self.blocks {
            for cell in block.own.iter_mut().chain(&mut block.cross) {
                *cell /= noise;
            }
            for own in 0..block.width {
                block.own[own * block.width + own] += prior(block.first + own);
            }
        }
        self
    }

    /// Takes the blocks out of the equations `self x = pulls`. `None` where a block is not positive definite.
    pub(super) fn eliminate(&mut self, pulls: &mut [f64]) -> Option<Vec<Eliminated>> {
        let blocks = std::mem::take(&mut self.blocks);
        blocks.into_iter().map(|block| self.eliminate_one(block, pulls)).collect()
    }

    fn eliminate_one(&mut self, block: Block, pulls: &mut [f64]) -> Option<Eliminated> {
        let Block { first, width, own, touched, cross } = block;
        let mut matrix = Matrix::zeros(width);
        for a in 0..width {
            for b in 0..width {
                matrix[(a, b)] = own[a * width + b];
            }
        }
        let matrix = matrix.into_inverse_of_lower()?;
        let inverse: Vec<f64> = (0..width * width).map(|at| matrix[(at / width, at % width)]).collect();
        let mut follows = vec![0.0; cross.len()];
        for (own, cross) in follows.chunks_exact_mut(width).zip(cross.chunks_exact(width)) {
            for (row, follows) in own.iter_mut().enumerate() {
                *follows = -product(&inverse[row * width..(row + 1) * width], cross);
            }
        }
        for (place, a) in touched.iter().enumerate() {
            let left = &cross[place * width..(place + 1) * width];
            for (b, right) in touched[..=place].iter().zip(follows.chunks_exact(width)) {
                self.dense[(*a, *b)] += product(left, right);
            }
            pulls[*a] += product(&follows[place * width..(place + 1) * width], &pulls[first..first + width]);
        }
        let means = matrix.times(&pulls[first..first + width]);
        pulls[first..first + width].copy_from_slice(&means);
        Some(Eliminated { first, width, touched, follows, inverse })
    }
}

pub(super) fn product(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}

impl Eliminated {
    /// How its columns follow the dense ones, by column touched.
    pub(super) fn follows(&self) -> impl Iterator<Item = (usize, &[f64])> {
        self.touched.iter().copied().zip(self.follows.chunks_exact(self.width))
    }

    /// What so much of each of its columns is, of the dense ones; in growing order of these.
    pub(super) fn carried(&self, amounts: &[f64]) -> Vec<(usize, f64)> {
        self.follows().map(|(column, follows)| (column, product(follows, amounts))).collect()
    }

    /// The inverse where one of its columns meets this dense one.
    pub(super) fn inverse_at(&self, own: usize, column: &[f64]) -> f64 {
        self.follows().map(|(touched, follows)| follows[own] * column[touched]).sum()
    }

    /// Adds what its columns have from the dense ones, whose inverse this is.
    pub(super) fn complete(&mut self, inverse: &Matrix) {
        for own in 0..self.width {
            let mut amounts = vec![0.0; self.width];
            amounts[own] = 1.0;
            let carried = self.carried(&amounts);
            let mut moved = vec![0.0; self.width];
            for (column, follows) in self.follows() {
                let cells = inverse.column(column);
                let at: f64 = carried.iter().map(|(touched, amount)| amount * cells[*touched]).sum();
                moved.iter_mut().zip(follows).for_each(|(moved, follows)| *moved += at * follows);
            }
            for (other, moved) in moved.iter().enumerate() {
                self.inverse[own * self.width + other] += moved;
            }
        }
    }
}
