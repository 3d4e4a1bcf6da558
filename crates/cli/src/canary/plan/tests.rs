use super::*;
use crate::characterize::fate::SBATCH_SECONDS_MAX;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn about(count: usize) -> About {
    let script = |at: usize| {
        let (script, text) = (format!("/x/s{at}.sh"), "#!/bin/sh\n#SBATCH -t 1\n".to_owned());
        Script {
            name: format!("s{at}"),
            subject: Subject { script, text, arguments: Vec::new(), options: Vec::new() },
        }
    };
    About {
        node: "n1".to_owned(),
        partition: "canary".to_owned(),
        scripts: (0..count).map(script).collect(),
        promise: SlowdownRatio::try_promise(10.0).unwrap(),
    }
}

fn at(seconds: f64) -> UnixTime {
    UnixTime::from_seconds(1000.0 + seconds)
}

fn canary(count: usize) -> Canary {
    Canary::new(about(count), at(0.0))
}

fn measured(group_id: u64, speed: Option<f64>) -> Outcome {
    Outcome::Beside(Measured {
        group_id: Some(group_id),
        expected_speed_fraction: Some(0.9),
        bound_speed_fraction: Some(0.8),
        speed_fraction: speed,
        slowdown_ratio_max: Some(10.0),
        reason: String::new(),
    })
}

/// Submits what is due.
fn go_on(canary: &mut Canary, wanted: &Wanted, now: f64) {
    let works = due(canary, wanted);
    submit(canary, &works, now);
}

fn submit(canary: &mut Canary, works: &[Work], now: f64) {
    let first = canary.runs.len();
    canary.intend(works, at(now + 10.0), at(now));
    for (serial, run) in canary.runs[first..].iter_mut().enumerate() {
        run.job_id = Some(SlurmJobId::plain(u32::try_from(first + serial + 1).unwrap()));
    }
}

/// Works of the next submission.
fn due(canary: &Canary, wanted: &Wanted) -> Vec<Work> {
    match canary.next(wanted) {
        Next::Submit(works) => works,
        other => panic!("{other:?}"),
    }
}

fn beside(pair: [usize; 2]) -> Vec<Work> {
    [0, 1].map(|slot| Work::Beside { pair, slot }).to_vec()
}

#[test]
fn each_runs_alone_until_it_is_known_and_then_one_pair_at_a_time() {
    let wanted = Wanted { runs_each: 2, pairs: pairs(2, None, 1) };
    assert_eq!((wanted.pairs.clone(), wanted.run_count(2)), (vec![[0, 0], [0, 1], [1, 1]], 10));
    let mut canary = canary(2);
    let alone = due(&canary, &wanted);
    assert_eq!(alone.iter().map(|work| work.script()).collect::<Vec<_>>(), [0, 0, 1, 1]);
    submit(&mut canary, &alone, 0.0);
    assert_eq!(canary.next(&wanted), Next::Wait);
    for run in &mut canary.runs {
        run.outcome = Some(Outcome::Alone);
    }
    for (group, pair) in (1..).zip(wanted.pairs.clone()) {
        let works = due(&canary, &wanted);
        assert_eq!(works, beside(pair));
        submit(&mut canary, &works, 100.0);
        let [first, second] = canary.pair(pair).map(Option::unwrap);
        assert!(first.begin.is_some() && first.begin == second.begin && first.job_name != second.job_name);
        assert_eq!((canary.next(&wanted), canary.came_of(pair)), (Next::Wait, Came::Open));
        for run in canary.runs.iter_mut().rev().take(2) {
            run.outcome = Some(measured(group, Some(0.9)));
        }
        assert_eq!(canary.came_of(pair), Came::Together);
    }
    assert!(canary.next(&wanted) == Next::Done && canary.is_complete(&wanted));
    // More pairs than before: only these.
    let more = Wanted { pairs: vec![[1, 0]], ..wanted };
    assert_eq!(due(&canary, &more), beside([1, 0]));
}

#[test]
fn a_script_that_fails_alone_is_in_no_pair_and_is_tried_again_when_asked_again() {
    let wanted = Wanted { runs_each: 1, pairs: pairs(2, None, 1) };
    let mut canary = canary(2);
    go_on(&mut canary, &wanted, 0.0);
    canary.runs[0].outcome = Some(Outcome::Failed("it ended as failed".to_owned()));
    canary.runs[1].outcome = Some(Outcome::Alone);
    assert_eq!(due(&canary, &wanted), beside([1, 1]));
    assert_eq!(canary.came_of([0, 1]), Came::Unknown(0));
    canary.retry();
    assert_eq!(due(&canary, &wanted), [Work::Alone { script: 0 }]);
}

