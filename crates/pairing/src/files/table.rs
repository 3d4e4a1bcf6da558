//! A table in CSV, read strictly: what is wrong is named with file, line and column, and what was expected. Knows no
//! column's place in a file.

use crate::planner::candidates::CCS_MODE_SHARED;
use pillion_core::device::Mechanism;
use pillion_core::share::Sharing;
use pillion_core::{Fraction, SlowdownRatio, WorkloadKey};
use std::collections::BTreeMap;
use std::str::FromStr;

/// The longest piece of a bad value that an error repeats.
const VALUE_SHOWN_MAX: usize = 40;
/// The greatest amount that is believed: what is made of amounts stays finite.
const AMOUNT_MAX: f64 = 1e15;
/// The greatest speed fraction that is believed: above 1 it is noise of the solo run.
const SPEED_FRACTION_MAX: f64 = 10.0;
const BYTE_ORDER_MARK: &[u8] = &[0xEF, 0xBB, 0xBF];

/// A text that is to be read, with the name that errors call it by.
#[derive(Debug, Clone, Copy)]
pub struct NamedText<'t> {
    /// The file's name.
    pub name: &'t str,
    /// What is in it; UTF-8 is expected.
    pub bytes: &'t [u8],
}

impl<'t> NamedText<'t> {
    /// A text that is known to be UTF-8.
    pub const fn new(name: &'t str, text: &'t str) -> Self {
        Self { name, bytes: text.as_bytes() }
    }
}

/// What is wrong with a file, on one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}, line {line}, column {column}: {found} where {expected} was expected")]
pub struct InvalidFile {
    /// The name of the file, as it was given.
    pub file: String,
    /// The line, from 1.
    pub line: u64,
    /// The column's name, or its number from 1 where it has none.
    pub column: String,
    /// What stood there.
    pub found: String,
    /// What may stand there.
    pub expected: String,
}

/// The lines of a table, each with all of its columns.
pub(super) struct Table<'t> {
    file: &'t str,
    columns: BTreeMap<String, usize>,
    rows: Vec<(u64, csv::StringRecord)>,
}

/// One line of a table.
#[derive(Clone, Copy)]
pub(super) struct Row<'r> {
    table: &'r Table<'r>,
    line: u64,
    record: &'r csv::StringRecord,
}

impl<'t> Table<'t> {
    /// Reads all of it. Columns may come in any order; those in `required` must be there, no other than those in
    /// `required` and `optional` may.
    pub(super) fn read(
        source: NamedText<'t>,
        required: &[&str],
        optional: &[&str],
    ) -> Result<Self, InvalidFile> {
        let bytes = source.bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(source.bytes);
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .trim(csv::Trim::All)
            .from_reader(bytes);
        let mut table = Self { file: source.name, columns: BTreeMap::new(), rows: Vec::new() };
        let mut header_length = 0;
        let mut lines = Lines { bytes, at: 0, line: 1 };
        for record in reader.records() {
            let record = record.map_err(|error| table.broken(&error, &mut lines))?;
            let line = lines.of(record.position());
            if table.columns.is_empty() {
                header_length = record.len();
                table.columns = table.header(&record, line, required, optional)?;
                continue;
            }
            if record.len() != header_length {
                let found = format!("a line of {} fields", record.len());
                let last = record.len().min(header_length).to_string();
                return Err(table.invalid(line, &last, found, &format!("one of {header_length}")));
            }
            table.rows.push((line, record));
        }
        if table.columns.is_empty() {
            return Err(table.invalid(
                1,
                "1",
                "nothing".to_owned(),
                &format!("a header with {}", required.join(", ")),
            ));
        }
        Ok(table)
    }

    fn header(
        &self,
        record: &csv::StringRecord,
        line: u64,
        required: &[&str],
        optional: &[&str],
    ) -> Result<BTreeMap<String, usize>, InvalidFile> {
        let mut columns = BTreeMap::new();
        for (index, name) in record.iter().enumerate() {
            let number = (index + 1).to_string();
            if !required.contains(&name) && !optional.contains(&name) {
                let expected = format!("one of {}", [required, optional].concat().join(", "));
                return Err(self.invalid(line, &number, shown(name), &expected));
            }
            if columns.insert(name.to_owned(), index).is_some() {
                return Err(self.invalid(
                    line,
                    &number,
                    format!("{} again", shown(name)),
                    "each column once",
                ));
            }
        }
        match required.iter().find(|name| !columns.contains_key(**name)) {
            Some(missing) => Err(self.invalid(line, missing, "no such column".to_owned(), "it")),
            None => Ok(columns),
        }
    }

