//! Max-min fair sharing of one resource.

/// Shares `capacity` among `demands` (not negative): nobody gets more than he asks, and nobody gets less than another
/// unless he asks less. The sum of the parts is the lesser of the capacity and of all demands.
pub fn water_fill(capacity: f64, demands: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..demands.len()).collect();
    order.sort_by(|left, right| demands[*left].total_cmp(&demands[*right]));
    let mut parts = vec![0.0; demands.len()];
    let mut left = capacity.max(0.0);
    let mut waiting = demands.len();
    for index in order {
        #[expect(clippy::cast_precision_loss, reason = "a handful of tenants")]
        let level = left / waiting as f64;
        parts[index] = demands[index].min(level);
        left -= parts[index];
        waiting -= 1;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::water_fill;
    use proptest::prelude::*;

    #[test]
    fn the_modest_are_served_whole_and_the_greedy_share_the_rest() {
        assert_eq!(water_fill(10.0, &[2.0, 9.0, 9.0]), vec![2.0, 4.0, 4.0]);
        assert_eq!(water_fill(10.0, &[1.0, 2.0]), vec![1.0, 2.0]);
        assert!(water_fill(1.0, &[]).is_empty());
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_nothing_is_made(capacity in 0.0..100.0_f64, demands in prop::collection::vec(0.0..60.0_f64, 1..6)) {
            let parts = water_fill(capacity, &demands);
            let wanted: f64 = demands.iter().sum();
            let given: f64 = parts.iter().sum();
            prop_assert!((given - wanted.min(capacity)).abs() < 1e-9);
            for (part, demand) in parts.iter().zip(&demands) {
                prop_assert!(*part <= demand + 1e-12);
            }
        }

        #[test]
        fn one_more_never_gives_another_more(capacity in 0.0..100.0_f64, mut demands in prop::collection::vec(0.0..60.0_f64, 1..6), more in 0.0..60.0_f64) {
            let before = water_fill(capacity, &demands);
            demands.push(more);
            let after = water_fill(capacity, &demands);
            for (before, after) in before.iter().zip(&after) {
                prop_assert!(*after <= before + 1e-9);
            }
        }
    }
}
