//! The three ways to print one answer. A command makes an [`Answer`]; only this module writes to standard output.

pub mod json;
pub mod parsable;
pub mod table;

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

/// Which side of its column a cell stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// As words stand.
    Left,
    /// As numbers stand.
    Right,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Column {
    /// As `--format` and `--parsable2` name it.
    name: String,
    /// What people see above it.
    head: String,
    align: Align,
}

impl Column {
    /// Of a name, before which a `>` puts its cells on the right.
    fn new(name: &str) -> Self {
        let (name, align) = match name.strip_prefix('>') {
            Some(name) => (name, Align::Right),
            None => (name, Align::Left),
        };
        Self { name: name.to_owned(), head: name.to_owned(), align }
    }
}

/// A table, before it is laid out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows. A column whose name begins with `>` stands to the right.
    pub fn new(columns: &[&str]) -> Self {
        Self { columns: columns.iter().map(|name| Column::new(name)).collect(), rows: Vec::new() }
    }
    /// With other words above some columns: (name, words). Their cells carry a unit that the name does not say.
    #[must_use]
    pub fn headed(mut self, heads: &[(&str, &str)]) -> Self {
        for column in &mut self.columns {
            if let Some((_, head)) = heads.iter().find(|(name, _)| *name == column.name) {
                (*head).clone_into(&mut column.head);
            }
        }
        self
    }
    /// Adds a row: one cell a column.
    ///
    /// # Panics
    /// Where the counts differ: a mistake of ours.
    pub fn push(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.columns.len(), "a row has one cell a column");
        self.rows.push(cells);
    }
    /// The named columns only, in the order named; capitals do not matter.
    fn select(&self, names: &[String]) -> Result<Self, CliError> {
        let places = names.iter().map(|name| self.place(name)).collect::<Result<Vec<usize>, CliError>>()?;
        let columns = places.iter().map(|at| self.columns[*at].clone()).collect();
        let rows = self.rows.iter().map(|row| places.iter().map(|at| row[*at].clone()).collect());
        Ok(Self { columns, rows: rows.collect() })
    }
    fn place(&self, name: &str) -> Result<usize, CliError> {
        let found = self.columns.iter().position(|column| column.name.eq_ignore_ascii_case(name.trim()));
        found.ok_or_else(|| {
            let allowed: Vec<&str> = self.columns.iter().map(|column| column.name.as_str()).collect();
            CliError::Usage(format!("there is no column '{name}'; allowed are {}", allowed.join(",")))
        })
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
    /// A line of a text that other programs read: printed as it is.
    Verbatim(String),
    /// A table, moved to the right by so many blanks.
    Table(Table, usize),
}

impl Block {
    fn select(&self, names: &[String]) -> Result<Self, CliError> {
        match self {
            Self::Table(table, indent) => table.select(names).map(|table| Self::Table(table, *indent)),
            Self::Line(_) | Self::Verbatim(_) => Ok(self.clone()),
        }
    }
}

/// One answer, ready for every format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub blocks: Vec<Block>,
    /// What `--parsable2` prints, every column of it.
    pub parsable: Table,
    /// For `--json`, as [`json::render`] made it.
    pub json: String,
}

impl Answer {
    /// An answer that is one table.
    pub fn table(table: Table, json: String) -> Self {
        Self { blocks: vec![Block::Table(table.clone(), 0)], parsable: table, json }
    }

    /// Only the named columns of its one table.
    fn select(&self, names: &[String]) -> Result<Self, CliError> {
        if self.blocks.iter().filter(|block| matches!(block, Block::Table(..))).count() > 1 {
            return Err(CliError::Usage("this command prints several tables; leave out --format".to_owned()));
        }
        let blocks = self.blocks.iter().map(|block| block.select(names)).collect::<Result<_, _>>()?;
        Ok(Self { blocks, parsable: self.parsable.select(names)?, json: self.json.clone() })
    }
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
