//! The linear algebra of the model: a dense matrix, the inverse of a positive definite one, the directions of a symmetric one.
//!
//! A crate of its own because faer's generic code is compiled where it is called: here once and optimised in every profile,
//! in `pillion-pairing` it was compiled with it and again with its tests. It must not know what the numbers mean.

use faer::linalg::matmul::matmul;
use faer::linalg::matmul::triangular::{self, BlockStructure};
use faer::linalg::solvers::DenseSolveCore;
use faer::reborrow::{Reborrow, ReborrowMut};
use faer::{Accum, Mat, MatMut, MatRef, Par, Side};
use std::ops::{Index, IndexMut};

/// From this width on an inverse is made in place: the factors and the product beside the matrix would take three times its
/// memory, and what is left to smaller ones is a few MiB.
const IN_PLACE_MIN: usize = 1536;
/// Halves of this width are inverted by their factors.
const HALVES_MIN: usize = 256;

/// A dense square matrix of real numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Matrix {
    cells: Mat<f64>,
}

/// What a symmetric matrix does along each of its own directions.
#[derive(Debug, Clone, PartialEq)]
pub struct Directions {
    /// By how much it stretches, in growing order.
    pub stretches: Vec<f64>,
    /// The directions in the same order, each of length one; the sign of each is chance.
    pub directions: Vec<Vec<f64>>,
}

impl Matrix {
    /// `width` rows and columns of zeros.
    pub fn zeros(width: usize) -> Self {
        Self { cells: Mat::zeros(width, width) }
    }

    /// How many rows and columns it has.
    pub fn width(&self) -> usize {
        self.cells.ncols()
    }

    /// One column, from its first row to its last.
    ///
    /// # Panics
    /// Where there is no such column.
    pub fn column(&self, column: usize) -> &[f64] {
        self.cells.col_as_slice(column)
    }

    /// The inverse of a positive definite matrix by Cholesky's factors, of which only the lower triangle is read; `None`
    /// where it is not positive definite. A large one takes a third of its memory besides its own.
    pub fn into_inverse_of_lower(mut self) -> Option<Self> {
        if self.width() < IN_PLACE_MIN {
            let cells = self.cells.llt(Side::Lower).ok()?.inverse();
            return Some(Self { cells });
        }
        mirror_lower(self.cells.as_mut());
        invert_in_place(self.cells.as_mut())?;
        Some(self)
    }

    /// The matrix times a column of as many numbers.
    ///
    /// # Panics
    /// Where the column is longer or shorter than the matrix is wide.
    pub fn times(&self, column: &[f64]) -> Vec<f64> {
        assert_eq!(column.len(), self.width(), "a column as long as the matrix is wide");
        let column = Mat::from_fn(column.len(), 1, |row, _| column[row]);
        let product = &self.cells * &column;
        product.col_as_slice(0).to_vec()
    }

    /// The directions of a symmetric matrix, of which only the lower triangle is read; `None` where the iteration does not
    /// come to an end.
    pub fn directions_of_lower(&self) -> Option<Directions> {
        let eigen = self.cells.self_adjoint_eigen(Side::Lower).ok()?;
        let width = self.width();
        let stretches = (0..width).map(|at| eigen.S()[at]).collect();
        let directions = (0..width).map(|at| (0..width).map(|row| eigen.U()[(row, at)]).collect());
        Some(Directions { stretches, directions: directions.collect() })
    }
}

/// Makes the upper triangle what the lower is.
fn mirror_lower(mut cells: MatMut<'_, f64>) {
    for column in 1..cells.ncols() {
        for row in 0..column {
            cells[(row, column)] = cells[(column, row)];
        }
    }
}

/// Inverts a symmetric positive definite matrix by halves. With `A` its first quarter, `C` below it and `D` the last:
///
/// ```text
/// W = C A⁻¹    S = (D - W Cᵀ)⁻¹    A⁻¹ + Wᵀ S W   (-S W)ᵀ
///                                  -S W           S
/// ```
///
/// `None` where it is not positive definite; the cells are then of no use.
fn invert_in_place(cells: MatMut<'_, f64>) -> Option<()> {
    let width = cells.ncols();
    if width <= HALVES_MIN {
        let mut cells = cells;
        let inverse = cells.rb().llt(Side::Lower).ok()?.inverse();
        cells.copy_from(&inverse);
        return Some(());
    }
    let half = width / 2;
    let (mut first, mut right, mut below, mut last) = cells.split_at_mut(half, half);
    invert_in_place(first.rb_mut())?;
    let mut moved = Mat::<f64>::zeros(width - half, half);
    matmul(moved.as_mut(), Accum::Replace, below.rb(), first.rb(), 1.0, Par::Seq);
    add_lower(last.rb_mut(), -1.0, moved.as_ref(), below.rb().transpose());
    mirror_lower(last.rb_mut());
    invert_in_place(last.rb_mut())?;
    matmul(below.rb_mut(), Accum::Replace, last.rb(), moved.as_ref(), -1.0, Par::Seq);
    add_lower(first.rb_mut(), -1.0, moved.as_ref().transpose(), below.rb());
    mirror_lower(first.rb_mut());
    right.copy_from(below.rb().transpose());
    Some(())
}

