//! The story: first runs alone, the same jobs again, why, what the jobs found, what it saved, jobs of several GPUs, and trials. Acts
//! here; words in `tell`.

use super::answers::{self, Decided, Told};
use super::cast::{CAST, Part};
use super::compare::differences;
use super::result;
use super::tell;
use super::totals::{Run, totals};
use super::trials;
use super::wide;
use crate::cluster::Cluster;
use crate::error::{HarnessError, Result};
use crate::wait::{Look, wait_for};
use pillion_core::SlurmJobId;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// How long each step may take on a machine that has other things to do.
pub(super) const PATIENCE: Duration = Duration::from_mins(3);
/// After so many seconds all jobs of the second time become eligible together, as in a queue that was full already.
const TOGETHER_SECONDS: u32 = 5;
/// Since before the demo began.
const LATELY: &str = "now-1hour";

/// One submitted job.
#[derive(Debug, Clone, Copy)]
struct Submitted {
    job: SlurmJobId,
    part: Part,
}

/// What there is to look at afterwards.
#[derive(Debug)]
pub(super) struct Shown {
    /// Two jobs that were not paired.
    pub(super) unpaired: Unpaired,
}

/// Two jobs that were not paired.
#[derive(Debug)]
pub(super) struct Unpaired {
    /// The workload of the one that was left alone, by its name.
    pub(super) workload: String,
    /// The decision about it.
    pub(super) decision: u64,
    /// The workload of the other, by its name.
    pub(super) partner: String,
}

/// Tells it. `result`: where `result.json` goes.
///
/// # Errors
/// What went wrong; [`HarnessError::Refused`] where a job did not find what was decided for it.
pub(super) fn tell(cluster: &mut Cluster, result: &Path) -> Result<Shown> {
    let status = operator(cluster, &["status", "--json"])?;
    tell::opening(&status, cluster.spec().time_scale);
    let first = submit(cluster, &[])?;
    let first_told = ends(cluster, &first)?;
    wait_for_profiles(cluster, CAST.len(), 0)?;
    let first_decided = outcomes(cluster, &first)?;
    let of_alice = ["profile", "-o", tell::PROFILE_COLUMNS];
    tell::profiles(&cluster.pillion_as("alice", &of_alice)?.stdout()?);

    tell::second();
    let second = submit(cluster, &[&cluster.begin_together(TOGETHER_SECONDS)?])?;
    tell::waiting(&waiting(cluster)?);
    let told = ends(cluster, &second)?;
    let decided = outcomes(cluster, &second)?;
    let firsts: BTreeMap<String, (f64, f64)> = first
        .iter()
        .zip(first_told.iter().zip(&first_decided))
        .map(|(one, (told, decided))| {
            (one.part.title(), (told.seconds(), decided.energy_joules.unwrap_or_default()))
        })
        .collect();
    let run = |((one, told), decided): ((&Submitted, Told), Decided)| {
        let (solo_seconds, solo_joules) = firsts[&one.part.title()];
        Run { job: one.job, part: one.part, told, decided, solo_seconds, solo_joules }
    };
    let first_runs: Vec<Run> = first.iter().zip(first_told).zip(first_decided).map(run).collect();
    let runs: Vec<Run> = second.iter().zip(told).zip(decided).map(run).collect();

    paired(cluster, &runs)?;
    let unpaired = left_alone(cluster, &runs)?;
    environments(cluster, &first_runs, &runs)?;
    let all: Vec<Run> = first_runs.iter().chain(&runs).cloned().collect();
    tell::totals(totals(&runs), totals(&all), &runs, cluster.spec().time_scale);
    wide::tell(cluster)?;
    let trials = trials::tell(cluster)?;
    result::write(&all, totals(&all), &trials, &answers::auth_method(&status)?, result)?;
    println!("\nFor programs: {}", result.display());
    Ok(Shown { unpaired })
}

/// Waits until so many workloads are known, each by so many runs.
pub(super) fn wait_for_profiles(cluster: &Cluster, count: usize, run_count_min: u64) -> Result<()> {
    wait_for("profiles of all jobs", PATIENCE, || {
        let known = answers::profiles(&operator(cluster, &["profile", "--json"])?, run_count_min)?;
        Ok(if known >= count { Look::Ready(()) } else { Look::NotYet(format!("{known} profiles")) })
    })
}

/// `pillion` as an operator.
pub(super) fn operator(cluster: &Cluster, arguments: &[&str]) -> Result<String> {
    cluster.pillion_as("root", arguments)?.stdout()
}

fn submit(cluster: &Cluster, arguments: &[&str]) -> Result<Vec<Submitted>> {
    CAST.iter()
        .map(|part| {
            let job = cluster.submit_as(part.user, &part.script(), arguments)?;
            Ok(Submitted { job, part: *part })
        })
        .collect()
}

/// Waits for the ends of jobs; what each printed.
fn ends(cluster: &Cluster, jobs: &[Submitted]) -> Result<Vec<Told>> {
    jobs.iter().map(|one| Told::read(&cluster.finished_output(one.job, PATIENCE)?)).collect()
}

