//! A canary: a site's scripts on one node of the pool, each alone first, then two at a time. Pure: by what there is it says what is to
//! be submitted next, and submits nothing.

use crate::characterize::campaign::Subject;
use crate::characterize::fate::{Unfound, unfound};
use pillion_core::{SlowdownRatio, SlurmJobId, UnixTime};
use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// What sbatch may take until the job is with Slurm; who is later than this before the begin of the other is too late.
const SUBMIT_SECONDS: f64 = 2.0;
/// How the names of all its jobs begin.
const NAME_BEGIN: &str = "pillion-canary-";

/// A script of the site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Script {
    /// After which its workload is named (`profile=`).
    pub name: String,
    pub subject: Subject,
}

/// What a canary is about: with other scripts or on another node it is another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct About {
    pub node: String,
    pub partition: String,
    /// Each name once.
    pub scripts: Vec<Script>,
    /// What each of two accepts.
    pub promise: SlowdownRatio,
}

/// How much of it is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Runs of each script alone.
    pub runs_each: usize,
    /// Which scripts are to stand beside each other, in this order.
    pub pairs: Vec<[usize; 2]>,
}

/// What one job is for. Scripts are told by their place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Work {
    Alone {
        script: usize,
    },
    /// One of two.
    Beside {
        pair: [usize; 2],
        /// Which of the two: 0 or 1.
        slot: usize,
    },
}

impl Work {
    /// What is submitted.
    pub fn script(self) -> usize {
        match self {
            Self::Alone { script } => script,
            Self::Beside { pair, slot } => pair[slot.min(1)],
        }
    }
}

/// One job: on record before it is submitted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub work: Work,
    /// By this it is found again where nobody saw what became of sbatch. No other job has it.
    pub job_name: String,
    /// When it may begin: both of two at one moment, so that they are decided on together.
    pub begin: Option<UnixTime>,
    /// Absent: nobody knows yet whether it was submitted.
    pub job_id: Option<SlurmJobId>,
    /// When its sbatch was about to be begun.
    pub submitted_at: UnixTime,
    /// Whether sbatch was seen to end, so that nothing more comes of it.
    pub has_sbatch_ended: bool,
    /// What became of it; absent: it waits or runs.
    pub outcome: Option<Outcome>,
}

impl Run {
    fn has_failed(&self) -> bool {
        matches!(self.outcome, Some(Outcome::Failed(_)))
    }
}

/// What became of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// How the script runs alone is known by it.
    Alone,
    /// It ran to its end as one of two, or was meant to.
    Beside(Measured),
    /// Nothing is known by it, and why.
    Failed(String),
}

/// What was foretold of one of two, and what was measured. Speeds are parts of the speed alone; absent: not known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Of the decisions; equal for those who were put together.
    pub group_id: Option<u64>,
    pub expected_speed_fraction: Option<f64>,
    /// The pessimistic bound of that.
    pub bound_speed_fraction: Option<f64>,
    pub speed_fraction: Option<f64>,
    pub slowdown_ratio_max: Option<f64>,
    /// Why it was decided so, where it was decided that it has the device to itself.
    pub reason: String,
}

/// What to do now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Find out whether these runs (by their place) were submitted.
    Find(Vec<usize>),
    Submit(Vec<Work>),
    /// Look again later.
    Wait,
    Done,
}

/// A canary as far as it came.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Canary {
    pub about: About,
    /// When it began.
    pub began_at: UnixTime,
    /// How many jobs were ever named: no name is given twice.
    pub named_count: u32,
    /// In the order in which they were submitted.
    pub runs: Vec<Run>,
    /// What was known of bounds before the first pair.
    pub before: Option<super::bound::Bound>,
}

/// Every script beside every one, itself too, or so many of these pairs, drawn by a seed: with more of the same seed come more pairs.
pub fn pairs(script_count: usize, count: Option<usize>, seed: u64) -> Vec<[usize; 2]> {
    let mut all: Vec<[usize; 2]> = (0..script_count)
        .flat_map(|first| (first..script_count).map(move |second| [first, second]))
        .collect();
    if let Some(count) = count {
        all.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        all.truncate(count);
    }
    all
}

