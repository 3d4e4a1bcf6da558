//! The thread that writes reports down: takes what has come since, appends it at once, and says how far the journal is.

use crate::journal::Journal;
use pillion_core::report::ReportBody;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use tracing::error;

/// How many reports go into one write.
const BATCH_COUNT: usize = 256;

/// Writes until nobody reports any more. Reports that cannot be written are lost, and said to be: a full disk must not
/// stop the node's jobs or its devices from being served. Of many batches in a row that is said of the first, the second, the fourth..
pub(crate) fn write_reports(
    journal: &Arc<Journal>,
    mut reports: mpsc::Receiver<ReportBody>,
    appended: &watch::Sender<u64>,
) {
    let mut batch = Vec::with_capacity(BATCH_COUNT);
    let mut failure_count: u64 = 0;
    while reports.blocking_recv_many(&mut batch, BATCH_COUNT) > 0 {
        let count = batch.len();
        match journal.append(std::mem::take(&mut batch)) {
            Ok(sequence) => {
                failure_count = 0;
                appended.send_replace(sequence);
            }
            Err(failed) => {
                failure_count += 1;
                if failure_count.is_power_of_two() {
                    let error = pillion_core::report(&failed);
                    error!(count, failure_count, error, "reports cannot be written down and are lost");
                }
            }
        }
    }
    // What was acknowledged last goes too, so that the next agent does not send it again.
    if let Err(failed) = journal.append(Vec::new()) {
        error!(error = %pillion_core::report(&failed), "the journal cannot be closed cleanly");
    }
}
