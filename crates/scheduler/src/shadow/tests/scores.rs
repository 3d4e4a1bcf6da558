//! What comes of jobs, held against what was decided: and whoever may act in between.

use super::*;
use crate::shadow::score::{Truth, score};
use pillion_core::shadow::{ShadowFit, ShadowOutcome};
use pillion_store::{ShadowBeside, ShadowScore};

impl World {
    fn score_of(&self, id: u32) -> Option<ShadowScore> {
        let decision = self.open.iter().find(|it| it.start() == start(id)).unwrap();
        let group: Vec<ShadowDecision> =
            self.open.iter().filter(|it| it.group == decision.group).cloned().collect();
        self.see(|ground| {
            let truth = Truth { standings: ground.standings, group: &group, partitions: &self.partitions };
            score(decision, truth)
        })
    }

    fn beside(&self, id: u32) -> ShadowBeside {
        self.score_of(id).unwrap().beside.unwrap()
    }

    fn outcome(&self, id: u32) -> Option<ShadowOutcome> {
        self.score_of(id).map(|score| score.outcome)
    }
}

/// Job 2 would have joined job 1, an hour long as both usually are, at its beginning.
fn joined() -> World {
    let mut world = World::new();
    world.runs(1, "alice/w", "g0");
    world.runs(9, "bob/w", "g1");
    world.waits(2, "alice/v");
    assert_eq!(told(&world.look().decisions), [(2, Role::Joiner, "g0".into(), vec![1])]);
    world
}

/// Both ran for so long, one after the other, and held so much memory.
fn ran(world: &mut World, seconds: [u64; 2], memory_gib: [Option<u64>; 2]) {
    world.pass(seconds[0]);
    world.ends(1, memory_gib[0]);
    world.starts(2, "g0");
    world.pass(seconds[1]);
    world.ends(2, memory_gib[1]);
    world.pass(30);
}

#[test]
fn what_fits_and_lasts_as_believed_saves_what_was_expected() {
    let mut world = joined();
    ran(&mut world, [3600, 3600], [Some(8), Some(9)]);
    let score = world.score_of(2).unwrap();
    assert_eq!((score.outcome, score.is_duration_as_believed), (ShadowOutcome::Scored, Some(true)));
    assert!((score.held_seconds - 3600.0).abs() < 1e-6);
    let beside = score.beside.unwrap();
    assert_eq!(
        (beside.fit, beside.is_overlap_as_believed, beside.is_over_limit),
        (ShadowFit::Fits, Some(true), false)
    );
    let decision = world.open.last().unwrap();
    assert!((beside.saved_seconds - beside.overlap_seconds * decision.gain).abs() < 1e-6);
    assert!(beside.saved_seconds > beside.saved_seconds_low && beside.saved_seconds > 1000.0, "{beside:?}");
    let host = world.score_of(1).unwrap();
    assert_eq!((host.outcome, host.beside), (ShadowOutcome::Scored, None));
}

#[test]
fn a_host_that_ends_soon_takes_what_was_believed_of_it_along() {
    let mut world = joined();
    ran(&mut world, [300, 3600], [Some(8), Some(9)]);
    let beside = world.beside(2);
    assert_eq!(beside.is_overlap_as_believed, Some(false));
    assert!((300.0..500.0).contains(&beside.overlap_seconds), "{beside:?}");
    assert_eq!(world.score_of(1).unwrap().is_duration_as_believed, Some(false));
}

#[test]
fn memory_is_a_hard_yes_or_no_and_what_does_not_fit_costs() {
    let fit = |memory: [Option<u64>; 2]| {
        let mut world = joined();
        ran(&mut world, [3600, 3600], memory);
        world.beside(2)
    };
    assert_eq!(fit([Some(40), Some(32)]).fit, ShadowFit::Fits);
    assert_eq!(fit([Some(40), Some(33)]).fit, ShadowFit::Near);
    let short = fit([Some(40), Some(41)]);
    assert_eq!(short.fit, ShadowFit::Short);
    assert!((short.saved_seconds + 300.0).abs() < 1e-6 && short.saved_seconds_low < 0.0, "{short:?}");
    let unknown = fit([Some(8), None]);
    assert_eq!(unknown.fit, ShadowFit::Unknown);
    assert!(unknown.saved_seconds_low <= 0.0 && unknown.saved_seconds > 0.0, "{unknown:?}");
}

#[test]
fn a_job_slowed_beyond_its_limit_is_told_by_the_speed_that_was_predicted() {
    let mut world = joined();
    world.open.last_mut().unwrap().time_limit_seconds = Some(3610);
    ran(&mut world, [3600, 3600], [Some(8), Some(8)]);
    assert!(world.beside(2).is_over_limit);
}

