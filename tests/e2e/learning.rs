//! What was measured of jobs that shared a device changes what is decided next: a pair that the model misjudges is broken
//! up after it was tried, and the second pairing of two others is better informed than their first.

use crate::rides::{SOON, decisions, load, make_known_as, member_of, submit};
use pillion_core::SlurmJobId;
use pillion_core::device::Mechanism;
use pillion_tests::cluster::spec::PoolNode;
use pillion_tests::wait::{Look, wait_for};
use pillion_tests::{Cluster, ClusterSpec};
use rustix::process::Signal;
use serde_json::Value;

/// Names of profiles and what they run. Alone, both look light: few compute units, hardly any memory traffic. Together they
/// drive each other out of the cache, which no counter of this device shows.
const MISJUDGED: [(&str, &str); 2] = [("probe-left", "hash-probe"), ("probe-right", "hash-probe")];
/// They accept so many times their time alone, and take longer beside each other.
const MISJUDGED_PROMISE: f64 = 1.6;
/// Two that go as well together as they look.
const GOOD: [(&str, &str); 2] = [("images", "resnet50-infer"), ("words", "bert-small-batch")];
/// They accept so much that they share however unsure the model is: this is about how sure it becomes.
const GOOD_PROMISE: f64 = 5.0;
/// Long enough for several looks of the agent on a busy machine.
const SHARED_SECONDS: u32 = 900;

/// Runs two workloads to their end; they begin at once, so that they are planned together.
fn run(cluster: &Cluster, workloads: [(&str, &str); 2], promise: f64) -> [SlurmJobId; 2] {
    let begin = cluster.begin_together(3).unwrap();
    let jobs = workloads.map(|(name, work)| {
        let profile = format!("{name},max-slowdown={promise}");
        submit(cluster, "alice", &profile, &load(work, SHARED_SECONDS), &[&begin])
    });
    for job in jobs {
        cluster.wait_for_job(job, &["COMPLETED"], 2 * SOON).unwrap();
    }
    jobs
}

/// Whether both ran under one group of decisions.
fn are_together(cluster: &Cluster, jobs: [SlurmJobId; 2]) -> bool {
    let all = decisions(cluster);
    let groups = jobs.map(|job| {
        let (decision, _) = member_of(&all, job, 0).unwrap_or_else(|| panic!("{job} has no decision"));
        decision["group_id"].as_u64()
    });
    groups[0] == groups[1]
}

/// How fast each ran, when both were measured.
fn measured(cluster: &Cluster, jobs: [SlurmJobId; 2]) -> [f64; 2] {
    wait_for("outcomes of both", SOON, || {
        let all = decisions(cluster);
        let speed = |job| member_of(&all, job, 0)?.1["measured_speed_fraction"].as_f64();
        Ok(match (speed(jobs[0]), speed(jobs[1])) {
            (Some(first), Some(second)) => Look::Ready([first, second]),
            some => Look::NotYet(format!("{some:?}")),
        })
    })
    .unwrap()
}

/// Models, newest first.
fn models(cluster: &Cluster) -> Vec<Value> {
    let text = cluster.pillion_as("root", &["model", "--json"]).unwrap().stdout().unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    value["models"].as_array().unwrap().clone()
}

/// Waits until a model is in use that was trained on so many observations.
fn wait_for_model(cluster: &Cluster, observations: u64) {
    wait_for("a model of what was observed", SOON, || {
        let all = models(cluster);
        let is_it = |model: &&Value| {
            model["state"] == "active" && model["observation_count"].as_u64() >= Some(observations)
        };
        Ok(match all.iter().find(is_it) {
            Some(_) => Look::Ready(()),
            None => Look::NotYet(format!("{all:?}")),
        })
    })
    .unwrap();
}

/// What was considered last for a job before it started: the model's name, and each candidate.
fn considered(cluster: &Cluster, job: SlurmJobId) -> (String, Vec<Value>) {
    let arguments = ["explain", &job.to_string(), "--json"];
    let text = cluster.pillion_as("root", &arguments).unwrap().stdout().unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    let last = &value["explanations"].as_array().unwrap().last().expect("it was considered")["explanation"];
    (last["model"].as_str().unwrap().to_owned(), last["candidates"].as_array().unwrap().clone())
}

/// The estimate of a job beside the partner that it got, and the model that made it.
fn chosen(cluster: &Cluster, job: SlurmJobId) -> (String, Value) {
    let (model, candidates) = considered(cluster, job);
    let chosen = candidates.iter().find(|candidate| candidate["chosen"] == true);
    (model, chosen.unwrap_or_else(|| panic!("{job} has no partner: {candidates:#?}"))["own"].clone())
}

fn number(value: &Value, name: &str) -> f64 {
    value[name].as_f64().unwrap_or_else(|| panic!("no {name} in {value}"))
}

