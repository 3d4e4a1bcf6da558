//! What is in force: each key's value, and whether the file says so.

use crate::check::dotted;
use crate::example::toml_text;
use crate::mistake::{ConfigError, Mistake};
use crate::read::Part;
use crate::schema::{Section, agent_sections, scheduler_sections};
use crate::{Agent, Scheduler, read};
use serde_json::Value;
use std::path::Path;

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Nothing is written.
    Default,
    /// The file, in this line.
    File(usize),
}

/// One key as it is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// With its section.
    pub key: String,
    /// As TOML has it; empty where it is absent.
    pub value: String,
    /// Where it comes from.
    pub origin: Origin,
}

/// Every key of a program's part.
///
/// # Errors
/// What is wrong in the text.
pub fn show(part: Part, text: &str, host_name: &str) -> Result<Vec<Setting>, Vec<Mistake>> {
    let (values, sections) = match part {
        Part::Scheduler => {
            let values: Scheduler = read::parse_scheduler(text)?;
            (serde_json::to_value(values), scheduler_sections())
        }
        Part::Agent => {
            let values: Agent = read::parse_agent(text, host_name)?;
            (serde_json::to_value(values), agent_sections())
        }
    };
    let values = values.expect("a configuration is plain data");
    let mut settings = Vec::new();
    for section in &sections {
        if section.is_list {
            settings.extend(of_list(part, text, section, &values));
            continue;
        }
        let within =
            section.name.strip_prefix("agent").filter(|_| part == Part::Agent).unwrap_or(&section.name);
        let names = within.split('.').filter(|name| !name.is_empty());
        let table = names.fold(&values, |table, name| &table[name]);
        for key in &section.keys {
            let name = dotted(&section.name, &key.name);
            let origin = read::line_written(part, text, &name).map_or(Origin::Default, Origin::File);
            let value = match &table[&key.name] {
                Value::Null => String::new(),
                value => toml_text(value),
            };
            settings.push(Setting { key: name, value, origin });
        }
    }
    Ok(settings)
}

/// What is written in the tables of a list, and nothing of what is not.
fn of_list(part: Part, text: &str, section: &Section, values: &Value) -> Vec<Setting> {
    let table = section.name.split('.').fold(values, |table, name| &table[name]);
    let mut settings = Vec::new();
    for (own, number) in table.as_array().into_iter().flatten().zip(1..) {
        for key in section.keys.iter().filter(|key| !own[&key.name].is_null()) {
            let name = format!("{}[{number}].{}", section.name, key.name);
            let origin = read::line_written(part, text, &name).map_or(Origin::Default, Origin::File);
            settings.push(Setting { key: name, value: toml_text(&own[&key.name]), origin });
        }
    }
    settings
}

/// Reads the scheduler's part, and where each of its values comes from.
///
/// # Errors
/// [`ConfigError`].
pub fn read_scheduler_in_force(path: &Path) -> Result<(Scheduler, Vec<Setting>), ConfigError> {
    let text = read::read(path)?;
    let settings = show(Part::Scheduler, &text, "");
    let settings = settings.map_err(|mistakes| ConfigError::wrong(path, mistakes))?;
    let scheduler = read::parse_scheduler(&text).map_err(|mistakes| ConfigError::wrong(path, mistakes))?;
    Ok((scheduler, settings))
}