#[test]
fn of_two_of_whom_one_failed_both_are_tried_again_once_both_are_over() {
    let wanted = Wanted { runs_each: 1, pairs: vec![[0, 0]] };
    let mut canary = canary(1);
    go_on(&mut canary, &wanted, 0.0);
    canary.runs[0].outcome = Some(Outcome::Alone);
    go_on(&mut canary, &wanted, 10.0);
    canary.runs[1].outcome = Some(Outcome::Failed("it ended as failed".to_owned()));
    canary.retry();
    assert_eq!((canary.runs.len(), canary.next(&wanted)), (3, Next::Wait), "the other still runs");
    canary.runs[2].outcome = Some(measured(1, None));
    assert_eq!((canary.next(&wanted), canary.came_of([0, 0])), (Next::Done, Came::Failed));
    canary.retry();
    assert_eq!(due(&canary, &wanted), beside([0, 0]));
}

#[test]
fn two_who_were_not_put_together_or_not_measured_are_told_apart() {
    let wanted = Wanted { runs_each: 1, pairs: vec![[0, 0]] };
    let mut canary = canary(1);
    go_on(&mut canary, &wanted, 0.0);
    canary.runs[0].outcome = Some(Outcome::Alone);
    go_on(&mut canary, &wanted, 10.0);
    for (outcomes, came) in [
        ([measured(1, None), measured(2, None)], Came::Apart),
        ([measured(1, None), measured(1, Some(0.9))], Came::Unmeasured),
        ([measured(1, Some(0.7)), measured(1, Some(0.9))], Came::Together),
    ] {
        for (run, outcome) in canary.runs[1..].iter_mut().zip(outcomes) {
            run.outcome = Some(outcome);
        }
        assert_eq!(canary.came_of([0, 0]), came);
        canary.retry();
        assert_eq!(canary.next(&wanted), Next::Done, "an answer is not asked for again");
    }
}

#[test]
fn what_was_lost_on_its_way_is_submitted_again_only_when_nothing_can_come_of_it() {
    let wanted = Wanted { runs_each: 1, pairs: vec![[0, 0]] };
    let mut canary = canary(1);
    canary.intend(&[Work::Alone { script: 0 }], at(10.0), at(0.0));
    assert_eq!(canary.next(&wanted), Next::Find(vec![0]));
    assert!(!canary.forget(0, true, at(60.0)), "its sbatch may still be under way");
    assert!(canary.forget(0, true, at(SBATCH_SECONDS_MAX)) && canary.runs.is_empty());
    canary.intend(&[Work::Alone { script: 0 }], at(210.0), at(200.0));
    canary.runs[0].has_sbatch_ended = true;
    assert!(canary.forget(0, true, at(200.0)), "sbatch said no");
    // Nor twice where Slurm may have forgotten it.
    canary.intend(&[Work::Alone { script: 0 }], at(210.0), at(200.0));
    assert!(canary.forget(0, false, at(400.0)) && canary.next(&wanted) == Next::Done);
    canary.retry();
    assert!(canary.runs.is_empty(), "its user says so");
    // Of two: in time it comes to begin with the other, else both have to be tried anew.
    submit(&mut canary, &[Work::Alone { script: 0 }], 300.0);
    canary.runs[0].outcome = Some(Outcome::Alone);
    go_on(&mut canary, &wanted, 400.0);
    canary.runs[2].job_id = None;
    canary.runs[2].has_sbatch_ended = true;
    let begin = canary.runs[1].begin;
    let mut late = canary.clone();
    assert!(canary.forget(2, true, at(402.0)));
    assert_eq!(due(&canary, &wanted), [Work::Beside { pair: [0, 0], slot: 1 }]);
    let works = due(&canary, &wanted);
    canary.intend(&works, at(412.0), at(402.0));
    assert_eq!(canary.runs[2].begin, begin);
    assert!(late.forget(2, true, at(411.0)));
    assert_eq!(late.came_of([0, 0]), Came::Open, "the other runs");
    assert!(
        matches!(&late.runs[2].outcome, Some(Outcome::Failed(why)) if why.contains("not submitted in time"))
    );
}

#[test]
fn jobs_of_a_canary_that_are_on_no_record_are_told_from_its_own_and_from_other_nodes() {
    let mut canary = canary(1);
    submit(&mut canary, &[Work::Alone { script: 0 }], 0.0);
    let own = canary.runs[0].job_name.clone();
    let others =
        ["pillion-canary-n1-6a3-0", "pillion-canary-n1-b-6a3-0", "pillion-canary-n10-6a3-0", "train"];
    let strangers = canary.strangers([own.as_str()].into_iter().chain(others));
    assert_eq!(strangers, ["pillion-canary-n1-6a3-0"]);
}

/// Slurm, and a command that is cut off at any moment and called again.
#[derive(Default)]
struct World {
    jobs: BTreeMap<String, (Work, SlurmJobId, Option<UnixTime>)>,
    now: f64,
}

