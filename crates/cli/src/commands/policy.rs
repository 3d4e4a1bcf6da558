//! `pillion policy`: the rules that are in force in the running scheduler, and where each value comes from. For everybody:
//! users may know by which rules their jobs share.

use crate::client::{Operator, answer};
use crate::error::CliError;
use crate::output::{Answer, Table, json};
use pillion_api::{PolicyRequest, PolicyResponse};

/// Asks the scheduler.
///
/// # Errors
/// As [`answer`].
pub async fn fetch(client: &mut Operator) -> Result<Answer, CliError> {
    Ok(show(&answer(client.policy(PolicyRequest {})).await?))
}

fn show(policy: &PolicyResponse) -> Answer {
    let mut table = Table::new(&["RULE", "VALUE", "FROM", "MEANING"]);
    for rule in &policy.rules {
        table.push(vec![rule.key.clone(), rule.value.clone(), rule.whence(), rule.meaning.clone()]);
    }
    Answer::table(table, json::render(policy))
}
