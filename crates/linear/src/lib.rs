//! The linear algebra of the model: a dense matrix, the inverse of a positive definite one, the directions of a symmetric one.
//!
//! A crate of its own because faer's generic code is compiled where it is called: here once and optimised in every profile,
//! in `pillion-pairing` it was compiled with it and again with its tests. It must not know what the numbers mean.

use faer::linalg::solvers::DenseSolveCore;
use faer::{Mat, Side};
use std::ops::{Index, IndexMut};

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
    /// where it is not positive definite.
    pub fn inverse_of_lower(&self) -> Option<Self> {
        let cells = self.cells.llt(Side::Lower).ok()?.inverse();
        Some(Self { cells })
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
        let inverse = example().inverse_of_lower().expect("it is positive definite");
        // [4 2; 2 3] times (1, -1) is (2, -1).
        let back = inverse.times(&[2.0, -1.0]);
        assert!(near(back[0], 1.0) && near(back[1], -1.0), "{back:?}");
        assert!(near(inverse.column(0)[1], inverse[(0, 1)]), "it is symmetric: {inverse:?}");
    }

    #[test]
    fn what_has_no_factors_has_no_inverse() {
        let mut matrix = example();
        matrix[(1, 1)] = -3.0;
        assert_eq!(matrix.inverse_of_lower(), None);
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
