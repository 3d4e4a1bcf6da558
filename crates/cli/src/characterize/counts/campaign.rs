//! A campaign over counts: runs of one script with different numbers of GPUs, and of CPUs, and what became of each. Pure: it says what to
//! do next, and does nothing.

use crate::characterize::campaign::Subject;
use crate::characterize::intent::Intent;
use pillion_core::{SlurmJobId, UnixTime};
use pillion_scale::{Measure, Run as Timed, Workload};
use serde::{Deserialize, Serialize};

/// A job that Slurm does not know this long after its submission has been forgotten.
const UNKNOWN_SECONDS_MAX: f64 = 120.0;

/// What a run is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Count {
    /// On all of its nodes.
    pub(super) gpus: u32,
    #[serde(default = "one_node")]
    pub(super) nodes: u32,
    /// As the script says where the campaign does not set them.
    pub(super) cpus_per_gpu: Option<u32>,
}

/// Of a record that was written when there was no other.
const fn one_node() -> u32 {
    1
}

/// What is measured, and what was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Campaign {
    /// What was submitted: another script begins another campaign.
    pub(super) subject: Subject,
    /// In the order of submission.
    pub(super) runs: Vec<Run>,
    /// The run that may have been submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) intent: Option<Intent<Count>>,
}

/// One submitted run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) count: Count,
    pub(super) job_id: SlurmJobId,
    pub(super) submitted_at: UnixTime,
    /// What became of it; absent: it waits or runs.
    pub(super) outcome: Option<Outcome>,
}

/// What became of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Outcome {
    /// It came to its end by itself.
    Measured { elapsed_seconds: f64, cpus: Option<u32> },
    /// Nothing is known by it, and why.
    Failed(String),
}

/// A job as Slurm tells it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Seen {
    /// Slurm's word: `PENDING`, `COMPLETED`.
    pub(super) state: String,
    pub(super) elapsed_seconds: f64,
    pub(super) nodes: Option<u32>,
    pub(super) cpus: Option<u32>,
    /// Why it waits.
    pub(super) reason: String,
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Each once, the fewest GPUs first.
    pub(super) counts: Vec<Count>,
    /// Runs of each.
    pub(super) runs_each: usize,
}

/// How a run stands.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Standing {
    /// It waits or runs: in one word, and why.
    Open(&'static str, String),
    Over(Outcome),
}

impl Wanted {
    /// Every combination. `gpus`: with the nodes that each takes.
    pub(super) fn of(gpus: &[(u32, u32)], cpus: &[u32], runs_each: usize) -> Self {
        let cpus: Vec<Option<u32>> =
            if cpus.is_empty() { vec![None] } else { cpus.iter().copied().map(Some).collect() };
        let each = |(gpus, nodes): &(u32, u32)| {
            cpus.iter()
                .map(|cpus_per_gpu| Count { gpus: *gpus, nodes: *nodes, cpus_per_gpu: *cpus_per_gpu })
                .collect::<Vec<_>>()
        };
        let mut counts: Vec<Count> = gpus.iter().flat_map(each).collect();
        counts.sort_unstable();
        counts.dedup();
        Self { counts, runs_each }
    }

    /// How many runs there are in all.
    pub(super) fn run_count(&self) -> usize {
        self.counts.len() * self.runs_each
    }
}

impl Campaign {
    pub(super) fn new(subject: Subject) -> Self {
        Self { subject, runs: Vec::new(), intent: None }
    }

    /// Forgets what failed, so that it is tried anew.
    pub(super) fn retry(&mut self) {
        self.runs.retain(|run| !matches!(run.outcome, Some(Outcome::Failed(_))));
    }

    /// The runs that are still to be submitted, the fewest GPUs first: none of a count of which one failed, for its user has to mend it.
    pub(super) fn missing(&self, wanted: &Wanted) -> Vec<Count> {
        let of = |count: Count| {
            let own = || self.runs.iter().filter(move |run| run.count == count);
            let is_hopeless = own().any(|run| matches!(run.outcome, Some(Outcome::Failed(_))));
            let missing = wanted.runs_each.saturating_sub(own().count());
            std::iter::repeat_n(count, if is_hopeless { 0 } else { missing })
        };
        wanted.counts.iter().flat_map(|count| of(*count)).collect()
    }

    /// The job that the next one waits for: runs of a campaign never stand beside each other, for on one node they would share its CPUs and
    /// its way to the data, and be slower for it.
    pub(super) fn last_open(&self) -> Option<SlurmJobId> {
        self.runs.iter().rev().find(|run| run.outcome.is_none()).map(|run| run.job_id)
    }

    /// On how many nodes a run of so many GPUs was submitted before: another number of nodes would be another experiment.
    pub(super) fn nodes_before(&self, gpus: u32) -> Option<u32> {
        let submitted = self.runs.iter().map(|run| run.count);
        let mut counts = submitted.chain(self.intent.as_ref().map(|intent| intent.what));
        counts.find(|count| count.gpus == gpus).map(|count| count.nodes)
    }

