//! What is known of a storm when it is over. Times are epoch seconds of this machine, on which every clock is the same.

use super::plan::{Broken, Deed, Kind, Order};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A span of time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// Its begin.
    pub from: f64,
    /// Its end.
    pub until: f64,
}

impl Span {
    /// Whether a time lies in it.
    pub fn holds(&self, at: f64) -> bool {
        self.from <= at && at < self.until
    }
    /// Whether both have a moment in common.
    pub fn meets(&self, other: &Self) -> bool {
        self.from < other.until && other.from < self.until
    }
}

/// A job as `scontrol show job` gave it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Seen {
    /// `PENDING`, `RUNNING`, ..
    pub state: String,
    /// Its partition.
    pub partition: String,
    /// 0 where it is held.
    pub priority: String,
    /// `Reason=`
    pub reason: String,
    /// `AdminComment=`
    pub mark: String,
    /// `ReqNodeList=`
    pub nodes: String,
}

/// What was done to a job, and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(bound(deserialize = "'de: 'static"))]
pub struct Done {
    /// What.
    pub deed: Deed,
    /// By root, else by its user.
    pub by_root: bool,
    /// From when it was asked to when it was answered.
    pub span: Span,
    /// Whether Slurm took it.
    pub accepted: bool,
    /// What the client said, in one line.
    pub said: String,
    /// How the job was just after it.
    pub after: Option<Seen>,
}

/// What a client says that did not hear Slurm's answer: what it asked for may have been done.
const UNHEARD: [&str; 6] =
    ["Unable to contact", "timed out", "Unexpected message", "Connection", " connection", "Zero Bytes"];

/// What stands before the answer to `StartTime=now` where the requeue before it was taken.
pub const BEGIN_REFUSED: &str = "StartTime=now refused: ";

impl Done {
    /// Whether nobody was told what became of it.
    pub fn is_unclear(&self) -> bool {
        !self.accepted && (self.said.is_empty() || UNHEARD.iter().any(|words| self.said.contains(words)))
    }

    /// The same for one task, of something that was done to the whole array: Slurm answers `12_0-2: No error 12_3: Job is
    /// pending execution`.
    #[must_use]
    pub fn of_task(&self, array: &str, task: u32) -> Self {
        let prefix = format!("{array}_");
        // What came of the begin time is no answer to the requeue before it.
        let said = self.said.split(BEGIN_REFUSED).next().unwrap_or_default();
        let answers = said.split(&prefix).skip(1).filter_map(|answer| answer.split_once(": "));
        let is_its = |(tasks, _): &(&str, &str)| {
            tasks.split(',').any(|range| {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                let within = |first: u32, last: u32| (first..=last).contains(&task);
                first.parse().is_ok_and(|first| last.parse().is_ok_and(|last| within(first, last)))
            })
        };
        let own = answers.filter(is_its).last().map(|(_, text)| text.trim());
        let accepted = own.map_or(self.accepted, |text| text.starts_with("No error"));
        Self { accepted, after: None, ..self.clone() }
    }
}

/// One time that Slurm gave a job its node or nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Allocation {
    /// When, by slurmctld's log.
    pub at: f64,
    /// When slurmctld took note of its end, or of a requeue.
    pub until: Option<f64>,
    /// Which.
    pub nodes: Vec<String>,
}

impl Allocation {
    /// Whether it has this one.
    pub fn has(&self, node: &str) -> bool {
        self.nodes.iter().any(|own| own == node)
    }
}

/// One start, as the job wrote it down itself.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Start {
    /// Its first line.
    pub at: f64,
    /// Its last line, where it came so far.
    pub ended_at: Option<f64>,
    /// What its work returned; `None` where it was ended from outside.
    pub exit: Option<i32>,
    /// `SLURM_RESTART_COUNT`
    pub restarts: u32,
    /// `SLURMD_NODENAME`: the first of its nodes.
    pub node: String,
    /// `SLURM_JOB_PARTITION`
    pub partition: String,
    /// `SLURM_JOB_GPUS`: those of that node.
    pub gpus: Vec<u32>,
    /// `SLURM_SHARDS_ON_NODE`
    pub shards: Option<u32>,
    /// Names of variables of ours that it found.
    pub ours: String,
    /// As Slurm calls the job, in its own environment: `12`, `12_3`.
    pub job: String,
    /// What else it printed: decision, cap, limit, pipe, ccs.
    pub words: BTreeMap<String, String>,
}

impl Start {
    /// A word that it printed; empty where it did not.
    pub fn word(&self, name: &str) -> &str {
        self.words.get(name).map_or("", String::as_str)
    }
}

/// One line of `sacct --duplicates`: one run of a job.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Account {
    /// `COMPLETED`, `REQUEUED`, ..
    pub state: String,
    /// When it began.
    pub start: Option<f64>,
    /// When it ended.
    pub end: Option<f64>,
    /// In minutes.
    pub time_limit: Option<u32>,
}

