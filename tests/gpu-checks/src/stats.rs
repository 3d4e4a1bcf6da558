//! Numbers of repeated measurements.

/// The middle one, of an even count the mean of the two; `None` of none.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        count if count % 2 == 1 => Some(sorted[half]),
        _ => Some(f64::midpoint(sorted[half - 1], sorted[half])),
    }
}

/// The value that this part of all does not exceed, 0.99 for the 99th hundredth; `None` of none.
pub fn quantile(values: &[f64], part: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a count of measurements, and a part of it"
    )]
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

/// The smallest and the largest; `None` of none.
pub fn range(values: &[f64]) -> Option<(f64, f64)> {
    let least = values.iter().copied().reduce(f64::min)?;
    let most = values.iter().copied().reduce(f64::max)?;
    Some((least, most))
}

/// Median and range in one cell of a table.
pub fn cell(values: &[f64]) -> String {
    match (median(values), range(values)) {
        (Some(median), Some((least, most))) => format!("{median:.3} ({least:.3} to {most:.3})"),
        _ => "not measured".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_some_and_of_none() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0]), Some(2.5));
        assert_eq!(median(&[]), None);
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(
            [0.5, 0.99, 1.0, 0.0].map(|part| quantile(&hundred, part)),
            [50.0, 99.0, 100.0, 1.0].map(Some)
        );
        assert_eq!((quantile(&[7.0], 0.99), quantile(&[], 0.5)), (Some(7.0), None));
        assert_eq!(cell(&[0.5, 0.25, 1.0]), "0.500 (0.250 to 1.000)");
        assert_eq!(cell(&[]), "not measured");
    }
}
