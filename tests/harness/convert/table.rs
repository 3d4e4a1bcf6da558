//! Rows in, rows out. Knows the columns of SOLO.csv and PAIRS.csv, and nobody's data.

use super::ConvertError;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// One line of a published file.
pub(super) struct Row {
    path: PathBuf,
    line: u64,
    cells: BTreeMap<String, String>,
}

/// Reads all lines.
pub(super) fn read(path: &Path) -> Result<Vec<Row>, ConvertError> {
    let broken = |source| ConvertError::File { action: "read", path: path.to_owned(), source };
    let mut reader = csv::Reader::from_path(path).map_err(broken)?;
    let rows = reader.deserialize::<BTreeMap<String, String>>();
    let row = |(index, cells): (usize, Result<_, _>)| {
        Ok(Row { path: path.to_owned(), line: index as u64 + 2, cells: cells.map_err(broken)? })
    };
    rows.enumerate().map(row).collect()
}

impl Row {
    /// What stands in a column; absent and empty are `""`.
    pub(super) fn text(&self, column: &str) -> &str {
        self.cells.get(column).map_or("", String::as_str)
    }

    /// A number, where there is one.
    pub(super) fn number(&self, column: &str) -> Result<Option<f64>, ConvertError> {
        let text = self.text(column);
        if text.is_empty() {
            return Ok(None);
        }
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
        number.map(Some).ok_or_else(|| self.invalid(column, "a number"))
    }

    /// A number that must be there.
    pub(super) fn needed(&self, column: &str) -> Result<f64, ConvertError> {
        self.number(column)?.ok_or_else(|| self.invalid(column, "a number"))
    }

    fn invalid(&self, column: &str, expected: &'static str) -> ConvertError {
        ConvertError::Invalid {
            path: self.path.clone(),
            line: self.line,
            column: column.to_owned(),
            found: self.text(column).to_owned(),
            expected,
        }
    }
}

/// How a workload runs alone: a line of SOLO.csv.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Solo {
    pub(super) workload: String,
    pub(super) family: String,
    /// By column.
    pub(super) values: BTreeMap<&'static str, f64>,
}

impl Solo {
    pub(super) fn new(workload: impl Into<String>, family: impl Into<String>) -> Self {
        Self { workload: workload.into(), family: family.into(), values: BTreeMap::new() }
    }

    /// With one more figure, where it is known.
    #[must_use]
    pub(super) fn with(mut self, column: &'static str, value: Option<f64>) -> Self {
        if let Some(value) = value {
            self.values.insert(column, value);
        }
        self
    }
}

/// How two ran together: a line of PAIRS.csv.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pair {
    pub(super) workloads: [String; 2],
    pub(super) caps: [Option<f64>; 2],
    /// Absent = not known.
    pub(super) speeds: [Option<f64>; 2],
    pub(super) power_watts: Option<f64>,
    pub(super) fits: bool,
    pub(super) device: &'static str,
    pub(super) mechanism: &'static str,
    pub(super) observations: usize,
    pub(super) speed_sd: Option<f64>,
}

const PAIR_COLUMNS: [&str; 12] = [
    "workload_a",
    "workload_b",
    "cap_fraction_a",
    "cap_fraction_b",
    "speed_fraction_a",
    "speed_fraction_b",
    "power_watts",
    "fits",
    "device",
    "mechanism",
    "observations",
    "speed_sd",
];

/// Columns that nobody has a figure for are left out.
pub(super) fn write_solo(path: &Path, rows: &[Solo]) -> Result<(), ConvertError> {
    let columns: BTreeSet<&str> = rows.iter().flat_map(|row| row.values.keys().copied()).collect();
    let header = ["workload", "family"].into_iter().chain(columns.iter().copied()).map(str::to_owned);
    let line = |row: &Solo| {
        let figures = columns.iter().map(|column| shown(row.values.get(column).copied()));
        [row.workload.clone(), row.family.clone()].into_iter().chain(figures).collect::<Vec<_>>()
    };
    write(path, header.collect(), rows.iter().map(line))
}

pub(super) fn write_pairs(path: &Path, rows: &[Pair]) -> Result<(), ConvertError> {
    let line = |row: &Pair| {
        vec![
            row.workloads[0].clone(),
            row.workloads[1].clone(),
            shown(row.caps[0]),
            shown(row.caps[1]),
            shown(row.speeds[0]),
            shown(row.speeds[1]),
            shown(row.power_watts),
            u8::from(row.fits).to_string(),
            row.device.to_owned(),
            row.mechanism.to_owned(),
            row.observations.to_string(),
            shown(row.speed_sd),
        ]
    };
    write(path, PAIR_COLUMNS.map(str::to_owned).to_vec(), rows.iter().map(line))
}

fn write(
    path: &Path,
    header: Vec<String>,
    lines: impl Iterator<Item = Vec<String>>,
) -> Result<(), ConvertError> {
    let broken = |source| ConvertError::File { action: "write", path: path.to_owned(), source };
    let mut writer = csv::Writer::from_path(path).map_err(broken)?;
    for line in std::iter::once(header).chain(lines) {
        writer.write_record(line).map_err(broken)?;
    }
    writer.flush().map_err(|error| broken(error.into()))
}

/// More digits than any published figure has, and fewer than the rounding of a percentage to a fraction.
fn shown(value: Option<f64>) -> String {
    let rounded = |value: f64| format!("{value:.9e}").parse::<f64>().unwrap_or(value);
    value.map(|value| rounded(value).to_string()).unwrap_or_default()
}