/// What was decided for each and came of it, once the agents have told the energy of all.
fn outcomes(cluster: &Cluster, jobs: &[Submitted]) -> Result<Vec<Decided>> {
    wait_for("the agents' summaries", PATIENCE, || {
        let all = ["pairs", "--all", "-S", LATELY, "--json"];
        let mut found = answers::decisions(&operator(cluster, &all)?)?;
        let of = |one: &Submitted| found.remove(&one.job.to_string());
        let known: Vec<Decided> = jobs.iter().filter_map(of).collect();
        let lacking =
            known.iter().filter(|decided| !decided.is_over || decided.energy_joules.is_none()).count();
        let seen = format!("{} decisions, {lacking} without an end or an energy", known.len());
        Ok(if known.len() == jobs.len() && lacking == 0 { Look::Ready(known) } else { Look::NotYet(seen) })
    })
}

/// The queue once everybody who can start has started: those who wait, and why.
fn waiting(cluster: &Cluster) -> Result<String> {
    wait_for("jobs that run, and others that wait for a device", PATIENCE, || {
        let running = cluster.squeue("%T")?.iter().filter(|state| *state == "RUNNING").count();
        let jobs = answers::queue(&operator(cluster, &["queue", "--json"])?)?;
        let on_their_way = jobs.iter().filter(|(state, why)| state != "waiting" || !why.starts_with("waits"));
        let count = on_their_way.count();
        let seen = format!("{running} running, {count} on their way");
        Ok(if running > 0 && count == 0 { Look::Ready(()) } else { Look::NotYet(seen) })
    })?;
    operator(cluster, &["queue", "-o", tell::QUEUE_COLUMNS])
}

/// Who shared, and everything that is known about one of them.
fn paired(cluster: &Cluster, runs: &[Run]) -> Result<()> {
    let pairs = operator(cluster, &["pairs", "-S", LATELY, "-o", tell::PAIRS_COLUMNS])?;
    let capped = runs.iter().find(|run| run.decided.cap_fraction.is_some());
    let shown = capped.or_else(|| runs.iter().find(|run| partner(runs, run).is_some()));
    tell::pairs(&pairs);
    let Some(run) = shown else {
        return Err(HarnessError::Refused("no two jobs shared a device".to_owned()));
    };
    let whose = operator(cluster, &["explain", &run.job.to_string()])?;
    tell::explanation(run, &whose);
    Ok(())
}

/// The job with which one shared.
pub(super) fn partner<'r>(runs: &'r [Run], run: &Run) -> Option<&'r Run> {
    runs.iter().find(|other| other.job != run.job && other.decided.group == run.decided.group)
}

/// Who did not share, and why.
fn left_alone(cluster: &Cluster, runs: &[Run]) -> Result<Unpaired> {
    let alone: Vec<&Run> = runs.iter().filter(|run| partner(runs, run).is_none()).collect();
    let explained = alone
        .iter()
        .map(|run| operator(cluster, &["explain", "--json", &run.job.to_string()]))
        .collect::<Result<Vec<_>>>()?;
    let reasons = explained.iter().map(|json| answers::reason(json)).collect::<Result<Vec<_>>>()?;
    tell::left_alone(alone.iter().copied().zip(reasons));
    for (run, json) in alone.iter().zip(&explained) {
        if let Some((partner, _)) = answers::excluded(json)? {
            return Ok(Unpaired { workload: run.part.title(), decision: run.decided.decision, partner });
        }
    }
    Err(HarnessError::Refused("nobody was kept from anybody by a rule".to_owned()))
}

/// Compares what each job found with what was decided for it.
fn environments(cluster: &Cluster, first_runs: &[Run], runs: &[Run]) -> Result<()> {
    let uuids = answers::device_uuids(&operator(cluster, &["status", "--json"])?)?;
    let compare = |run: &Run| -> Result<Vec<String>> {
        let device = (run.decided.node.clone(), run.decided.device.clone());
        let uuid = uuids.get(&device).map(String::as_str).unwrap_or_default();
        let fields = cluster.job(run.job)?;
        let field = |name: &str| fields.get(name).map(String::as_str).unwrap_or_default();
        let mut wrong = differences(&run.decided, uuid, &run.told.environment, field("TresPerNode"));
        if field("NodeList") != run.decided.node {
            wrong.push(format!("it ran on {}, decided was {}", field("NodeList"), run.decided.node));
        }
        Ok(wrong)
    };
    let of_first = first_runs.iter().map(compare).collect::<Result<Vec<_>>>()?;
    let of_second = runs.iter().map(compare).collect::<Result<Vec<_>>>()?;
    tell::environments(runs, &of_second, &of_first);
    let jobs = first_runs.iter().chain(runs);
    let wrong = jobs.zip(of_first.iter().chain(&of_second)).find(|(_, wrong)| !wrong.is_empty());
    wrong.map_or(Ok(()), |(run, wrong)| {
        Err(HarnessError::Refused(format!("job {} differs from its decision: {}", run.job, wrong.join("; "))))
    })
}
