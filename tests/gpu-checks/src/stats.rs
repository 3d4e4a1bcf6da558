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
        assert_eq!(cell(&[0.5, 0.25, 1.0]), "0.500 (0.250 to 1.000)");
        assert_eq!(cell(&[]), "not measured");
    }
}