fn explained(cluster: &Cluster, job: SlurmJobId) -> String {
    cluster.pillion_as("alice", &["explain", &job.to_string()]).unwrap().stdout().unwrap()
}

fn its_user_is_told_who_slowed_it_and_not_who_that_was(cluster: &Cluster, [job, neighbour]: [SlurmJobId; 2]) {
    let told =
        |command: &str| cluster.pillion_as("alice", &[command, &job.to_string()]).unwrap().stdout().unwrap();
    let (why, report) = (told("why"), told("report"));
    let line = |text: &str, name: &str| {
        let found = text.lines().find_map(|line| line.trim_start().strip_prefix(name));
        found.unwrap_or_else(|| panic!("no '{name}' in {text}")).trim().to_owned()
    };
    assert!(line(&why, "Shared").ends_with("of its time, with one other job"), "{why}");
    assert!(line(&why, "Promise").starts_with("BROKEN: while shared it took "), "{why}");
    assert!(line(&why, "Slow because").starts_with("neighbour: beside its neighbour it went at "), "{why}");
    assert!(line(&report, "Energy").contains(" Wh, its part of the GPU's"), "{report}");
    assert!(line(&report, "Advice").contains("--colocate=no"), "{report}");
    let neighbour = format!("{neighbour}");
    let names_it =
        |text: &str| text.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == neighbour);
    assert!(!names_it(&line(&why, "Slow because")) && !names_it(&line(&why, "Shared")), "{why}");
}

#[test]
fn a_misjudged_pair_is_broken_up_and_a_good_one_is_better_known() {
    let spec = ClusterSpec {
        pool_nodes: vec![PoolNode::new("n1", "h200", Mechanism::Mps)],
        whole_gpu_node_count: 0,
        // With caps there would be other ways for the same two to share, each to be tried by itself.
        scheduler_conf_extra: [
            "caps = false",
            "[training]",
            "observations_min = 1",
            "period_seconds_min = 1",
        ]
        .map(str::to_owned)
        .into(),
        ..ClusterSpec::default()
    };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_pillion().unwrap();
    make_known_as(&cluster, "alice", &[MISJUDGED, GOOD].concat());
    assert!(models(&cluster).is_empty(), "nothing was shared yet");

    // The first time, solo profiles are all that is known.
    let misjudged = run(&cluster, MISJUDGED, MISJUDGED_PROMISE);
    let good = run(&cluster, GOOD, GOOD_PROMISE);
    for jobs in [misjudged, good] {
        assert!(are_together(&cluster, jobs), "{}", explained(&cluster, jobs[0]));
    }
    let (model, before) = chosen(&cluster, misjudged[0]);
    assert_eq!(model, "learned-1 v0");
    let speeds = measured(&cluster, misjudged);
    assert!(speeds.iter().all(|speed| speed * MISJUDGED_PROMISE < 1.0), "promises were kept: {speeds:?}");
    assert!(number(&before, "speed_fraction") > 0.8, "it was no surprise: {before}");
    measured(&cluster, good);
    its_user_is_told_who_slowed_it_and_not_who_that_was(&cluster, misjudged);
    wait_for_model(&cluster, 2);

    // The second time, what came of it is known too.
    let apart = run(&cluster, MISJUDGED, MISJUDGED_PROMISE);
    assert!(!are_together(&cluster, apart), "{}", explained(&cluster, apart[0]));
    let again = run(&cluster, GOOD, GOOD_PROMISE);
    assert!(are_together(&cluster, again), "{}", explained(&cluster, again[0]));
    let (first_model, first) = chosen(&cluster, good[0]);
    let (second_model, second) = chosen(&cluster, again[0]);
    assert_ne!(first_model, second_model);
    let deviation = |estimate| number(estimate, "speed_fraction_deviation");
    assert!(deviation(&second) < deviation(&first), "no better informed: {first} {second}");

    // And it is said why.
    let of_partner = apart.iter().flat_map(|job| considered(&cluster, *job).1);
    let at_risk: Vec<Value> =
        of_partner.filter(|candidate| candidate["excluded_by"] == "promise-at-risk").collect();
    assert!(!at_risk.is_empty(), "{}", explained(&cluster, apart[0]));
    for candidate in &at_risk {
        assert!(number(&candidate["own"], "speed_fraction") < 0.7, "it was not learnt: {candidate}");
    }
    let text = explained(&cluster, again[0]);
    assert!(text.contains(&format!("model {second_model}")) && text.contains(" +- "), "{text}");

    // A scheduler that starts again has forgotten nothing.
    cluster.kill_scheduler(Signal::TERM).unwrap();
    cluster.start_scheduler().unwrap();
    let third = run(&cluster, GOOD, GOOD_PROMISE);
    let (third_model, third) = chosen(&cluster, third[0]);
    assert!(third_model != first_model && deviation(&third) < deviation(&first), "{third_model}: {third}");
}
