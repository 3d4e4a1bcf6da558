//! Doctored facts: each kind of harm is found, and a storm without any is found clean.

mod environment;
mod plain_slurm;
mod several_nodes;

use super::*;
use crate::storm::facts::{Account, Allocation, Decision, Done, Member, Outage, Seen, Sight, Start};
use crate::storm::plan::{After, Array, Change, Deed, Kind, Order, Work};
use std::collections::BTreeMap;

fn words(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// A job that was submitted at `at`, started two seconds later and ran for five.
fn job(number: usize, kind: Kind, at: f64) -> Job {
    let is_managed = kind != Kind::Plain;
    let (node, partition) = if is_managed { ("n1", "shared") } else { ("w1", "gpu") };
    let order = Order {
        number,
        at,
        user: "alice",
        kind,
        work: Work::Sleep { milliseconds: 5000 },
        gpus: 1,
        node_count: 1,
        array: None,
        after: None,
    };
    let begun = at + 2.0;
    let start = Start {
        at: begun + 0.3,
        ended_at: Some(begun + 5.0),
        exit: Some(0),
        node: node.into(),
        partition: partition.into(),
        gpus: vec![0],
        shards: is_managed.then_some(100),
        ..Start::default()
    };
    let account = Account {
        state: "COMPLETED".into(),
        start: Some(begun.floor()),
        end: Some((begun + 5.0).floor()),
        time_limit: Some(10),
    };
    Job {
        order,
        task: None,
        name: (100 + number).to_string(),
        submitted: Span { from: at, until: at + 0.1 },
        said: String::new(),
        is_managed,
        done: Vec::new(),
        allocations: vec![Allocation { at: begun, until: Some(begun + 5.1), nodes: vec![node.into()] }],
        starts: vec![start],
        accounts: vec![account],
        made_room: 0,
        shares_number: false,
        left: None,
    }
}

/// A calm storm: a plain job, a managed one that runs alone, and later a pair on another GPU.
fn calm() -> Facts {
    let mut jobs = vec![
        job(0, Kind::Plain, 0.0),
        job(1, Kind::First, 0.0),
        job(2, Kind::Known, 10.0),
        job(3, Kind::Known, 11.0),
    ];
    let expected = |shards: &str| {
        words(&[("shards", shards), ("gpu", "1"), ("node", "n1"), ("decision", "7"), ("cap", "")])
    };
    let member =
        |job: &str, shards: &str| Member { job: job.into(), expected: expected(shards), ..Member::default() };
    for (pair, shards) in [(2, 40), (3, 60)] {
        let start = &mut jobs[pair].starts[0];
        (start.gpus, start.shards, start.ours) = (vec![1], Some(shards), "PILLION_DECISION".into());
        start.words = words(&[("decision", "7")]);
    }
    let decision = Decision {
        id: 7,
        group: 7,
        node: "n1".into(),
        gpu: "g1".into(),
        members: vec![member("102", "40"), member("103", "60")],
    };
    Facts { bound_seconds: 20.0, jobs, decisions: vec![decision], ended_at: 500.0, ..Facts::default() }
}

fn kinds(facts: &Facts) -> Vec<HarmKind> {
    let mut kinds: Vec<HarmKind> = judge(facts).harms.iter().map(|harm| harm.kind).collect();
    kinds.dedup();
    kinds
}

/// The harm that is found after the calm storm was doctored.
fn doctored(doctor: impl Fn(&mut Facts)) -> Vec<HarmKind> {
    let mut facts = calm();
    doctor(&mut facts);
    kinds(&facts)
}

fn done(deed: Deed, from: f64) -> Done {
    let span = Span { from, until: from + 0.1 };
    Done { deed, by_root: false, span, accepted: true, said: String::new(), after: None }
}

/// It has not started at all.
fn waiting(job: &mut Job) {
    (job.allocations, job.starts, job.accounts) = (Vec::new(), Vec::new(), Vec::new());
    job.left = Some(Seen { state: "PENDING".into(), priority: "1".into(), ..Seen::default() });
}

/// It starts and ends so much later.
fn later(job: &mut Job, seconds: f64) {
    for one in &mut job.allocations {
        one.at += seconds;
        one.until = one.until.map(|until| until + seconds);
    }
    for start in &mut job.starts {
        start.at += seconds;
        start.ended_at = start.ended_at.map(|until| until + seconds);
    }
}

/// It runs once more.
fn again(job: &mut Job, seconds: f64) {
    let mut copy = job.clone();
    later(&mut copy, seconds);
    job.allocations.push(copy.allocations[0].clone());
    job.starts.push(Start { restarts: 1, ..copy.starts[0].clone() });
    job.accounts.insert(0, Account { state: "REQUEUED".into(), ..job.accounts[0].clone() });
}

#[test]
fn a_calm_storm_is_clean() {
    assert_eq!(kinds(&calm()), []);
}

#[test]
fn a_job_that_never_runs_is_found_unless_its_user_wants_it_so() {
    assert_eq!(doctored(|facts| waiting(&mut facts.jobs[1])), [HarmKind::NeverRan]);
    let by_wish = [Deed::Hold, Deed::Change(Change::Bogus)];
    for deed in by_wish {
        let wished = doctored(|facts| {
            waiting(&mut facts.jobs[1]);
            facts.jobs[1].done.push(done(deed, 1.0));
        });
        assert_eq!(wished, [], "{deed}");
        let refused = doctored(|facts| {
            waiting(&mut facts.jobs[1]);
            facts.jobs[1].done.push(Done { accepted: false, ..done(deed, 1.0) });
        });
        assert_eq!(refused, [HarmKind::NeverRan], "{deed}");
    }
    // Held while it ran, and requeued after its end: Slurm keeps the hold, as its user asked.
    let requeued = doctored(|facts| {
        let job = &mut facts.jobs[1];
        job.left = Some(Seen { state: "PENDING".into(), priority: "0".into(), ..Seen::default() });
        job.done.push(done(Deed::Hold, 3.0));
        job.done.push(Done {
            accepted: false,
            said: "Job has already finished".into(),
            ..done(Deed::Release, 30.0)
        });
        job.done.push(done(Deed::Requeue, 31.0));
    });
    assert!(!requeued.contains(&HarmKind::NeverRan), "{requeued:?}");
    // Who waits for it is not to be counted once more.
    let behind = doctored(|facts| {
        waiting(&mut facts.jobs[1]);
        waiting(&mut facts.jobs[2]);
        facts.jobs[2].order.after = Some(After::Any(1));
    });
    assert_eq!(behind, [HarmKind::NeverRan]);
}

#[test]
fn a_refused_submission_is_found() {
    let refused = |facts: &mut Facts| facts.jobs[1].name.clear();
    assert_eq!(doctored(refused), [HarmKind::Refused]);
    let away = doctored(|facts| {
        refused(facts);
        let broken = Broken::Process(Part::Slurmctld, How::Stop);
        facts.outages.push(Outage { broken, span: Span { from: 0.0, until: 1.0 } });
    });
    assert_eq!(away, []);
}

#[test]
fn runs_beyond_the_requeues_are_found() {
    assert_eq!(doctored(|facts| again(&mut facts.jobs[1], 20.0)), [HarmKind::RanTwice]);
    let requeued = doctored(|facts| {
        again(&mut facts.jobs[1], 20.0);
        facts.jobs[1].done.push(done(Deed::RequeueNow, 6.0));
    });
    assert_eq!(requeued, []);
    let same_count = doctored(|facts| {
        again(&mut facts.jobs[1], 20.0);
        facts.jobs[1].starts[1].restarts = 0;
        facts.jobs[1].done.push(done(Deed::RequeueNow, 6.0));
    });
    assert_eq!(same_count, [HarmKind::RanTwice]);
    let made_room = |kind: Kind| {
        doctored(|facts| {
            again(&mut facts.jobs[1], 20.0);
            facts.jobs[1].order.kind = kind;
            facts.jobs[1].made_room = 1;
        })
    };
    assert_eq!((made_room(Kind::Guest), made_room(Kind::Known)), (vec![], vec![HarmKind::RanTwice]));
}

#[test]
fn a_wrong_end_is_found_unless_it_was_cancelled() {
    for state in ["FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT"] {
        assert_eq!(
            doctored(|facts| facts.jobs[1].accounts[0].state = state.into()),
            [HarmKind::EndedWrong],
            "{state}"
        );
    }
    assert_eq!(doctored(|facts| facts.jobs[1].starts[0].exit = None), [HarmKind::EndedWrong]);
    assert_eq!(doctored(|facts| facts.jobs[1].starts.clear()), [HarmKind::EndedWrong]);
    let cancelled = doctored(|facts| {
        facts.jobs[1].accounts[0].state = "CANCELLED by 60001".into();
        facts.jobs[1].starts[0].exit = None;
        facts.jobs[1].done.push(done(Deed::Cancel, 4.0));
    });
    assert_eq!(cancelled, []);
    let after = doctored(|facts| facts.jobs[1].done.push(done(Deed::Cancel, 1.0)));
    assert_eq!(after, [HarmKind::RanAfterCancel]);
}

#[test]
fn a_hold_that_does_not_hold_is_found() {
    let held = |facts: &mut Facts| facts.jobs[1].done.push(done(Deed::Hold, 1.0));
    assert_eq!(doctored(held), [HarmKind::HoldLifted]);
    let released = doctored(|facts| {
        held(facts);
        facts.jobs[1].done.push(done(Deed::Release, 1.5));
    });
    assert_eq!(released, []);
    let said = |said: &str| {
        doctored(|facts| {
            held(facts);
            let release = Done { accepted: false, said: said.into(), ..done(Deed::Release, 1.5) };
            facts.jobs[1].done.push(release);
            let broken = Broken::Process(Part::Slurmctld, How::Freeze);
            facts.outages.push(Outage { broken, span: Span { from: 1.4, until: 1.6 } });
        })
    };
    assert_eq!(said("Socket timed out on send/recv operation"), [], "it may have been released");
    assert_eq!(said("Access/permission denied for job 101"), [HarmKind::HoldLifted]);
    let running = doctored(|facts| facts.jobs[1].done.push(done(Deed::Hold, 3.0)));
    assert_eq!(running, [], "who runs is not held");
    let freed = doctored(|facts| {
        later(&mut facts.jobs[1], 10.0);
        held(facts);
        let seen = Seen {
            state: "PENDING".into(),
            priority: "100".into(),
            partition: "shared".into(),
            ..Seen::default()
        };
        facts.jobs[1].done.push(Done {
            after: Some(seen),
            accepted: false,
            ..done(Deed::Change(Change::Comment), 3.0)
        });
        facts.jobs[1].done.push(done(Deed::Release, 9.0));
    });
    assert_eq!(freed, [HarmKind::HoldLifted]);
}

#[test]
fn what_comes_before_what_it_waits_for_is_found() {
    for after in [After::Ok(1), After::Any(1)] {
        let broken = doctored(|facts| {
            later(&mut facts.jobs[1], 9.0);
            facts.jobs[2].order.after = Some(after);
        });
        assert_eq!(broken, [HarmKind::DependencyBroken], "{after:?}");
        assert_eq!(doctored(|facts| facts.jobs[2].order.after = Some(after)), [], "{after:?}");
    }
    let singles = doctored(|facts| {
        for job in [2, 3] {
            facts.jobs[job].order.after = Some(After::Singleton(0));
        }
    });
    assert_eq!(singles, [HarmKind::DependencyBroken]);
    let lost = doctored(|facts| {
        facts.jobs[1].accounts[0].state = "CANCELLED".into();
        facts.jobs[1].done.push(done(Deed::Cancel, 4.0));
        waiting(&mut facts.jobs[2]);
        facts.jobs[2].left = None;
        facts.jobs[2].accounts = vec![Account { state: "CANCELLED".into(), ..Account::default() }];
        facts.jobs[2].order.after = Some(After::Ok(1));
    });
    assert_eq!(lost, [], "Slurm cancels who waits for a job that was cancelled");
    let lost_before = doctored(|facts| {
        facts.jobs[1].accounts[0].state = "CANCELLED".into();
        facts.jobs[1].done.push(done(Deed::Cancel, 4.0));
        waiting(&mut facts.jobs[2]);
        facts.jobs[2].left = None;
        facts.jobs[2].order.after = Some(After::Ok(1));
    });
    assert_eq!(lost_before, [], "at its submission, and then its accounting has nothing of it");
}

#[test]
fn a_throttle_that_does_not_hold_is_found() {
    let array = |throttle| {
        doctored(|facts| {
            for (task, job) in [(0, 2), (1, 3)] {
                facts.jobs[job].order.number = 2;
                facts.jobs[job].order.array = Some(Array { tasks: 2, throttle });
                facts.jobs[job].task = Some(task);
            }
        })
    };
    assert_eq!((array(1), array(2)), (vec![HarmKind::ThrottleBroken], vec![]));
}

/// Takes the GPU of that number of the pool's eight for most of the time.
fn hog(facts: &mut Facts, gpu: usize) {
    let mut hog = job(10 + gpu, Kind::Known, 0.0);
    hog.allocations[0] = Allocation { at: 2.0, until: Some(60.0), nodes: vec![format!("n{}", 1 + gpu / 4)] };
    hog.starts[0].gpus = vec![u32::try_from(gpu % 4).unwrap()];
    hog.starts[0].at = 2.3;
    hog.starts[0].node = hog.allocations[0].nodes[0].clone();
    hog.starts[0].ended_at = Some(59.0);
    facts.jobs.push(hog);
}

#[test]
fn waiting_beyond_the_bound_in_front_of_a_free_device_is_found() {
    let late = |facts: &mut Facts| later(&mut facts.jobs[1], 70.0);
    assert_eq!(doctored(late), [HarmKind::WaitedTooLong]);
    assert_eq!(doctored(|facts| later(&mut facts.jobs[1], 55.0)), [], "bound, lease and start");
    let reasons: [fn(&mut Facts); 6] = [
        |facts| {
            // Of each node three are taken, and it asks for two of one.
            for gpu in [0, 1, 2, 4, 5, 6] {
                hog(facts, gpu);
            }
            let job = &mut facts.jobs[1];
            (job.order.gpus, job.starts[0].gpus, job.starts[0].shards) = (2, vec![2, 3], Some(200));
            facts.jobs.drain(2..4);
        },
        |facts| facts.jobs[1].done.extend([done(Deed::Hold, 1.0), done(Deed::Release, 50.0)]),
        |facts| facts.jobs[1].order.after = Some(After::Any(0)),
        |facts| {
            // Every device is taken for most of the time.
            (0..8).for_each(|gpu| hog(facts, gpu));
            facts.jobs.drain(2..4);
        },
        |facts| {
            let broken = Broken::Process(Part::Slurmctld, How::Freeze);
            facts.outages.push(Outage { broken, span: Span { from: 1.0, until: 40.0 } });
        },
        |facts| {
            for node in ["n1", "n2"] {
                let span = Span { from: 1.0, until: 40.0 };
                facts.outages.push(Outage { broken: Broken::Drain(node), span });
            }
        },
    ];
    for (number, reason) in reasons.into_iter().enumerate() {
        let excused = doctored(|facts| {
            late(facts);
            if number == 2 {
                later(&mut facts.jobs[0], 50.0);
            }
            reason(facts);
        });
        assert_eq!(excused, [], "reason {number}");
    }
}

#[test]
fn more_shards_than_a_gpu_has_are_found() {
    assert_eq!(
        doctored(|facts| facts.jobs[2].starts[0].shards = Some(41)),
        [HarmKind::Overbooked, HarmKind::WrongEnvironment]
    );
    let whole = doctored(|facts| {
        let mut second = job(4, Kind::Plain, 1.0);
        second.starts[0].gpus = vec![0, 1];
        facts.jobs.push(second);
    });
    assert_eq!(whole, [HarmKind::Overbooked, HarmKind::Unplanned]);
    let forgotten = doctored(|facts| {
        // Killed with no end of its own, and begun again under the same count long after: slurmctld had forgotten it.
        let first = &mut facts.jobs[1];
        again(first, 40.0);
        first.accounts.remove(0);
        first.starts[1].restarts = 0;
        (first.starts[0].ended_at, first.starts[0].exit) = (None, None);
        first.allocations.remove(1);
        first.allocations[0].until = Some(47.1);
        facts.jobs.push(job(4, Kind::First, 20.0));
    });
    assert_eq!(forgotten, [HarmKind::RanTwice], "how long its first start was there nobody knows");
    let seen = |facts: &mut Facts| facts.overbooked.push(Sight { text: "n1 GPU 0: 140 of 100".into() });
    assert_eq!(doctored(seen), [HarmKind::Overbooked]);
}

#[test]
fn who_shares_and_was_not_to_is_found() {
    assert_eq!(doctored(|facts| facts.jobs[3].order.user = "bob"), [HarmKind::Strangers]);
    let apart = doctored(|facts| {
        let mut second = facts.decisions[0].clone();
        facts.decisions[0].members.pop();
        second.members.remove(0);
        (second.id, second.group) = (8, 8);
        facts.decisions.push(second);
    });
    assert_eq!(apart, [HarmKind::Unplanned]);
}

#[test]
fn daemons_and_nodes_are_looked_after() {
    let sight = || Sight { text: "x".into() };
    assert_eq!(doctored(|facts| facts.died.push(sight())), [HarmKind::DaemonDied]);
    assert_eq!(doctored(|facts| facts.drained.push(sight())), [HarmKind::NodeDrained]);
}
