//! `pillion events`: what happened to nodes and jobs in a stretch of time: faults, victims, evictions, drains.

use crate::args::EventsArgs;
use crate::client::{Operator, answer};
use crate::error::CliError;
use crate::format;
use crate::output::{Answer, Block, Table, json};
use pillion_api::{EventsRequest, EventsResponse};
use pillion_core::UnixTime;

/// The question that the options mean; from midnight until now if they name no time, as `sacct` does.
///
/// # Errors
/// [`CliError::Usage`] for a time or a hostlist that cannot be read, or a stretch that ends before it begins.
pub fn request(args: &EventsArgs, now: UnixTime) -> Result<EventsRequest, CliError> {
    let start = args.start.as_deref().unwrap_or("today");
    // Open without an end: what happens in this very second is told too.
    let (since, until) = format::stretch(Some(start), args.end.as_deref(), now).map_err(CliError::Usage)?;
    let nodes =
        pillion_slurm::nodeset::expand(&args.nodes).map_err(|error| CliError::Usage(error.to_string()))?;
    Ok(EventsRequest {
        since_seconds: since.map_or(0.0, UnixTime::seconds),
        until_seconds: until.map_or(0.0, UnixTime::seconds),
        nodes: nodes.iter().map(ToString::to_string).collect(),
        job_ids: args.jobs.iter().map(ToString::to_string).collect(),
        kinds: args.kinds.clone(),
        limit: args.limit,
    })
}

/// Asks the scheduler.
///
/// # Errors
/// As [`answer`].
pub async fn fetch(client: &mut Operator, request: EventsRequest) -> Result<Answer, CliError> {
    Ok(show(&answer(client.events(request)).await?))
}

fn show(response: &EventsResponse) -> Answer {
    let mut table = Table::new(&["TIME", "KIND", "JOBID", "NODE", "DETAIL"]);
    for event in &response.events {
        table.push(vec![
            format::time(event.at_seconds),
            event.kind.clone(),
            event.job_id.clone().unwrap_or_default(),
            event.node.clone().unwrap_or_default(),
            event.detail.clone(),
        ]);
    }
    let mut answer = Answer::table(table, json::render(response));
    if response.has_more {
        let text = "Older events were left out; choose a shorter time with -S and -E, or more with --limit";
        answer.blocks.push(Block::Line(text.to_owned()));
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args() -> EventsArgs {
        EventsArgs {
            start: None,
            end: None,
            nodes: String::new(),
            jobs: Vec::new(),
            kinds: Vec::new(),
            limit: 7,
        }
    }

    #[test]
    fn without_a_time_it_is_about_today() {
        let now = UnixTime::from_epoch(1_795_000_000);
        let today = request(&args(), now).expect("valid");
        assert!((0.0..86_400.0).contains(&(now.seconds() - today.since_seconds)));
        assert!((today.until_seconds - 0.0).abs() < 1e-9 && today.limit == 7);
        let nodes = EventsArgs { nodes: "n[1-2]".to_owned(), ..args() };
        assert_eq!(request(&nodes, now).expect("valid").nodes, ["n1", "n2"]);
    }

    #[test]
    fn a_stretch_that_ends_before_it_begins_is_refused() {
        let start = Some("now".to_owned());
        let swapped = EventsArgs { start, end: Some("now-1hour".to_owned()), ..args() };
        let error = request(&swapped, UnixTime::from_epoch(1_795_000_000)).expect_err("swapped");
        assert!(error.to_string().contains("swap"));
    }
}
