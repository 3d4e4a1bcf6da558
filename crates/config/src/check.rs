//! Holds a table of the file against a schema: every mistake, not only the first.

use crate::mistake::Mistake;
use crate::replaced::REPLACED;
use crate::rules::{allowed, holds};
use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Names further apart than this are no slips of the pen.
const SIMILARITY_MIN: f64 = 0.75;

/// A text with what is needed to look into it.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    /// The whole file.
    pub(crate) text: &'a str,
    /// The schema of the part that is read, for keys that stand in a wrong section.
    pub(crate) root: &'a Value,
    /// The section of that part: empty, or `agent`.
    pub(crate) root_section: &'a str,
}

impl Place<'_> {
    /// The line of a byte, from 1.
    pub(crate) fn line(self, at: usize) -> usize {
        let before = self.text.get(..at).unwrap_or(self.text);
        before.bytes().filter(|byte| *byte == b'\n').count() + 1
    }
}

/// `section.key`, or the key alone at the top.
pub(crate) fn dotted(section: &str, key: &str) -> String {
    if section.is_empty() { key.to_owned() } else { format!("{section}.{key}") }
}

/// What is wrong in a table.
pub(crate) fn check(place: Place<'_>, section: &str, schema: &Value, table: &DeTable<'_>) -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    for (name, value) in table {
        let line = place.line(name.span().start);
        let key = dotted(section, name.get_ref());
        let schema = &schema["properties"][name.get_ref().as_ref()];
        match value.get_ref() {
            _ if schema.is_null() => {
                let sentence = unknown(place, section, name.get_ref());
                mistakes.push(Mistake { line, key, sentence });
            }
            DeValue::Table(inner) if schema.get("properties").is_some() => {
                mistakes.extend(check(place, &key, schema, inner));
            }
            _ if schema.get("properties").is_some() => {
                let sentence = format!("{key} is a section; write [{key}] and its settings below it");
                mistakes.push(Mistake { line, key, sentence });
            }
            found if !holds(schema, found) => {
                let written = written(place, value);
                let sentence = format!("{key} = {written} is not allowed; write {}", allowed(schema));
                mistakes.push(Mistake { line, key, sentence });
            }
            _ => {}
        }
    }
    mistakes
}

/// A value as it was written, at most a line of it.
fn written<'a>(place: Place<'a>, value: &Spanned<DeValue<'_>>) -> &'a str {
    let text = place.text.get(value.span()).unwrap_or_default();
    let first = text.lines().next().unwrap_or_default();
    first.char_indices().nth(80).map_or(first, |(at, _)| &first[..at])
}

/// The sentence on a key that is none, with the one that may be meant.
fn unknown(place: Place<'_>, section: &str, name: &str) -> String {
    let of_section = names(place.root, section.strip_prefix(place.root_section).unwrap_or(section));
    let key = dotted(section, name);
    if let Some((_, sentence)) = REPLACED.iter().find(|(replaced, _)| *replaced == key) {
        return (*sentence).to_owned();
    }
    let elsewhere = all_keys(place.root, place.root_section);
    let same_name = elsewhere.iter().find(|other| other.rsplit('.').next() == Some(name));
    let nearest = nearest(name, &of_section).map(|near| dotted(section, near));
    if let Some(near) = nearest.as_ref().or(same_name) {
        return format!("there is no setting {key}; did you mean {near}?");
    }
    let place = if section.is_empty() { "at the top".to_owned() } else { format!("in [{section}]") };
    format!("there is no setting {key}; allowed {place} are {}", of_section.join(", "))
}

fn nearest<'a>(name: &str, names: &[&'a str]) -> Option<&'a str> {
    let near = names.iter().map(|known| (strsim::normalized_damerau_levenshtein(name, known), *known));
    let best = near.max_by(|(one, _), (other, _)| one.total_cmp(other));
    best.filter(|(likeness, _)| *likeness >= SIMILARITY_MIN).map(|(_, known)| known)
}

/// The keys of a section of the part, by its dotted name within it.
fn names<'a>(root: &'a Value, section: &str) -> Vec<&'a str> {
    let parts = section.split('.').filter(|part| !part.is_empty());
    let schema = parts.fold(root, |schema, part| &schema["properties"][part]);
    schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect()
}

/// Every key beneath a schema, with its sections.
fn all_keys(schema: &Value, section: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        let key = dotted(section, name);
        found.extend(all_keys(inner, &key));
        found.push(key);
    }
    found
}
