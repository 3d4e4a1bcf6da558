//! A table in CSV, read strictly: what is wrong is named with file, line and column, and what was expected. Knows no
//! column's meaning.

use pillion_core::{Fraction, SlowdownRatio};
use std::collections::BTreeMap;

/// The longest piece of a bad value that an error repeats.
const VALUE_SHOWN_MAX: usize = 40;

/// A text that is to be read, with the name that errors call it by.
#[derive(Debug, Clone, Copy)]
pub struct NamedText<'t> {
    /// The file's name.
    pub name: &'t str,
    /// What is in it.
    pub text: &'t str,
}

/// What is wrong with a file, on one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}, line {line}, column {column}: {found} where {expected} was expected")]
pub struct InvalidFile {
    /// The file.
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
        let text = source.text.strip_prefix('\u{feff}').unwrap_or(source.text);
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .trim(csv::Trim::All)
            .from_reader(text.as_bytes());
        let mut table = Self { file: source.name, columns: BTreeMap::new(), rows: Vec::new() };
        let mut header_length = 0;
        for record in reader.records() {
            let record = record.map_err(|error| table.broken(&error))?;
            let line = record.position().map_or(1, csv::Position::line);
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

    fn broken(&self, error: &csv::Error) -> InvalidFile {
        let line = error.position().map_or(1, csv::Position::line);
        self.invalid(line, "1", "a line that is no CSV".to_owned(), "comma-separated values in UTF-8")
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

    /// A text that must be there.
    pub(super) fn required(&self, column: &str) -> Result<&str, InvalidFile> {
        self.text(column).ok_or_else(|| self.invalid(column, "a name"))
    }

    pub(super) fn text_or<'d>(&'d self, column: &str, default: &'d str) -> &'d str {
        self.text(column).unwrap_or(default)
    }

    /// A number that `is_allowed`.
    fn number(
        &self,
        column: &str,
        expected: &str,
        is_allowed: fn(f64) -> bool,
    ) -> Result<Option<f64>, InvalidFile> {
        let Some(text) = self.text(column) else { return Ok(None) };
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && is_allowed(*number));
        number.map(Some).ok_or_else(|| self.invalid(column, expected))
    }

    pub(super) fn amount(&self, column: &str) -> Result<Option<f64>, InvalidFile> {
        self.number(column, "a number of 0 or more", |number| number >= 0.0)
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
