//! A campaign: the runs of one script alone, first without a cap and then under each, and what became of each. Pure: it
//! says what to do next, and does nothing.

use pillion_api::JobStory;
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
}

/// What is submitted again and again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// The script, by its whole path.
    pub script: String,
    /// What stands in it.
    pub text: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// More options for sbatch.
    pub options: Vec<String>,
}

/// One submitted run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Its cap.
    pub cap: CapStep,
    /// Its job.
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
pub enum Look {
    /// Not over.
    Open {
        /// waiting, running or ended.
        state: &'static str,
        /// In a few words.
        detail: String,
    },
    /// Over.
    Over(Outcome),
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
        Self { subject, runs: Vec::new() }
    }

    /// Forgets what failed, so that it is tried anew.
    pub fn retry(&mut self) {
        self.runs.retain(|run| !matches!(run.outcome, Some(Outcome::Failed(_))));
    }

    /// The runs under this cap that did not fail.
    fn count(&self, cap: CapStep) -> usize {
        let good = |run: &&Run| run.cap == cap && !matches!(run.outcome, Some(Outcome::Failed(_)));
        self.runs.iter().filter(good).count()
    }

    fn has(&self, cap: CapStep, is: impl Fn(&Option<Outcome>) -> bool) -> bool {
        self.runs.iter().any(|run| run.cap == cap && is(&run.outcome))
    }

    /// What to do now. Speeds under a cap are parts of that without one: that comes first, and where it fails nothing
    /// else is begun. What failed is not tried again: its user has to mend it.
    pub fn next(&self, wanted: &Wanted) -> Next {
        let failed = |outcome: &Option<Outcome>| matches!(outcome, Some(Outcome::Failed(_)));
        let missing = |cap: CapStep| {
            let is_hopeless = self.has(cap, failed);
            let count = if is_hopeless { 0 } else { wanted.runs_each.saturating_sub(self.count(cap)) };
            std::iter::repeat_n(cap, count)
        };
        let whole: Vec<CapStep> = missing(CapStep::WHOLE).collect();
        let is_open = self.runs.iter().any(|run| run.outcome.is_none());
        if !whole.is_empty() {
            return Next::Submit(whole);
        }
        if self.has(CapStep::WHOLE, |outcome| *outcome == Some(Outcome::Taught)) {
            let capped: Vec<CapStep> = wanted.caps.iter().copied().flat_map(missing).collect();
            if !capped.is_empty() {
                return Next::Submit(capped);
            }
        }
        if is_open { Next::Wait } else { Next::Done }
    }

    /// How many runs are over.
    pub fn over_count(&self) -> usize {
        self.runs.iter().filter(|run| run.outcome.is_some()).count()
    }

    /// Whether everything that was asked for is known.
    pub fn is_complete(&self, wanted: &Wanted) -> bool {
        let taught = |cap: &CapStep| self.has(*cap, |outcome| *outcome == Some(Outcome::Taught));
        [CapStep::WHOLE].iter().chain(&wanted.caps).all(taught)
    }
}

/// How a run stands, by what the scheduler tells of its job. `device_model`: that of the run without a cap.
pub fn look(run: &Run, story: Option<&JobStory>, device_model: Option<&str>, now: UnixTime) -> Look {
    let open = |state, detail: &str| Look::Open { state, detail: detail.to_owned() };
    let failed = |why: &str| Look::Over(Outcome::Failed(why.to_owned()));
    let Some(story) = story else {
        return if now.seconds_since(run.submitted_at) < UNSEEN_SECONDS_MAX {
            open("waiting", "the scheduler has not seen it yet")
        } else {
            failed("the scheduler does not know it; see 'sacct' for what became of it")
        };
    };
    let Some(ending) = &story.ending else {
        return match story.started_at_seconds {
            Some(_) => open("running", ""),
            None => open("waiting", story.job.as_ref().map_or("", |job| &job.reason)),
        };
    };
    let own_model = story.decision.as_ref().map(|decision| decision.device_model.as_str());
    if own_model.is_some() && device_model.is_some() && own_model != device_model {
        return failed(&format!(
            "it ran on another GPU model ({}); ask for one in the script, such as --gres=gpu:TYPE:1",
            own_model.unwrap_or_default()
        ));
    }
    match (story.lesson(), run.cap == CapStep::WHOLE) {
        _ if ending != "completed" => failed(&format!("it ended as {ending}; see what it printed")),
        (Some(LessonKind::Alone), true) | (Some(LessonKind::Capped), false) => Look::Over(Outcome::Taught),
        (Some(LessonKind::Alone), false) => failed("it ran without its cap: Slurm started it by itself"),
        (Some(LessonKind::Nothing), _) => {
            failed(story.lesson_detail.as_deref().unwrap_or("it taught nothing"))
        }
        (Some(LessonKind::Capped | LessonKind::Shared), _) => failed("it was not alone"),
        (None, _) => {
            let since = story.ended_at_seconds.map_or(0.0, |ended| story.now_seconds - ended);
            if since < UNTAUGHT_SECONDS_MAX {
                open("ended", "its measurements are on their way")
            } else {
                failed("nothing was measured of it: its node's agent was away, or it did not use its GPU")
            }
        }
    }
}

#[cfg(test)]
mod tests;
