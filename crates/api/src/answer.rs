//! What answers say to people, and the words in them by which anything is decided.

use crate::{AgentStatus, Candidate, Decision, DrainedPlace, Fault, JobStatus, Member, PolicyRule};
use pillion_core::health::FaultKind;
use pillion_core::profile::LessonKind;
use pillion_core::reason::Reason;
use pillion_core::report::JobSummary;
use pillion_core::setup::{NodeSetup, SetupFaultKind};

impl DrainedPlace {
    /// As everybody is told of it: `drained by alice: fan noise`.
    pub fn sentence(&self) -> String {
        format!("drained by {}: {}", self.drained_by, self.reason)
    }

    /// Whether this device lies in it.
    pub fn covers(&self, node: &str, gres_type: &str) -> bool {
        self.node == node && self.gres_type.as_deref().is_none_or(|own| own == gres_type)
    }

    /// `n1` or `n1:g0`.
    pub fn place(&self) -> String {
        match &self.gres_type {
            None => self.node.clone(),
            Some(gres_type) => format!("{}:{gres_type}", self.node),
        }
    }
}

impl AgentStatus {
    /// How its node is set up; `None`: its agent has never connected, or is of an earlier release.
    pub fn node_setup(&self) -> Option<NodeSetup> {
        self.setup.clone().map(NodeSetup::from)
    }

    /// Why its node has no devices, as its agent told when it connected.
    pub fn no_devices(&self) -> Option<String> {
        let mut faults = self.node_setup()?.faults.into_iter();
        faults.find(|fault| fault.kind == SetupFaultKind::NoDevices).map(|fault| fault.detail)
    }
}

impl Fault {
    /// What it is; of one that a later release knows no more than that.
    pub fn kind(&self) -> FaultKind {
        self.kind.parse().unwrap_or(FaultKind::Other)
    }

    /// What is wrong, for a person.
    pub fn sentence(&self) -> String {
        self.kind().sentence(&self.detail)
    }
}

impl Candidate {
    /// What the rule says that excluded it; of one that a later release knows its word.
    pub fn rule(&self) -> Option<&str> {
        let word = self.excluded_by.as_deref()?;
        Some(word.parse::<Reason>().map_or(word, |reason| reason.of_partner()))
    }
}

impl PolicyRule {
    /// `/etc/pillion/pillion.toml, line 4`, as `pillion config show` has it.
    pub fn whence(&self) -> String {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => format!("{file}, line {line}"),
            _ => self.origin.clone(),
        }
    }
}

impl Decision {
    /// How many devices its members have, each of them or the one of all of them.
    pub fn device_count(&self) -> usize {
        self.gres_type.split(',').count()
    }
    /// Which, for people: `GPU g0`, `GPUs g0,g1`.
    pub fn gpus(&self) -> String {
        format!("{} {}", self.gpu_word(), self.gres_type)
    }
    /// What they are called: `GPU`, or `GPUs` where there are several.
    pub fn gpu_word(&self) -> &'static str {
        if self.device_count() > 1 { "GPUs" } else { "GPU" }
    }
}

impl JobStatus {
    /// What its devices are called, as far as is known how many it has.
    pub fn gpu_word(&self) -> &'static str {
        self.decision.as_ref().map_or("GPU", Decision::gpu_word)
    }

    /// Its own row of the decision; the scheduler sends no other.
    pub fn member(&self) -> Option<&Member> {
        self.decision.as_ref()?.members.first()
    }

    /// What was measured of it. `None`: nothing was, or in a way that is not known here.
    pub fn summary(&self) -> Option<JobSummary> {
        JobSummary::try_from(self.run.clone()?).ok()
    }

    /// What it taught of its workload; `None`: nobody looked at it yet.
    pub fn lesson(&self) -> Option<LessonKind> {
        self.lesson_kind.as_ref()?.parse().ok()
    }

    /// completed, .., running, or how it waits.
    pub fn state(&self) -> &str {
        match (&self.ending, self.started_at_seconds) {
            (Some(ending), _) => ending,
            (None, Some(_)) => "running",
            (None, None) => self.job.as_ref().map_or("", |job| &job.state),
        }
    }

    /// How long this start has run.
    pub fn elapsed_seconds(&self) -> Option<f64> {
        let until = self.ended_at_seconds.unwrap_or(self.now_seconds);
        Some((until - self.started_at_seconds?).max(0.0))
    }

    /// The part of its time on the device that it was beside others.
    pub fn shared_fraction(&self) -> Option<f64> {
        let run = self.run.as_ref()?;
        let seconds = run.ended_at_seconds - run.started_at_seconds;
        (seconds > 0.0).then(|| (run.shared_seconds / seconds).clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_its_sentence_and_one_of_tomorrow_its_word() {
        let rule = |word: &str| {
            let candidate = Candidate { excluded_by: Some(word.to_owned()), ..Candidate::default() };
            candidate.rule().map(str::to_owned)
        };
        let sentence = "one of the two runs several processes, and nothing could hold each of them to its part of the memory";
        assert_eq!(rule("several-processes").as_deref(), Some(sentence));
        assert_eq!(rule("of-tomorrow").as_deref(), Some("of-tomorrow"));
        assert_eq!(Candidate::default().rule(), None);
    }

    #[test]
    fn a_fault_of_tomorrow_is_something_that_is_wrong() {
        let fault = Fault { kind: "on-fire".to_owned(), detail: "it smokes".to_owned(), ..Fault::default() };
        assert_eq!(
            (fault.kind(), fault.sentence().as_str()),
            (FaultKind::Other, "something is wrong: it smokes")
        );
    }
}
