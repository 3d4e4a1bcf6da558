//! For programs: one object with `"version": 1` first. Keys are only ever added; a key that goes makes version 2.

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter};
use std::io::{Result, Write};

/// The version of every JSON answer.
pub const JSON_VERSION: u32 = 1;

#[derive(Serialize)]
struct Versioned<'a, T> {
    version: u32,
    #[serde(flatten)]
    body: &'a T,
}

/// An answer as JSON; `body` is a struct, whose fields stand beside `version`.
pub fn render<T: Serialize>(body: &T) -> String {
    serde_json::to_string_pretty(&Versioned { version: JSON_VERSION, body })
        .expect("our own structs have text keys and always serialize")
}

/// The same with each element of a list of the answer on one line: for long lists.
pub fn render_rows<T: Serialize>(body: &T) -> String {
    let mut text = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut text, Rows::default());
    Versioned { version: JSON_VERSION, body }
        .serialize(&mut serializer)
        .expect("our own structs have text keys and always serialize");
    String::from_utf8(text).expect("JSON is UTF-8")
}

/// How deep things stand on lines of their own: the answer itself, and what is in its lists and objects.
const ROWS_DEPTH: usize = 2;

/// Pretty outside, compact inside.
#[derive(Default)]
struct Rows {
    depth: usize,
    outer: PrettyFormatter<'static>,
}

impl Rows {
    fn is_inside(&self) -> bool {
        self.depth > ROWS_DEPTH
    }
}

impl Formatter for Rows {
    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        self.depth += 1;
        if self.is_inside() { CompactFormatter.begin_array(writer) } else { self.outer.begin_array(writer) }
    }
    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        let is_inside = self.is_inside();
        self.depth -= 1;
        if is_inside { CompactFormatter.end_array(writer) } else { self.outer.end_array(writer) }
    }
    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> Result<()> {
        if self.is_inside() {
            CompactFormatter.begin_array_value(writer, first)
        } else {
            self.outer.begin_array_value(writer, first)
        }
    }
    fn end_array_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        if self.is_inside() { Ok(()) } else { self.outer.end_array_value(writer) }
    }
    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        self.depth += 1;
        if self.is_inside() { CompactFormatter.begin_object(writer) } else { self.outer.begin_object(writer) }
    }
    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        let is_inside = self.is_inside();
        self.depth -= 1;
        if is_inside { CompactFormatter.end_object(writer) } else { self.outer.end_object(writer) }
    }
    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> Result<()> {
        if self.is_inside() {
            CompactFormatter.begin_object_key(writer, first)
        } else {
            self.outer.begin_object_key(writer, first)
        }
    }
    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        if self.is_inside() {
            CompactFormatter.begin_object_value(writer)
        } else {
            self.outer.begin_object_value(writer)
        }
    }
    fn end_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        if self.is_inside() { Ok(()) } else { self.outer.end_object_value(writer) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_of_lists_stand_on_one_line_each() {
        let body = serde_json::json!({"list": [{"a": [1, {"b": null}]}, {}], "none": [], "object": {"c": 1, "d": [2]}});
        let text = render_rows(&body);
        let expected = "{\n  \"version\": 1,\n  \"list\": [\n    {\"a\":[1,{\"b\":null}]},\n    {}\n  ],\n  \
                        \"none\": [],\n  \"object\": {\n    \"c\": 1,\n    \"d\": [2]\n  }\n}";
        assert_eq!(text, expected);
    }
}