    /// Those that are not over.
    pub(super) fn open(&self) -> Vec<SlurmJobId> {
        self.runs.iter().filter(|run| run.outcome.is_none()).map(|run| run.job_id).collect()
    }

    pub(super) fn is_over(&self, wanted: &Wanted) -> bool {
        self.open().is_empty() && self.missing(wanted).is_empty()
    }

    pub(super) fn over_count(&self) -> usize {
        self.runs.len() - self.open().len()
    }

    /// Whether every count that was asked for was measured.
    pub(super) fn is_complete(&self, wanted: &Wanted) -> bool {
        let is_known = |count: &Count| {
            let own = self.runs.iter().filter(|run| run.count == *count);
            own.filter(|run| matches!(run.outcome, Some(Outcome::Measured { .. }))).count()
                >= wanted.runs_each
        };
        wanted.counts.iter().all(is_known)
    }

    /// What was measured, as a workload of this name.
    pub(super) fn workload(&self, name: &str) -> Workload {
        let runs = self.runs.iter().filter_map(|run| match run.outcome {
            Some(Outcome::Measured { elapsed_seconds, cpus }) => Some(Timed {
                nodes: Some(run.count.nodes),
                gpus: run.count.gpus,
                cpus,
                seconds: elapsed_seconds,
                power_watts: None,
            }),
            _ => None,
        });
        Workload {
            name: name.to_owned(),
            gpu_model: String::new(),
            measure: Measure::Elapsed,
            runs: runs.collect(),
        }
    }
}

