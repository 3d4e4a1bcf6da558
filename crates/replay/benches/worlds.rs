//! Replays whose truth is known: arrivals and sizes of jobs are a public trace's, each class of jobs is a workload of a set of
//! measured pairs, and what the replay sees of it is its profile alone, in a file of sacct and one of telemetry. What it claims is
//! then held against the pairs. `tests/bench replay` prepares the files.
//!
//! What a claim is drawn from must not be the truth that it is held against. So each world deals the workloads into two halves: the
//! speeds that are drawn are put together from pairs of the one half, and the jobs are of the other half alone.
//!
//! `worlds SOLO.csv PAIRS.csv TRACE.csv,.. [WORLDS]` prints how often a claim held, the traces in turn; with `--in-sample` before them
//! the published speeds are drawn and all workloads are in the world, so that both are of one set. `worlds --write COUNT TRACE.csv
//! DIR` writes a file of so many jobs, and `worlds --replay FILE SHAPE` replays it against the clock, as `pillion replay` does
//! without other options.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on fails where it stands")]

use pillion_core::device::Mechanism;
use pillion_core::metric::Metric;
use pillion_core::profile::WorkloadProfile;
use pillion_core::{Fraction, SlowdownRatio};
use pillion_pairing::files::{FileOptions, Measured, NamedText, read_measured};
use pillion_pairing::{AllowList, UserPolicy};
use pillion_replay::read::{Besides, Telemetry, read};
use pillion_replay::site::{GpuMemory, parse_shape};
use pillion_replay::{
    Accounting, MeasuredPairs, Options, Outcome, PoolSize, Replay, SpeedsByBusy, Truth, workload_key,
};
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, LogNormal, Normal};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;

/// How the clusters of the worlds are loaded: GPU-hours of what there is.
const LOAD: f64 = 0.7;
const USERS: u32 = 40;
/// Classes of jobs that a user repeats.
const CLASSES_MAX: usize = 4;
/// Jobs of a world.
const JOBS: usize = 600;
/// 2026-10-01.
const EPOCH: u64 = 1_790_812_800;
const HEADER: &str = "JobIDRaw|User|Account|Partition|JobName|State|Submit|Eligible|Start|End|TimelimitRaw|NNodes|AllocTRES|ReqTRES|TRESUsageInMax|SubmitLine";

struct TraceJob {
    submit: u64,
    seconds: u64,
    gpus: u32,
}

fn trace(path: &str) -> Vec<TraceJob> {
    let mut csv = csv::Reader::from_path(path).unwrap();
    let header = csv.headers().unwrap().clone();
    let place = |name: &str| header.iter().position(|column| column == name).unwrap();
    let [submit, seconds, gpus] = ["submit_s", "duration_s", "gpus"].map(place);
    let rows = csv.records().map(|row| {
        let row = row.unwrap();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "seconds of a trace of days"
        )]
        let whole = |cell: &str| cell.parse::<f64>().unwrap_or(0.0) as u64;
        TraceJob {
            submit: whole(&row[submit]),
            seconds: whole(&row[seconds]),
            gpus: row[gpus].parse().unwrap(),
        }
    });
    let mut jobs: Vec<TraceJob> = rows.filter(|job| job.seconds >= 60 && job.gpus > 0).collect();
    jobs.sort_by_key(|job| job.submit);
    jobs
}

fn main() {
    // cargo bench hands a switch of its own over.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--replay", sacct, shape] => against_the_clock(sacct, shape),
        ["--write", count, trace_file, folder] => write(count.parse().unwrap(), &trace(trace_file), folder),
        ["--in-sample", solo, pairs, traces, count] => {
            worlds(solo, pairs, traces, count.parse().unwrap(), true);
        }
        [solo, pairs, traces] => worlds(solo, pairs, traces, 30, false),
        [solo, pairs, traces, count] => worlds(solo, pairs, traces, count.parse().unwrap(), false),
        _ => println!(
            "worlds [--in-sample] SOLO.csv PAIRS.csv TRACE.csv,.. [WORLDS] | worlds --write COUNT TRACE.csv DIR | worlds --replay FILE SHAPE"
        ),
    }
}

