//! What is known of jobs that Slurm starts by itself, or has started.

use super::*;

#[test]
fn a_job_that_was_undone_claims_a_whole_device_and_does_not_wait_for_a_plan() {
    let view = view_of(&World { jobs: vec![undone()], ..World::default() });
    assert_eq!(view.waiting, []);
    assert_eq!(view.alone_claims.len(), 1);
}

/// A job that was put back, and is eligible.
fn undone() -> Job {
    let mark = Mark { alone: true, ..Mark::default() };
    Job { mark: Ok(Some(mark)), eligible_at: Some(at(NOW - 1)), ..job(JobState::Pending) }
}

#[test]
fn it_is_expected_on_the_nodes_that_it_may_run_on() {
    let mut nodes = ["n1", "n2", "n3"].map(|name| pillion_slurm::Node {
        name: NodeName::new(name),
        features: if name == "n1" { vec![] } else { vec!["h100".to_owned(), "ib".to_owned()] },
        ..node(NodeAvailability::Up)
    });
    let on = |job: Job, nodes: &[pillion_slurm::Node]| {
        let scan = Scan::new(at(NOW), vec![job.into()], nodes.to_vec(), &["shared".to_owned()], 0);
        let claims = view_by(&World::default(), &scan, agent(true)).alone_claims;
        claims
            .into_iter()
            .next()
            .map(|claim| claim.required_nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
    };
    let featured = |features: &str| Job { features: features.into(), ..undone() };
    assert_eq!(on(undone(), &nodes).as_deref(), Some(""), "any of them");
    assert_eq!(on(featured("ib&h100"), &nodes).as_deref(), Some("n2,n3"));
    let excluding = Job { excluded_nodes: vec![NodeName::new("n2")], ..featured("ib") };
    assert_eq!(on(excluding, &nodes).as_deref(), Some("n3"));
    assert_eq!(on(featured("a100"), &nodes), None, "nothing that is free is any use to it");
    assert_eq!(on(featured("a100|h100"), &nodes).as_deref(), Some(""), "Slurm knows what that means");
    let excluding = Job { excluded_nodes: vec![NodeName::new("n2")], ..featured("a100|h100") };
    assert_eq!(on(excluding, &nodes).as_deref(), Some("n1,n3"));
    nodes[2].partitions = vec!["other".into()];
    nodes[1].availability = NodeAvailability::Unavailable("DOWN".to_owned());
    assert_eq!(on(undone(), &nodes).as_deref(), Some("n1"));
    assert_eq!(on(featured("ib"), &nodes), None);
}

/// When those on `g0` and on `g1` end who run there without a decision, in seconds from now.
fn alone_for(jobs: Vec<Job>, used: u32, decisions: Vec<Decision>) -> Vec<Option<f64>> {
    let view = view_of(&World { jobs, used, decisions, ..World::default() });
    view.devices.iter().map(|device| device.alone_until.map(|until| until.seconds_since(at(NOW)))).collect()
}

#[test]
fn who_runs_without_a_decision_ends_by_his_limit() {
    let alone = |id, gres: &str, seconds: Option<u64>| Job {
        id: SlurmJobId::plain(id),
        nodes: vec![NodeName::new("n1")],
        gres: gres.into(),
        started_at: Some(at(NOW - 10)),
        time_limit_seconds: seconds,
        ..job(JobState::Running)
    };
    let named = alone(8, "shard:g1:100,lscratch:5", Some(100));
    assert_eq!(alone_for(vec![named.clone()], 100, Vec::new()), [None, Some(90.0)]);
    // As Slurm says it, which knows for how long it was suspended.
    let suspended = Job { state: JobState::Suspended, ended_at: Some(at(NOW + 300)), ..named.clone() };
    assert_eq!(alone_for(vec![suspended], 100, Vec::new()), [None, Some(300.0)]);
    let other_node = Job { nodes: vec![NodeName::new("n2")], ..named.clone() };
    assert_eq!(alone_for(vec![other_node], 100, Vec::new()), [None, None]);
    // Where Slurm gave it whichever was free, it may be on any that is held and nobody is named for.
    let any = alone(9, "shard:100", Some(500));
    assert_eq!(alone_for(vec![any.clone()], 100, Vec::new()), [None, Some(490.0)]);
    assert_eq!(alone_for(vec![any.clone(), named.clone()], 100, Vec::new()), [None, Some(90.0)]);
    assert_eq!(alone_for(vec![any, alone(10, "shard:100", None)], 100, Vec::new()), [None, None], "for ever");
    // Tenants tell their own end.
    let runs = decision(&member(MemberState::Running));
    assert_eq!(alone_for(vec![running()], 40, vec![runs]), [None, None]);
}
