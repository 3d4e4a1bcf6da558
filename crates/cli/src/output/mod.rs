//! The three ways to print one answer. A command makes an [`Answer`]; only this room writes to standard output.

pub mod json;
pub mod parsable;
pub mod table;

use crate::error::CliError;
use std::io::Write as _;

/// How to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Table,
    /// One JSON object with `"version": 1`.
    Json,
    /// Cells separated by `|`, no bar at the end: Slurm's `--parsable2`.
    Parsable,
}

/// Which side of its column a cell stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// A table, before it is laid out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows. A column whose name begins with `>` stands to the right.
    pub fn new(columns: &[&str]) -> Self {
        let column = |name: &&str| match name.strip_prefix('>') {
            Some(name) => (name.to_owned(), Align::Right),
            None => ((*name).to_owned(), Align::Left),
        };
        Self { columns: columns.iter().map(column).collect(), rows: Vec::new() }
    }
    /// Adds a row: one cell a column.
    ///
    /// # Panics
    /// Where the counts differ: a mistake of ours.
    pub fn push(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.columns.len(), "a row has one cell a column");
        self.rows.push(cells);
    }
    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// A part of an answer for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Block {
    /// A line of text, already indented.
    Line(String),
    /// A table, moved to the right by so many blanks.
    Table(Table, usize),
}

/// One answer, ready for every format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// For people.
    pub blocks: Vec<Block>,
    /// For `--parsable2`.
    pub parsable: Table,
    /// For `--json`, as [`json::render`] made it.
    pub json: String,
}

impl Answer {
    /// An answer that is one table.
    pub fn table(table: Table, json: String) -> Self {
        Self { blocks: vec![Block::Table(table.clone(), 0)], parsable: table, json }
    }
}

/// Prints answers in one format.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    format: Format,
    header: bool,
}

impl Output {
    /// With or without column names.
    pub const fn new(format: Format, header: bool) -> Self {
        Self { format, header }
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
    /// [`CliError::Print`] for anything else.
    pub fn print(&self, answer: &Answer) -> Result<(), CliError> {
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
}