/// One class of jobs of a user.
struct Class {
    kind: usize,
    seconds: f64,
    variation: f64,
}

/// What a world is made of, and what is true in it.
struct World {
    sacct: String,
    telemetry: String,
    gpu_hours: f64,
    span_hours: f64,
    kind_of_job: BTreeMap<u32, usize>,
}

/// What each user repeats.
fn draw_users(rng: &mut ChaCha8Rng, jobs: &[TraceJob], kind_count: usize) -> Vec<Vec<Class>> {
    (0..USERS)
        .map(|_| {
            let classes = 0..rng.random_range(1..=CLASSES_MAX);
            classes
                .map(|_| Class {
                    kind: rng.random_range(0..kind_count),
                    seconds: f64::from(
                        u32::try_from(jobs.choose(rng).unwrap().seconds.min(200_000)).unwrap(),
                    ),
                    variation: *[0.02, 0.05, 0.2].choose(rng).unwrap(),
                })
                .collect()
        })
        .collect()
}

fn world(seed: u64, jobs: &[TraceJob], kinds: &[&WorkloadProfile]) -> World {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let begin = rng.random_range(0..jobs.len() - JOBS);
    let jobs = &jobs[begin..begin + JOBS];
    let users = draw_users(&mut rng, jobs, kinds.len());
    let mut world = World {
        sacct: format!("{HEADER}\n"),
        telemetry: "job_id,gpu_index,sm_active_fraction,memory_bandwidth_fraction,memory_bytes_peak,power_watts_mean\n".to_owned(),
        gpu_hours: 0.0,
        span_hours: 0.0,
        kind_of_job: BTreeMap::new(),
    };
    let origin = jobs[0].submit;
    for (id, job) in (1..).zip(jobs) {
        let user = rng.random_range(0..users.len());
        let at = rng.random_range(0..users[user].len());
        let class = &users[user][at];
        let factor: f64 = LogNormal::new(0.0, class.variation).unwrap().sample(&mut rng);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some days")]
        let seconds = (class.seconds * factor).max(60.0) as u64;
        let submit = EPOCH + job.submit - origin;
        let gpus = job.gpus.min(8);
        let end = submit + seconds;
        let limit = seconds / 60 * 3 + 30;
        let given = format!("cpu={},gres/gpu={gpus},mem={}G,node=1", 4 * gpus, 16 * gpus);
        let _ = writeln!(
            world.sacct,
            "{id}|u{user}|ml|gpu|class{at}|COMPLETED|{submit}|{submit}|{submit}|{end}|{limit}|1|{given}|{given}||sbatch class{at}.sh"
        );
        let kind = kinds[class.kind];
        let noise = Normal::new(1.0, 0.03).unwrap().sample(&mut rng);
        // A site that has busy time from Slurm, and the rest from telemetry of its own.
        if let Some(busy) = kind.metrics.get(Metric::GpuBusyFraction) {
            let percent = (busy * noise).clamp(0.0, 1.0) * 100.0;
            let _ = writeln!(
                world.sacct,
                "{id}.0||ml||x|COMPLETED|{submit}|Unknown|{submit}|{end}||1|cpu=1||gres/gpuutil={percent}|"
            );
        }
        let part = |metric| {
            kind.metrics
                .get(metric)
                .map(|value: f64| (value * noise).clamp(0.0, 1.0).to_string())
                .unwrap_or_default()
        };
        let _ = writeln!(
            world.telemetry,
            "{id},0,{},{},{},{}",
            part(Metric::SmActiveFraction),
            part(Metric::MemoryBandwidthFraction),
            kind.memory_bytes_peak.unwrap_or(1 << 30),
            kind.metrics.get(Metric::PowerWatts).map(|watts| watts.to_string()).unwrap_or_default()
        );
        world.kind_of_job.insert(id, class.kind);
        #[expect(clippy::cast_precision_loss, reason = "some days")]
        {
            world.gpu_hours += seconds as f64 / 3600.0 * f64::from(gpus);
            world.span_hours = world.span_hours.max((end - EPOCH) as f64 / 3600.0);
        }
    }
    world
}

