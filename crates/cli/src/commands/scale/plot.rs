//! Speedup and efficiency in letters, a line a count: every terminal shows them, and the numbers stand in the table above.

use pillion_scale::{Row, Source};

/// Letters from a speedup of one to the greatest.
const SPEEDUP_CELLS: u32 = 44;
const EFFICIENCY_CELLS: u32 = 20;

/// Both, speedup on a logarithmic scale with its interval.
pub(super) fn draw(rows: &[Row]) -> Vec<String> {
    let Some(first) = rows.first() else { return Vec::new() };
    let ideal = |row: &Row| f64::from(row.gpus) / f64::from(first.gpus);
    let high = rows.iter().map(|row| row.speedup_ratio.high.max(ideal(row))).fold(2.0, f64::max);
    let width = rows.iter().map(|row| row.gpus.to_string().len()).max().unwrap_or(0).max("GPUs".len());
    let head = "speedup, logarithmic: * measured, o estimated, - interval, | if every GPU counted";
    let mut lines = vec![
        head.to_owned(),
        format!("{:>width$}  {:<cells$}  efficiency", "GPUs", "", cells = SPEEDUP_CELLS as usize + 1),
    ];
    for row in rows {
        let mark = if row.source == Source::Measured { '*' } else { 'o' };
        let place = |ratio: f64| cell(ratio.max(1.0).ln() / high.ln(), SPEEDUP_CELLS);
        let mut letters = vec![' '; SPEEDUP_CELLS as usize + 1];
        letters[place(ideal(row))] = '|';
        letters[place(row.speedup_ratio.low)..=place(row.speedup_ratio.high)].fill('-');
        letters[place(row.speedup_ratio.expected)] = mark;
        let speedup: String = letters.into_iter().collect();
        let full = cell(row.efficiency_ratio.expected.min(1.0), EFFICIENCY_CELLS);
        let bar = "#".repeat(full) + &".".repeat(EFFICIENCY_CELLS as usize - full);
        lines.push(format!("{:>width$}  {speedup}  {bar}", row.gpus));
    }
    lines
}

/// Which of the cells a part of the whole is.
fn cell(part: f64, cells: u32) -> usize {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to the number of cells")]
    let at = (part.clamp(0.0, 1.0) * f64::from(cells)).round() as usize;
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillion_scale::{Measure, NodeShape, Run, Table};

    #[test]
    fn each_count_has_its_mark_within_its_interval() {
        let run = |gpus: u32, seconds: f64| Run { nodes: None, gpus, cpus: None, seconds, power_watts: None };
        let runs = [run(1, 100.0), run(2, 55.0), run(4, 33.0)];
        let table = Table::of(Measure::Elapsed, &runs, NodeShape::of(4), 1.0).expect("two counts");
        let lines = draw(&table.rows);
        assert_eq!(lines.len(), 2 + table.rows.len());
        for (line, row) in lines[2..].iter().zip(&table.rows) {
            let mark = if row.source == Source::Measured { '*' } else { 'o' };
            assert_eq!(line.matches(mark).count(), 1, "{line}");
            assert!(line.len() <= 80 && line.is_ascii(), "{line}");
        }
        assert!(lines[2].ends_with("####################"), "{}", lines[2]);
    }
}
