//! Throws away what is no longer of use: device samples and history past their time, cool-downs that are over.

use crate::context::Context;
use crate::tick_error::TickError;
use std::sync::Arc;
use tracing::info;

pub struct Housekeep {
    context: Arc<Context>,
}

impl Housekeep {
    pub fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    /// Tidies once.
    ///
    /// # Errors
    /// [`TickError`] where the store did not answer.
    pub async fn tick(&self) -> Result<(), TickError> {
        let now = self.context.now();
        self.context.board_mut().cooling.retain(|_, until| *until > now);
        let samples = self.context.store.prune_samples(now - self.context.settings.samples_kept).await;
        if let Ok(pruned @ 1..) = samples {
            info!(pruned, "old device samples deleted");
        }
        // Whatever became of the samples.
        if let Some(kept) = self.context.settings.history_kept {
            let pruned = self.context.store.prune_history(now - kept).await?;
            if pruned > 0 {
                info!(pruned, "old history deleted");
            }
        }
        Ok(samples.map(drop)?)
    }
}
