//! Two jobs, compared by what Slurm says of them.

use pillion_core::SlurmJobId;
use pillion_tests::Cluster;
use pillion_tests::cluster::show::{Fields, parse_fields};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// What two submissions of the same thing never share, or what no user sets.
const INCIDENTAL: [&str; 15] = [
    "JobId",
    "ArrayJobId",
    "HetJobId",
    "HetJobIdSet",
    "SubmitTime",
    "EligibleTime",
    "AccrueTime",
    "StartTime",
    "EndTime",
    "LastSchedEval",
    "StdOut",
    "StdErr",
    "Reason",
    // Of 26.05 and later: a second name of the job, and how it was typed.
    "SLUID",
    "SubmitLine",
];
/// Slurm's record of a job; those of its components one after the other.
pub(crate) fn records(cluster: &Cluster, job: SlurmJobId) -> Vec<Fields> {
    let text = cluster.scontrol(&["show", "job", "-d", "-o", &job.to_string()]).unwrap();
    text.lines().map(|line| parse_fields(line.trim_end())).collect()
}

/// The fields in which two records differ, but for the incidental ones and `besides`.
pub(crate) fn differences(plain: &[Fields], other: &[Fields], besides: &[&str]) -> String {
    let mut text = String::new();
    if plain.len() != other.len() {
        let _ = write!(text, "{} records, not {}", other.len(), plain.len());
    }
    for (plain, other) in plain.iter().zip(other) {
        let names: BTreeSet<&String> = plain.keys().chain(other.keys()).collect();
        for name in names
            .into_iter()
            .filter(|name| !INCIDENTAL.contains(&name.as_str()) && !besides.contains(&name.as_str()))
        {
            let value = |of: &Fields| match (name.as_str(), of.get(name).cloned().unwrap_or_default()) {
                // Slurm counts downwards job by job; 0 is a hold.
                ("Priority", priority) if priority != "0" => "some".to_owned(),
                // Once Slurm has looked at the job, it writes a single node so.
                ("NumNodes", nodes) if nodes == "1-1" => "1".to_owned(),
                // A time from now.
                ("Deadline", time) if time != "N/A" => "some".to_owned(),
                (_, value) => value,
            };
            let (before, after) = (value(plain), value(other));
            if before != after {
                let _ = write!(text, "; {name} was '{before}' and is '{after}'");
            }
        }
    }
    text
}