/// One job or array task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(bound(deserialize = "'de: 'static"))]
pub struct Job {
    /// What was submitted.
    pub order: Order,
    /// Which task of it.
    pub task: Option<u32>,
    /// As Slurm calls it: `12`, `12_3`. Empty where the submission was not answered with one, and it never ran to say so itself.
    pub name: String,
    /// From `sbatch` to its answer.
    pub submitted: Span,
    /// What `sbatch` said.
    pub said: String,
    /// Whether it went to the pool: `sbatch` said that it waits for a GPU, or GPUs, or its user sent it there.
    pub is_managed: bool,
    /// What was done to it, in order.
    pub done: Vec<Done>,
    /// When Slurm gave it a node.
    pub allocations: Vec<Allocation>,
    /// What it wrote down, in order.
    pub starts: Vec<Start>,
    /// What Slurm's accounting has of it, in order.
    pub accounts: Vec<Account>,
    /// How often Pillion says that it had it started again: guests make room.
    pub made_room: usize,
    /// Whether slurmctld, which was killed and forgot it, gave its number to another: what Slurm has of that number is of both.
    pub shares_number: bool,
    /// How it was when the queue no longer moved; `None` where it was gone by then.
    pub left: Option<Seen>,
}

impl Job {
    /// How the accounting says that it ended at last; empty where it never did.
    pub fn state(&self) -> &str {
        // A controller that was killed may register a job that has ended anew: nothing comes after that.
        let is_one = |account: &&Account| account.state != "PENDING" || account.start.is_some();
        let last = self.accounts.iter().rev().find(is_one).or(self.accounts.last());
        last.map_or("", |account| account.state.split(' ').next().unwrap_or_default())
    }
    /// What was done to it and accepted.
    pub fn accepted(&self, is_it: impl Fn(Deed) -> bool) -> impl Iterator<Item = &Done> {
        self.done.iter().filter(move |done| done.accepted && is_it(done.deed))
    }
    /// Whether it may share.
    pub fn may_share(&self) -> bool {
        !matches!(self.order.kind, Kind::Plain | Kind::Whole)
            && self.order.gpus == 1
            && self.order.node_count == 1
    }
    /// The allocation that a start belongs to.
    pub fn allocation_of(&self, start: &Start) -> Option<&Allocation> {
        self.allocations.iter().rev().find(|allocation| allocation.at <= start.at)
    }
    /// The GPUs of each of its nodes that a start is known to have had. A job tells of its first node's; where it asks for several of
    /// each of several nodes in the pool, it has the same of all.
    pub fn gpus_by_node<'j>(&'j self, start: &'j Start) -> impl Iterator<Item = (&'j str, &'j [u32])> {
        let are_alike = start.partition == "shared" && self.order.gpus > 1;
        // A start that Slurm forgot, and made again elsewhere, is none of the allocation that its log has.
        let is_its = |one: &&Allocation| are_alike && one.nodes.contains(&start.node);
        let nodes = self.allocation_of(start).filter(is_its).map_or(&[][..], |one| &one.nodes);
        let others = nodes.iter().map(String::as_str).filter(|node| *node != start.node);
        std::iter::once(start.node.as_str()).chain(others).map(|node| (node, start.gpus.as_slice()))
    }
    /// The start that an allocation led to, if it came so far.
    pub fn start_of(&self, index: usize) -> Option<&Start> {
        let allocation = &self.allocations[index];
        let next = self.allocations.get(index + 1).map_or(f64::INFINITY, |next| next.at);
        self.starts.iter().find(|start| allocation.at <= start.at && start.at < next)
    }
    /// How long a start held its devices at the least: by its own clock, and no longer than by Slurm's. Of one that Slurm forgot, and
    /// began again under the same count, its log knows no end; nor of one whose number is another's as well.
    pub fn held(&self, start: &Start) -> Option<Span> {
        let is_begun_again =
            self.starts.iter().any(|other| other.at > start.at && other.restarts == start.restarts);
        if start.ended_at.is_none() && is_begun_again {
            return None;
        }
        let allocation = self.allocation_of(start).filter(|_| !self.shares_number);
        let by_slurm = allocation.and_then(|allocation| allocation.until);
        let until = match (start.ended_at, by_slurm) {
            (Some(own), Some(slurm)) => own.min(slurm),
            (own, slurm) => own.or(slurm)?,
        };
        (until > start.at).then_some(Span { from: start.at, until })
    }
}

/// Something that was broken, as it came about.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(bound(deserialize = "'de: 'static"))]
pub struct Outage {
    /// What.
    pub broken: Broken,
    /// From when to when.
    pub span: Span,
}

/// What Pillion says that it decided.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Decision {
    /// Its number.
    pub id: u64,
    /// Decisions of one group were planned together.
    pub group: u64,
    /// Where.
    pub node: String,
    /// Which GPU.
    pub gpu: String,
    /// What each start is to find in its environment: shards, cap, limit, ccs.
    pub members: Vec<Member>,
}