impl World {
    /// As the shell does it: on record before it is submitted. `steps`: after how many of them it is cut off.
    fn submit(&mut self, canary: &mut Canary, works: &[Work], mut steps: u32) {
        let first = canary.runs.len();
        canary.intend(works, at(self.now + 10.0), at(self.now));
        for run in &mut canary.runs[first..] {
            if steps == 0 {
                return;
            }
            let id = SlurmJobId::plain(u32::try_from(self.jobs.len() + 1).unwrap());
            self.jobs.insert(run.job_name.clone(), (run.work, id, run.begin));
            if steps == 1 {
                return;
            }
            run.job_id = Some(id);
            steps = steps.saturating_sub(2);
        }
    }

    fn find(&self, canary: &mut Canary, unsure: &[usize]) {
        for at in unsure {
            let run = &mut canary.runs[*at];
            run.job_id = self.jobs.get(&run.job_name).map(|(_, id, _)| *id);
        }
        for place in unsure.iter().rev() {
            if canary.runs[*place].job_id.is_none() {
                canary.forget(*place, true, at(self.now));
            }
        }
    }

    fn count(&self, work: Work) -> usize {
        self.jobs.values().filter(|(own, ..)| *own == work).count()
    }
}

proptest! {
    /// Wherever it is cut off, and however long until it is called again: nothing is submitted twice, nothing before both are known,
    /// no two pairs at once, and it comes to its end.
    #[test]
    fn nothing_is_submitted_twice(
        script_count in 1_usize..4,
        runs_each in 1_usize..3,
        cuts in prop::collection::vec((0_u32..6, 0.0..400.0_f64), 0..12),
    ) {
        let wanted = Wanted { runs_each, pairs: pairs(script_count, None, 1) };
        let (mut canary, mut world) = (canary(script_count), World::default());
        let mut cuts = cuts.into_iter();
        for _ in 0..500 {
            world.now += 2.0;
            match canary.next(&wanted) {
                Next::Find(unsure) => world.find(&mut canary, &unsure),
                Next::Submit(works) => {
                    let open = canary.runs.iter().filter(|run| run.outcome.is_none());
                    let others = open.filter(|run| !works.iter().any(|work| match (work, run.work) {
                        (Work::Beside { pair, .. }, Work::Beside { pair: own, .. }) => *pair == own,
                        (Work::Alone { .. }, Work::Alone { .. }) => true,
                        _ => false,
                    })).count();
                    prop_assert_eq!(others, 0, "beside another: {:?} {:?}", works, canary.runs);
                    for work in &works {
                        if let Work::Beside { pair, .. } = work {
                            prop_assert!(pair.iter().all(|script| canary.is_known(*script)));
                        }
                    }
                    let (steps, wait) = cuts.next().unwrap_or((u32::MAX, 0.0));
                    world.submit(&mut canary, &works, steps);
                    world.now += wait;
                }
                Next::Wait => {
                    let now = at(world.now);
                    for run in canary.runs.iter_mut().filter(|run| run.outcome.is_none() && run.begin.is_none_or(|begin| begin <= now)) {
                        run.outcome = Some(match run.work {
                            Work::Alone { .. } => Outcome::Alone,
                            Work::Beside { .. } => measured(1, Some(0.9)),
                        });
                    }
                }
                // Called again: what came too late for its other is tried anew.
                Next::Done if !canary.is_complete(&wanted) => {
                    let before = canary.clone();
                    canary.retry();
                    prop_assert_ne!(&before, &canary, "it goes nowhere");
                    for (pair, slot) in wanted.pairs.iter().flat_map(|pair| [(*pair, 0), (*pair, 1)]) {
                        let work = Work::Beside { pair, slot };
                        if canary.of(work).next().is_none() {
                            world.jobs.retain(|_, (own, ..)| *own != work);
                        }
                    }
                }
                Next::Done => break,
            }
            for script in 0..script_count {
                let count = world.count(Work::Alone { script });
                prop_assert!(count <= runs_each);
            }
            for pair in &wanted.pairs {
                let each = [0, 1].map(|slot| world.jobs.values().find(|(own, ..)| *own == Work::Beside { pair: *pair, slot }));
                let counts = [0, 1].map(|slot| world.count(Work::Beside { pair: *pair, slot }));
                prop_assert!(counts.iter().all(|count| *count <= 1));
                if let [Some((_, _, first)), Some((_, _, second))] = each {
                    prop_assert_eq!(first, second);
                }
            }
        }
        prop_assert!(canary.is_complete(&wanted), "{:?}", canary.next(&wanted));
    }

    /// With more of the same seed come more pairs, each once.
    #[test]
    fn pairs_are_drawn_by_the_seed(script_count in 1_usize..9, count in 1_usize..50, seed: u64) {
        let (few, more) = (pairs(script_count, Some(count), seed), pairs(script_count, Some(count + 1), seed));
        prop_assert_eq!(&few[..], &more[..few.len()]);
        let mut each = more.clone();
        each.sort_unstable();
        each.dedup();
        prop_assert_eq!((each.len(), more.len()), (more.len(), (count + 1).min(script_count * (script_count + 1) / 2)));
    }
}
