//! The order in which waiting jobs are served: Slurm's priority, then age. But a user whose jobs hold devices for themselves
//! alone, because they must be measured or share with nobody, has a budget for that: what is beyond it comes after everybody
//! else's. So new names and wishes for a whole device take no pool from those who share it; where nobody else waits they
//! cost nothing.

use super::sources::{Sources, active_members};
use crate::scan::{mark_of, workload_of};
use crate::store::Member;
use pillion_core::{UserId, WorkloadKey};
use pillion_pairing::Role;
use pillion_slurm::Job;
use std::collections::{BTreeMap, BTreeSet};

/// Puts what is beyond its user's budget behind the others.
pub(super) fn ordered<'a>(mut jobs: Vec<&'a Job>, sources: Sources<'_>) -> Vec<&'a Job> {
    jobs.sort_by(|a, b| {
        let came_first = a.submitted_at.seconds().total_cmp(&b.submitted_at.seconds());
        b.priority.cmp(&a.priority).then(came_first).then(a.id.cmp(&b.id))
    });
    let users: BTreeSet<UserId> = jobs.iter().map(|job| job.uid).collect();
    if users.len() < 2 {
        return jobs;
    }
    let known: BTreeSet<&WorkloadKey> =
        sources.profiles.iter().map(|stored| &stored.profile.workload).collect();
    let mut held = held_alone(sources);
    let (mut within, mut beyond) = (Vec::with_capacity(jobs.len()), Vec::new());
    for job in jobs {
        if must_be_alone(job, &known) || sources.owed.contains_key(&job.uid) {
            let count = held.entry(job.uid).or_default();
            *count += 1;
            if *count > sources.alone_devices_max {
                beyond.push(job);
                continue;
            }
        }
        within.push(job);
    }
    within.append(&mut beyond);
    within
}

/// How many devices each user's jobs hold that nobody may join.
fn held_alone(sources: Sources<'_>) -> BTreeMap<UserId, u32> {
    // Under a cap somebody is alone to be measured, whatever its shards say.
    let mut held = BTreeMap::new();
    for (_, Member { plan, .. }) in active_members(sources.decisions) {
        let is_measured = plan.estimate.is_none() && plan.sharing.cap().is_some();
        if plan.role == Role::Alone || is_measured || is_exact(plan.slowdown_ratio_max) {
            *held.entry(plan.uid).or_default() += 1;
        }
    }
    held
}

/// Whether nobody could share with a waiting job: it is to be measured, or accepts no slowdown at all.
fn must_be_alone(job: &Job, known: &BTreeSet<&WorkloadKey>) -> bool {
    mark_of(job).is_some_and(|mark| {
        mark.cap.is_some()
            || mark.slowdown_ratio_max.is_some_and(is_exact)
            || !known.contains(&workload_of(job, mark))
    })
}

/// A promise that no neighbour keeps.
fn is_exact(slowdown_ratio_max: f64) -> bool {
    slowdown_ratio_max <= 1.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::Scan;
    use crate::store::{Decision, NewMember};
    use crate::testing::{NOW, at, decision, job, member};
    use pillion_core::decision::MemberState;
    use pillion_core::mark::Mark;
    use pillion_core::{Revision, SlurmJobId};
    use pillion_pairing::Policy;
    use pillion_slurm::JobState;

    /// Of whom, and whether it accepts no slowdown; in the order of the queue.
    fn order(jobs: &[(u32, bool)], held: u32) -> Vec<u32> {
        let waiting: Vec<Job> = (1..)
            .zip(jobs)
            .map(|(id, (uid, is_exact))| Job {
                id: SlurmJobId::plain(id),
                uid: UserId(*uid),
                submitted_at: at(NOW + u64::from(id)),
                mark: Ok(Some(Mark {
                    workload_digest: "w".into(),
                    slowdown_ratio_max: is_exact.then_some(1.0),
                    ..Mark::default()
                })),
                ..job(JobState::Pending)
            })
            .collect();
        let decisions: Vec<Decision> = (0..held).map(|_| measured()).collect();
        let profile = pillion_core::profile::WorkloadProfile::empty(WorkloadKey::new("alice/w"), "h200");
        let known = crate::store::StoredProfile {
            profile,
            duration_deviation_squares: 0.0,
            run_counts_at_cap: [0; 9],
            updated_at: at(NOW),
        };
        let sources = Sources {
            revision: Revision(0),
            scan: &Scan::default(),
            decisions: &decisions,
            agents: &BTreeMap::new(),
            stopped: &BTreeMap::new(),
            drains: &[],
            cooling: &BTreeMap::new(),
            profiles: &[known],
            policy: &Policy::default(),
            owed: &BTreeMap::new(),
            overrun: &BTreeMap::new(),
            alone_devices_max: 2,
            gpu_types: &BTreeMap::new(),
        };
        ordered(waiting.iter().collect(), sources).into_iter().map(|job| job.id.id).collect()
    }

    /// User 1 is measured alone on a device.
    fn measured() -> Decision {
        let running = member(MemberState::Running);
        let plan = NewMember { uid: UserId(1), role: Role::Alone, ..running.plan.clone() };
        decision(&crate::store::Member { plan, ..running })
    }

    /// As it was tried: `max-slowdown=1` for each of many jobs, and a pool that nobody shares.
    #[test]
    fn who_wants_devices_for_himself_comes_last_beyond_his_budget() {
        assert_eq!(order(&[(1, true), (1, true), (1, true), (2, false)], 0), [1, 2, 4, 3]);
        assert_eq!(order(&[(1, true), (1, true), (2, false)], 1), [1, 3, 2], "what he holds counts");
        assert_eq!(order(&[(1, true), (1, false), (2, true)], 2), [2, 3, 1], "what may share keeps its turn");
    }

    #[test]
    fn where_nobody_else_waits_a_budget_changes_nothing() {
        assert_eq!(order(&[(1, true), (1, false), (1, true), (1, true)], 5), [1, 2, 3, 4]);
    }
}