/// One start in a decision.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Member {
    /// The job's name.
    pub job: String,
    /// Which start.
    pub restarts: u32,
    /// The words that the job is to print, and their values.
    pub expected: BTreeMap<String, String>,
    /// What became of it: `ended`, `undone`, .. Empty in facts of before it was kept.
    #[serde(default)]
    pub state: String,
    /// When it was no tenant any more.
    #[serde(default)]
    pub ended_at: Option<f64>,
}

/// Something that was seen and is a harm by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sight {
    /// One line.
    pub text: String,
}

/// All of it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(bound(deserialize = "'de: 'static"))]
pub struct Facts {
    /// How long a job may be held back while a device that fits is free.
    pub bound_seconds: f64,
    /// Every job and array task, by number and task.
    pub jobs: Vec<Job>,
    /// What was broken.
    pub outages: Vec<Outage>,
    /// What was decided; empty where nobody could be asked.
    pub decisions: Vec<Decision>,
    /// GPUs beyond their shards by Slurm's own books, looked for all along.
    pub overbooked: Vec<Sight>,
    /// Daemons that ended though nobody ended them.
    pub died: Vec<Sight>,
    /// Nodes that are drained or down though nobody did it.
    pub drained: Vec<Sight>,
    /// Lines of slurmctld.log by the job that they name.
    pub log: BTreeMap<String, Vec<String>>,
    /// As whom Pillion changes jobs.
    pub slurm_uid: u32,
    /// When the storm began.
    pub began_at: f64,
    /// When nothing moved any more.
    pub ended_at: f64,
}

impl Facts {
    /// As they are kept, to be judged again.
    ///
    /// # Errors
    /// Only where memory runs out.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }
    /// What was kept. Names of users and nodes stay in memory until the end of the program, as those of a drawn storm do.
    ///
    /// # Errors
    /// They are of another state of this file, or cut.
    pub fn from_json(text: String) -> serde_json::Result<Self> {
        serde_json::from_str(Box::leak(text.into_boxed_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storm::plan::{After, Array, Change, How, Part, Work};

    fn answered(said: &str, accepted: bool) -> Done {
        let span = Span { from: 0.0, until: 1.0 };
        Done { deed: Deed::Requeue, by_root: false, span, accepted, said: said.into(), after: None }
    }

    #[test]
    fn an_answer_about_an_array_is_read_by_task() {
        let mixed = answered("218_0-2,5: No error 218_3: Job is pending execution", false);
        let taken: Vec<bool> = (0..6).map(|task| mixed.of_task("218", task).accepted).collect();
        assert_eq!(taken, [true, true, true, false, false, true]);
        assert!(answered("", true).of_task("218", 1).accepted);
        let half = answered("StartTime=now refused: 218_1: Unspecified error", true);
        assert!(half.of_task("218", 1).accepted, "the requeue was taken");
    }

    #[test]
    fn what_is_kept_is_what_was() {
        let at = |from: f64| Span { from, until: from + 0.1 };
        let order = Order {
            number: 3,
            at: 0.25,
            user: "alice",
            kind: Kind::Known,
            work: Work::Load { name: "resnet50-infer", seconds: 90 },
            gpus: 1,
            node_count: 1,
            array: Some(Array { tasks: 3, throttle: 1 }),
            after: Some(After::Ok(1)),
        };
        let done = Done {
            deed: Deed::Change(Change::Partition("gpu")),
            after: Some(Seen { state: "PENDING".into(), ..Seen::default() }),
            ..answered("", true)
        };
        let job = Job {
            order,
            task: Some(2),
            name: "12_2".into(),
            submitted: at(1_795_820_429.123),
            said: String::new(),
            is_managed: true,
            done: vec![done],
            allocations: vec![Allocation { at: 4.5, until: None, nodes: vec!["n1".into()] }],
            starts: vec![Start {
                exit: Some(0),
                words: [("cap".into(), "40".into())].into(),
                ..Start::default()
            }],
            accounts: vec![Account { start: Some(1.0), ..Account::default() }],
            made_room: 1,
            shares_number: false,
            left: None,
        };
        let broken = Broken::Process(Part::Driver("n2"), How::Freeze);
        let facts = Facts {
            jobs: vec![job],
            outages: vec![Outage { broken, span: at(1.5) }],
            log: [("12_2".to_owned(), vec!["[x] JobId=12_2 \"quoted\"".to_owned()])].into(),
            ..Facts::default()
        };
        let kept = facts.to_json().unwrap();
        assert_eq!(Facts::from_json(kept.clone()).unwrap(), facts);
        assert!(Facts::from_json(kept[..kept.len() / 2].to_owned()).is_err());
    }

    #[test]
    fn what_nobody_heard_is_unclear() {
        let lost = [
            "slurm_load_jobs error: Unable to contact slurm controller",
            "Socket timed out on send/recv operation",
            "",
        ];
        assert!(lost.iter().all(|said| answered(said, false).is_unclear()));
        assert!(!answered("Job has already finished for job 12", false).is_unclear());
        assert!(!answered("", true).is_unclear());
    }
}
