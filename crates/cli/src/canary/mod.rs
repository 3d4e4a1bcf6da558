//! `pillion canary [NODE] SCRIPT..`: runs a site's own scripts on one node of the pool as ordinary Slurm jobs of the user who calls, each alone
//! first, then two at a time, and holds what was foretold of each pair against what was measured. The jobs do not depend on this process:
//! it may be ended at any moment, and the same command goes on. It cancels nothing but a job of its own that Pillion did not take in.
//!
//! ```text
//! scripts, place ─► plan (what next?) ─► record (file), then sbatch
//!                      ▲    └─► find (squeue, sacct: was it submitted?)
//!                      └── fate ◄── scheduler, then squeue (is it over?)          plan + bound ─► show
//! ```

pub mod bound;
pub mod fate;
pub mod place;
pub mod plan;
pub mod scripts;
pub mod show;
mod slurm;
pub mod verdict;

use crate::args::CanaryArgs;
use crate::characterize::fate::InSlurm;
use crate::characterize::record::Record;
use crate::characterize::slurm::Mark;
use crate::characterize::submit::{NotTaken, TAKEN_ALONE, TAKEN_TO_SHARE, submit};
use crate::characterize::{self, unusable};
use crate::client::{Operator, Target, answer, connect};
use crate::commands::job_status;
use crate::error::CliError;
use crate::exit::{self, ExitStatus};
use crate::format;
use crate::output::Output;
use bound::Bound;
use fate::Stands;
use indicatif::ProgressBar;
use pillion_api::{PolicyRequest, ShadowRequest, StatusRequest};
use pillion_core::{Clock, SlurmJobId, UnixTime};
use place::{Away, NoPlace, Place};
use plan::{About, Canary, Next, Outcome, Wanted, Work};
use std::path::Path;
use std::time::Duration;

/// How often the scheduler is asked for the jobs.
const POLL_PERIOD: Duration = Duration::from_secs(2);
/// How often it is looked at whether jobs start on the node.
const PLACE_SECONDS: f64 = 20.0;
/// Two that are to be decided on together begin so long after the first of them is submitted.
const TOGETHER_TIME: Duration = Duration::from_secs(10);
/// Of observed starts since then it is told what the bounds are worth.
const BOUND_TIME: Duration = Duration::from_hours(30 * 24);

/// Runs the command.
///
/// # Errors
/// [`CliError`]: before anything was submitted, or with what was submitted on record.
pub async fn run(
    args: &CanaryArgs,
    address: &Target,
    clock: &dyn Clock,
    output: &Output,
) -> Result<ExitStatus, CliError> {
    let scripts = scripts::read(&args.scripts, &args.sbatch)?;
    let mut client = connect(address).await?;
    let status = answer(client.status(StatusRequest {})).await?;
    let sinfo = slurm::nodes().await?;
    let place = place::find(&status, &sinfo, args.node.as_deref()).map_err(|why| unable(&why))?;
    let ready = place::ready(&status, &sinfo, &place);
    let (node, partition) = (place.node.clone(), place.partition.clone());
    let pairs = plan::pairs(scripts.len(), args.pairs, args.seed);
    let wanted = Wanted { runs_each: usize::from(args.runs), pairs };
    let about = About { node, partition, scripts, promise: args.max_slowdown };
    if args.dry_run {
        ready.map_err(|why| unable(&why))?;
        output.print(&show::planned(&submissions(&Canary::new(about, clock.now()), &wanted, &place)?))?;
        return Ok(exit::OK);
    }
    if !Record::exists(&characterize::folder("canary")?, &place.node) {
        ready.clone().map_err(|why| unable(&why))?;
    }
    let canary = Canary::new(about, clock.now());
    let mut away = Away::default();
    away.saw(ready, clock.now());
    let seen = Seen { away, place_at: clock.now(), is_running: false };
    let following = Following { address, clock, place, wanted, record: None, canary, seen };
    following.run(args, &mut client, output).await
}

fn unable(why: &NoPlace) -> CliError {
    CliError::Usage(why.to_string())
}

