//! What a storm says at its end: a table that stays short whatever the number of starts, and the story of each harmed job.

use super::facts::{Facts, Job};
use super::judge::{Harm, Verdict, clock, idle, waits};
use super::plan::Kind;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// How many harms of one kind the table shows.
const SHOWN_MAX: usize = 8;
/// A device that nobody has for longer is told of.
const LONG_IDLE_SECONDS: f64 = 15.0;
/// How long a line of the table may be.
const LINE_LENGTH_MAX: usize = 200;
/// How many lines of slurmctld's log a story shows.
const LOG_LINES_MAX: usize = 60;

/// The table: starts, what users did, what was broken, and the harms. `stories`: where the rest is told.
pub fn table(facts: &Facts, verdict: &Verdict, stories: &str) -> String {
    let mut text = String::from("\n");
    starts(&mut text, facts);
    let mut done: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for job in &facts.jobs {
        for one in &job.done {
            // What was done to an array stands at each of its tasks.
            if seen.insert((job.order.number, one.span.from.to_bits())) {
                let word = one.deed.to_string();
                let word = word
                    .split(['+', ':'])
                    .next()
                    .unwrap_or_default()
                    .trim_end_matches(char::is_numeric)
                    .to_owned();
                let counts = done.entry(word).or_default();
                counts.0 += 1;
                counts.1 += usize::from(one.accepted);
            }
        }
    }
    for (deed, (all, taken)) in &done {
        let _ = writeln!(text, "  {deed:<28} {all:>6}, {taken} taken");
    }
    let mut broken: BTreeMap<String, usize> = BTreeMap::new();
    for outage in &facts.outages {
        *broken.entry(outage.broken.to_string()).or_default() += 1;
    }
    let _ = writeln!(text, "faults {:>29}", facts.outages.len());
    for (what, count) in &broken {
        let _ = writeln!(text, "  {what:<28} {count:>6}");
    }
    kinds(&mut text, "harms", facts, &verdict.harms);
    if !verdict.excused.is_empty() {
        kinds(&mut text, "as plain Slurm may do with its own daemons broken", facts, &verdict.excused);
    }
    if !verdict.harms.is_empty() {
        let _ = writeln!(text, "the story of each: {stories}");
    }
    text
}

fn starts(text: &mut String, facts: &Facts) {
    let all: usize = facts.jobs.iter().map(|job| job.starts.len()).sum();
    let _ = writeln!(
        text,
        "jobs and tasks {:>21}, {all} starts, {:.0} s",
        facts.jobs.len(),
        facts.ended_at - facts.began_at
    );
    let mut line = |what: &str, is_it: &dyn Fn(&Job) -> bool| {
        let jobs: Vec<&Job> = facts.jobs.iter().filter(|job| is_it(job)).collect();
        let starts: usize = jobs.iter().map(|job| job.starts.len()).sum();
        let _ = writeln!(text, "  {what:<28} {:>6}, {starts} starts", jobs.len());
    };
    line("plain", &|job| job.order.kind == Kind::Plain);
    line("whole GPUs in the pool", &|job| job.order.kind == Kind::Whole);
    line("of several GPUs in the pool", &|job| job.order.kind != Kind::Plain && job.order.gpus > 1);
    line("known workloads", &|job| job.order.kind == Kind::Known);
    line("guests", &|job| job.order.kind == Kind::Guest);
    line("first runs", &|job| job.order.kind == Kind::First);
    line("managed when submitted", &|job| job.is_managed);
    let shared = |job: &Job| job.starts.iter().any(|start| start.shards.is_some_and(|shards| shards < 100));
    line("that shared a GPU", &shared);
    let is_missed = |job: &Job| {
        job.starts.iter().any(|start| start.partition == "shared" && start.word("decision").is_empty())
    };
    line("alone, without a decision", &is_missed);
    let waits = waits(facts);
    let several = |job: &Job| job.order.gpus > 1 || job.order.node_count > 1;
    let is_missed = |job: &Job| job.starts.first().is_some_and(|start| start.word("decision").is_empty());
    between_tenants(text, &idle(facts));
    in_front(text, "in front of a free device", &waits, |_| true);
    in_front(text, "  one GPU, as decided", &waits, |job| !several(job) && !is_missed(job));
    in_front(text, "  one GPU, by Slurm itself", &waits, |job| !several(job) && is_missed(job));
    in_front(text, "  several, as decided", &waits, |job| several(job) && !is_missed(job));
    in_front(text, "  several, by Slurm itself", &waits, |job| several(job) && is_missed(job));
}

/// For how long devices were nobody's: of a long queue each job waits in front of some device all the time.
fn between_tenants(text: &mut String, idle: &[(f64, bool)]) {
    let Some((middle, _)) = idle.get(idle.len() / 2) else { return };
    let long = |is_counted: &dyn Fn(bool) -> bool| {
        idle.iter().filter(|(seconds, is_calm)| *seconds > LONG_IDLE_SECONDS && is_counted(*is_calm)).count()
    };
    let (all, calm) = (long(&|_| true), long(&|is_calm| is_calm));
    let _ = writeln!(
        text,
        "  devices between two tenants  {:>6}, {middle:.1} s at the median, {all} times over {LONG_IDLE_SECONDS} s, {calm} of them beside no fault",
        idle.len()
    );
}

