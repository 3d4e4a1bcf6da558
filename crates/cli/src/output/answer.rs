//! One answer, ready for every format: lines and tables, before they are laid out.

use crate::error::CliError;

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
pub(super) struct Column {
    /// As `--format` and `--parsable2` name it.
    pub(super) name: String,
    /// What people see above it.
    pub(super) head: String,
    pub(super) align: Align,
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
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Vec<String>>,
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
    /// For `--json`, as [`super::json::render`] made it.
    pub json: String,
}

impl Answer {
    /// An answer that is one table.
    pub fn table(table: Table, json: String) -> Self {
        Self { blocks: vec![Block::Table(table.clone(), 0)], parsable: table, json }
    }

    /// Only the named columns of its one table.
    pub(super) fn select(&self, names: &[String]) -> Result<Self, CliError> {
        if self.blocks.iter().filter(|block| matches!(block, Block::Table(..))).count() > 1 {
            return Err(CliError::Usage("this command prints several tables; leave out --format".to_owned()));
        }
        let blocks = self.blocks.iter().map(|block| block.select(names)).collect::<Result<_, _>>()?;
        Ok(Self { blocks, parsable: self.parsable.select(names)?, json: self.json.clone() })
    }
}