/// What would be submitted, in order: for what, and by which words.
fn submissions(canary: &Canary, wanted: &Wanted, place: &Place) -> Result<Vec<(Work, String)>, CliError> {
    let alone = (0..canary.about.scripts.len())
        .flat_map(|script| std::iter::repeat_n(Work::Alone { script }, wanted.runs_each));
    let beside = wanted.pairs.iter().flat_map(|pair| [0, 1].map(|slot| Work::Beside { pair: *pair, slot }));
    alone
        .chain(beside)
        .map(|work| {
            let subject = &canary.about.scripts[work.script()].subject;
            let words = subject.options.iter().cloned().chain(options(canary, place, work)?);
            let words: Vec<String> =
                ["sbatch".to_owned()].into_iter().chain(words).chain([subject.script.clone()]).collect();
            Ok((work, words.join(" ")))
        })
        .collect()
}

/// The options of a job behind those of its user, but for its name and its begin.
fn options(canary: &Canary, place: &Place, work: Work) -> Result<Vec<String>, CliError> {
    let script = &canary.about.scripts[work.script()];
    let promise = matches!(work, Work::Beside { .. }).then_some(canary.about.promise);
    let colocate = scripts::colocate(script, promise)
        .map_err(|why| unusable(Path::new(&script.subject.script), &why.to_string()))?;
    let mut options = vec![format!("--partition={}", place.partition), format!("--colocate={colocate}")];
    if !place.others.is_empty() {
        options.push(format!("--exclude={}", place.others.join(",")));
    }
    Ok(options)
}

/// A canary that is being followed.
struct Following<'a> {
    address: &'a Target,
    clock: &'a dyn Clock,
    place: Place,
    wanted: Wanted,
    record: Option<Record>,
    canary: Canary,
    seen: Seen,
}

/// What was seen at the last look, and is on no record.
struct Seen {
    away: Away,
    /// When it was looked whether jobs start on the node.
    place_at: UnixTime,
    /// Whether one of the canary's jobs runs.
    is_running: bool,
}

