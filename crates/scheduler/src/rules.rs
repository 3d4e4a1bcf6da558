//! What is in force, as everybody may know it: the configured rules with their origin, and those that are built in. Pure.

use crate::agents::AgentState;
use pillion_config::{Origin, Setting, scheduler_sections};
use pillion_core::NodeName;
use std::collections::BTreeMap;
use std::path::Path;

/// Settings that are rules for jobs, besides the section `[policy]`. The others are the admins' own: paths, addresses.
const KEYS: [&str; 7] = [
    "mode",
    "bound_seconds",
    "pool.partitions",
    "pool.gpu_types",
    "pool.plain_jobs",
    "pool.colocate",
    "pool.colocate_partitions",
];
const SECTION: &str = "policy.";

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleOrigin {
    /// Nothing is written.
    Default,
    /// The configuration file.
    File {
        path: String,
        /// In this line.
        line: usize,
    },
    /// It cannot be configured.
    BuiltIn,
    /// What the agents found.
    Agents,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// As the configuration file calls it.
    pub key: String,
    /// As TOML has it.
    pub value: String,
    /// Where it comes from.
    pub origin: RuleOrigin,
    pub meaning: String,
}

/// The configured rules, of a file that was read whole.
pub fn configured(settings: &[Setting], path: &Path) -> Vec<Rule> {
    let meanings = meanings();
    let settings = settings
        .iter()
        .filter(|setting| KEYS.contains(&setting.key.as_str()) || setting.key.starts_with(SECTION));
    let rules = settings.map(|Setting { key, value, origin }| Rule {
        key: key.clone(),
        value: value.clone(),
        origin: match origin {
            Origin::Default => RuleOrigin::Default,
            Origin::File(line) => RuleOrigin::File { path: path.display().to_string(), line: *line },
        },
        meaning: meanings.get(&without_number(key)).cloned().unwrap_or_default(),
    });
    rules.collect()
}

/// `policy.override[2].qos` is described as `policy.override.qos`.
fn without_number(key: &str) -> String {
    match key.split_once('[').zip(key.split_once(']')) {
        Some(((before, _), (_, after))) => format!("{before}{after}"),
        None => key.to_owned(),
    }
}

/// The first sentence of what the configuration file says of each key.
fn meanings() -> BTreeMap<String, String> {
    let mut meanings = BTreeMap::new();
    for section in scheduler_sections() {
        for key in section.keys {
            let dot = if section.name.is_empty() { "" } else { "." };
            let end = key.docs.find(". ").map_or(key.docs.len(), |at| at + 1);
            meanings.insert(format!("{}{dot}{}", section.name, key.name), key.docs[..end].to_owned());
        }
    }
    meanings
}

fn built_in_rule(key: &str, value: &str, meaning: &str) -> Rule {
    Rule {
        key: key.to_owned(),
        value: value.to_owned(),
        origin: RuleOrigin::BuiltIn,
        meaning: meaning.to_owned(),
    }
}

/// What no site can change.
pub fn built_in() -> [Rule; 2] {
    [
        built_in_rule(
            "victim_requeues",
            "1",
            "A job that dies with a tenant beside it is started again so often, alone, unless it was submitted with --no-requeue.",
        ),
        built_in_rule(
            "undone_jobs",
            "\"alone\"",
            "A job whose release was taken back, or that was evicted, runs alone.",
        ),
    ]
}

/// The mechanisms of the devices that agents reported, with the number of devices: `["ccs: 4", "mps: 8"]`.
pub fn mechanisms(agents: &BTreeMap<NodeName, AgentState>) -> Rule {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let sharing = agents.values().filter(|agent| !agent.observes);
    for device in sharing.flat_map(|agent| &agent.devices) {
        *counts.entry(device.mechanism.to_string()).or_default() += 1;
    }
    let counts: Vec<String> = counts.iter().map(|(name, count)| format!("\"{name}: {count}\"")).collect();
    Rule {
        key: "mechanisms".to_owned(),
        value: format!("[{}]", counts.join(", ")),
        origin: RuleOrigin::Agents,
        meaning: "How devices are shared, and how many in each way.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillion_config::{Part, show};

    #[test]
    fn rules_for_some_jobs_are_told_with_the_others() {
        let text = "[pool]\npartitions = [\"a\"]\n[[policy.override]]\nqos = [\"free\"]\nusers = \"any\"\n";
        let rules = configured(&show(Part::Scheduler, text, "").unwrap(), Path::new("/etc/p.toml"));
        let of_some: Vec<_> = rules.iter().filter(|rule| rule.key.contains('[')).collect();
        let keys: Vec<&str> = of_some.iter().map(|rule| rule.key.as_str()).collect();
        assert_eq!(
            keys,
            ["policy.override[1].qos", "policy.override[1].users"],
            "what is not written is not told"
        );
        assert_eq!(of_some[1].origin, RuleOrigin::File { path: "/etc/p.toml".to_owned(), line: 5 });
        assert!(of_some.iter().all(|rule| !rule.meaning.is_empty()));
    }

    #[test]
    fn a_rule_says_where_it_comes_from_and_what_it_means() {
        let text = "[pool]\npartitions = [\"a\"]\n[policy]\ntenants_max = 3\n[database]\nurl = \"postgres://u:secret@h/d\"\n";
        let settings = show(Part::Scheduler, text, "").unwrap();
        let rules = configured(&settings, Path::new("/etc/p.toml"));
        let rule = |key: &str| rules.iter().find(|rule| rule.key == key).unwrap().clone();
        let tenants = rule("policy.tenants_max");
        assert_eq!(tenants.value, "3");
        assert_eq!(tenants.origin, RuleOrigin::File { path: "/etc/p.toml".to_owned(), line: 4 });
        assert_eq!(tenants.meaning, "How many jobs may share a device; with 1 nobody shares.");
        assert_eq!(rule("policy.users").origin, RuleOrigin::Default);
        assert!(rules.iter().all(|rule| !rule.meaning.is_empty()), "{rules:#?}");
        assert!(!format!("{rules:?}").contains("secret"), "what is the admins' own stays theirs");
        let keys: Vec<&str> = rules.iter().map(|rule| rule.key.as_str()).collect();
        for key in KEYS.iter().chain(&["policy.objective", "policy.caps", "policy.broken_budget_fraction"]) {
            assert!(keys.contains(key), "{key}");
        }
    }
}