impl Wanted {
    /// How many jobs there are in all.
    pub fn run_count(&self, script_count: usize) -> usize {
        script_count * self.runs_each + 2 * self.pairs.len()
    }
}

impl Canary {
    /// One that has not begun.
    pub fn new(about: About, now: UnixTime) -> Self {
        Self { about, began_at: now, named_count: 0, runs: Vec::new(), before: None }
    }

    fn of(&self, work: Work) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(move |run| run.work == work)
    }

    /// The jobs of two scripts side by side, those that there are.
    pub fn pair(&self, pair: [usize; 2]) -> [Option<&Run>; 2] {
        [0, 1].map(|slot| self.of(Work::Beside { pair, slot }).next())
    }

    /// Whether it is known how the script runs alone.
    fn is_known(&self, script: usize) -> bool {
        self.of(Work::Alone { script }).any(|run| run.outcome == Some(Outcome::Alone))
    }

    /// What to do now. Nobody is put beside a job of which nothing is known, so all scripts run alone first; then one pair at a time, for
    /// of several that wait at once others would come together than were meant. What failed is not tried again: its user has to mend it.
    pub fn next(&self, wanted: &Wanted) -> Next {
        let unsure = self.runs.iter().enumerate();
        let unsure: Vec<usize> = unsure
            .filter(|(_, run)| run.outcome.is_none() && run.job_id.is_none())
            .map(|(at, _)| at)
            .collect();
        if !unsure.is_empty() {
            return Next::Find(unsure);
        }
        let half = self.runs.iter().filter_map(|run| match run.work {
            Work::Beside { pair, slot } if run.outcome.is_none() => {
                Some(Work::Beside { pair, slot: 1 - slot.min(1) })
            }
            _ => None,
        });
        let half: Vec<Work> = half.filter(|other| self.of(*other).next().is_none()).collect();
        if !half.is_empty() {
            return Next::Submit(half);
        }
        let alone: Vec<Work> =
            (0..self.about.scripts.len()).flat_map(|script| self.missing_alone(script, wanted)).collect();
        if !alone.is_empty() {
            return Next::Submit(alone);
        }
        if self.open().next().is_some() {
            return Next::Wait;
        }
        let due = wanted.pairs.iter().find(|pair| {
            pair.iter().all(|script| self.is_known(*script)) && self.pair(**pair).iter().all(Option::is_none)
        });
        match due {
            Some(pair) => Next::Submit([0, 1].map(|slot| Work::Beside { pair: *pair, slot }).to_vec()),
            None => Next::Done,
        }
    }

    fn missing_alone(&self, script: usize, wanted: &Wanted) -> impl Iterator<Item = Work> + use<> {
        let work = Work::Alone { script };
        let is_hopeless = self.of(work).any(Run::has_failed);
        let count = wanted.runs_each.saturating_sub(self.of(work).count());
        std::iter::repeat_n(work, if is_hopeless { 0 } else { count })
    }

    /// Puts jobs on record that are about to be submitted. `begin`: when two of them begin together; one that comes late to its other
    /// begins with that.
    pub fn intend(&mut self, works: &[Work], begin: UnixTime, now: UnixTime) {
        for work in works {
            let begin = match *work {
                Work::Alone { .. } => None,
                Work::Beside { pair, .. } => {
                    Some(self.pair(pair).into_iter().flatten().find_map(|run| run.begin).unwrap_or(begin))
                }
            };
            let job_name =
                format!("{NAME_BEGIN}{}-{:x}-{}", self.about.node, self.began_at.epoch(), self.named_count);
            self.named_count += 1;
            let (job_id, outcome, has_sbatch_ended) = (None, None, false);
            let run =
                Run { work: *work, job_name, begin, job_id, submitted_at: now, has_sbatch_ended, outcome };
            self.runs.push(run);
        }
    }

    /// The names of jobs, out of what else is called so, that are of a canary on this node and on no record here: whoever submitted them has
    /// another record, or has lost it. `names`: of jobs that Slurm holds.
    pub fn strangers<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
        let begin = format!("{NAME_BEGIN}{}-", self.about.node);
        let is_serial = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_canary = |name: &str| {
            let rest = name.strip_prefix(&begin).and_then(|rest| rest.split_once('-'));
            rest.is_some_and(|(began, count)| is_serial(began) && is_serial(count))
        };
        let names = names.into_iter().filter(|name| is_canary(name));
        names.filter(|name| self.runs.iter().all(|run| run.job_name != **name)).collect()
    }

    /// A run of which Slurm knows nothing: it is taken off the record, so that it is submitted; not while its sbatch may still be under way.
    /// Where the other of two has begun meanwhile, they would not begin together: it has failed. So has one that nobody saw refused, where
    /// it is not sure that Slurm would still know of it: nothing is submitted twice unless its user says so. True where something has
    /// changed.
    pub fn forget(&mut self, at: usize, is_sure: bool, now: UnixTime) -> bool {
        let Some(run) = self.runs.get(at) else { return false };
        match unfound(run.submitted_at, run.has_sbatch_ended, is_sure, now) {
            Unfound::NotYet => return false,
            Unfound::Unknowable(why) => {
                self.runs[at].outcome = Some(Outcome::Failed(why.to_owned()));
                return true;
            }
            Unfound::Never => {}
        }
        let is_late = run.begin.is_some_and(|begin| begin.seconds_since(now) < SUBMIT_SECONDS);
        let has_other = match run.work {
            Work::Alone { .. } => false,
            Work::Beside { pair, slot } => {
                self.pair(pair)[1 - slot.min(1)].is_some_and(|other| other.job_id.is_some())
            }
        };
        if is_late && has_other {
            let why =
                "it was not submitted in time to begin with its other; the same command tries both anew";
            self.runs[at].outcome = Some(Outcome::Failed(why.to_owned()));
        } else {
            self.runs.remove(at);
        }
        true
    }

    /// Forgets what failed and is over, so that it is tried anew: of two both. Runs alone that taught stay.
    pub fn retry(&mut self) {
        let all = self.runs.clone();
        self.runs.retain(|run| {
            let Work::Beside { pair: own, .. } = run.work else { return !run.has_failed() };
            let of_pair =
                || all.iter().filter(move |run| matches!(run.work, Work::Beside { pair, .. } if pair == own));
            let is_over = of_pair().all(|run| run.outcome.is_some());
            !(is_over && of_pair().any(Run::has_failed))
        });
    }

    /// Whether any pair was ever begun.
    pub fn has_pairs(&self) -> bool {
        self.runs.iter().any(|run| matches!(run.work, Work::Beside { .. }))
    }

    /// Those that are not over.
    pub fn open(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(|run| run.outcome.is_none())
    }

    /// Whether every speed is measured, alone and of each pair.
    pub fn is_complete(&self, wanted: &Wanted) -> bool {
        (0..self.about.scripts.len()).all(|script| self.is_known(script))
            && wanted.pairs.iter().all(|pair| self.came_of(*pair) == Came::Together)
    }

    /// What came of a pair.
    pub fn came_of(&self, pair: [usize; 2]) -> Came {
        let outcomes = self.pair(pair).map(|run| run.map(|run| run.outcome.as_ref()));
        match outcomes {
            [None, _] | [_, None] => {
                let unknown = pair.iter().copied().find(|script| !self.is_known(*script));
                unknown.map_or(Came::Open, Came::Unknown)
            }
            [Some(None), _] | [_, Some(None)] => Came::Open,
            [Some(Some(Outcome::Beside(first))), Some(Some(Outcome::Beside(second)))] => {
                let is_one = first.group_id.is_some() && first.group_id == second.group_id;
                let is_told = first.speed_fraction.is_some() && second.speed_fraction.is_some();
                match (is_one, is_told) {
                    (false, _) => Came::Apart,
                    (true, false) => Came::Unmeasured,
                    (true, true) => Came::Together,
                }
            }
            _ => Came::Failed,
        }
    }
}

/// What came of two that were to stand beside each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Came {
    /// They wait or run, or are still to be submitted.
    Open,
    /// It is not known how this script runs alone.
    Unknown(usize),
    /// They shared a device, and how fast both were is known.
    Together,
    /// They shared a device, and nothing tells how fast one of them was.
    Unmeasured,
    /// They were not put together.
    Apart,
    Failed,
}

#[cfg(test)]
mod tests;