/// What was claimed of a world, and what is true.
struct Held {
    low: f64,
    expected: f64,
    high: f64,
    truth: f64,
    risk: f64,
    broken: f64,
}

fn worlds(solo: &str, pairs: &str, trace_files: &str, count: u64, is_in_sample: bool) {
    let measured = measured(solo, pairs);
    let traces: Vec<(&str, Vec<TraceJob>)> = trace_files
        .split(',')
        .map(|path| (path.rsplit('/').next().unwrap().trim_end_matches(".csv"), trace(path)))
        .collect();
    println!(
        "| world | arrivals | claimed GPU-hours saved | truth | at risk | broken |\n|---|---|---|---|---|---|"
    );
    let mut held = Vec::new();
    for (seed, (name, jobs)) in (0..count).zip(traces.iter().cycle()) {
        let one = claim(&measured, jobs, seed, is_in_sample);
        println!(
            "| {seed} | {name} | {:.0} ({:.0} to {:.0}) | {:.0} | {:.1} | {:.0} |",
            one.expected, one.low, one.high, one.truth, one.risk, one.broken
        );
        held.push(one);
    }
    let inside = held.iter().filter(|one| (one.low..=one.high).contains(&one.truth)).count();
    let kept_low = held.iter().filter(|one| one.truth >= one.low).count();
    let (risk, broken) = held.iter().fold((0.0, 0.0), |sum, one| (sum.0 + one.risk, sum.1 + one.broken));
    println!(
        "\nThe claimed interval holds the truth in {inside} of {} worlds (asked 90 %); the truth is at least the low in {kept_low}.",
        held.len()
    );
    println!(
        "Promises: {risk:.0} at risk, {broken:.0} broken: a factor of {:.2} (asked at most 1.5).",
        broken.max(risk) / broken.min(risk).max(0.5)
    );
}

fn measured(solo: &str, pairs: &str) -> Measured {
    let options = FileOptions {
        device_model: None,
        mechanism: Mechanism::Mps,
        device_memory_bytes: None,
        slowdown_ratio_max: SlowdownRatio::try_promise(1.25).unwrap(),
    };
    let [solo_text, pairs_text] = [solo, pairs].map(|path| std::fs::read(path).unwrap());
    let named = |name, bytes| NamedText { name, bytes };
    read_measured(named(solo, &solo_text), Some(named(pairs, &pairs_text)), &options).unwrap()
}

/// The workloads of a world, and the speeds that its claim is drawn from: of pairs of others.
fn dealt<'m>(
    measured: &Measured,
    known: &[&'m WorkloadProfile],
    seed: u64,
) -> (Vec<&'m WorkloadProfile>, SpeedsByBusy) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(1);
    let mut dealt = known.to_vec();
    dealt.shuffle(&mut rng);
    let (of_world, of_claim) = dealt.split_at(dealt.len() / 2);
    let busy: BTreeMap<&str, f64> = of_claim
        .iter()
        .filter_map(|profile| {
            Some((profile.workload.as_str(), profile.metrics.get(Metric::GpuBusyFraction)?))
        })
        .collect();
    let mut speeds = Vec::new();
    for seen in measured.observations.iter().filter(|seen| seen.fits) {
        let [a, b] = &seen.tenants[..] else { continue };
        if a.sharing.cap().is_some() || b.sharing.cap().is_some() {
            continue;
        }
        let sum = busy.get(a.workload.as_str()).zip(busy.get(b.workload.as_str())).map(|(a, b)| a + b);
        speeds.extend(sum.into_iter().flat_map(|sum| {
            [a, b].into_iter().filter_map(move |tenant| Some((sum, tenant.speed_fraction?.min(1.0))))
        }));
    }
    (of_world.to_vec(), SpeedsByBusy::of(&speeds).expect("half of the set has pairs enough"))
}

