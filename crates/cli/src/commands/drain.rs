//! `pillion drain` and `undrain`: which nodes and GPUs take no new tenants, by an operator's word.

use crate::args::{DrainArgs, UndrainArgs};
use crate::client::{Operator, answer};
use crate::error::CliError;
use crate::output::{Answer, Table, json};
use pillion_api::{
    DrainOutcome, DrainRequest, DrainResponse, Place, UndrainOutcome, UndrainRequest, UndrainResponse,
};
use pillion_slurm::nodeset;

/// The order that the words mean.
///
/// # Errors
/// [`CliError::Usage`] for a place that cannot be read, or a reason without a word.
pub fn request(args: &DrainArgs) -> Result<DrainRequest, CliError> {
    if args.reason.trim().is_empty() {
        return Err(CliError::Usage("a drain needs a reason; write --reason 'fan noise'".to_owned()));
    }
    Ok(DrainRequest { places: places(&args.places)?, reason: args.reason.clone() })
}

/// The same for `undrain`.
///
/// # Errors
/// [`CliError::Usage`] for a place that cannot be read.
pub fn undrain_request(args: &UndrainArgs) -> Result<UndrainRequest, CliError> {
    Ok(UndrainRequest { places: places(&args.places)?, reason: args.reason.clone() })
}

fn places(words: &[String]) -> Result<Vec<Place>, CliError> {
    let mut places = Vec::new();
    for word in words {
        let named = places_of(word).ok_or_else(|| {
            CliError::Usage(format!(
                "'{word}' names no nodes or GPUs; write n1, n[1-3], n1:g0 or n[1-2]:g[0-3]"
            ))
        })?;
        places.extend(named);
    }
    Ok(places)
}

/// Reads `n1,n[2-3]:g[0-1]`; `None`: it names no place.
fn places_of(word: &str) -> Option<Vec<Place>> {
    let mut places = Vec::new();
    for entry in nodeset::split_outside_brackets(word) {
        let (nodes, devices) = match entry.split_once(':') {
            None => (entry, None),
            Some((nodes, devices)) => (nodes, Some(nodeset::expand(devices).ok()?)),
        };
        let nodes = nodeset::expand(nodes).ok()?;
        if nodes.is_empty() || devices.as_ref().is_some_and(Vec::is_empty) {
            return None;
        }
        for node in nodes {
            let node = node.to_string();
            match &devices {
                None => places.push(Place { node, gres_type: None }),
                Some(devices) => places.extend(
                    devices
                        .iter()
                        .map(|device| Place { node: node.clone(), gres_type: Some(device.to_string()) }),
                ),
            }
        }
    }
    Some(places)
}

/// Gives the order to drain.
///
/// # Errors
/// As [`answer`].
pub async fn drain(client: &mut Operator, request: DrainRequest) -> Result<Answer, CliError> {
    Ok(drained(&answer(client.drain(request)).await?))
}

/// Gives the order to undrain. The second answer: whether anything was drained.
///
/// # Errors
/// As [`answer`].
pub async fn undrain(client: &mut Operator, request: UndrainRequest) -> Result<(Answer, bool), CliError> {
    let response = answer(client.undrain(request)).await?;
    let was_any = response.places.iter().any(|outcome| outcome.was_drained);
    Ok((undrained(&response), was_any))
}

fn drained(response: &DrainResponse) -> Answer {
    let mut table = Table::new(&["NODE", "DEVICE", "CHANGE", ">STILL_RUN", "STATE"]);
    for DrainOutcome { drain, change, running_count } in &response.places {
        let drain = drain.clone().unwrap_or_default();
        table.push(vec![
            drain.node.clone(),
            drain.gres_type.clone().unwrap_or_default(),
            change.clone(),
            running_count.to_string(),
            drain.sentence(),
        ]);
    }
    Answer::table(table, json::render(response))
}

/// What came of an order to undrain, and what of the node is drained still.
fn state(outcome: &UndrainOutcome) -> String {
    let still: Vec<String> =
        outcome.remaining.iter().map(|drain| format!("{} is {}", drain.place(), drain.sentence())).collect();
    let own = if outcome.was_drained { "undrained" } else { "was not drained" };
    if still.is_empty() { own.to_owned() } else { format!("{own}; {}", still.join("; ")) }
}

fn undrained(response: &UndrainResponse) -> Answer {
    let mut table = Table::new(&["NODE", "DEVICE", "STATE"]);
    for outcome in &response.places {
        let Place { node, gres_type } = outcome.place.clone().unwrap_or_default();
        table.push(vec![node, gres_type.unwrap_or_default(), state(outcome)]);
    }
    Answer::table(table, json::render(response))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Vec<String>, String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let places = places(&words).map_err(|error| error.to_string())?;
        let shown = |place: Place| format!("{}:{}", place.node, place.gres_type.unwrap_or_default());
        Ok(places.into_iter().map(shown).collect())
    }

    #[test]
    fn places_are_hostlists_with_or_without_devices() {
        assert_eq!(read(&["n1"]).unwrap(), ["n1:"]);
        assert_eq!(read(&["n[1-2],x", "n7:g0"]).unwrap(), ["n1:", "n2:", "x:", "n7:g0"]);
        assert_eq!(read(&["n[1-2]:g[0-1],n3"]).unwrap(), ["n1:g0", "n1:g1", "n2:g0", "n2:g1", "n3:"]);
    }

    #[test]
    fn what_names_no_place_is_answered_with_what_does() {
        for wrong in ["", "n[1-", "n1:", ":g0", "n1:g0:g1", "n1,,n2", "n 1"] {
            let message = read(&[wrong]).expect_err(wrong);
            let expected =
                format!("'{wrong}' names no nodes or GPUs; write n1, n[1-3], n1:g0 or n[1-2]:g[0-3]");
            assert_eq!(message, expected);
        }
    }
}
