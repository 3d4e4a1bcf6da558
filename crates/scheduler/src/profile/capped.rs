//! What a run alone under a cap teaches: how fast its workload is there. Kept beside the speed without a cap, in the same
//! unit: by the job's own counter, else runs a second.

use super::speed::rate_of;
use pillion_core::{CapStep, UnixTime};
use pillion_store::{MeasuredRun, StoredProfile};

/// Adds the run's speed to those known of `cap`; the error says why the run teaches nothing.
pub(super) fn with_capped_run(
    stored: Option<StoredProfile>,
    run: &MeasuredRun,
    cap: CapStep,
    now: UnixTime,
) -> Result<StoredProfile, &'static str> {
    let known = stored.filter(|stored| stored.profile.rate_per_second().is_some());
    let mut stored = known.ok_or("how its workload runs alone without a cap is not known yet")?;
    let at = cap.index().ok_or("it had no cap")?;
    let rate = if stored.profile.throughput_per_second.is_some() {
        let rate = rate_of(&run.summary.solo);
        rate.ok_or("it wrote no progress, by which runs of its workload are compared")?
    } else {
        let elapsed = run.summary.ended_at.seconds_since(run.summary.started_at);
        if elapsed <= 0.0 {
            return Err("it took no time");
        }
        elapsed.recip()
    };
    stored.run_counts_at_cap[at] += 1;
    let mean = &mut stored.profile.throughput_per_second_at_cap[at];
    let before = mean.unwrap_or(rate);
    *mean = Some(before + (rate - before) / f64::from(stored.run_counts_at_cap[at]));
    stored.updated_at = now;
    Ok(stored)
}
