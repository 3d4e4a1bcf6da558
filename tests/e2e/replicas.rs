//! An array of small tasks on one device of which eight may share: one more each time, after as many as run were measured together
//! (docs/decisions/0037-replicas.md).

use crate::kept::{learnt_file, scheduler};
use crate::rides::{SOON, Watched, decisions, load, make_known_as, member_of};
use pillion_core::device::Mechanism;
use pillion_core::{Clock as _, JobStart, SlurmJobId, SystemClock, WorkloadKey};
use pillion_store::archive::{Archive, ObservationRecord, TenantRecord};
use pillion_tests::cluster::spec::PoolNode;
use pillion_tests::wait::{Look, wait_for};
use pillion_tests::{Cluster, ClusterSpec};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::time::Duration;

/// Mostly waits for its host: many of it cost each other nothing.
const SMALL: (&str, &str) = ("tiny", "launch-bound");
/// Two of it fit beside each other, and three take from each other what they want.
const LARGE: (&str, &str) = ("molecules", "gromacs");
/// One task, in seconds of the simulated machine: the places of those that end are to stand free for a small part of that.
const TASK_SECONDS: u32 = 2400;
const TASKS: u32 = 22;
/// Longer than as many as may share need to come, one after the other.
const LONG_TASK_SECONDS: u32 = 15_000;
/// How many may share.
const MOST: u32 = 8;
/// What users accept unless they say otherwise.
const PROMISE: f64 = 1.25;
/// How long the whole array may take on a busy machine.
const ARRAY: Duration = Duration::from_mins(15);

fn start() -> Cluster {
    let spec = ClusterSpec {
        pool_nodes: vec![PoolNode::new("n1", "h200", Mechanism::Mps)],
        whole_gpu_node_count: 0,
        gpus_per_node: 1,
        bound_seconds: 600,
        scheduler_conf_extra: ["tenants_max = 8", "caps = false"].map(str::to_owned).to_vec(),
        ..ClusterSpec::default()
    };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_pillion().unwrap();
    cluster
}

fn submit_array(cluster: &Cluster, name: &str, script: &str, tasks: u32) -> Vec<SlurmJobId> {
    let options = [format!("--colocate=profile={name}"), format!("--array=1-{tasks}")];
    let arguments = [&options[0], &options[1], "--gres=gpu:1", "-c1", "--mem=100", "-t20"];
    let array = cluster.submit_as("alice", script, &arguments).unwrap();
    (1..=tasks).map(|task| format!("{array}_{task}").parse().unwrap()).collect()
}

/// Waits until all have completed, and gives the numbers of tasks that were seen to run at once, each as it was seen first.
fn run_out(cluster: &Cluster, tasks: &[SlurmJobId]) -> Vec<usize> {
    let (mut peaks, mut completed) = (Vec::new(), BTreeSet::new());
    wait_for("the end of the array", ARRAY, || {
        let text = cluster.scontrol(&["show", "job", "-o"])?;
        let states = states(&text);
        let of = |task: &SlurmJobId| states.get(task.to_string().as_str()).copied();
        for task in tasks {
            match of(task) {
                // Slurm forgets those that ended a while ago.
                Some("COMPLETED") => drop(completed.insert(*task)),
                Some("FAILED" | "CANCELLED" | "TIMEOUT" | "NODE_FAIL") => panic!("{task}: {text}"),
                _ => {}
            }
        }
        let running = running_count(&states, tasks);
        if peaks.last().is_none_or(|peak| running > *peak) && running > 0 {
            peaks.push(running);
        }
        let seen = format!("{} of {} have completed, {running} run", completed.len(), tasks.len());
        Ok(if completed.len() == tasks.len() { Look::Ready(()) } else { Look::NotYet(seen) })
    })
    .unwrap();
    peaks
}

fn running_count(states: &BTreeMap<String, &str>, tasks: &[SlurmJobId]) -> usize {
    tasks.iter().filter(|task| states.get(&task.to_string()) == Some(&"RUNNING")).count()
}

/// State by task, of those that Slurm tells one by one.
fn states(text: &str) -> BTreeMap<String, &str> {
    let word = |line: &'_ str, name: &str| -> Option<(usize, usize)> {
        let begin = line.find(name)? + name.len();
        Some((begin, begin + line[begin..].find(' ').unwrap_or(line.len() - begin)))
    };
    let of_line = |line| {
        let [array, task, state] =
            [" ArrayJobId=", " ArrayTaskId=", " JobState="].map(|name| word(line, name));
        let [array, task, state] =
            [array?, task?, state?].map(|(begin, end): (usize, usize)| &line[begin..end]);
        Some((format!("{array}_{task}"), state))
    };
    text.lines().filter_map(of_line).collect()
}

/// Of how many measured together it was foretold how fast tasks would be, of those that joined two and more.
fn foretold_from(cluster: &Cluster, tasks: &[SlurmJobId]) -> BTreeSet<usize> {
    let of_task = |task: &SlurmJobId| {
        let text = cluster.pillion_as("root", &["explain", &task.to_string(), "--json"]).unwrap().stdout();
        let value: Value = serde_json::from_str(&text.unwrap()).unwrap();
        let last = value["explanations"].as_array()?.last()?["explanation"].clone();
        let candidates = last["candidates"].as_array()?.clone();
        let chosen = candidates.into_iter().find(|candidate| candidate["chosen"] == true)?;
        let measured = chosen["own"]["terms"]["copies_measured"].as_f64()?;
        (2..=8_u8).find(|count| (f64::from(*count) - measured).abs() < 0.5).map(usize::from)
    };
    tasks.iter().filter_map(of_task).collect()
}

