//! A part of a start that was only observed: told under Slurm's inner number of its job, and held against the starts that Slurm has
//! shown under that number.

use super::doubt::Doubt;
use super::reporter::Reporter;
use super::{EARLY_SECONDS_MAX, LATE_SECONDS_MAX, SETTLED_AFTER, Verdict, doubt_of};
use pillion_core::report::JobSummary;
use pillion_core::{JobStart, UnixTime};
use pillion_store::ObservedJob;

/// Which start it was, where it counts. `starts`: all that are known of that number; `scanned_at`: when Slurm was read last.
pub(crate) fn observed_run(
    reported: &JobSummary,
    by: Reporter<'_>,
    starts: &[ObservedJob],
    scanned_at: Option<UnixTime>,
) -> Result<JobStart, Verdict> {
    let (from, until) = (by.seconds(reported.started_at), by.seconds(reported.ended_at));
    let is_within = |job: &&ObservedJob| {
        let end = job.ended_at.map_or(by.now.seconds(), UnixTime::seconds).min(by.now.seconds());
        from <= until
            && from >= job.started_at.seconds() - EARLY_SECONDS_MAX
            && until <= end + LATE_SECONDS_MAX
    };
    let here = || starts.iter().filter(|job| job.nodes.contains(by.node));
    // Of several, the one that began last before it: a job that was started again keeps its number.
    let own =
        here().filter(is_within).max_by(|a, b| a.started_at.seconds().total_cmp(&b.started_at.seconds()));
    if let Some(own) = own {
        let memory_bytes = by.devices.get(&reported.gres_type).copied().unwrap_or(0);
        return match doubt_of(reported, memory_bytes) {
            Some(doubt) => Err(Verdict::Dropped(doubt)),
            None => Ok(own.start),
        };
    }
    let is_settled = scanned_at
        .is_some_and(|at| at.seconds() >= until.min(by.now.seconds()) + SETTLED_AFTER.as_secs_f64());
    Err(if !is_settled {
        Verdict::NotYet
    } else if here().next().is_some() {
        Verdict::Dropped(Doubt::Times)
    } else if starts.is_empty() {
        Verdict::Dropped(Doubt::UnknownStart)
    } else {
        Verdict::Dropped(Doubt::OtherNode)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::tests::observed;
    use crate::testing::{NOW, at, summary};
    use pillion_core::{GresType, NodeName};
    use std::collections::BTreeMap;

    fn told(from: u64, until: u64) -> JobSummary {
        JobSummary { started_at: at(from), ended_at: at(until), ..summary(observed(7).start) }
    }

    fn judged(
        node: &str,
        reported: &JobSummary,
        starts: &[ObservedJob],
        scanned: u64,
    ) -> Result<JobStart, Verdict> {
        let (node, devices) = (NodeName::new(node), BTreeMap::from([(GresType::new("g1"), 80)]));
        let by = Reporter { node: &node, skew_seconds: 0.0, devices: &devices, now: at(NOW + 1000) };
        observed_run(reported, by, starts, Some(at(scanned)))
    }

    #[test]
    fn a_run_is_that_of_the_start_that_ran_there_then() {
        let first = ObservedJob { ended_at: Some(at(NOW + 100)), ..observed(7) };
        let restarted = JobStart { restart_count: 1, ..first.start };
        let again = ObservedJob { start: restarted, started_at: at(NOW + 300), ..observed(7) };
        let both = [first.clone(), again];
        let judged_of = |from, until| judged("n1", &told(from, until), &both, NOW + 1000);
        assert_eq!(judged_of(NOW + 2, NOW + 101), Ok(first.start));
        assert_eq!(judged_of(NOW + 301, NOW + 500), Ok(restarted));
        assert_eq!(judged_of(NOW - 500, NOW + 50), Err(Verdict::Dropped(Doubt::Times)), "before it began");
    }

    #[test]
    fn what_an_agent_tells_of_a_job_that_is_not_its_own_is_dropped() {
        let starts = [observed(7)];
        let run = told(NOW + 2, NOW + 101);
        let dropped = |doubt| Err(Verdict::Dropped(doubt));
        assert_eq!(judged("n9", &run, &starts, NOW + 1000), dropped(Doubt::OtherNode));
        assert_eq!(judged("n1", &run, &[], NOW + 1000), dropped(Doubt::UnknownStart));
        assert_eq!(judged("n1", &run, &[], NOW + 100), Err(Verdict::NotYet), "Slurm was not read since");
        let more = JobSummary { memory_bytes_peak: Some(81), ..run.clone() };
        assert_eq!(judged("n1", &more, &starts, NOW + 1000), dropped(Doubt::Memory));
        let longer = JobSummary { shared_seconds: 500.0, ..run };
        assert_eq!(judged("n1", &longer, &starts, NOW + 1000), dropped(Doubt::Seconds));
    }
}