    fn broken(&self, error: &csv::Error, lines: &mut Lines<'_>) -> InvalidFile {
        let field = match error.kind() {
            csv::ErrorKind::Utf8 { err, .. } => err.field(),
            _ => 0,
        };
        let name = self.columns.iter().find(|(_, index)| **index == field).map(|(name, _)| name.clone());
        let column = name.unwrap_or_else(|| (field + 1).to_string());
        let found = "bytes that are no UTF-8".to_owned();
        self.invalid(lines.of(error.position()), &column, found, "UTF-8")
    }

    fn invalid(&self, line: u64, column: &str, found: String, expected: &str) -> InvalidFile {
        InvalidFile {
            file: self.file.to_owned(),
            line,
            column: column.to_owned(),
            found,
            expected: expected.to_owned(),
        }
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.rows.iter().map(|(line, record)| Row { table: self, line: *line, record })
    }
}

/// Numbers lines. The reader's own count is one behind after blank lines and after lines that end in CR LF.
struct Lines<'b> {
    bytes: &'b [u8],
    at: usize,
    line: u64,
}

impl Lines<'_> {
    /// The line on which a record begins; records come in their order.
    fn of(&mut self, position: Option<&csv::Position>) -> u64 {
        let begin = position.map_or(0, |position| usize::try_from(position.byte()).unwrap_or(usize::MAX));
        while let Some(byte) = self.bytes.get(self.at) {
            let is_end = matches!(byte, b'\r' | b'\n');
            if self.at >= begin && !is_end {
                break;
            }
            let is_half = *byte == b'\r' && self.bytes.get(self.at + 1) == Some(&b'\n');
            self.line += u64::from(is_end && !is_half);
            self.at += 1;
        }
        self.line
    }
}