/// How fast each was, as far as that was measured.
fn speeds(cluster: &Cluster, tasks: &[SlurmJobId]) -> Vec<f64> {
    let all = decisions(cluster);
    let speed = |task: &SlurmJobId| member_of(&all, *task, 0)?.1["measured_speed_fraction"].as_f64();
    tasks.iter().filter_map(speed).collect()
}

/// So many copies of a workload that cost each other next to nothing, as another cluster measured them.
fn measured_elsewhere(workload: &WorkloadKey, device_model: &str, count: u32) -> ObservationRecord {
    let tenant = |place: u32| TenantRecord {
        // No number of a job of this cluster.
        start: JobStart { job_id: SlurmJobId::plain(900_000 + 100 * count + place), restart_count: 0 },
        workload: workload.clone(),
        cap_fraction: None,
        speed_fraction: Some(0.99),
        speed_fraction_deviation: None,
        is_self_reported: false,
    };
    ObservationRecord {
        device_model: device_model.to_owned(),
        mechanism: Mechanism::Mps.to_string(),
        ccs_mode: None,
        power_watts: None,
        fits: true,
        recorded_at: SystemClock.now(),
        tenants: (0..count).map(tenant).collect(),
    }
}

/// Adds to an export of one profile that its workload was measured in every number that may share.
fn add_steps(file: &Path) {
    let mut learnt = Archive::read(BufReader::new(File::open(file).unwrap())).unwrap();
    let [known] = &learnt.profiles[..] else { panic!("{} profiles", learnt.profiles.len()) };
    let (workload, model) = (known.profile.workload.clone(), known.profile.device_model.clone());
    learnt.observations.extend((2..=MOST).map(|count| measured_elsewhere(&workload, &model, count)));
    learnt.write(File::create(file).unwrap(), SystemClock.now()).unwrap();
}

fn is_kept(speed: f64) -> bool {
    // What a busy machine makes of a measurement.
    speed * PROMISE >= 0.97
}

#[test]
fn an_array_goes_up_step_by_step_as_each_step_is_measured() {
    let cluster = start();
    make_known_as(&cluster, "alice", &[SMALL]);
    let tasks = submit_array(&cluster, SMALL.0, &load(SMALL.1, TASK_SECONDS), TASKS);
    let peaks = run_out(&cluster, &tasks);
    println!("so many at once: {peaks:?}");
    let highest = *peaks.last().unwrap();
    assert!(peaks.iter().all(|peak| *peak <= 8) && highest >= 4, "{peaks:?}");
    // Two may begin at once, as a pair; from then on one at a time.
    let is_a_step = |two: &[usize]| two[1] == two[0] + 1 || two[1] == 2;
    assert!(peaks.windows(2).all(is_a_step), "two steps at once: {peaks:?}");
    let known = foretold_from(&cluster, &tasks);
    let below: BTreeSet<usize> = (2..highest).collect();
    assert!(known.is_superset(&below), "up to {highest} by what was measured of {known:?}");
    let speeds = speeds(&cluster, &tasks);
    assert!(speeds.len() > 4 && speeds.iter().all(|speed| is_kept(*speed)), "{speeds:?}");
}

#[test]
fn an_array_whose_third_task_would_fill_the_device_stops_at_two() {
    let cluster = start();
    make_known_as(&cluster, "alice", &[LARGE]);
    let tasks = submit_array(&cluster, LARGE.0, &load(LARGE.1, TASK_SECONDS), 8);
    let peaks = run_out(&cluster, &tasks);
    assert!(peaks.last() <= Some(&3), "{peaks:?}");
    let speeds = speeds(&cluster, &tasks);
    assert!(!speeds.is_empty() && speeds.iter().all(|speed| is_kept(*speed)), "{speeds:?}");
}

/// The first array of a workload goes up a step in two or three tasks' time. Of one that was measured before as many come as may share, as
/// soon as they can one after the other.
#[test]
fn an_array_of_which_every_step_was_measured_before_fills_all_places() {
    let mut cluster = start();
    make_known_as(&cluster, "alice", &[SMALL]);
    let (is_done, said) = scheduler(&cluster, "export");
    assert!(is_done, "{said}");
    add_steps(&learnt_file(&cluster));
    cluster.kill_scheduler(Signal::TERM).unwrap();
    let (is_done, said) = scheduler(&cluster, "import");
    assert!(is_done && said.contains(&format!("{0} of {0} observations", MOST - 1)), "{said}");
    cluster.start_scheduler().unwrap();
    let tasks = submit_array(&cluster, SMALL.0, &load(SMALL.1, LONG_TASK_SECONDS), MOST);
    wait_for("all of them at once", 2 * SOON, || {
        let running = running_count(&states(&cluster.scontrol(&["show", "job", "-o"])?), &tasks);
        let seen = format!("{running} run");
        Ok(if running == tasks.len() { Look::Ready(()) } else { Look::NotYet(seen) })
    })
    .unwrap();
    let mut watched = Watched::default();
    watched.look(&cluster).unwrap();
    assert_eq!(watched.together.len(), 28, "each beside each of the others: {watched:?}");
    let known = foretold_from(&cluster, &tasks);
    assert!(known.is_superset(&(3..=tasks.len()).collect()), "by what was measured of {known:?}");
}
