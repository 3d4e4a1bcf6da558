//! Reads `slurmctld.log`: when each job was given a node, and when that was over. Its clock has milliseconds, the accounting's
//! only seconds. And the shards in use that `scontrol show node -d` tells. Pure.

use super::facts::Allocation;
use std::collections::BTreeMap;

/// What is read of the log.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SlurmLog {
    /// By the job's name.
    pub allocations: BTreeMap<String, Vec<Allocation>>,
    /// Every line that names a job, by its name.
    pub lines: BTreeMap<String, Vec<String>>,
}

/// Lines of one start lie no farther apart.
const SAME_SECONDS: f64 = 1.0;

/// Reads the whole text. What does not look like a line of a log is passed over.
pub fn read(text: &str) -> SlurmLog {
    let mut log = SlurmLog::default();
    for line in text.lines() {
        let (Some(at), Some(name)) = (time_of(line), job_of(line)) else { continue };
        log.lines.entry(name.clone()).or_default().push(line.to_owned());
        let begins = line.contains("Allocate JobId=") || line.contains("Started JobId=");
        let of_job = log.allocations.entry(name).or_default();
        if begins {
            // Both lines are written where the main scheduler starts a job.
            let is_same =
                of_job.last().is_some_and(|last| last.until.is_none() && at < last.at + SAME_SECONDS);
            if !is_same {
                // One that a killed slurmctld forgot has no end.
                for before in of_job.iter_mut() {
                    before.until.get_or_insert(at);
                }
                of_job.push(Allocation { at, until: None, nodes: nodes_of(line).unwrap_or_default() });
            }
        } else if ends(line)
            && let Some(last) = of_job.last_mut()
        {
            last.until.get_or_insert(at);
        }
    }
    log.allocations.retain(|_, of_job| !of_job.is_empty());
    log
}

/// Whether from this line on the job has its node no more, or will not have it for long.
fn ends(line: &str) -> bool {
    (line.contains("_job_complete: ") && line.ends_with(" done"))
        || line.contains("_job_requeue")
        || line.contains("Requeuing JobId=")
        || line.contains("requeue job")
        || line.contains("requeue JobId=")
        || line.contains("Killing JobId=")
        || line.contains("REQUEST_KILL_JOB JobId=")
        || line.contains("_slurm_rpc_kill_job: ")
        || line.contains("job_signal")
        || line.contains("Time limit exhausted for JobId=")
        || line.contains("killing old JobId=")
        || line.contains("batch requested abort")
}

/// `JobId=12`, `JobId=12_3(15)` and `JobId=12_3` become `12` and `12_3`; `None` for an array as a whole.
fn job_of(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("JobId=")?;
    let end = rest.find(|next: char| !next.is_ascii_digit() && next != '_').unwrap_or(rest.len());
    let name = &rest[..end];
    (!name.is_empty() && !name.ends_with('_')).then(|| name.to_owned())
}

fn nodes_of(line: &str) -> Option<Vec<String>> {
    let (_, rest) = line.split_once(" NodeList=").or_else(|| line.split_once(" on "))?;
    let nodes_text = rest.split(' ').next()?;
    // A storm's nodes are `n1`, or `n[1-2]`. Not by Pillion's own reader, which is one of those that are judged.
    let Some((name, numbers)) = nodes_text.strip_suffix(']').and_then(|text| text.split_once('[')) else {
        let name: String = nodes_text.chars().take_while(char::is_ascii_alphanumeric).collect();
        return (!name.is_empty()).then(|| vec![name]);
    };
    let mut nodes = Vec::new();
    for range in numbers.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        nodes.extend((first..=last).map(|number| format!("{name}{number}")));
    }
    Some(nodes)
}

/// `[2026-11-21T05:02:45.004]` in UTC, as epoch seconds.
fn time_of(line: &str) -> Option<f64> {
    let (stamp, _) = line.strip_prefix('[')?.split_once(']')?;
    let (date, clock) = stamp.split_once('T')?;
    let mut parts = date.split('-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let mut clock = clock.split(':').map(|part| part.parse::<f64>().ok());
    let (hours, minutes, seconds) = (clock.next()??, clock.next()??, clock.next()??);
    let days = i32::try_from(days_since_1970(year, month, day)).ok()?;
    Some(f64::from(days) * 86_400.0 + hours * 3600.0 + minutes * 60.0 + seconds)
}

/// Days of the Gregorian calendar; years are counted from March, so that the odd day comes last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// `shard:g0:40(40/100,0/100,..)`: the shards of each GPU that are in use, with its index.
pub fn shards_used(gres: &str) -> Vec<(usize, u32)> {
    let lists = gres.split("shard:").skip(1).filter_map(|entry| entry.split_once('(')?.1.split(')').next());
    let used = lists.flat_map(|list| {
        list.split(',')
            .enumerate()
            .filter_map(|(gpu, count)| Some((gpu, count.split('/').next()?.parse().ok()?)))
    });
    used.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
[2026-11-23T04:00:00.125] _slurm_rpc_submit_batch_job: JobId=12 InitPrio=1 usec=300
[2026-11-23T04:00:01.500] sched: Allocate JobId=12 NodeList=n1 #CPUs=1 Partition=shared
[2026-11-23T04:00:04.000] _job_complete: JobId=12 WEXITSTATUS 0
[2026-11-23T04:00:04.250] _job_complete: JobId=12 done
[2026-11-23T04:00:05.000] sched/backfill: _start_job: Started JobId=13_2(15) in shared on n2
[2026-11-23T04:00:06.000] _slurm_rpc_requeue: Requeue of JobId=13_* returned an error
[2026-11-23T04:00:07.000] Requeuing JobId=13_2(15)
[2026-11-23T04:00:09.000] sched: Allocate JobId=13_2(15) NodeList=n[1-2] #CPUs=2 Partition=shared
[2026-11-23T04:00:09.010] sched/backfill: _start_job: Started JobId=13_2(15) in shared on n[1-2]
[2026-11-23T04:02:09.000] sched: Allocate JobId=13_2(15) NodeList=n1 #CPUs=1 Partition=shared
no line of a log
";

    #[test]
    fn allocations_and_their_ends_are_found() {
        let log = read(TEXT);
        let begun = 1_795_406_400.0;
        assert_eq!(
            log.allocations["12"],
            [Allocation { at: begun + 1.5, until: Some(begun + 4.25), nodes: vec!["n1".into()] }]
        );
        assert_eq!(
            log.allocations["13_2"],
            [
                Allocation { at: begun + 5.0, until: Some(begun + 7.0), nodes: vec!["n2".into()] },
                Allocation {
                    at: begun + 9.0,
                    until: Some(begun + 129.0),
                    nodes: vec!["n1".into(), "n2".into()]
                },
                Allocation { at: begun + 129.0, until: None, nodes: vec!["n1".into()] },
            ]
        );
        assert_eq!((log.lines["12"].len(), log.lines["13_2"].len()), (4, 5));
        assert!(!log.lines.contains_key("13"));
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        assert_eq!(days_since_1970(1970, 1, 1), 0);
        assert_eq!(days_since_1970(2000, 3, 1), 11_017);
        assert_eq!(days_since_1970(2024, 2, 29), 19_782);
    }

    #[test]
    fn shards_in_use_are_read() {
        let gres = "gpu:g0:0(IDX:N/A),shard:g0:140(140/100,0/100),shard:g1:30(0/100,30/100)";
        let used = shards_used(gres);
        assert!(used.contains(&(0, 140)) && used.contains(&(1, 30)), "{used:?}");
    }
}
