//! The three ways to print one answer. A command makes an [`Answer`]; only this module writes to standard output.

mod answer;
pub mod json;
pub mod parsable;
pub mod table;

pub use answer::{Align, Answer, Block, Table};

use crate::error::CliError;
use std::io::Write as _;

/// How to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Table,
    /// One JSON object with `"version": 1`.
    Json,
    /// Cells separated by `|`, no bar at the end: Slurm's `--parsable2`.
    Parsable,
}

/// Prints answers in one format.
#[derive(Debug, Clone)]
pub struct Output {
    format: Format,
    header: bool,
    /// Those to print; all where none is named.
    columns: Vec<String>,
}

impl Output {
    /// With or without column names.
    pub const fn new(format: Format, header: bool) -> Self {
        Self { format, header, columns: Vec::new() }
    }

    /// With these columns only; all where none is named.
    #[must_use]
    pub fn with_columns(self, columns: Vec<String>) -> Self {
        Self { columns, ..self }
    }

    /// The text of an answer.
    pub fn render(&self, answer: &Answer) -> String {
        match self.format {
            Format::Table => table::render(&answer.blocks, self.header),
            Format::Json => answer.json.clone() + "\n",
            Format::Parsable => parsable::render(&answer.parsable, self.header),
        }
    }

    /// Prints it. Whoever closed the pipe (`| head`) has seen enough: that is no error.
    ///
    /// # Errors
    /// [`CliError::Print`] for anything else, [`CliError::Usage`] for a column that the answer does not have.
    pub fn print(&self, answer: &Answer) -> Result<(), CliError> {
        let selected = if self.columns.is_empty() { None } else { Some(answer.select(&self.columns)?) };
        let answer = selected.as_ref().unwrap_or(answer);
        let mut out = std::io::stdout().lock();
        match out.write_all(self.render(answer).as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(CliError::Print(error)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> Answer {
        let mut table = Table::new(&["JOB", ">SHARDS", "WHY"]);
        table.push(vec!["33_2".into(), "40".into(), "fits | well".into()]);
        table.push(vec!["7".into(), String::new(), "odd\nline".into()]);
        Answer::table(table, "{}".into())
    }

    #[test]
    fn tables_align_and_parsable_has_no_bar_at_the_end() {
        let text = |format, header| Output::new(format, header).render(&answer());
        assert_eq!(
            text(Format::Table, true),
            "JOB   SHARDS  WHY\n33_2      40  fits | well\n7          -  odd?line\n"
        );
        assert_eq!(text(Format::Table, false), "33_2  40  fits | well\n7      -  odd?line\n");
        assert_eq!(text(Format::Parsable, true), "JOB|SHARDS|WHY\n33_2|40|fits / well\n7||odd?line\n");
        assert_eq!(text(Format::Parsable, false), "33_2|40|fits / well\n7||odd?line\n");
        assert_eq!(text(Format::Json, true), "{}\n");
    }

    #[test]
    fn columns_are_chosen_by_name_and_what_is_not_there_is_named() {
        let names = |names: &[&str]| -> Vec<String> { names.iter().map(|name| (*name).to_owned()).collect() };
        let chosen = answer().select(&names(&["shards", "Job"])).unwrap();
        assert_eq!(
            Output::new(Format::Table, true).render(&chosen),
            "SHARDS  JOB\n    40  33_2\n     -  7\n"
        );
        assert_eq!(Output::new(Format::Parsable, false).render(&chosen), "40|33_2\n|7\n");
        let error = answer().select(&names(&["gpu"])).unwrap_err().to_string();
        assert_eq!(error, "there is no column 'gpu'; allowed are JOB,SHARDS,WHY");
    }
}
