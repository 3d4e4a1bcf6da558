//! Which launches the scheduler was told of: of each start what is new in one. A script may begin hundreds of tasks a second for hours, and all
//! of them say the same.

use pillion_core::report::Launch;
use pillion_core::{DecisionId, GresType, JobStart};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// How many starts are remembered; of those with the lowest job ids it is told anew.
const STARTS_MAX: usize = 4_096;
/// How many launches of one start are told: its user gives names to steps as he likes.
const LAUNCHES_MAX: usize = 64;

/// What of a launch may be new.
type Said = (Option<DecisionId>, Vec<GresType>, Option<String>);

#[derive(Debug, Default)]
pub struct Told(Mutex<BTreeMap<JobStart, Vec<Said>>>);

impl Told {
    /// Whether this launch says something new of its start; then it counts as told.
    pub fn is_news(&self, launch: &Launch) -> bool {
        let said = (launch.decision_id, launch.gres_types.clone(), launch.profile_name.clone());
        // Each change is whole before anything can panic.
        let mut starts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = starts.entry(launch.start).or_default();
        let is_news = known.len() < LAUNCHES_MAX && !known.contains(&said);
        if is_news {
            known.push(said);
        }
        while starts.len() > STARTS_MAX {
            starts.pop_first();
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillion_core::{SlurmJobId, UnixTime};

    fn launch(job: u32, step_id: u32) -> Launch {
        Launch {
            at: UnixTime::from_epoch(u64::from(step_id)),
            start: JobStart { job_id: SlurmJobId::plain(job), restart_count: 0 },
            step_id,
            decision_id: Some(DecisionId(7)),
            gres_types: vec![GresType::new("g0")],
            profile_name: None,
        }
    }

    #[test]
    fn a_script_that_begins_steps_without_end_is_told_of_once() {
        let told = Told::default();
        let count = (0..1_000).filter(|step_id| told.is_news(&launch(1, *step_id))).count();
        assert_eq!(count, 1);
        assert!(told.is_news(&Launch { decision_id: None, ..launch(1, 2) }), "the agent had lost its share");
        assert!(told.is_news(&launch(2, 0)), "another job");
        let restarted = JobStart { restart_count: 1, ..launch(1, 0).start };
        assert!(told.is_news(&Launch { start: restarted, ..launch(1, 0) }));
        let name = |number: u32| Launch { profile_name: Some(number.to_string()), ..launch(1, 0) };
        assert_eq!((0..1_000).filter(|number| told.is_news(&name(*number))).count(), LAUNCHES_MAX - 2);
    }

    #[test]
    fn a_node_that_has_seen_many_jobs_forgets_the_first() {
        let told = Told::default();
        let most = u32::try_from(STARTS_MAX).unwrap();
        assert!((0..=most).all(|job| told.is_news(&launch(job, 0))));
        assert_eq!([1, most].map(|job| told.is_news(&launch(job, 1))), [false, false]);
        assert!(told.0.lock().unwrap().len() <= STARTS_MAX);
    }
}
