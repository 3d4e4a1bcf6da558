//! A campaign: the runs of one script alone, first without a cap and then under each, and what became of each. Pure: it
//! says what to do next, and does nothing.

use super::intent::Intent;
use pillion_api::JobStatus;
use pillion_core::profile::LessonKind;
use pillion_core::{CapStep, SlurmJobId, UnixTime};
use serde::{Deserialize, Serialize};

/// A job that the scheduler does not know this long after its submission is not one of its jobs.
const UNSEEN_SECONDS_MAX: f64 = 120.0;
/// What a run taught is known within seconds of its end; after this it will never be.
const UNTAUGHT_SECONDS_MAX: f64 = 180.0;

/// What is measured, and what was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Campaign {
    /// What was submitted: another script begins another campaign.
    pub subject: Subject,
    /// In the order of submission.
    pub runs: Vec<Run>,
    /// The run, by its cap, that may have been submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) intent: Option<Intent<CapStep>>,
}

/// What is submitted again and again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// The script, by its whole path.
    pub script: String,
    /// What stands in it.
    pub text: String,
    pub arguments: Vec<String>,
    /// More options for sbatch.
    pub options: Vec<String>,
}

/// One submitted run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub cap: CapStep,
    pub job_id: SlurmJobId,
    /// When it was submitted.
    pub submitted_at: UnixTime,
    /// What became of it; absent: it waits or runs.
    pub outcome: Option<Outcome>,
}

/// What became of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The workload's speed under this cap is known by it.
    Taught,
    /// It taught nothing, and why.
    Failed(String),
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The caps, each once, the narrowest first.
    pub caps: Vec<CapStep>,
    /// Runs under each, and without.
    pub runs_each: usize,
}

/// What to do now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Submit a run under each of these.
    Submit(Vec<CapStep>),
    /// Look again later.
    Wait,
    /// Nothing is left to do.
    Done,
}

/// How a run stands.
#[derive(Debug, Clone, PartialEq)]
pub enum RunStatus {
    /// It waits, runs, or has ended and is not measured yet.
    Open {
        /// waiting, running or ended.
        state: &'static str,
        /// In a few words.
        detail: String,
    },
    Over(Outcome),
}

impl Run {
    fn has_failed(&self) -> bool {
        matches!(self.outcome, Some(Outcome::Failed(_)))
    }

    fn has_taught(&self) -> bool {
        self.outcome == Some(Outcome::Taught)
    }
}

impl RunStatus {
    pub(crate) fn open(state: &'static str, detail: &str) -> Self {
        Self::Open { state, detail: detail.to_owned() }
    }

    pub(crate) fn failed(why: &str) -> Self {
        Self::Over(Outcome::Failed(why.to_owned()))
    }
}

impl Wanted {
    /// How many runs there are in all.
    pub fn run_count(&self) -> usize {
        (self.caps.len() + 1) * self.runs_each
    }
}

impl Campaign {
    /// One that has not begun.
    pub fn new(subject: Subject) -> Self {
        Self { subject, runs: Vec::new(), intent: None }
    }

    /// Forgets what failed, so that it is tried anew.
    pub fn retry(&mut self) {
        self.runs.retain(|run| !run.has_failed());
    }