/// How a run stands, by what Slurm tells of its job; `None`: it does not know it.
pub(super) fn standing(run: &Run, seen: Option<&Seen>, now: UnixTime) -> Standing {
    let Some(seen) = seen else {
        return if now.seconds_since(run.submitted_at) < UNKNOWN_SECONDS_MAX {
            Standing::Open("waiting", "Slurm does not show it yet".to_owned())
        } else {
            let why = "Slurm has forgotten it, and keeps no account of it";
            Standing::Over(Outcome::Failed(why.to_owned()))
        };
    };
    match seen.state.as_str() {
        "PENDING" | "REQUEUED" | "REQUEUE_HOLD" | "SPECIAL_EXIT" => {
            Standing::Open("waiting", seen.reason.clone())
        }
        "RUNNING" | "CONFIGURING" | "COMPLETING" | "SUSPENDED" | "STOPPED" | "SIGNALING" | "STAGE_OUT"
        | "RESIZING" => Standing::Open("running", String::new()),
        "COMPLETED" if seen.elapsed_seconds <= 0.0 => Standing::Over(Outcome::Failed(
            "it took less than a second, which is no measure of anything".to_owned(),
        )),
        "COMPLETED" if seen.nodes.is_some_and(|nodes| nodes != run.count.nodes) => {
            let nodes = crate::format::counted(run.count.nodes as usize, "node");
            Standing::Over(Outcome::Failed(format!("it did not run on {nodes}, which is another experiment")))
        }
        "COMPLETED" => {
            Standing::Over(Outcome::Measured { elapsed_seconds: seen.elapsed_seconds, cpus: seen.cpus })
        }
        other => {
            let word =
                other.split_whitespace().next().unwrap_or_default().to_ascii_lowercase().replace('_', "-");
            Standing::Over(Outcome::Failed(format!("it ended as {word}; see what it printed")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(gpus: u32) -> Count {
        Count { gpus, nodes: 1, cpus_per_gpu: None }
    }

    fn on_one(gpus: &[u32]) -> Vec<(u32, u32)> {
        gpus.iter().map(|gpus| (*gpus, 1)).collect()
    }

    fn run(gpus: u32, outcome: impl Into<Option<Outcome>>) -> Run {
        let job_id = SlurmJobId::plain(10 + gpus);
        Run { count: count(gpus), job_id, submitted_at: UnixTime::from_epoch(1000), outcome: outcome.into() }
    }

    fn measured(seconds: f64) -> Outcome {
        Outcome::Measured { elapsed_seconds: seconds, cpus: Some(4) }
    }

    fn failed() -> Outcome {
        Outcome::Failed("it ended as failed".to_owned())
    }

    fn campaign(runs: Vec<Run>) -> Campaign {
        let subject = Subject {
            script: "/x.sh".to_owned(),
            text: String::new(),
            arguments: Vec::new(),
            options: Vec::new(),
        };
        Campaign { subject, runs, intent: None }
    }

    #[test]
    fn what_is_missing_is_run_the_fewest_first_and_one_after_the_other() {
        let wanted = Wanted::of(&on_one(&[4, 1, 2, 1]), &[], 1);
        let begun = campaign(vec![]);
        assert_eq!(begun.missing(&wanted), [1, 2, 4].map(count));
        assert_eq!(begun.last_open(), None);
        let cut_off = campaign(vec![run(1, measured(9.0)), run(2, None::<Outcome>)]);
        assert_eq!(
            (cut_off.missing(&wanted), cut_off.last_open()),
            (vec![count(4)], Some(SlurmJobId::plain(12)))
        );
        assert!(!cut_off.is_over(&wanted));
        let done = campaign(vec![run(1, measured(9.0)), run(2, measured(5.0)), run(4, measured(4.0))]);
        assert!(done.is_over(&wanted) && done.is_complete(&wanted) && done.last_open().is_none());
        assert_eq!(
            done.missing(&Wanted::of(&on_one(&[1, 2]), &[], 2)),
            [1, 2].map(count),
            "twice was asked for"
        );
    }

    #[test]
    fn what_failed_keeps_no_other_count_from_being_measured_and_is_tried_when_asked_again() {
        let wanted = Wanted::of(&on_one(&[1, 2]), &[], 2);
        let mut of_two = campaign(vec![run(1, failed()), run(2, measured(5.0))]);
        assert_eq!(of_two.missing(&wanted), [count(2)], "one GPU may have too little memory");
        of_two.retry();
        assert_eq!(of_two.missing(&wanted), [count(1), count(1), count(2)]);
        assert!(!of_two.is_complete(&wanted));
    }

    #[test]
    fn cpus_are_varied_at_each_count() {
        let wanted = Wanted::of(&on_one(&[1, 2]), &[8, 4], 1);
        let told: Vec<_> = wanted.counts.iter().map(|it| (it.gpus, it.cpus_per_gpu)).collect();
        assert_eq!(told, [(1, Some(4)), (1, Some(8)), (2, Some(4)), (2, Some(8))]);
        assert_eq!(wanted.run_count(), 4);
    }

    #[test]
    fn a_run_counts_where_it_completed_and_only_there() {
        let stands = |state: &str, seconds: f64, now: u64| {
            let seen = Seen {
                state: state.to_owned(),
                elapsed_seconds: seconds,
                nodes: Some(1),
                cpus: Some(4),
                reason: "Resources".to_owned(),
            };
            let seen = (!state.is_empty()).then_some(seen);
            standing(&run(1, None::<Outcome>), seen.as_ref(), UnixTime::from_epoch(now))
        };
        assert_eq!(stands("COMPLETED", 60.0, 1100), Standing::Over(measured(60.0)));
        assert_eq!(stands("PENDING", 0.0, 1100), Standing::Open("waiting", "Resources".to_owned()));
        assert_eq!(stands("RUNNING", 5.0, 1100), Standing::Open("running", String::new()));
        for (state, word) in
            [("CANCELLED by 1000", "cancelled"), ("TIMEOUT", "timeout"), ("OUT_OF_MEMORY", "out-of-memory")]
        {
            let why = format!("it ended as {word}; see what it printed");
            assert_eq!(stands(state, 5.0, 1100), Standing::Over(Outcome::Failed(why)));
        }
        assert!(matches!(stands("COMPLETED", 0.0, 1100), Standing::Over(Outcome::Failed(_))));
        assert!(matches!(stands("", 0.0, 1100), Standing::Open("waiting", _)));
        assert!(matches!(stands("", 0.0, 1200), Standing::Over(Outcome::Failed(_))), "nobody keeps accounts");
    }

    #[test]
    fn what_was_measured_is_a_workload() {
        let campaign = campaign(vec![run(1, measured(9.0)), run(2, failed()), run(4, measured(4.0))]);
        let workload = campaign.workload("x.sh");
        assert_eq!(
            workload.runs.iter().map(|run| (run.gpus, run.seconds)).collect::<Vec<_>>(),
            [(1, 9.0), (4, 4.0)]
        );
    }

    #[test]
    fn a_run_on_several_nodes_counts_where_it_had_them() {
        let on_two = Run { count: Count { nodes: 2, ..count(8) }, ..run(8, None::<Outcome>) };
        let stands = |nodes: u32| {
            let state = "COMPLETED".to_owned();
            let seen = Seen {
                state,
                elapsed_seconds: 60.0,
                nodes: Some(nodes),
                cpus: Some(4),
                reason: String::new(),
            };
            standing(&on_two, Some(&seen), UnixTime::from_epoch(1100))
        };
        assert_eq!(stands(2), Standing::Over(measured(60.0)));
        assert!(matches!(stands(1), Standing::Over(Outcome::Failed(_))));
        let done = campaign(vec![Run { outcome: Some(measured(60.0)), ..on_two }]);
        assert_eq!(done.workload("x.sh").runs[0].nodes, Some(2));
    }

    #[test]
    fn a_record_of_before_is_of_one_node() {
        let read: Count = serde_json::from_str(r#"{"gpus": 4, "cpus_per_gpu": null}"#).unwrap();
        assert_eq!(read, count(4));
    }
}
