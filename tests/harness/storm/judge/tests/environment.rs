//! What jobs found in their environment, and whether they ran as their users had changed them.

use super::*;

#[test]
fn an_environment_that_was_not_decided_is_found() {
    let wrong: [fn(&mut Facts); 8] = [
        |facts| facts.jobs[1].order.gpus = 2,
        |facts| {
            (facts.jobs[1].order.gpus, facts.jobs[1].starts[0].gpus) = (2, vec![0, 1]);
        },
        |facts| {
            facts.jobs[1].order.kind = Kind::Whole;
            facts.jobs[1].starts[0].shards = Some(60);
        },
        |facts| facts.jobs[2].starts[0].words.extend(words(&[("cap", "40")])),
        |facts| facts.jobs[2].starts[0].shards = Some(30),
        |facts| facts.jobs[1].starts[0].shards = Some(50),
        |facts| facts.jobs[1].starts[0].words.extend(words(&[("pipe", "/run/mps")])),
        |facts| facts.jobs[1].starts[0].words.extend(words(&[("decision", "9")])),
    ];
    for (number, doctor) in wrong.into_iter().enumerate() {
        assert_eq!(doctored(doctor), [HarmKind::WrongEnvironment], "{number}");
    }
    let whole = doctored(|facts| {
        let job = &mut facts.jobs[1];
        job.order.kind = Kind::Whole;
        (job.order.gpus, job.starts[0].gpus, job.starts[0].shards) = (2, vec![0, 1], Some(200));
    });
    assert_eq!(whole, [], "two whole GPUs are what it asked for");
    let missed = doctored(|facts| {
        facts.jobs[2].starts[0].words.clear();
        facts.jobs[2].starts[0].ours.clear();
    });
    assert_eq!(missed, [], "an agent that is away costs the environment, and no more");
}

#[test]
fn a_plain_job_that_meets_anything_of_ours_is_found() {
    let ours = |facts: &mut Facts| facts.jobs[0].starts[0].ours = "CUDA_MPS_PIPE_DIRECTORY".into();
    assert_eq!(doctored(ours), [HarmKind::PlainTouched]);
    assert_eq!(doctored(|facts| facts.jobs[0].starts[0].shards = Some(100)), [HarmKind::PlainTouched]);
    assert_eq!(
        doctored(|facts| facts.jobs[1].order.kind = Kind::Plain),
        [HarmKind::WrongEnvironment],
        "in the pool"
    );
}

#[test]
fn a_job_that_does_not_run_as_its_user_changed_it_is_found() {
    let changes = [
        Change::Partition("gpu"),
        Change::Gpus(2),
        Change::ReqNode("w1"),
        Change::ExcNode("n1"),
        Change::StartIn(8),
        Change::TimeLimit(4),
    ];
    for change in changes {
        let taken = doctored(|facts| facts.jobs[1].done.push(done(Deed::Change(change), 1.0)));
        assert_eq!(taken, [HarmKind::NotAsChanged], "{change}");
        let refused = doctored(|facts| {
            facts.jobs[1].done.push(Done { accepted: false, ..done(Deed::Change(change), 1.0) });
        });
        assert_eq!(refused, [], "{change}");
    }
    let stayed = doctored(|facts| {
        let seen = Seen { state: "PENDING".into(), partition: "gpu".into(), ..Seen::default() };
        facts.jobs[1].done.push(Done { after: Some(seen), ..done(Deed::Change(Change::Comment), 1.0) });
    });
    assert_eq!(stayed, [HarmKind::NotAsChanged]);
}

#[test]
fn a_decision_that_was_given_up_while_its_job_ran_is_found() {
    let of_second = |facts: &mut Facts, state: &str, ended_at: f64| {
        later_end(&mut facts.jobs[3], 40.0);
        let member = &mut facts.decisions[0].members[1];
        (member.state, member.ended_at) = (state.into(), Some(ended_at));
    };
    // It was there from 13 to 58.
    assert_eq!(doctored(|facts| of_second(facts, "ended", 58.0)), []);
    assert_eq!(doctored(|facts| of_second(facts, "ended", 44.0)), []);
    assert_eq!(doctored(|facts| of_second(facts, "ended", 42.0)), [HarmKind::DecisionDropped]);
    assert_eq!(doctored(|facts| of_second(facts, "undone", 13.0)), [HarmKind::DecisionDropped]);
    // slurmctld, killed, forgot that it ran.
    let forgotten = doctored(|facts| {
        of_second(facts, "undone", 20.0);
        let broken = Broken::Process(Part::Slurmctld, How::Kill);
        facts.outages.push(Outage { broken, span: Span { from: 14.0, until: 15.0 } });
    });
    assert_eq!(forgotten, []);
}

/// It ends so much later.
fn later_end(job: &mut Job, seconds: f64) {
    let (start, allocation) = (&mut job.starts[0], &mut job.allocations[0]);
    start.ended_at = start.ended_at.map(|at| at + seconds);
    allocation.until = allocation.until.map(|at| at + seconds);
}
