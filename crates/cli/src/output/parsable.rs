//! For scripts that split at `|`: Slurm's `--parsable2`. Absent is empty; a bar inside a cell becomes `/`.

use super::answer::Table;
use crate::format::clean;

/// A table as lines.
pub fn render(table: &Table, header: bool) -> String {
    let names = table.columns.iter().map(|column| column.name.clone()).collect::<Vec<_>>();
    let mut text = String::new();
    for row in header.then_some(&names).into_iter().chain(&table.rows) {
        let cells: Vec<String> = row.iter().map(|cell| clean(cell).replace('|', "/")).collect();
        text.push_str(&cells.join("|"));
        text.push('\n');
    }
    text
}
