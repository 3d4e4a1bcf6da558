//! Runs reconcilers: each on its period and whenever it is nudged, until told to stop. No retries inside: the
//! next tick is the retry.

use crate::context::TickError;
use pillion_core::report;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// Runs `tick` until `stop`. The first tick comes at once. An error is logged when it begins and when it changes, not on
/// every tick.
pub async fn drive<F>(
    name: &'static str,
    period: Duration,
    wake: Option<Arc<Notify>>,
    stop: CancellationToken,
    tick: F,
) where
    F: AsyncFn() -> Result<(), TickError>,
{
    let mut last_error = None;
    loop {
        match tick().await {
            Ok(()) => last_error = None,
            Err(error) => {
                let text = report(&error);
                if last_error.as_ref() != Some(&text) {
                    warn!(task = name, error = %text, "tick failed; trying again");
                }
                last_error = Some(text);
            }
        }
        let woken = async {
            match &wake {
                Some(wake) => wake.notified().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = woken => {}
            () = tokio::time::sleep(period) => {}
        }
    }
}
