//! The pages: each asks the service in the viewer's name and lays out the answer.

mod cluster;
mod decision;
mod gains;
mod heatmap;
mod idle;
mod job;
mod node;
mod pairs;
mod parts;
mod queue;
mod reasons;
mod scaling;
mod workload;

use crate::address::{Filters, Page};
use crate::format;
use crate::frame::Sheet;
use crate::problem::Problem;
use crate::viewer::Viewer;
use pillion_api::operator_service_server::OperatorService;
use pillion_core::{Clock as _, SystemClock};
use tonic::{Request, Response, Status};

/// What every page is made from.
pub(crate) struct Ask<'a> {
    pub(crate) service: &'a dyn OperatorService,
    pub(crate) viewer: &'a Viewer,
    pub(crate) filters: &'a Filters,
}

impl Ask<'_> {
    /// A question in the viewer's name.
    fn question<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        *request.extensions_mut() = self.viewer.extensions.clone();
        request
    }

    /// One filter as it was written; empty: it is not set.
    fn filter(&self, name: &str) -> &str {
        self.filters.get(name)
    }

    /// The filters `since` and `until`; without them the last `days` days until now.
    fn stretch(&self, now: f64, days: f64) -> Result<(f64, f64), Problem> {
        let until = self.time("until", now, true)?.unwrap_or(now + 1.0);
        let since = self.time("since", now, false)?.unwrap_or(until.min(now) - days * 86_400.0);
        if until <= since {
            return Err(Problem::filter("until lies before since; swap them."));
        }
        Ok((since, until))
    }

    /// A filter that is a time, or not set. `is_end`: a day means its end.
    fn time(&self, name: &str, now: f64, is_end: bool) -> Result<Option<f64>, Problem> {
        match self.filter(name) {
            "" => Ok(None),
            text => format::parse_time(text, now, is_end)
                .map(Some)
                .map_err(|error| Problem::filter(format!("{name}: {error}."))),
        }
    }

    /// A filter that is one of a few words, or not set.
    fn word(&self, name: &str, words: &[&'static str]) -> Result<&'static str, Problem> {
        let text = self.filter(name);
        if text.is_empty() {
            return Ok("");
        }
        words.iter().copied().find(|word| *word == text).ok_or_else(|| {
            Problem::filter(format!("{name}={text} is not known; allowed are {}.", words.join(", ")))
        })
    }

    /// A filter that is a number; 0 where it is not set.
    fn number(&self, name: &str) -> Result<u64, Problem> {
        match self.filter(name) {
            "" => Ok(0),
            text => text.parse().map_err(|_| Problem::filter(format!("{name}={text} is not a number."))),
        }
    }
}

fn now() -> f64 {
    SystemClock.now().seconds()
}

/// What the service answered.
fn taken<T>(response: Result<Response<T>, Status>) -> Result<T, Problem> {
    Ok(response?.into_inner())
}

/// The page at an address.
pub(crate) async fn sheet(ask: &Ask<'_>, page: &Page) -> Result<Sheet, Problem> {
    match page {
        Page::Cluster => cluster::sheet(ask).await,
        Page::Gains => gains::sheet(ask).await,
        Page::Pairs => pairs::sheet(ask).await,
        Page::Heatmap => heatmap::sheet(ask).await,
        Page::Queue => queue::sheet(ask).await,
        Page::Idle => idle::sheet(ask).await,
        Page::Decision(id) => decision::sheet(ask, *id).await,
        Page::Job(id) => job::sheet(ask, id).await,
        Page::Workload(name) => workload::sheet(ask, name).await,
        Page::Node(name) => node::sheet(ask, name).await,
        Page::Style | Page::Icon => Err(Problem::missing("such page")),
    }
}
