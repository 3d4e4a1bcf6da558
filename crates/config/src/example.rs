//! The commented example, `deploy/pillion.toml.example`: every key with its sentence, its unit, what it may hold and its
//! default.

use crate::rules::allowed;
use crate::schema::{Key, Section, agent_sections, scheduler_sections};
use serde_json::Value;
use std::fmt::Write as _;

/// The longest line.
const WIDTH: usize = 118;

const HEAD: &str = "/etc/pillion/pillion.toml: the configuration of Pillion's programs. pillion-scheduler, on the controller, \
    reads all but [agent]; pillion-agent, on every pool node, reads [agent] only; `pillion` looks where Slurm and the pool are. \
    One file may serve all machines, or each machine has its part of it.\n\nOnly pool.partitions and agent.scheduler.endpoint \
    have to be written; every other value here is the default. A key that is not known, or a value out of range, keeps the \
    program that reads it from starting (exit 64), with one sentence that says what is allowed: `pillion config check`. Read at \
    start only.\n\nThis file is made from the programs' own words (`pillion config example`); do not edit it in the source tree.";

/// The text of the example.
pub fn example() -> String {
    let mut text = String::new();
    comment(&mut text, HEAD);
    text.push('\n');
    for section in scheduler_sections() {
        write_section(&mut text, &section);
    }
    comment(&mut text, "What the agent reads. In every path %n stands for the node's name.");
    for section in agent_sections() {
        write_section(&mut text, &section);
    }
    text.truncate(text.trim_end().len());
    text + "\n"
}

fn write_section(text: &mut String, section: &Section) {
    if !section.name.is_empty() {
        let mark = if section.is_list { "#" } else { "" };
        if section.is_list {
            comment(text, &section.docs);
        }
        let _ = writeln!(text, "{mark}{}", section.header());
    }
    for key in &section.keys {
        write_key(text, section, key);
    }
    text.push('\n');
}

fn write_key(text: &mut String, section: &Section, key: &Key) {
    comment(text, &format!("{}\n{}", key.docs, facts(key)));
    // Tables of names come last in their section, as tables do in TOML.
    if let Some(Value::Object(entries)) = &key.example {
        let _ = writeln!(text, "[{}.{}]", section.name, key.name);
        for (name, value) in entries {
            let _ = writeln!(text, "#{name} = {}", toml_text(value));
        }
        return;
    }
    let shown = key.example.as_ref().unwrap_or(&key.default);
    // What has no default is not in force before somebody writes it, and neither is what stands here only to be seen.
    let is_empty =
        matches!(&key.default, Value::Array(items) if items.is_empty() && key.schema["minItems"] != 1);
    let mark = if key.default.is_null() || (is_empty && key.example.is_some()) { "#" } else { "" };
    let _ = writeln!(text, "{mark}{} = {}", key.name, toml_text(shown));
}

/// What a key may hold, in its unit, and its default: `Allowed: 10 to 3600, in seconds. Default: 600.`
pub(crate) fn facts(key: &Key) -> String {
    let unit = unit(key).map_or(String::new(), |unit| format!(", in {unit}"));
    let allowed = format!("Allowed: {}{unit}.", allowed(&key.schema));
    match &key.default {
        Value::Null => format!("{allowed} Default: absent."),
        Value::Array(_) if key.schema["minItems"] == 1 => format!("{allowed} It has to be written."),
        Value::Object(entries) if entries.is_empty() => format!("{allowed} Default: none."),
        default => format!("{allowed} Default: {}.", toml_text(default)),
    }
}

/// The unit, which the name says last.
fn unit(key: &Key) -> Option<&str> {
    let named = key.schema["x-unit"].as_str();
    named
        .or_else(|| key.name.ends_with("_seconds").then_some("seconds"))
        .or_else(|| key.name.ends_with("_fraction").then_some("fractions of 1"))
}

/// A value as TOML has it.
pub(crate) fn toml_text(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(toml_text).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}

/// A text as comment lines no wider than [`WIDTH`].
fn comment(text: &mut String, words: &str) {
    for paragraph in words.split('\n') {
        let mut line = String::from("#");
        for word in paragraph.split_whitespace() {
            if line.len() + 1 + word.len() > WIDTH {
                let _ = writeln!(text, "{line}");
                line.truncate(1);
            }
            line.push(' ');
            line.push_str(word);
        }
        let _ = writeln!(text, "{line}");
    }
}