impl Following<'_> {
    async fn run(
        mut self,
        args: &CanaryArgs,
        client: &mut Operator,
        output: &Output,
    ) -> Result<ExitStatus, CliError> {
        self.open(args.again).await?;
        if let Some(why) = self.seen.away.why().filter(|_| self.canary.open().next().is_none()) {
            return Err(unable(why));
        }
        if !self.canary.has_pairs() {
            self.canary.before = bound_now(client, self.clock.now()).await;
        }
        let is_left = tokio::select! {
            outcome = self.follow(args.no_wait) => {
                outcome?;
                false
            }
            _ = tokio::signal::ctrl_c() => true,
        };
        let (now, promise) = match connect(self.address).await {
            Ok(mut client) => {
                (bound_now(&mut client, self.clock.now()).await, site_promise(&mut client).await)
            }
            Err(_) => (None, None),
        };
        output.print(&show::answer(&self.canary, &self.wanted, now.as_ref(), promise))?;
        let is_open = self.canary.next(&self.wanted) != Next::Done;
        match self.seen.away.why() {
            Some(why) if is_open => eprintln!("pillion: {}", show::away(why, &self.canary)),
            _ if is_left || is_open => {
                eprintln!("pillion: the jobs go on; the same command follows them again");
            }
            _ => {}
        }
        let is_away = self.seen.away.why().is_some();
        let is_as_asked = self.canary.is_complete(&self.wanted) || (args.no_wait && is_open && !is_away);
        Ok(if is_as_asked && !is_left { exit::OK } else { exit::PROBLEM })
    }

    /// Takes up what there is of this canary; what failed is tried anew. One of other scripts has to be over first: its jobs would come to
    /// stand beside ours.
    async fn open(&mut self, is_again: bool) -> Result<(), CliError> {
        let (record, known) = Record::open::<Canary>(&characterize::folder("canary")?, &self.place.node)?;
        self.record = Some(record);
        if let Some(known) = known {
            self.take_up(known, is_again).await?;
        }
        let held = slurm::held().await?;
        let strangers = self.canary.strangers(held.keys().map(String::as_str));
        if strangers.is_empty() {
            return Ok(());
        }
        Err(CliError::Usage(format!(
            "Slurm holds jobs of a canary on {} that are not on record here ({}); let them end, or cancel them",
            self.place.node,
            format::listed(strangers.into_iter().filter_map(|name| held.get(name)))
        )))
    }

    async fn take_up(&mut self, known: Canary, is_again: bool) -> Result<(), CliError> {
        let is_same = known.about == self.canary.about;
        let anew = std::mem::replace(&mut self.canary, known);
        if is_same && !is_again {
            self.canary.retry();
            return Ok(());
        }
        self.look().await?;
        let open: Vec<String> = self.canary.open().map(show::named).collect();
        if is_same && !open.is_empty() {
            let are = if open.len() == 1 {
                "is not over: this goes on with it"
            } else {
                "are not over: this goes on with them"
            };
            eprintln!(
                "pillion: {} {are}; --again begins anew when all of a canary is over",
                format::listed(open)
            );
            return Ok(());
        }
        if !open.is_empty() {
            return Err(CliError::Usage(format!(
                "another canary on {} is not over ({}); let its jobs end, or cancel them, or go on with its scripts and options",
                self.place.node,
                format::listed(open)
            )));
        }
        if !is_same && !self.canary.runs.is_empty() {
            eprintln!("pillion: the scripts or options have changed: the canary begins anew");
        }
        self.canary = anew;
        Ok(())
    }

    fn save(&self) -> Result<(), CliError> {
        self.record.as_ref().map_or(Ok(()), |record| record.save(&self.canary))
    }

    /// Submits and polls until nothing is left to do, or once.
    async fn follow(&mut self, is_once: bool) -> Result<(), CliError> {
        // A bar on a terminal, nothing in a pipe: indicatif looks by itself.
        let count = self.wanted.run_count(self.canary.about.scripts.len());
        let bar = ProgressBar::new(count as u64).with_style(characterize::style());
        bar.enable_steady_tick(Duration::from_secs(1));
        loop {
            match self.step().await {
                Ok(true) => break,
                Ok(false) => {
                    bar.set_position((self.canary.runs.len() - self.canary.open().count()) as u64);
                    bar.set_message(self.canary.open().map(show::named).collect::<Vec<_>>().join(", "));
                }
                // The jobs do not need us: somebody restarts the scheduler or slurmctld, and we ask again.
                Err(
                    CliError::Unreachable { .. }
                    | CliError::TryLater(_)
                    | CliError::Unproven(_)
                    | CliError::SlurmBusy(_),
                ) if !is_once => bar.set_message("no answer; the jobs go on"),
                Err(error) => return Err(error),
            }
            if is_once || self.seen.away.is_over(self.seen.is_running, self.clock.now()) {
                break;
            }
            tokio::time::sleep(POLL_PERIOD).await;
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// Looks, and submits what is due; true where nothing is left to do. Without a look nothing is submitted, and nothing onto a node on
    /// which nothing starts.
    async fn step(&mut self) -> Result<bool, CliError> {
        self.look().await?;
        let next = self.canary.next(&self.wanted);
        self.look_at_place(matches!(next, Next::Submit(_))).await?;
        match next {
            Next::Done => return Ok(true),
            Next::Submit(works) if self.seen.away.why().is_none() => self.submit(&works).await?,
            Next::Submit(_) | Next::Find(_) | Next::Wait => {}
        }
        Ok(false)
    }

    /// Whether jobs start on the node: now and then, and before any is submitted.
    async fn look_at_place(&mut self, is_due: bool) -> Result<(), CliError> {
        let now = self.clock.now();
        let is_due = is_due && self.seen.away.why().is_none();
        if !is_due && now.seconds_since(self.seen.place_at) < PLACE_SECONDS {
            return Ok(());
        }
        let status = answer(connect(self.address).await?.status(StatusRequest {})).await?;
        self.seen.away.saw(place::ready(&status, &slurm::nodes().await?, &self.place), now);
        self.seen.place_at = now;
        Ok(())
    }

    /// Finds what may have been submitted, then asks what became of each that was.
    async fn look(&mut self) -> Result<(), CliError> {
        if let Next::Find(unsure) = self.canary.next(&self.wanted) {
            self.find(&unsure).await?;
        }
        self.poll().await
    }

    async fn find(&mut self, unsure: &[usize]) -> Result<(), CliError> {
        let runs: Vec<&plan::Run> = unsure.iter().filter_map(|at| self.canary.runs.get(*at)).collect();
        let names: Vec<&str> = runs.iter().map(|run| run.job_name.as_str()).collect();
        let since = runs.iter().map(|run| run.submitted_at.seconds()).fold(f64::INFINITY, f64::min);
        let since = UnixTime::from_seconds(since);
        let (found, is_sure) = characterize::slurm::find(&names, Mark::Name, since).await?;
        // Those that are there first: what is missing is judged by its other.
        for run in &mut self.canary.runs {
            if run.job_id.is_none() {
                run.job_id = found.get(&run.job_name).copied();
            }
        }
        let now = self.clock.now();
        for at in unsure.iter().rev().copied() {
            if self.canary.runs.get(at).is_some_and(|run| run.job_id.is_none()) {
                self.canary.forget(at, is_sure, now);
            }
        }
        self.save()
    }

    async fn submit(&mut self, works: &[Work]) -> Result<(), CliError> {
        let now = self.clock.now();
        let first = self.canary.runs.len();
        self.canary.intend(works, now + TOGETHER_TIME, now);
        for at in first..self.canary.runs.len() {
            self.canary.runs[at].submitted_at = self.clock.now();
            // Before: who is cut off behind this finds by the names what was submitted.
            self.save()?;
            let run = self.canary.runs[at].clone();
            let mut options = options(&self.canary, &self.place, run.work)?;
            options.push(format!("--job-name={}", run.job_name));
            options.extend(run.begin.map(|begin| format!("--begin={}", format::time(begin.seconds()))));
            let subject = &self.canary.about.scripts[run.work.script()].subject;
            let taken = if matches!(run.work, Work::Alone { .. }) { TAKEN_ALONE } else { TAKEN_TO_SHARE };
            let submitted = submit(subject, &options, taken).await;
            let run = &mut self.canary.runs[at];
            match &submitted {
                Ok(job_id) => (run.job_id, run.has_sbatch_ended) = (Some(*job_id), true),
                Err(NotTaken { error, is_cancelled }) => {
                    // One that did not end may still bring a job.
                    run.has_sbatch_ended = !matches!(error, CliError::SlurmBusy(_));
                    run.outcome = is_cancelled.then(|| Outcome::Failed(error.to_string()));
                    for later in &mut self.canary.runs[at + 1..] {
                        later.has_sbatch_ended = true;
                    }
                }
            }
            self.save()?;
            submitted?;
        }
        Ok(())
    }

    /// Asks what became of each open job: the scheduler, and Slurm of those that count as over.
    async fn poll(&mut self) -> Result<(), CliError> {
        let mut client = connect(self.address).await?;
        let mut over = Vec::new();
        let mut is_running = false;
        for (at, run) in self.canary.runs.iter().enumerate() {
            let (None, Some(job_id)) = (&run.outcome, run.job_id) else { continue };
            let status = job_status::ask(&mut client, job_id).await?.status;
            match fate::stands(run, job_id, status.as_ref(), self.clock.now()) {
                Stands::Open(state, _) => is_running |= state == "running",
                stands @ Stands::Over(_) => over.push((at, job_id, status.is_some(), stands)),
            }
        }
        self.seen.is_running = is_running;
        if over.is_empty() {
            return Ok(());
        }
        let jobs: Vec<SlurmJobId> = over.iter().map(|(_, job_id, ..)| *job_id).collect();
        let slurm = characterize::slurm::fates(&jobs).await?;
        for (at, job_id, is_known, stands) in over {
            let fate = slurm.get(&job_id).unwrap_or(&InSlurm::Forgotten);
            match fate::judged(stands, is_known, fate) {
                Stands::Open(state, _) => self.seen.is_running |= state == "running",
                Stands::Over(outcome) => self.canary.runs[at].outcome = Some(outcome),
            }
        }
        self.save()
    }
}

/// What the site promises to jobs that name nothing; `None`: nobody answers, or not with a number.
async fn site_promise(client: &mut Operator) -> Option<f64> {
    let policy = answer(client.policy(PolicyRequest {})).await.ok()?;
    policy.rules.iter().find(|rule| rule.key == verdict::SITE_PROMISE)?.value.parse().ok()
}

/// What is told of bounds now; `None`: the caller is no operator, nothing was measured in the pool, or nobody answers.
async fn bound_now(client: &mut Operator, now: UnixTime) -> Option<Bound> {
    let request = ShadowRequest { since_seconds: (now - BOUND_TIME).seconds(), until_seconds: now.seconds() };
    answer(client.shadow(request)).await.ok().as_ref().and_then(bound::of)
}
