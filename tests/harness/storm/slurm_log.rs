//! Reads `slurmctld.log`: when each job was given a node, and when that was over. Its clock has milliseconds, the accounting's
//! only seconds. And the shards in use that `scontrol show node -d` tells. Pure.

use super::facts::Allocation;
use std::collections::{BTreeMap, BTreeSet};

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
    let mut together: BTreeSet<&str> = text.lines().filter_map(|line| named(line).next()?.task()).collect();
    for line in text.lines() {
        let (Some(at), Some(named)) = (time_of(line), named(line).next()) else { continue };
        match named {
            Named::Job { name, .. } => {
                if named.has_own_record() {
                    together.remove(name);
                }
                log.take(at, name, line);
            }
            Named::Rest { array } => {
                for name in together.iter().filter(|name| array_of(name) == Some(array)) {
                    log.take(at, name, line);
                }
            }
        }
    }
    log.allocations.retain(|_, of_job| !of_job.is_empty());
    log
}

/// The lines that name a job, wherever in them, in their order.
pub fn lines_of<'t>(text: &'t str, job: &str) -> Vec<&'t str> {
    let mut has_own_record = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        let mut is_named = false;
        for named in named(line) {
            is_named |= match named {
                Named::Job { name, .. } => name == job,
                Named::Rest { array } => !has_own_record && array_of(job) == Some(array),
            };
            has_own_record |= named.task() == Some(job) && named.has_own_record();
        }
        if is_named {
            lines.push(line);
        }
    }
    lines
}

impl SlurmLog {
    /// Takes a line that names this job.
    fn take(&mut self, at: f64, name: &str, line: &str) {
        self.lines.entry(name.to_owned()).or_default().push(line.to_owned());
        let begins = line.contains("Allocate JobId=") || line.contains("Started JobId=");
        let of_job = self.allocations.entry(name.to_owned()).or_default();
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

/// Whom a line names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Named<'t> {
    /// `JobId=12`, `JobId=12_3` and `JobId=12_3(15)`; the number of the record where it is told.
    Job { name: &'t str, record: Option<&'t str> },
    /// `JobId=12_*`: the record that all tasks of an array share that have none of their own. Before 25.11 the last one left was
    /// given its name at once; since then it is this until it starts, also where it alone is changed.
    Rest { array: &'t str },
}

impl<'t> Named<'t> {
    /// The name, where it is that of a task.
    fn task(self) -> Option<&'t str> {
        match self {
            Self::Job { name, .. } => array_of(name).and(Some(name)),
            Self::Rest { .. } => None,
        }
    }

    /// Whether a task has left the record that it shared. The last one keeps that, and has its number: the array's.
    fn has_own_record(self) -> bool {
        let Self::Job { name, record: Some(record) } = self else { return false };
        array_of(name).is_some_and(|array| array != record)
    }
}

/// Everybody whom a line names.
fn named(line: &str) -> impl Iterator<Item = Named<'_>> {
    line.split("JobId=").skip(1).filter_map(|rest| {
        let end = rest.find(|next: char| !next.is_ascii_digit() && next != '_').unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        if let Some(array) = name.strip_suffix('_') {
            return (!array.is_empty() && after.starts_with('*')).then_some(Named::Rest { array });
        }
        let record = after.strip_prefix('(').and_then(|after| Some(after.split_once(')')?.0));
        (!name.is_empty()).then_some(Named::Job { name, record })
    })
}

/// `12` of `12_3`; `None` of a job that is no task.
fn array_of(name: &str) -> Option<&str> {
    Some(name.split_once('_')?.0)
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

    /// As 26.05 writes it of an array of two, each of them released.
    #[test]
    fn the_last_task_of_an_array_is_the_rest_of_it_until_it_starts() {
        const ARRAY: &str = "\
[2026-11-23T04:00:00.000] _update_job: setting priority to 1 for JobId=5_*
[2026-11-23T04:00:01.000] _update_job: setting admin_comment to x;lease=1 for JobId=5_1(6)
[2026-11-23T04:00:02.000] _update_job: setting admin_comment to x;lease=2 for JobId=5_*
[2026-11-23T04:00:03.000] sched: JobId=5_2(5) non-runnable: Requested nodes are busy
[2026-11-23T04:00:04.000] _update_job: setting admin_comment to x;alone=1 for JobId=5_*
[2026-11-23T04:00:04.000] _update_job: setting admin_comment to x;lease=3 for JobId=55_*
[2026-11-23T04:00:05.000] sched: Allocate JobId=5_2(5) NodeList=n1 #CPUs=1 Partition=shared
";
        let lines: Vec<&str> = ARRAY.lines().collect();
        let log = read(ARRAY);
        assert_eq!(log.lines["5_1"], lines[..2]);
        assert_eq!(log.lines["5_2"], [lines[0], lines[2], lines[3], lines[4], lines[6]]);
        assert_eq!(log.lines.len(), 2, "{log:?}");
        for job in ["5_1", "5_2"] {
            assert_eq!(lines_of(ARRAY, job), log.lines[job]);
        }
        assert_eq!(lines_of(ARRAY, "5"), Vec::<&str>::new());
        assert_eq!(lines_of("sched: JobId=5 after JobId=6\n", "6"), ["sched: JobId=5 after JobId=6"]);
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