    fn under(&self, cap: CapStep) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(move |run| run.cap == cap)
    }

    /// The first run under this cap that taught the workload's speed.
    pub fn taught_by(&self, cap: CapStep) -> Option<&Run> {
        self.under(cap).find(|run| run.has_taught())
    }

    /// The runs under this cap that are still to be submitted: none where one failed.
    fn missing(&self, cap: CapStep, wanted: &Wanted) -> impl Iterator<Item = CapStep> + use<> {
        let is_hopeless = self.under(cap).any(Run::has_failed);
        let count = wanted.runs_each.saturating_sub(self.under(cap).count());
        std::iter::repeat_n(cap, if is_hopeless { 0 } else { count })
    }

    /// What to do now. Speeds under a cap are parts of that without one: that comes first, and where it fails nothing
    /// else is begun. What failed is not tried again: its user has to mend it.
    pub fn next(&self, wanted: &Wanted) -> Next {
        let whole: Vec<CapStep> = self.missing(CapStep::WHOLE, wanted).collect();
        if !whole.is_empty() {
            return Next::Submit(whole);
        }
        if self.taught_by(CapStep::WHOLE).is_some() {
            let capped: Vec<CapStep> =
                wanted.caps.iter().flat_map(|cap| self.missing(*cap, wanted)).collect();
            if !capped.is_empty() {
                return Next::Submit(capped);
            }
        }
        if self.runs.iter().any(|run| run.outcome.is_none()) { Next::Wait } else { Next::Done }
    }

    /// How many runs are over.
    pub fn over_count(&self) -> usize {
        self.runs.iter().filter(|run| run.outcome.is_some()).count()
    }

    /// Whether everything that was asked for is known.
    pub fn is_complete(&self, wanted: &Wanted) -> bool {
        [CapStep::WHOLE].iter().chain(&wanted.caps).all(|cap| self.taught_by(*cap).is_some())
    }
}

/// A job that is over, and how it ended; else how its run stands: it waits, runs, or nobody knows it.
///
/// # Errors
/// How it stands.
pub(crate) fn ended(
    submitted_at: UnixTime,
    job: Option<&JobStatus>,
    now: UnixTime,
) -> Result<(&JobStatus, &str), RunStatus> {
    let Some(job) = job else {
        return Err(if now.seconds_since(submitted_at) < UNSEEN_SECONDS_MAX {
            RunStatus::open("waiting", "the scheduler has not seen it yet")
        } else {
            RunStatus::failed("the scheduler does not know it; see 'sacct' for what became of it")
        });
    };
    job.ending.as_deref().map(|ending| (job, ending)).ok_or_else(|| match job.started_at_seconds {
        Some(_) => RunStatus::open("running", ""),
        None => RunStatus::open("waiting", job.job.as_ref().map_or("", |queued| &queued.reason)),
    })
}

/// How a run stands that is over and of which nothing was told yet: what it taught is on its way, or will not come.
pub(crate) fn untaught(job: &JobStatus) -> RunStatus {
    let since = job.ended_at_seconds.map_or(0.0, |ended| job.now_seconds - ended);
    if since < UNTAUGHT_SECONDS_MAX {
        RunStatus::open("ended", "its measurements are on their way")
    } else {
        RunStatus::failed(
            "nothing was measured of it: its node's agent was not responding, or it did not use its GPU",
        )
    }
}

/// How a run stands, by the status of its job. `device_model`: that of the run without a cap.
pub fn status(run: &Run, job: Option<&JobStatus>, device_model: Option<&str>, now: UnixTime) -> RunStatus {
    let (job, ending) = match ended(run.submitted_at, job, now) {
        Ok(over) => over,
        Err(stands) => return stands,
    };
    let own_model = job.decision.as_ref().map(|decision| decision.device_model.as_str());
    if own_model.is_some() && device_model.is_some() && own_model != device_model {
        return RunStatus::failed(&format!(
            "it ran on another GPU model ({}); ask for one in the script, such as --gres=gpu:TYPE:1",
            own_model.unwrap_or_default()
        ));
    }
    match (job.lesson(), run.cap == CapStep::WHOLE) {
        _ if ending != "completed" => {
            RunStatus::failed(&format!("it ended as {ending}; see what it printed"))
        }
        (Some(LessonKind::Alone), true) | (Some(LessonKind::Capped), false) => {
            RunStatus::Over(Outcome::Taught)
        }
        (Some(LessonKind::Alone), false) => {
            RunStatus::failed("it ran without its cap: Slurm started it by itself")
        }
        (Some(LessonKind::Nothing), _) => {
            RunStatus::failed(job.lesson_detail.as_deref().unwrap_or("it taught nothing"))
        }
        (Some(LessonKind::Capped | LessonKind::Shared), _) => RunStatus::failed("it was not alone"),
        (None, _) => untaught(job),
    }
}

#[cfg(test)]
mod tests;