/// Adds a product to the lower triangle of a symmetric matrix.
fn add_lower(to: MatMut<'_, f64>, scale: f64, left: MatRef<'_, f64>, right: MatRef<'_, f64>) {
    let whole = BlockStructure::Rectangular;
    let lower = BlockStructure::TriangularLower;
    triangular::matmul(to, lower, Accum::Add, left, whole, right, whole, scale, Par::Seq);
}

/// By row and column.
impl Index<(usize, usize)> for Matrix {
    type Output = f64;
    fn index(&self, at: (usize, usize)) -> &f64 {
        &self.cells[at]
    }
}

impl IndexMut<(usize, usize)> for Matrix {
    fn index_mut(&mut self, at: (usize, usize)) -> &mut f64 {
        &mut self.cells[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Matrix {
        let mut matrix = Matrix::zeros(2);
        // The upper triangle is not read.
        for (at, value) in [((0, 0), 4.0), ((1, 0), 2.0), ((1, 1), 3.0), ((0, 1), f64::NAN)] {
            matrix[at] = value;
        }
        matrix
    }

    fn near(one: f64, other: f64) -> bool {
        (one - other).abs() < 1e-12
    }

    #[test]
    fn an_inverse_undoes_what_the_matrix_does() {
        let inverse = example().into_inverse_of_lower().expect("it is positive definite");
        // [4 2; 2 3] times (1, -1) is (2, -1).
        let back = inverse.times(&[2.0, -1.0]);
        assert!(near(back[0], 1.0) && near(back[1], -1.0), "{back:?}");
        assert!(near(inverse.column(0)[1], inverse[(0, 1)]), "it is symmetric: {inverse:?}");
    }

    #[test]
    fn what_has_no_factors_has_no_inverse() {
        let mut matrix = example();
        matrix[(1, 1)] = -3.0;
        assert_eq!(matrix.into_inverse_of_lower(), None);
    }

    /// Numbers that hardly repeat, and a diagonal that outweighs them.
    fn large(width: usize) -> Matrix {
        let mut matrix = Matrix::zeros(width);
        let mut state = 1_u32;
        for column in 0..width {
            for row in column..width {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                matrix[(row, column)] = f64::from(state >> 8) / f64::from(1_u32 << 24) - 0.5;
            }
            matrix[(column, column)] += 40.0;
        }
        matrix
    }

    #[test]
    fn a_large_one_is_inverted_in_place_as_a_small_one_is() {
        let width = 700;
        let mut in_place = large(width);
        mirror_lower(in_place.cells.as_mut());
        let whole = in_place.clone();
        invert_in_place(in_place.cells.as_mut()).expect("it is positive definite");
        let product = &whole.cells * &in_place.cells;
        let furthest = (0..width).flat_map(|row| (0..width).map(move |column| (row, column))).map(|at| {
            let expected = if at.0 == at.1 { 1.0 } else { 0.0 };
            (product[at] - expected).abs()
        });
        assert!(furthest.fold(0.0, f64::max) < 1e-10);
        let mut broken = whole;
        broken[(500, 500)] = -40.0;
        assert_eq!(invert_in_place(broken.cells.as_mut()), None);
    }

    #[test]
    fn directions_are_stretched_by_what_is_said() {
        let found = example().directions_of_lower().expect("it ends");
        assert!(found.stretches.is_sorted(), "{found:?}");
        for (stretch, direction) in found.stretches.iter().zip(&found.directions) {
            let product = [4.0 * direction[0] + 2.0 * direction[1], 2.0 * direction[0] + 3.0 * direction[1]];
            assert!(
                near(product[0], stretch * direction[0]) && near(product[1], stretch * direction[1]),
                "{found:?}"
            );
        }
    }

    #[test]
    fn nothing_has_no_directions() {
        let nothing = Matrix::zeros(0);
        assert_eq!(nothing.times(&[]), Vec::<f64>::new());
        assert_eq!(nothing.width(), 0);
    }
}
