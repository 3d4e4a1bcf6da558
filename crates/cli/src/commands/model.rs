//! `pillion model`: every model that was trained, whether it is in use, and the backtest that says why.

use crate::args::ModelArgs;
use crate::client::{Operator, answer};
use crate::error::CliError;
use crate::format;
use crate::output::{Answer, Block, Table, json};
use pillion_api::{Model, ModelScore, ModelsRequest, ModelsResponse};

/// Asks the scheduler.
///
/// # Errors
/// As [`answer`].
pub async fn fetch(client: &mut Operator, args: &ModelArgs) -> Result<Answer, CliError> {
    Ok(show(&answer(client.models(ModelsRequest { limit: args.limit })).await?))
}

const COLUMNS: [&str; 11] = [
    ">VERSION",
    "STATE",
    "KIND",
    "TRAINED",
    ">OBSERVED",
    ">OUTCOMES",
    ">SCORE",
    ">ERROR",
    ">BELOW_LOW",
    "AGAINST",
    "WHY",
];

fn show(response: &ModelsResponse) -> Answer {
    let mut table = Table::new(&COLUMNS);
    for model in &response.models {
        table.push(line(model));
    }
    let answer = Answer::table(table, json::render(response));
    if answer.parsable.is_empty() {
        let nothing = "Nothing was learnt yet: estimates come from solo profiles alone".to_owned();
        return Answer { blocks: vec![Block::Line(nothing)], ..answer };
    }
    answer
}

fn line(model: &Model) -> Vec<String> {
    let against = match model.incumbent_version {
        _ if model.outcome_count == 0 => String::new(),
        Some(version) => format!("v{version}"),
        None => "v0".to_owned(),
    };
    vec![
        model.version.to_string(),
        model.state.clone(),
        model.kind.clone(),
        format::time(model.trained_at_seconds),
        model.observation_count.to_string(),
        model.outcome_count.to_string(),
        both(model, |score| format!("{:.2}", score.log_score_mean)),
        both(model, |score| format!("{:.3}", score.error_mean)),
        both(model, |score| format!("{:.2}", score.below_low_fraction)),
        against,
        model.reason.clone(),
    ]
}

/// Scores as `own/other`: the candidate's, and those of the model that it stood against.
fn both(model: &Model, show: fn(&ModelScore) -> String) -> String {
    match (&model.candidate, &model.incumbent) {
        (Some(own), Some(other)) => format!("{}/{}", show(own), show(other)),
        _ => String::new(),
    }
}