fn claim(measured: &Measured, jobs: &[TraceJob], seed: u64, is_in_sample: bool) -> Held {
    let names: BTreeSet<&str> = measured
        .observations
        .iter()
        .flat_map(|seen| seen.tenants.iter().map(|tenant| tenant.workload.as_str()))
        .collect();
    let known: Vec<&WorkloadProfile> =
        measured.profiles.iter().filter(|profile| names.contains(profile.workload.as_str())).collect();
    let (known, speeds) =
        if is_in_sample { (known, SpeedsByBusy::published()) } else { dealt(measured, &known, seed) };
    let world = world(seed, jobs, &known);
    let telemetry = Telemetry::read(world.telemetry.as_bytes()).unwrap();
    let (accounting, _) = read(world.sacct.as_bytes(), &Besides { telemetry, ..Besides::default() }).unwrap();
    let names: Vec<String> = known.iter().map(|profile| profile.workload.to_string()).collect();
    let kind_of: rustc_hash::FxHashMap<u32, u32> = accounting
        .jobs
        .iter()
        .map(|job| (job.workload, u32::try_from(world.kind_of_job[&job.id]).unwrap()))
        .collect();
    let mut options = Options { speeds, ..options(measured) };
    options.policy.allowed = Some(allowed(measured, &accounting, &world, &names));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some nodes")]
    let nodes = (world.gpu_hours / world.span_hours / LOAD / 8.0).ceil().max(4.0) as u32;
    let shapes = parse_shape(&format!("{nodes}x8:{}:256:2048", measured.device_model)).unwrap();
    let memory = GpuMemory::of(&[format!("{}=32", measured.device_model)]).unwrap();
    let replay = Replay::new(accounting, shapes, memory, options).unwrap();
    let outcomes: Vec<Outcome> = replay.tasks().into_iter().map(|task| replay.run(task, &|_| ())).collect();
    let report = replay.report(&pillion_replay::read::ReadTally::default(), &outcomes);
    let truth = Truth::Measured(MeasuredPairs::new(&measured.observations, &names, kind_of));
    let real = replay.run_with(replay.tasks()[0], &truth, &|_| ());
    let claimed = &report.settings[0];
    let (broken, ..) = real.promises();
    Held {
        low: claimed.gpu_hours_saved.low,
        expected: claimed.gpu_hours_saved.expected,
        high: claimed.gpu_hours_saved.high,
        truth: real.saved_hours(),
        risk: claimed.promises_at_risk.expected,
        broken: f64::from(u32::try_from(broken).unwrap()),
    }
}

fn options(measured: &Measured) -> Options {
    let mut options = Options::usual(0);
    options.pools = vec![PoolSize::Part(Fraction::clamped(0.5))];
    options.adoptions = vec![Fraction::ONE];
    options.policy.users = UserPolicy::Any;
    options.plan_seconds = 300.0;
    options.seeds = 3;
    options.mechanism =
        measured.observations.first().map_or(Mechanism::Mps, pillion_pairing::Observation::mechanism);
    options
}

/// Only what was measured may be chosen: of everything else nobody knows the truth.
fn allowed(measured: &Measured, accounting: &Accounting, world: &World, names: &[String]) -> AllowList {
    let mut keys: BTreeMap<&str, BTreeSet<(u32, u32)>> = BTreeMap::new();
    for job in &accounting.jobs {
        keys.entry(names[world.kind_of_job[&job.id]].as_str()).or_default().insert((job.user, job.workload));
    }
    let none = BTreeSet::new();
    let mut allowed = AllowList::default();
    for seen in &measured.observations {
        let [a, b] = &seen.tenants[..] else { continue };
        for (user_a, workload_a) in keys.get(a.workload.as_str()).unwrap_or(&none) {
            for (user_b, workload_b) in keys.get(b.workload.as_str()).unwrap_or(&none) {
                let (key_a, key_b) = (workload_key(*user_a, *workload_a), workload_key(*user_b, *workload_b));
                allowed.allow((&key_a, a.sharing.cap()), (&key_b, b.sharing.cap()));
            }
        }
    }
    allowed
}

