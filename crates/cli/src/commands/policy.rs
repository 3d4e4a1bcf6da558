//! `pillion policy`: the rules that are in force in the running scheduler, and where each value comes from. For everybody:
//! users may know by which rules their jobs share.

use crate::client::{Operator, answer};
use crate::error::CliError;
use crate::output::{Answer, Table, json};
use pillion_proto::v1::{PolicyRequest, PolicyResponse, PolicyRule};
use serde::Serialize;

/// Asks the scheduler.
///
/// # Errors
/// As [`answer`].
pub async fn fetch(client: &mut Operator) -> Result<Answer, CliError> {
    Ok(show(answer(client.policy(PolicyRequest {})).await?))
}

#[derive(Serialize)]
struct Body {
    rules: Vec<RuleRow>,
}

#[derive(Serialize)]
struct RuleRow {
    key: String,
    /// As TOML has it.
    value: String,
    /// default, file, built-in or agents.
    origin: String,
    file: Option<String>,
    line: Option<u32>,
    meaning: String,
}

impl From<PolicyRule> for RuleRow {
    fn from(rule: PolicyRule) -> Self {
        let PolicyRule { key, value, origin, file, line, meaning } = rule;
        let file = (!file.is_empty()).then_some(file);
        Self { key, value, origin, line: (line > 0).then_some(line), file, meaning }
    }
}

impl RuleRow {
    /// `/etc/pillion/pillion.toml, line 4`, as `pillion config show` has it.
    fn whence(&self) -> String {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => format!("{file}, line {line}"),
            _ => self.origin.clone(),
        }
    }
}

fn show(PolicyResponse { rules }: PolicyResponse) -> Answer {
    let rules: Vec<RuleRow> = rules.into_iter().map(RuleRow::from).collect();
    let mut table = Table::new(&["RULE", "VALUE", "FROM", "MEANING"]);
    for rule in &rules {
        table.push(vec![rule.key.clone(), rule.value.clone(), rule.whence(), rule.meaning.clone()]);
    }
    Answer::table(table, json::render(&Body { rules }))
}
