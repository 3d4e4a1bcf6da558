//! One combination of tenants: what its rows say about the effect that is its own, which is integrated out. It must not know
//! what the other columns stand for.

use super::row::{Row, Variances};

pub(super) type Two = [[f64; 2]; 2];

/// What rows of one combination say about its own effect, given the others.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Combination {
    /// Sum of `c cᵀ / noise`.
    pub(super) weight: Two,
    /// Sum of `c distance / noise`.
    pub(super) pull: [f64; 2],
    /// Sum of `c effectsᵀ / noise`, by column in growing order.
    pub(super) mixed: Vec<(usize, [f64; 2])>,
}

impl Combination {
    pub(super) fn add(&mut self, row: &Row) {
        let weight = 1.0 / row.noise;
        for regime in 0..2 {
            self.pull[regime] += row.pair[regime] * row.distance * weight;
            for other in 0..2 {
                self.weight[regime][other] += row.pair[regime] * row.pair[other] * weight;
            }
        }
        for (column, value) in &row.effects {
            let place =
                self.mixed.binary_search_by_key(column, |(column, _)| *column).unwrap_or_else(|place| {
                    self.mixed.insert(place, (*column, [0.0; 2]));
                    place
                });
            let mixed = &mut self.mixed[place].1;
            mixed[0] += row.pair[0] * value * weight;
            mixed[1] += row.pair[1] * value * weight;
        }
    }

    /// The covariance of the combination's effect, given the others.
    pub(super) fn covariance(&self, variances: &Variances) -> Two {
        let prior = variances.of_pair();
        let precision = [
            [1.0 / prior[0] + self.weight[0][0] / variances.noise, self.weight[0][1] / variances.noise],
            [self.weight[1][0] / variances.noise, 1.0 / prior[1] + self.weight[1][1] / variances.noise],
        ];
        let determinant = precision[0][0] * precision[1][1] - precision[0][1] * precision[1][0];
        [
            [precision[1][1] / determinant, -precision[0][1] / determinant],
            [-precision[1][0] / determinant, precision[0][0] / determinant],
        ]
    }
}

pub(super) fn times(matrix: &Two, vector: [f64; 2]) -> [f64; 2] {
    [matrix[0][0] * vector[0] + matrix[0][1] * vector[1], matrix[1][0] * vector[0] + matrix[1][1] * vector[1]]
}

pub(super) fn dot(a: [f64; 2], b: [f64; 2]) -> f64 {
    a[0] * b[0] + a[1] * b[1]
}
