//! Asks the scheduler for what is on the screen: once a second, at once when another page is wanted, and for what was
//! gained once a minute. A scheduler that does not respond is asked again every second.

use crate::client::{Operator, Target, answer, connect};
use crate::error::CliError;
use crate::format;
use pillion_api::{AccountRequest, AccountRow, TopRequest, TopResponse};
use pillion_core::UnixTime;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

const PERIOD: Duration = Duration::from_secs(1);
/// How soon another page is asked for: a key that is held down repeats faster.
const PAUSE: Duration = Duration::from_millis(100);
const GAINS_PERIOD_SECONDS: f64 = 60.0;

/// What came of asking.
#[derive(Debug)]
pub(super) enum News {
    Overview(TopResponse),
    Gains(Option<AccountRow>),
    Trouble(String),
}

/// A connection that is made anew when it broke.
#[derive(Debug)]
pub(super) struct Asker {
    address: Target,
    client: Option<Operator>,
}

impl Asker {
    pub(super) const fn new(address: Target) -> Self {
        Self { address, client: None }
    }

    async fn client(&mut self) -> Result<&mut Operator, CliError> {
        let client = match self.client.take() {
            Some(client) => client,
            None => connect(&self.address).await?,
        };
        Ok(self.client.insert(client))
    }

    /// The lists from the rows on that the terminal shows.
    pub(super) async fn overview(&mut self, request: TopRequest) -> Result<TopResponse, CliError> {
        let asked = answer(self.client().await?.top(request)).await;
        // Whatever went wrong, the next question is asked on a new connection.
        asked.inspect_err(|_| self.client = None)
    }

    /// What was gained since midnight. `None`: nothing is told to this caller.
    pub(super) async fn gains(&mut self, now: UnixTime) -> Result<Option<AccountRow>, CliError> {
        let midnight = format::parse_time("today", now).map_err(CliError::Usage)?;
        let request = AccountRequest {
            since_seconds: midnight.seconds(),
            until_seconds: now.seconds(),
            ..AccountRequest::default()
        };
        match answer(self.client().await?.account(request)).await {
            Ok(response) => Ok(response.rows.into_iter().next()),
            Err(CliError::Refused(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Asks until nobody listens any more.
pub(super) async fn ask_on(
    mut asker: Asker,
    mut wanted: watch::Receiver<TopRequest>,
    news: mpsc::Sender<News>,
) {
    let mut gains_at: Option<f64> = None;
    loop {
        let request = *wanted.borrow_and_update();
        let message = match asker.overview(request).await {
            Err(error) => News::Trouble(pillion_core::report(&error)),
            Ok(overview) => {
                // The scheduler's clock: its days are those that count.
                let now = overview.now_seconds;
                let is_due = gains_at.is_none_or(|at| !(0.0..GAINS_PERIOD_SECONDS).contains(&(now - at)));
                if is_due && let Ok(gains) = asker.gains(UnixTime::from_seconds(now)).await {
                    gains_at = Some(now);
                    if news.send(News::Gains(gains)).await.is_err() {
                        return;
                    }
                }
                News::Overview(overview)
            }
        };
        if news.send(message).await.is_err() {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(PERIOD) => {}
            changed = wanted.changed() => {
                if changed.is_err() {
                    return;
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