/// How long these stood in front of a free device; the longest first.
fn in_front(text: &mut String, what: &str, waits: &[(f64, &Job)], is_it: impl Fn(&Job) -> bool) {
    let waits: Vec<f64> = waits.iter().filter(|(_, job)| is_it(job)).map(|(seconds, _)| *seconds).collect();
    if let (Some(longest), Some(middle)) = (waits.first(), waits.get(waits.len() / 2)) {
        let count = waits.len();
        let _ =
            writeln!(text, "  {what:<28} {count:>6}, {middle:.1} s at the median, {longest:.0} s at most");
    }
}

fn kinds(text: &mut String, title: &str, facts: &Facts, harms: &[Harm]) {
    let _ = writeln!(text, "{title}: {}", harms.len());
    let mut of_kind: BTreeMap<_, Vec<&Harm>> = BTreeMap::new();
    for harm in harms {
        of_kind.entry(harm.kind).or_default().push(harm);
    }
    for (kind, harms) in of_kind {
        let _ = writeln!(text, "  {:<28} {:>6}", kind.to_string(), harms.len());
        for harm in harms.iter().take(SHOWN_MAX) {
            let excuse = harm.excuse.as_ref().map(|excuse| format!(" [{excuse}]")).unwrap_or_default();
            let line = format!("    {}: {}{excuse}", who(facts, harm), harm.text);
            let end = line.floor_char_boundary(LINE_LENGTH_MAX);
            let _ = writeln!(text, "{}", &line[..end]);
        }
        if harms.len() > SHOWN_MAX {
            let _ = writeln!(text, "    and {} more", harms.len() - SHOWN_MAX);
        }
    }
}

fn who(facts: &Facts, harm: &Harm) -> String {
    harm.job.map_or("all".to_owned(), |index| {
        let job = &facts.jobs[index];
        let task = job.task.map(|task| format!(".{task}")).unwrap_or_default();
        format!("#{}{task} job {}", job.order.number, job.name)
    })
}

/// The stories of all harmed jobs, each once.
pub fn stories(facts: &Facts, verdict: &Verdict) -> String {
    let mut of_job: BTreeMap<Option<usize>, Vec<&Harm>> = BTreeMap::new();
    for harm in verdict.harms.iter().chain(&verdict.excused) {
        of_job.entry(harm.job).or_default().push(harm);
    }
    let mut text = String::new();
    for (job, harms) in of_job {
        for harm in &harms {
            let excuse = harm.excuse.as_ref().map(|excuse| format!(" [{excuse}]")).unwrap_or_default();
            let _ = writeln!(text, "{}: {}: {}{excuse}", who(facts, harm), harm.kind, harm.text);
        }
        if let Some(index) = job {
            story(&mut text, facts, &facts.jobs[index]);
        }
        text.push('\n');
    }
    text
}

fn story(text: &mut String, facts: &Facts, job: &Job) {
    let order = &job.order;
    let _ = writeln!(
        text,
        "  {} submitted at {} by {}: {:?}, {:?}, {:?}, {:?}{}",
        job.name,
        clock(facts, job.submitted.from),
        order.user,
        order.kind,
        order.work,
        order.array,
        order.after,
        if job.is_managed { ", managed" } else { "" }
    );
    let mut lines: Vec<(f64, String)> = Vec::new();
    for done in &job.done {
        let who = if done.by_root { "root" } else { order.user };
        let answer = if done.accepted { "taken" } else { "refused" };
        let after = done.after.as_ref().map_or(String::new(), |seen| {
            format!(
                "; then {} in {} priority {} ({})",
                seen.state, seen.partition, seen.priority, seen.reason
            )
        });
        lines.push((done.span.from, format!("{who}: {} -> {answer} {}{after}", done.deed, done.said)));
    }
    for start in &job.starts {
        let end = start
            .ended_at
            .map_or("no end".to_owned(), |at| format!("{:?} at {}", start.exit, clock(facts, at)));
        let share = format!(
            "{} GPU {:?} shards {:?} restarts {}",
            start.node, start.gpus, start.shards, start.restarts
        );
        lines.push((start.at, format!("its own first line: {share}, {end}")));
    }
    for outage in &facts.outages {
        let ended = job.accounts.last().and_then(|last| last.end).unwrap_or(facts.ended_at);
        if outage.span.until > job.submitted.from - 15.0 && outage.span.from < ended {
            lines.push((
                outage.span.from,
                format!("{} until {}", outage.broken, clock(facts, outage.span.until)),
            ));
        }
    }
    lines.sort_by(|first, second| first.0.total_cmp(&second.0));
    for (at, line) in lines {
        let _ = writeln!(text, "  {:>9} {line}", clock(facts, at));
    }
    for account in &job.accounts {
        let _ = writeln!(text, "  accounting: {account:?}");
    }
    let log = facts.log.get(&job.name).map(Vec::as_slice).unwrap_or_default();
    for line in &log[log.len().saturating_sub(LOG_LINES_MAX)..] {
        let _ = writeln!(text, "  | {line}");
    }
}
