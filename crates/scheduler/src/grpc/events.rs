//! What happened to nodes and jobs, as the caller may see it: operators all of it, users what happened to their own jobs.

use super::auth::Caller;
use super::listing::{self, asked_time};
use pillion_api as api;
use pillion_core::{NodeName, SlurmJobId};
use pillion_store::EventFilter;
use tonic::Status;

/// The most events of one answer.
const LIMIT_MAX: u32 = 100_000;

/// Which events a request means, one more than it wants so that it shows whether there are more.
pub(super) fn filter(request: api::EventsRequest, caller: Caller) -> Result<EventFilter, Status> {
    let api::EventsRequest { since_seconds, until_seconds, nodes, job_ids, kinds, limit } = request;
    let uid = caller.only_uid()?;
    Ok(EventFilter {
        since: asked_time(since_seconds),
        until: asked_time(until_seconds),
        nodes: nodes.into_iter().map(NodeName::new).collect(),
        job_ids: job_ids.iter().map(|text| job_id(text)).collect::<Result<_, _>>()?,
        kinds: kinds.iter().map(|kind| kind.as_str().into()).collect(),
        uid,
        limit: limit.clamp(1, LIMIT_MAX) + 1,
    })
}

fn job_id(text: &str) -> Result<SlurmJobId, Status> {
    text.parse().map_err(|error| Status::invalid_argument(format!("{error}")))
}

/// The answer to `filter`, which asked for one more.
pub(super) fn answer(mut events: Vec<pillion_store::Event>, filter: &EventFilter) -> api::EventsResponse {
    let has_more = events.len() >= usize::try_from(filter.limit).unwrap_or(usize::MAX);
    if has_more {
        events.remove(0);
    }
    api::EventsResponse { events: events.into_iter().map(listing::event_row).collect(), has_more }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillion_core::event::EventKind;
    use pillion_core::{UnixTime, UserId};
    use pillion_store::Event;

    fn caller(uid: Option<u32>, is_operator: bool) -> Caller {
        Caller { uid: uid.map(UserId), is_operator }
    }

    #[test]
    fn a_user_asks_for_his_own_jobs_whatever_he_names() {
        let request = || api::EventsRequest { nodes: vec!["n1".to_owned()], limit: 5, ..Default::default() };
        assert_eq!(filter(request(), caller(Some(1000), false)).unwrap().uid, Some(UserId(1000)));
        assert_eq!(filter(request(), caller(Some(0), true)).unwrap().uid, None);
        assert_eq!(filter(request(), caller(None, true)).unwrap().limit, 6);
        let refused = filter(request(), caller(None, false)).expect_err("nobody");
        assert_eq!(refused.code(), tonic::Code::PermissionDenied);
        let wrong = api::EventsRequest { job_ids: vec!["42.batch".to_owned()], ..request() };
        assert!(filter(wrong, caller(None, true)).expect_err("no id").message().contains("write 33"));
    }

    #[test]
    fn one_too_many_says_that_there_are_more() {
        let filter = EventFilter { limit: 3, ..EventFilter::default() };
        let event = |epoch| Event {
            at: UnixTime::from_epoch(epoch),
            kind: EventKind::Victim,
            job_id: None,
            node: None,
            detail: String::new(),
        };
        let shown = answer((1..=3).map(event).collect(), &filter);
        assert_eq!((shown.events.len(), shown.has_more), (2, true));
        assert!((shown.events[0].at_seconds - 2.0).abs() < 1e-9, "the newest stay");
        assert!(!answer((1..=2).map(event).collect(), &filter).has_more);
    }
}