#[test]
fn nothing_is_said_before_all_are_over_and_their_agents_have_told() {
    let mut world = joined();
    world.pass(600);
    assert_eq!((world.score_of(1), world.score_of(2)), (None, None));
    world.ends(1, Some(8));
    world.starts(2, "g0");
    world.pass(600);
    assert_eq!(world.score_of(2), None, "it runs");
    world.ends(2, Some(8));
    assert_eq!(world.score_of(2), None, "its last part may come");
    world.runs.remove(&2);
    world.pass(60);
    assert_eq!(world.score_of(2), None, "its agent does not respond");
    world.pass(600);
    assert_eq!(world.beside(2).fit, ShadowFit::Unknown, "and nobody waits for ever");
}

#[test]
fn one_that_is_cancelled_before_it_starts_is_not_scored() {
    let mut world = joined();
    world.queue.remove(&2);
    assert_eq!(world.outcome(2), Some(ShadowOutcome::NeverRan));
    world.is_whole = false;
    assert_eq!(world.outcome(2), None, "of an answer that could not be read whole nobody is missing");
}

#[test]
fn one_whose_partner_is_cancelled_is_not_scored_either() {
    let mut world = World::new();
    world.runs(9, "bob/w", "g1");
    world.waits(1, "alice/w");
    world.waits(2, "alice/v");
    let decided = world.look();
    assert_eq!(decided.decisions.len(), 2);
    let [host, joiner] = [0, 1].map(|at| decided.decisions[at].start().job_id.id);
    world.queue.remove(&host);
    world.starts(joiner, "g0");
    world.pass(60);
    world.ends(joiner, Some(8));
    world.pass(30);
    assert_eq!(world.outcome(host), Some(ShadowOutcome::NeverRan));
    assert_eq!(world.outcome(joiner), Some(ShadowOutcome::PartnerNeverRan));
}

#[test]
fn a_requeued_job_is_another_start_and_may_be_decided_on_again() {
    let mut world = joined();
    let mut again = world.queue[&2].clone();
    again.restart_count = 1;
    world.queue.insert(2, again);
    assert_eq!(world.outcome(2), Some(ShadowOutcome::NeverRan), "the start that was meant");
    world.open.retain(|it| it.start() != start(2));
    let decided = world.look();
    assert_eq!(decided.decisions.iter().map(|it| it.start().restart_count).collect::<Vec<_>>(), [1]);
}

#[test]
fn a_host_that_is_requeued_is_over() {
    let mut world = joined();
    world.pass(600);
    world.ends(1, Some(8));
    world.waits(1, "alice/w");
    world.queue.get_mut(&1).unwrap().restart_count = 1;
    assert_eq!(world.seated().iter().filter(|seat| seat.1 == "g0").count(), 0, "the group lives nowhere");
    world.starts(2, "g0");
    world.pass(600);
    // Whose start it is, the number and the count say.
    world.ends(2, Some(8));
    world.pass(30);
    let beside = world.beside(2);
    assert!((600.0..800.0).contains(&beside.overlap_seconds), "{beside:?}");
}

#[test]
fn what_is_taken_out_of_the_configuration_is_closed_and_not_scored() {
    let mut world = joined();
    world.partitions = vec!["other".to_owned()];
    world.queue.clear();
    assert_eq!(world.outcome(2), Some(ShadowOutcome::NotObserved));
    assert_eq!(world.outcome(1), Some(ShadowOutcome::NotObserved));
}

/// The one before it was believed to be over by then, and was not: its memory would have been there still.
#[test]
fn who_would_have_been_there_still_counts_whatever_was_believed() {
    let mut world = World::new();
    world.runs(1, "alice/w", "g0");
    world.runs(9, "bob/w", "g1");
    world.queue.get_mut(&1).unwrap().time_limit_seconds = Some(100_000);
    world.profiles[0].profile.duration_seconds = Some(90_000.0);
    world.waits(2, "alice/v");
    world.look();
    world.pass(6000);
    world.waits(3, "alice/v");
    assert_eq!(told(&world.look().decisions), [(3, Role::Joiner, "g0".into(), vec![1])]);
    world.pass(10_000);
    world.ends(1, Some(30));
    world.starts(3, "g0");
    world.pass(3600);
    world.ends(3, Some(30));
    world.pass(30);
    assert_eq!(world.score_of(3), None, "the one that came before has not run yet");
    world.starts(2, "g0");
    world.pass(20_000);
    world.ends(2, Some(30));
    world.pass(30);
    assert_eq!(world.beside(2).fit, ShadowFit::Fits);
    assert_eq!(world.beside(3).fit, ShadowFit::Short, "three of 30 GiB on 80");
}