impl Row<'_> {
    /// What stands in a column; empty and absent are `None`.
    fn text(&self, column: &str) -> Option<&str> {
        let index = self.table.columns.get(column)?;
        self.record.get(*index).filter(|text| !text.is_empty())
    }

    /// An error about a column of this line.
    pub(super) fn invalid(&self, column: &str, expected: &str) -> InvalidFile {
        let found = self.text(column).map_or_else(|| "nothing".to_owned(), shown);
        self.table.invalid(self.line, column, found, expected)
    }

    /// A name, where one is written. One of several lines is a quote that was never closed.
    pub(super) fn name(&self, column: &str) -> Result<Option<&str>, InvalidFile> {
        match self.text(column) {
            Some(name) if name.chars().any(char::is_control) => {
                Err(self.invalid(column, "a name on one line, without control characters"))
            }
            name => Ok(name),
        }
    }

    /// The name of a workload, which must be there.
    pub(super) fn workload(&self, column: &str) -> Result<WorkloadKey, InvalidFile> {
        let name = self.name(column)?.ok_or_else(|| self.invalid(column, "a name"))?;
        Ok(WorkloadKey::new(name))
    }

    /// One of a few words, where one is written.
    pub(super) fn word<T: FromStr>(&self, column: &str, expected: &str) -> Result<Option<T>, InvalidFile> {
        self.text(column).map(|text| text.parse().map_err(|_| self.invalid(column, expected))).transpose()
    }

    /// A number that `is_allowed`.
    fn number(
        &self,
        column: &str,
        expected: &str,
        is_allowed: fn(f64) -> bool,
    ) -> Result<Option<f64>, InvalidFile> {
        let Some(text) = self.text(column) else { return Ok(None) };
        let number = text.parse::<f64>().ok().filter(|number| is_allowed(*number));
        number.map(Some).ok_or_else(|| self.invalid(column, expected))
    }

    pub(super) fn amount(&self, column: &str) -> Result<Option<f64>, InvalidFile> {
        self.number(column, "a number from 0 to 1e15", |number| (0.0..=AMOUNT_MAX).contains(&number))
    }

    /// An amount of which 0 means that it was not measured: nothing draws no power, and nothing is done in no time.
    pub(super) fn measured(&self, column: &str) -> Result<Option<f64>, InvalidFile> {
        Ok(self.amount(column)?.filter(|amount| *amount > 0.0))
    }

    /// How many runs something is the mean of.
    pub(super) fn count(&self, column: &str) -> Result<Option<f64>, InvalidFile> {
        self.number(column, "a number of 1 or more", |number| (1.0..=AMOUNT_MAX).contains(&number))
    }

    /// 0 or 1, which must be there.
    pub(super) fn flag(&self, column: &str) -> Result<bool, InvalidFile> {
        let flag = match self.text(column).and_then(|text| text.parse::<f64>().ok()) {
            Some(0.0) => Some(false),
            Some(1.0) => Some(true),
            _ => None,
        };
        flag.ok_or_else(|| self.invalid(column, "0 or 1"))
    }

    /// A speed over the speed alone, or the deviation of one.
    pub(super) fn speed(&self, column: &str) -> Result<Option<f64>, InvalidFile> {
        self.number(column, "a number from 0 to 10", |number| (0.0..=SPEED_FRACTION_MAX).contains(&number))
    }

    pub(super) fn fraction(&self, column: &str) -> Result<Option<Fraction>, InvalidFile> {
        let number = self.number(column, "a number from 0 to 1", |number| (0.0..=1.0).contains(&number))?;
        Ok(number.map(Fraction::clamped))
    }

    /// A cap: a fraction above 0; 1 is the same as none.
    pub(super) fn cap(&self, column: &str) -> Result<Option<Fraction>, InvalidFile> {
        let expected = "a number above 0, at most 1";
        let number = self.number(column, expected, |number| number > 0.0 && number <= 1.0)?;
        Ok(number.filter(|cap| *cap < 1.0).map(Fraction::clamped))
    }

    /// The mode of a card: that which two share where nothing is written; none where cards have no modes.
    fn ccs_mode(&self, mechanism: Mechanism) -> Result<Option<u8>, InvalidFile> {
        match (mechanism.has_modes(), self.text("ccs_mode")) {
            (true, None) => Ok(Some(CCS_MODE_SHARED)),
            (true, Some("1")) => Ok(Some(1)),
            (true, Some("2")) => Ok(Some(2)),
            (true, Some("4")) => Ok(Some(4)),
            (true, Some(_)) => Err(self.invalid("ccs_mode", "1, 2, 4 or nothing")),
            (false, None) => Ok(None),
            (false, Some(_)) => Err(self.invalid("ccs_mode", "no value (only ccs has modes)")),
        }
    }

    /// How the device is shared; where nothing is written, by `usual`. Instances are no row of these files.
    pub(super) fn mechanism(&self, usual: Mechanism) -> Result<Mechanism, InvalidFile> {
        let (column, expected) = ("mechanism", "mps, ccs, none or nothing");
        let mechanism: Mechanism = self.word(column, expected)?.unwrap_or(usual);
        if mechanism.has_instances() { Err(self.invalid(column, expected)) } else { Ok(mechanism) }
    }

    /// How a tenant shares its device.
    pub(super) fn sharing(&self, mechanism: Mechanism, cap: &str) -> Result<Sharing, InvalidFile> {
        Ok(Sharing::by(mechanism, self.cap(cap)?, self.ccs_mode(mechanism)?))
    }

    pub(super) fn promise(&self, column: &str) -> Result<Option<SlowdownRatio>, InvalidFile> {
        let number = self.number(column, "a number from 1 to 10", |number| (1.0..=10.0).contains(&number))?;
        Ok(number.and_then(|number| SlowdownRatio::try_promise(number).ok()))
    }

    /// Bytes, which other programs like to write as `1.7e10`.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 2^53")]
    pub(super) fn bytes(&self, column: &str) -> Result<Option<u64>, InvalidFile> {
        let expected = "a number of bytes";
        let number =
            self.number(column, expected, |number| (0.0..=9_007_199_254_740_992.0).contains(&number))?;
        Ok(number.map(|number| number.ceil() as u64))
    }
}

fn shown(text: &str) -> String {
    let short: String = text.chars().take(VALUE_SHOWN_MAX).collect();
    let dots = if short.len() < text.len() { ".." } else { "" };
    format!("'{}{dots}'", short.escape_debug())
}
