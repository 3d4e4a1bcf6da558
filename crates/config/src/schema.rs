//! The keys with their sentences, defaults and ranges, as the structs have them: JSON Schema by schemars, in the order in
//! which the structs name them.

use crate::check::is_list_of_tables;
use crate::{Agent, Override, Scheduler};
use indexmap::IndexMap;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One table of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    /// Its name as in brackets; empty at the top of the file.
    pub name: String,
    /// What it is about.
    pub docs: String,
    /// Whether it may be written as often as wanted, in double brackets.
    pub is_list: bool,
    /// Its keys, but for those that are tables themselves.
    pub keys: Vec<Key>,
}

impl Section {
    /// Its name as it is written.
    pub(crate) fn header(&self) -> String {
        if self.is_list { format!("[[{}]]", self.name) } else { format!("[{}]", self.name) }
    }
}

/// One key of a section, as example and manual show it.
#[derive(Debug, Clone, PartialEq)]
pub struct Key {
    /// Its name in its section.
    pub name: String,
    /// What it means, one paragraph.
    pub docs: String,
    /// What it holds where nothing is written; [`Value::Null`] where it is absent then.
    pub default: Value,
    /// The value to show where the default shows nothing.
    pub example: Option<Value>,
    /// Type, range and rule, in the words of JSON Schema.
    pub schema: Value,
}

/// A default value, whose tables keep the order of their keys.
#[derive(Deserialize)]
#[serde(untagged)]
enum Tree {
    Table(IndexMap<String, Tree>),
    Leaf(Value),
}

impl Tree {
    fn into_value(self) -> Value {
        match self {
            Self::Leaf(value) => value,
            Self::Table(entries) => {
                entries.into_iter().map(|(name, tree)| (name, tree.into_value())).collect()
            }
        }
    }
}

/// The scheduler's sections, the top of the file first.
pub fn scheduler_sections() -> Vec<Section> {
    let mut all = sections::<Scheduler>("");
    let after = all.iter().position(|section| section.name == "policy").map_or(all.len(), |at| at + 1);
    let of_some = sections::<Override>("policy.override").into_iter();
    all.splice(after..after, of_some.map(|section| Section { is_list: true, ..section }));
    all
}

/// The agent's sections, `[agent]` first.
pub(crate) fn agent_sections() -> Vec<Section> {
    sections::<Agent>("agent")
}

/// The schema of a struct, with those of its parts inside.
pub(crate) fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

/// A paragraph of a doc comment in one line.
fn docs(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn sections<T: JsonSchema + Serialize + Default>(name: &str) -> Vec<Section> {
    let text = serde_json::to_string(&T::default()).expect("a configuration is plain data");
    let defaults: Tree = serde_json::from_str(&text).expect("it was just written");
    let mut found = Vec::new();
    collect(name, &schema_of::<T>(), defaults, &mut found);
    found
}

fn collect(name: &str, schema: &Value, defaults: Tree, found: &mut Vec<Section>) {
    let Tree::Table(entries) = defaults else { return };
    let place = found.len();
    found.push(Section { name: name.to_owned(), docs: docs(schema), is_list: false, keys: Vec::new() });
    for (key, default) in entries {
        let schema = &schema["properties"][&key];
        if is_list_of_tables(schema) {
            // A section of its own.
        } else if schema.get("properties").is_some() {
            let inner = if name.is_empty() { key } else { format!("{name}.{key}") };
            collect(&inner, schema, default, found);
        } else {
            let default = default.into_value();
            let example = schema.get("x-example").cloned();
            let key = Key { name: key, docs: docs(schema), default, example, schema: schema.clone() };
            found[place].keys.push(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_and_keys_stand_in_the_order_of_the_structs() {
        let sections = scheduler_sections();
        let names: Vec<&str> = sections.iter().map(|section| section.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "",
                "pool",
                "observe",
                "slurm",
                "database",
                "listen",
                "auth",
                "web",
                "policy",
                "policy.override",
                "training",
                "metrics"
            ]
        );
        let top: Vec<&str> = sections[0].keys.iter().map(|key| key.name.as_str()).collect();
        assert_eq!(
            top,
            ["mode", "state_directory", "heartbeat_path", "bound_seconds", "scan_period_seconds"]
        );
        assert_eq!(agent_sections()[0].name, "agent");
        assert_eq!(agent_sections().last().map(|section| section.name.as_str()), Some("agent.metrics"));
    }

    #[test]
    fn every_key_and_section_has_its_sentence() {
        for section in scheduler_sections().iter().chain(&agent_sections()) {
            assert!(section.docs.ends_with('.'), "{section:?}");
            for key in &section.keys {
                assert!(key.docs.len() > 20 && key.docs.ends_with('.'), "{}.{}", section.name, key.name);
            }
        }
    }
}