/// Reads and replays a file, and says how long each took.
#[expect(clippy::disallowed_methods, reason = "how long it takes is real time")]
fn against_the_clock(sacct: &str, shape: &str) {
    let begun = std::time::Instant::now();
    let file = std::io::BufReader::with_capacity(1 << 20, std::fs::File::open(sacct).unwrap());
    let (accounting, tally) = read(file, &Besides::default()).unwrap();
    let read_seconds = begun.elapsed().as_secs_f64();
    let options = Options::usual(accounting.jobs.len());
    let memory = GpuMemory::of(&["a100=80".to_owned()]).unwrap();
    let replay = Replay::new(accounting, parse_shape(shape).unwrap(), memory, options).unwrap();
    let queue_seconds = begun.elapsed().as_secs_f64() - read_seconds;
    println!(
        "{} jobs: read in {read_seconds:.1} s, the queue without Pillion {queue_seconds:.1} s",
        replay.job_count()
    );
    let outcomes: Vec<Outcome> =
        replay.tasks().into_par_iter().map(|task| replay.run(task, &|_| ())).collect();
    let plans: usize = outcomes.iter().map(Outcome::plans).sum();
    let report = replay.report(&tally, &outcomes);
    let all_seconds = begun.elapsed().as_secs_f64();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default().trim();
    println!(
        "{} simulations with {plans} plans {:.1} s; {all_seconds:.1} s in all, {peak} at most",
        outcomes.len(),
        all_seconds - read_seconds - queue_seconds
    );
    let setting = &report.settings[0];
    println!(
        "{:.0} groups, {:.0} of {:.0} GPU-hours saved",
        setting.groups.expected, setting.gpu_hours_saved.expected, setting.managed_gpu_hours.expected
    );
}

/// A file of so many jobs, each with a step: the trace again and again.
fn write(count: usize, jobs: &[TraceJob], folder: &str) {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut to = std::io::BufWriter::new(std::fs::File::create(format!("{folder}/sacct.txt")).unwrap());
    writeln!(to, "{HEADER}").unwrap();
    let span = jobs.last().unwrap().submit - jobs[0].submit + 1;
    // All of them within a month, so that the cluster is large.
    let month = 31 * 86_400;
    let mut gpu_seconds = 0_u64;
    for id in 1..=count {
        let job = &jobs[id % jobs.len()];
        let submit = EPOCH + id as u64 * month / count as u64;
        // A site of some hundreds of GPUs: no job is long.
        let (seconds, gpus) = (job.seconds.min(6_000), job.gpus.min(8));
        gpu_seconds += seconds * u64::from(gpus);
        let (user, class) = (rng.random_range(0..500), rng.random_range(0..6));
        let (start, end, limit) = (submit + 5, submit + 5 + seconds, seconds / 60 * 2 + 30);
        let given = format!(
            "billing={gpus},cpu={},gres/gpu:a100={gpus},gres/gpu={gpus},mem={}G,node=1",
            4 * gpus,
            16 * gpus
        );
        writeln!(
            to,
            "{id}|user{user}|ml{}|gpu|class{class}|COMPLETED|{submit}|{submit}|{start}|{end}|{limit}|1|{given}|{given}||sbatch class{class}.sh --seed {id}",
            user % 40
        )
        .unwrap();
        // A class uses a GPU as it always does, give or take a little.
        let busy = (user * 7 + class * 13) % 90 + rng.random_range(5..10);
        let memory = 2000 + (user * 31 + class * 977) % 30_000;
        writeln!(to, "{id}.0||ml||python|COMPLETED|{submit}|Unknown|{start}|{end}||1|cpu=1||gres/gpumem={memory}M,gres/gpuutil={busy}|").unwrap();
    }
    to.flush().unwrap();
    let gpus = gpu_seconds / month;
    println!(
        "{count} jobs of {span} s of trace; {} nodes of eight GPUs would be filled to four fifths",
        gpus * 5 / 4 / 8 + 1
    );
}
