//! Limits that only Slurm knows: while a begin time lies ahead it does not say that a user has as many jobs running as he may have. So
//! each of a long queue would be released in turn, be held on a free device until it is undone, and run alone from then on. One of them that
//! is eligible and waits for such a limit stands for the others.

use crate::scan::{Scan, mark_of};
use pillion_core::UserId;
use pillion_slurm::{Job, JobState, ReasonKind};
use std::collections::{BTreeMap, BTreeSet};

/// By what Slurm counts: its user, account, QOS and partition.
type Owner<'a> = (UserId, &'a str, &'a str, &'a str);

fn owner(job: &Job) -> Owner<'_> {
    (job.uid, &job.account, &job.qos, &job.partition)
}

/// Whose jobs Slurm starts no more of now, in its own word.
#[derive(Default)]
pub(super) struct Limits<'a>(BTreeMap<Owner<'a>, &'a str>);

impl<'a> Limits<'a> {
    pub(super) fn of(scan: &'a Scan) -> Self {
        let is_there =
            |job: &&Job| matches!(job.state, JobState::Running | JobState::Suspended | JobState::Completing);
        // Who has nothing running waits for a limit that his job is too large for, and his others may not be.
        let running: BTreeSet<Owner<'_>> = scan.jobs.values().filter(is_there).map(owner).collect();
        let reached = scan.jobs.values().filter_map(|job| {
            let is_shown =
                mark_of(job).is_some_and(|mark| mark.alone || mark.left || mark.lease_epoch.is_some());
            match &job.reason {
                ReasonKind::Limit(word)
                    if job.state == JobState::Pending && is_shown && counts_jobs(word) =>
                {
                    Some((owner(job), word.as_str()))
                }
                _ => None,
            }
        });
        Self(reached.filter(|(owner, _)| running.contains(owner)).collect())
    }

    /// Why it is not to be planned now.
    pub(super) fn held(&self, job: &Job) -> Option<String> {
        let word = self.0.get(&owner(job))?;
        Some(format!("Slurm starts no more of its user's jobs now: {word}"))
    }
}

/// Whether the limit is of all jobs together (`QOSMaxJobsPerUserLimit`, `AssocGrpGRES`), and not of each (`QOSMaxGRESPerJob`).
fn counts_jobs(word: &str) -> bool {
    let is_of_all = ["Grp", "PerUser", "PerAccount", "MaxJobs", "QOSJobLimit"];
    !word.contains("PerJob") && is_of_all.iter().any(|part| word.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{NOW, at, job, node};
    use pillion_core::SlurmJobId;
    use pillion_core::mark::Mark;
    use pillion_slurm::NodeAvailability;

    fn waits() -> Job {
        Job { id: SlurmJobId::plain(9), ..job(JobState::Pending) }
    }

    /// Why this one is held, beside one who waits for the limit `word` and carries `mark`, and one who `runs`.
    fn held_beside(waits: &Job, (word, mark): (&str, Mark), runs: JobState) -> Option<String> {
        let shown = Job {
            id: SlurmJobId::plain(8),
            reason: ReasonKind::Limit(word.to_owned()),
            mark: Ok(Some(mark)),
            ..job(JobState::Pending)
        };
        let other = Job { id: SlurmJobId::plain(7), ..job(runs) };
        let jobs = [waits.clone(), shown, other].map(Into::into).to_vec();
        let scan = Scan::new(at(NOW), jobs, vec![node(NodeAvailability::Up)], &["shared".to_owned()], 0);
        Limits::of(&scan).held(waits)
    }

    fn held(word: &str, mark: Mark, runs: JobState) -> Option<String> {
        held_beside(&waits(), (word, mark), runs)
    }

    #[test]
    fn one_who_waits_for_a_limit_stands_for_the_others_of_its_user() {
        let (leased, undone) = (Mark::default().leased(at(NOW), 0), Mark { alone: true, ..Mark::default() });
        for mark in [&leased, &undone] {
            let held = held("QOSMaxJobsPerUserLimit", mark.clone(), JobState::Running);
            assert_eq!(
                held.as_deref(),
                Some("Slurm starts no more of its user's jobs now: QOSMaxJobsPerUserLimit")
            );
        }
        let word = "AssocGrpGRES";
        assert!(held(word, undone.clone(), JobState::Running).is_some());
        assert_eq!(held(word, undone.clone(), JobState::Pending), None, "that one is too large by itself");
        assert_eq!(held("QOSMaxGRESPerJob", undone, JobState::Running), None);
        assert_eq!(held(word, Mark::default(), JobState::Running), None, "it is not eligible yet");
    }

    #[test]
    fn other_users_and_other_qos_are_not_held() {
        let of = |waits: &Job| {
            let shown = ("QOSMaxJobsPerUserLimit", Mark { alone: true, ..Mark::default() });
            held_beside(waits, shown, JobState::Running)
        };
        assert!(of(&waits()).is_some());
        assert_eq!(of(&Job { uid: UserId(1001), ..waits() }), None);
        assert_eq!(of(&Job { qos: "urgent".into(), ..waits() }), None);
    }
}
