//! From a file of an earlier release to one of this: what became of each setting that is no more, once for all who ask. Pure, and nothing is
//! ever written: an admin reads the difference and makes it.

use crate::check::{Place, dotted};
use crate::mistake::Mistake;
use crate::read::{is_of_agent_alone, parse_agent, table};
use crate::replaced::REPLACED;
use serde_json::Value;
use toml::de::{DeTable, DeValue};

/// One change of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Where, from 1, in the file as it is.
    pub line: usize,
    /// What it is about.
    pub key: String,
    /// What is done, and why.
    pub sentence: String,
}

/// A file as this release has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    /// All of it; as it was, where there is nothing to do.
    pub text: String,
    /// What was changed, from top to bottom.
    pub steps: Vec<Step>,
}

/// What a file is to be for this release. Comments and the order stay; no value is changed.
///
/// # Errors
/// Where it is no TOML.
pub fn migrate(text: &str) -> Result<Migration, Vec<Mistake>> {
    let file = table(text)?;
    let mut steps = Vec::new();
    let mut gone = Vec::new();
    for (key, sentence) in REPLACED {
        if let Some(lines) = lines_of_setting(text, file.get_ref(), key) {
            steps.push(Step { line: lines.0, key: key.to_owned(), sentence: sentence.to_owned() });
            gone.push(lines);
        }
    }
    let kept = (1..).zip(text.split_inclusive('\n'));
    let kept: String = kept
        .filter(|(number, _)| !gone.iter().any(|(first, last)| (first..=last).contains(&number)))
        .map(|(_, line)| line)
        .collect();
    let text = match under_agent(&kept)? {
        Some(moved) => {
            let sentence = "a file of the agent alone: its settings stand in [agent] of pillion.toml now; this one is still read where it \
                            is /etc/pillion/agent.toml";
            steps.push(Step { line: 1, key: "agent".to_owned(), sentence: sentence.to_owned() });
            moved
        }
        None => kept,
    };
    steps.sort_by_key(|step| step.line);
    Ok(Migration { text, steps })
}

/// The first and the last line of a setting, with its value, where it is written in a section of its own line or as a dotted key.
fn lines_of_setting(text: &str, file: &DeTable<'_>, key: &str) -> Option<(usize, usize)> {
    let place = Place { text, root: &Value::Null, root_section: "" };
    let (section, name) = key.rsplit_once('.').unwrap_or(("", key));
    let mut within = file;
    for part in section.split('.').filter(|part| !part.is_empty()) {
        let DeValue::Table(inner) = within.get(part)?.get_ref() else { return None };
        within = inner;
    }
    let (name, value) = within.get_key_value(name)?;
    Some((place.line(name.span().start), place.line(value.span().end)))
}

/// The agent's own file of earlier releases with everything under `[agent]`; `None` for any other, and where that would mean another
/// thing.
fn under_agent(text: &str) -> Result<Option<String>, Vec<Mistake>> {
    let file = table(text)?;
    let file = file.get_ref();
    if file.is_empty() || file.contains_key("agent") || !is_of_agent_alone(file) {
        return Ok(None);
    }
    let moved: String = text.split_inclusive('\n').map(headed).collect();
    let is_bare = |value: &DeValue<'_>| !matches!(value, DeValue::Table(_));
    let moved =
        if file.values().any(|value| is_bare(value.get_ref())) { format!("[agent]\n{moved}") } else { moved };
    // A line in a text of several lines may look like a header.
    let node = "n1";
    let [before, after] = [text, &moved].map(|text| parse_agent(text, node));
    Ok((before.is_ok() && before == after).then_some(moved))
}

/// A line of such a file; `[mps]` becomes `[agent.mps]`.
fn headed(line: &str) -> String {
    match line.trim_start().strip_prefix('[') {
        Some(rest) if !rest.starts_with('[') => format!("[{}", dotted("agent", rest)),
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::{Part, mistakes};

    #[test]
    fn what_is_no_more_goes_and_all_else_stays_as_it_was_written() {
        let text = "# ours\nmode = \"off\"\n[pool]\npartitions = ['a'] # the pool\n\n[listen]\n# why\ntcp_is_operator = false\n\
                    operator_uids = [1]\n[policy]\n  partner_wait_seconds_max = 3.0\ncaps = true\n";
        assert_eq!(mistakes(Part::Scheduler, text, "n1").len(), 2);
        let Migration { text: after, steps } = migrate(text).unwrap();
        assert_eq!(
            after,
            "# ours\nmode = \"off\"\n[pool]\npartitions = ['a'] # the pool\n\n[listen]\n# why\noperator_uids = [1]\n[policy]\ncaps = true\n"
        );
        let told: Vec<_> = steps.iter().map(|step| (step.line, step.key.as_str())).collect();
        assert_eq!(told, [(8, "listen.tcp_is_operator"), (11, "policy.partner_wait_seconds_max")]);
        assert_eq!(mistakes(Part::Scheduler, &after, "n1"), []);
        let again = migrate(&after).unwrap();
        assert_eq!(again, Migration { text: after, steps: Vec::new() });
    }

    #[test]
    fn each_setting_that_is_no_more_is_an_error_that_says_so() {
        for (key, sentence) in REPLACED {
            assert!(sentence.contains(key) && sentence.contains("'pillion config migrate'"), "{sentence}");
            let text = format!("pool.partitions = ['a']\n{key} = 0\n");
            let found = mistakes(Part::Scheduler, &text, "n1");
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(found[0].sentence, sentence);
            assert_eq!(migrate(&text).unwrap().text, "pool.partitions = ['a']\n");
        }
    }

    #[test]
    fn the_agents_own_file_moves_under_its_section() {
        let text = "# a node\nbackend = \"simulated\"\nscheduler.endpoint = \"https://c:6820\"\n[mps]\nenabled = false\n\
                    [devices]\ngres_types = [\n  \"g0\",\n]\n";
        let Migration { text: after, steps } = migrate(text).unwrap();
        assert_eq!(
            after,
            "[agent]\n# a node\nbackend = \"simulated\"\nscheduler.endpoint = \"https://c:6820\"\n[agent.mps]\nenabled = false\n\
             [agent.devices]\ngres_types = [\n  \"g0\",\n]\n"
        );
        assert_eq!(steps.len(), 1);
        assert_eq!(parse_agent(text, "n1"), parse_agent(&after, "n1"));
        for kept in [&after, "", "[agent]\nbackend = \"intel\"\n", "[mps]\nenabled = 7\n", &crate::example()]
        {
            assert_eq!(migrate(kept).unwrap(), Migration { text: (*kept).to_owned(), steps: Vec::new() });
        }
        assert!(migrate("[pool\n").is_err());
    }
}
