//! For people: columns with blanks between, no frames, as Slurm's own tools print.

use super::answer::{Align, Block, Table};
use crate::format::clean;
use comfy_table::{Cell, CellAlignment, ContentArrangement};

/// Blocks as text. An absent cell shows as `-`.
pub fn render(blocks: &[Block], header: bool) -> String {
    let mut text = String::new();
    for block in blocks {
        match block {
            Block::Line(line) => {
                text.push_str(clean(line).trim_end());
                text.push('\n');
            }
            Block::Verbatim(line) => {
                text.push_str(line);
                text.push('\n');
            }
            Block::Table(table, indent) => lay_out(table, header, *indent, &mut text),
        }
    }
    text
}

fn lay_out(table: &Table, header: bool, indent: usize, text: &mut String) {
    let mut layout = comfy_table::Table::new();
    layout.load_style(comfy_table::presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    if header {
        layout.set_header(table.columns.iter().map(|column| cell(&column.head, column.align)));
    }
    for row in &table.rows {
        let cells = row.iter().zip(&table.columns).map(|(text, column)| cell(text, column.align));
        layout.add_row(cells);
    }
    for column in layout.column_iter_mut() {
        column.set_padding((0, 2));
    }
    for line in layout.lines() {
        let line = line.trim_end();
        if !line.is_empty() {
            text.push_str(&" ".repeat(indent));
            text.push_str(line);
            text.push('\n');
        }
    }
}

fn cell(text: &str, align: Align) -> Cell {
    let text = if text.is_empty() { "-".to_owned() } else { clean(text) };
    Cell::new(text).set_alignment(match align {
        Align::Left => CellAlignment::Left,
        Align::Right => CellAlignment::Right,
    })
}
