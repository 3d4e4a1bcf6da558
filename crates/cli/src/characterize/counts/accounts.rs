//! What Slurm tells a user of his own jobs: `squeue` while it knows them, and `sacct`, where there are accounts, after that.

use super::campaign::Seen;
use crate::characterize::slurm::known;
use crate::error::CliError;
use pillion_core::SlurmJobId;
use std::collections::BTreeMap;

/// What `squeue` is asked for; none of it is text that users write.
const QUEUE_FORMAT: &str = "%i|%T|%M|%D|%C|%r";
const ACCOUNT_FORMAT: &str = "JobID,State,ElapsedRaw,NNodes,NCPUS";

/// What is known of these jobs; one that nobody knows is left out.
///
/// # Errors
/// [`CliError::SlurmBusy`] where the controller did not answer.
pub(super) async fn seen(jobs: &[SlurmJobId]) -> Result<BTreeMap<SlurmJobId, Seen>, CliError> {
    known(jobs, (QUEUE_FORMAT, queued), (ACCOUNT_FORMAT, accounted)).await
}

fn queued(line: &str) -> Option<(SlurmJobId, Seen)> {
    let [id, state, elapsed, nodes, cpus, reason] = line.split('|').collect::<Vec<_>>()[..] else {
        return None;
    };
    let reason = if reason == "None" { "" } else { reason };
    let seen = Seen {
        state: state.to_owned(),
        elapsed_seconds: clock(elapsed)?,
        nodes: nodes.trim().parse().ok(),
        cpus: cpus.trim().parse().ok(),
        reason: reason.to_owned(),
    };
    Some((id.trim().parse().ok()?, seen))
}

fn accounted(line: &str) -> Option<(SlurmJobId, Seen)> {
    let [id, state, elapsed, nodes, cpus] = line.split('|').collect::<Vec<_>>()[..] else { return None };
    let seen = Seen {
        state: state.to_owned(),
        elapsed_seconds: elapsed.parse().ok()?,
        nodes: nodes.parse().ok(),
        cpus: cpus.parse().ok(),
        reason: String::new(),
    };
    Some((id.parse().ok()?, seen))
}

/// `12`, `0:12`, `1:00:12` or `2-01:00:12`, in seconds; what is not known yet is nothing.
fn clock(text: &str) -> Option<f64> {
    if matches!(text, "" | "INVALID" | "N/A") {
        return Some(0.0);
    }
    let (days, rest) = text.trim().split_once('-').unwrap_or(("0", text.trim()));
    let mut seconds = 0.0;
    for part in rest.split(':') {
        seconds = seconds * 60.0 + f64::from(part.parse::<u32>().ok()?);
    }
    Some(f64::from(days.parse::<u32>().ok()?) * 86_400.0 + seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_read_as_squeue_and_sacct_print_them() {
        let (id, seen) = queued("17|COMPLETED|1-02:03:04|1|8|None").unwrap();
        assert_eq!(
            (id, seen.state.as_str(), seen.nodes, seen.cpus),
            (SlurmJobId::plain(17), "COMPLETED", Some(1), Some(8))
        );
        assert!((seen.elapsed_seconds - 93_784.0).abs() < 1e-9 && seen.reason.is_empty());
        let (_, waits) = queued("18|PENDING|0:00|1|4|Dependency").unwrap();
        assert_eq!((waits.elapsed_seconds, waits.reason.as_str()), (0.0, "Dependency"));
        let (_, over) = accounted("17|CANCELLED by 1000|61|1|8").unwrap();
        assert_eq!((over.state.as_str(), over.elapsed_seconds), ("CANCELLED by 1000", 61.0));
        for odd in ["", "17|RUNNING", "x|RUNNING|0:01|1|1|None", "17|RUNNING|soon|1|1|None"] {
            assert_eq!(queued(odd), None, "{odd}");
        }
    }

    #[test]
    fn a_time_is_read_as_slurm_writes_it() {
        for (text, seconds) in [("59", 59.0), ("1:00", 60.0), ("1:00:01", 3601.0), ("INVALID", 0.0)] {
            assert_eq!(clock(text), Some(seconds), "{text}");
        }
        assert_eq!(clock("-1"), None);
    }
}
