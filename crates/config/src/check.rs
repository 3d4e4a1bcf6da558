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
            found if is_list_of_tables(schema) => {
                mistakes.extend(check_each(place, &key, schema, found, line));
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

/// Whether it is written as `[[name]]`, as many times as wanted.
pub(crate) fn is_list_of_tables(schema: &Value) -> bool {
    schema["items"].get("properties").is_some()
}

/// What is wrong in the tables of a list.
fn check_each(place: Place<'_>, key: &str, schema: &Value, found: &DeValue<'_>, line: usize) -> Vec<Mistake> {
    let all = if let DeValue::Array(items) = found {
        let tables = items.iter().map(|item| match item.get_ref() {
            DeValue::Table(inner) => Some(inner),
            _ => None,
        });
        tables.collect::<Option<Vec<_>>>()
    } else {
        None
    };
    let Some(all) = all else {
        let sentence = format!("{key} is a list of sections; write [[{key}]] and its settings below it");
        return vec![Mistake { line, key: key.to_owned(), sentence }];
    };
    let of_each = all.into_iter().zip(1..);
    of_each
        .flat_map(|(table, number)| check(place, &format!("{key}[{number}]"), &schema["items"], table))
        .collect()
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
    if let Some(sentence) = not_of_some(place, section, name) {
        return sentence;
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

/// The sentence on a key of a list's own section that stands in one of its tables: `objective` in `[[policy.override]]`.
fn not_of_some(place: Place<'_>, section: &str, name: &str) -> Option<String> {
    let (parent, _) = section.strip_suffix(']')?.rsplit_once('.')?;
    let is_of_parent = names(place.root, parent).contains(&name)
        && !is_list_of_tables(&schema_at(place.root, parent)["properties"][name]);
    let (of_whom, may_be_set): (Vec<&str>, Vec<&str>) =
        names(place.root, section).into_iter().partition(|key| !names(place.root, parent).contains(key));
    is_of_parent.then(|| {
        format!(
            "{} is one for all jobs; an override may set {}, for jobs of {}",
            dotted(parent, name),
            may_be_set.join(", "),
            of_whom.join(", ")
        )
    })
}

fn nearest<'a>(name: &str, names: &[&'a str]) -> Option<&'a str> {
    let near = names.iter().map(|known| (strsim::normalized_damerau_levenshtein(name, known), *known));
    let best = near.max_by(|(one, _), (other, _)| one.total_cmp(other));
    best.filter(|(likeness, _)| *likeness >= SIMILARITY_MIN).map(|(_, known)| known)
}

/// The keys of a section of the part, by its dotted name within it.
fn names<'a>(root: &'a Value, section: &str) -> Vec<&'a str> {
    schema_at(root, section)["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, _)| name.as_str())
        .collect()
}

/// The schema of a section; `name[2]` is a table of a list.
fn schema_at<'a>(root: &'a Value, section: &str) -> &'a Value {
    let parts = section.split('.').filter(|part| !part.is_empty());
    parts.fold(root, |schema, part| match part.split_once('[') {
        Some((name, _)) => &schema["properties"][name]["items"],
        None => &schema["properties"][part],
    })
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
