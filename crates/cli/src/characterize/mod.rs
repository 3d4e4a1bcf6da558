//! `pillion characterize SCRIPT`: runs a workload alone under several caps as ordinary Slurm jobs, and says what they
//! taught; with `--gpus` with several numbers of GPUs (`counts`). The jobs do not depend on this process: it may be ended at any moment, and the same command follows them again.
//!
//! ```text
//! script ─► campaign (what next?) ─► intent, record (file), then submit (sbatch)
//!               ▲     └─► settle (squeue, sacct: was it submitted?)
//!               └── poll ◄── scheduler, then squeue (is it over?: fate)            campaign + profile ─► show
//! ```

pub mod campaign;
mod counts;
pub(crate) mod fate;
mod intent;
pub mod record;
pub mod script;
mod settle;
pub mod show;
pub(crate) mod slurm;
pub(crate) mod submit;

use crate::args::CharacterizeArgs;
use crate::client::{Operator, Target, answer, connect};
use crate::commands::job_status;
use crate::error::CliError;
use crate::exit::{self, ExitStatus};
use crate::output::Output;
use campaign::{Campaign, Next, RunStatus, Subject, Wanted};
use fate::InSlurm;
use indicatif::{ProgressBar, ProgressStyle};
use intent::Intent;
use pillion_api::StatusRequest;
use pillion_core::device::Mechanism;
use pillion_core::option::ColocateRequest;
use pillion_core::{CapStep, Clock, SlurmJobId};
use record::Record;
use settle::Settled;
use show::Known;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often the scheduler is asked for the jobs, and then Slurm.
const POLL_PERIOD: Duration = Duration::from_secs(2);
/// A script that is longer is none.
const SCRIPT_BYTES_MAX: u64 = 4 * 1024 * 1024;
const BEGINS_ANEW: &str =
    "pillion: the script, its arguments or options have changed: the campaign begins anew";

/// Runs the command.
///
/// # Errors
/// [`CliError`]: before anything was submitted, or with what was submitted on record.
pub async fn run(
    args: &CharacterizeArgs,
    address: &Target,
    clock: &dyn Clock,
    output: &Output,
) -> Result<ExitStatus, CliError> {
    if !args.gpus.is_empty() {
        return counts::run(args, clock, output).await;
    }
    let subject = subject(args)?;
    let settings =
        script::settings(&subject.text).map_err(|error| unusable(&args.script, &error.to_string()))?;
    let wanted = wanted(args)?;
    let (record, campaign) = open(args, subject)?;
    let mut following =
        Following { address, clock, settings, wanted, record, campaign, known: Known::default() };
    if following.campaign.next(&following.wanted) != Next::Done {
        sets_caps(&mut connect(address).await?).await?;
    }
    let is_left = tokio::select! {
        outcome = following.follow(args.no_wait) => {
            outcome?;
            false
        }
        _ = tokio::signal::ctrl_c() => true,
    };
    output.print(&show::answer(&following.campaign, &following.known))?;
    let is_open = following.campaign.next(&following.wanted) != Next::Done;
    if is_left || is_open {
        eprintln!("{}", settle::goes_on(following.campaign.intent.as_ref()));
    }
    let is_complete = following.campaign.is_complete(&following.wanted);
    let is_as_asked = is_complete || (args.no_wait && is_open);
    Ok(if is_as_asked && !is_left { exit::OK } else { exit::PROBLEM })
}

/// What is to be submitted.
fn subject(args: &CharacterizeArgs) -> Result<Subject, CliError> {
    read(&args.script, &args.arguments, &args.sbatch)
}

/// A script, with its arguments and options for sbatch.
pub(crate) fn read(named: &Path, arguments: &[String], options: &[String]) -> Result<Subject, CliError> {
    let path = std::fs::canonicalize(named).map_err(CliError::file("read", named))?;
    let length = std::fs::metadata(&path).map_err(CliError::file("read", named))?.len();
    if length > SCRIPT_BYTES_MAX {
        let why = format!("it is {length} bytes long; a batch script has 4 MiB at most");
        return Err(unusable(named, &why));
    }
    let text = std::fs::read_to_string(&path).map_err(CliError::file("read", named))?;
    let script = path.to_str().ok_or_else(|| unusable(named, "its path is no text"))?.to_owned();
    if options.iter().any(|option| option.starts_with("--colocate")) {
        let other = "write settings of --colocate in the script: --sbatch cannot carry them";
        return Err(CliError::Usage(other.to_owned()));
    }
    Ok(Subject { script, text, arguments: arguments.to_vec(), options: options.to_vec() })
}

pub(crate) fn unusable(script: &Path, why: &str) -> CliError {
    CliError::Data(format!("{}: {why}", script.display()))
}

fn wanted(args: &CharacterizeArgs) -> Result<Wanted, CliError> {
    if args.caps.contains(&CapStep::WHOLE) {
        let other = "leave 1 out of --caps: the runs without a cap always come first";
        return Err(CliError::Usage(other.to_owned()));
    }
    let caps: BTreeSet<CapStep> = args.caps.iter().copied().collect();
    Ok(Wanted { caps: caps.into_iter().collect(), runs_each: usize::from(args.runs) })
}

/// The variable, where it says something.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Where campaigns of a kind are remembered.
pub(crate) fn folder(kind: &str) -> Result<PathBuf, CliError> {
    let folder = record::folder(variable("XDG_STATE_HOME").as_deref(), variable("HOME").as_deref(), kind);
    folder.ok_or_else(|| {
        CliError::Usage(
            "neither XDG_STATE_HOME nor HOME names a folder to remember the campaign in".to_owned(),
        )
    })
}

/// The campaign of this very script, as far as it came; what failed is tried anew.
fn open(args: &CharacterizeArgs, subject: Subject) -> Result<(Record, Campaign), CliError> {
    let (record, known) = Record::open::<Campaign>(&folder("characterize")?, &subject.script)?;
    let mut campaign = match known {
        Some(known) if args.again && known.subject == subject => Campaign::new(subject),
        Some(known) if known.subject == subject => known,
        Some(_) => {
            eprintln!("{BEGINS_ANEW}");
            Campaign::new(subject)
        }
        None => Campaign::new(subject),
    };
    campaign.retry();
    Ok((record, campaign))
}

/// Whether there is a device that could have a cap.
async fn sets_caps(client: &mut Operator) -> Result<(), CliError> {
    let status = answer(client.status(StatusRequest {})).await?;
    let devices = status.agents.iter().filter(|agent| agent.connected).flat_map(|agent| &agent.devices);
    if devices.filter_map(|device| device.mechanism.parse().ok()).any(Mechanism::can_cap) {
        return Ok(());
    }
    Err(CliError::Refused("no GPU of the pool is shared by MPS now, and only MPS sets caps".to_owned()))
}

/// A campaign that is being followed.
struct Following<'a> {
    address: &'a Target,
    clock: &'a dyn Clock,
    settings: ColocateRequest,
    wanted: Wanted,
    record: Record,
    campaign: Campaign,
    known: Known,
}

impl Following<'_> {
    /// Submits and polls until nothing is left to do, or once.
    async fn follow(&mut self, is_once: bool) -> Result<(), CliError> {
        // A bar on a terminal, nothing in a pipe: indicatif looks by itself.
        let bar = ProgressBar::new(self.wanted.run_count() as u64).with_style(style());
        bar.enable_steady_tick(Duration::from_secs(1));
        loop {
            match self.poll().await {
                Ok(()) => {}
                // The jobs do not need us: somebody restarts the scheduler, and we ask again.
                Err(CliError::Unreachable { .. } | CliError::TryLater(_) | CliError::SlurmBusy(_))
                    if !is_once =>
                {
                    bar.set_message("no answer; the jobs go on");
                }
                Err(error) => return Err(error),
            }
            match self.campaign.next(&self.wanted) {
                // Nothing before it is known of the last one.
                Next::Submit(_) if self.campaign.intent.is_some() => {}
                Next::Submit(caps) => {
                    for cap in caps {
                        self.submit(cap).await?;
                    }
                    self.poll().await?;
                }
                Next::Wait => {}
                Next::Done => break,
            }
            bar.set_position(self.campaign.over_count() as u64);
            bar.set_message(self.message());
            if is_once {
                break;
            }
            tokio::time::sleep(POLL_PERIOD).await;
        }
        bar.finish_and_clear();
        Ok(())
    }

    async fn submit(&mut self, cap: CapStep) -> Result<(), CliError> {
        let intent = Intent::new(cap, self.clock.now());
        let comment = script::comment(&self.campaign.subject);
        let options =
            [format!("--colocate={}", script::value(&self.settings, cap)), intent.option(comment.as_deref())];
        // Before: who is cut off behind this finds by its token what was submitted.
        self.campaign.intent = Some(intent);
        self.record.save(&self.campaign)?;
        let submitted = submit::submit(&self.campaign.subject, &options, submit::TAKEN_ALONE).await;
        match submitted.map_err(CliError::from) {
            Ok(job_id) => self.take_up(job_id)?,
            Err(error) => {
                if !settle::may_be_submitted(&error) {
                    self.campaign.intent = None;
                    self.record.save(&self.campaign)?;
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// The run that was to be submitted is this job.
    fn take_up(&mut self, job_id: SlurmJobId) -> Result<(), CliError> {
        if let Some(Intent { what, at, .. }) = self.campaign.intent.take() {
            self.campaign.runs.push(campaign::Run { cap: what, job_id, submitted_at: at, outcome: None });
        }
        self.record.save(&self.campaign)
    }

    /// Finds out about a run that may have been submitted before.
    async fn settle(&mut self) -> Result<(), CliError> {
        let settled = settle::settle(self.campaign.intent.as_ref(), self.clock.now()).await?;
        match settled {
            Settled::Nothing | Settled::NotKnownYet => Ok(()),
            Settled::Submitted(job_id) => self.take_up(job_id),
            Settled::Never => {
                self.campaign.intent = None;
                self.record.save(&self.campaign)
            }
            Settled::Unknowable(why) => {
                self.campaign.intent = None;
                self.record.save(&self.campaign)?;
                Err(CliError::Unknowable(why.to_owned()))
            }
        }
    }

    /// Asks what became of each open run, and of one that is over for what is known of the workload.
    async fn poll(&mut self) -> Result<(), CliError> {
        self.settle().await?;
        let mut client = connect(self.address).await?;
        let statuses = self.statuses(&mut client).await?;
        let mut has_changed = false;
        for (run, status) in self.campaign.runs.iter_mut().zip(&statuses) {
            if let Some(RunStatus::Over(outcome)) = status {
                run.outcome = Some(outcome.clone());
                has_changed = true;
            }
        }
        if has_changed {
            self.record.save(&self.campaign)?;
        }
        // What is known changes only where a run has ended: those under caps join it.
        let is_stale = has_changed || self.known.profile.is_none();
        if is_stale && let Some(run) = self.campaign.taught_by(CapStep::WHOLE) {
            let job = job_status::ask(&mut client, run.job_id).await?.status.unwrap_or_default();
            self.known.profile = job.profile.and_then(|profile| profile.read().ok());
            self.known.workload_name = job.job.and_then(|job| job.workload_name);
        }
        self.known.statuses = statuses;
        Ok(())
    }

    /// How each run stands that was open, in the order of the runs: by the scheduler, and by Slurm of those that count as over.
    async fn statuses(&self, client: &mut Operator) -> Result<Vec<Option<RunStatus>>, CliError> {
        let now = self.clock.now();
        let mut statuses = vec![None; self.campaign.runs.len()];
        let mut over = Vec::new();
        for (at, run) in self.campaign.runs.iter().enumerate().filter(|(_, run)| run.outcome.is_none()) {
            let job = job_status::ask(client, run.job_id).await?.status;
            let model = self.known.profile.as_ref().map(|profile| profile.device_model.as_str());
            let status = campaign::status(run, job.as_ref(), model, now);
            if matches!(status, RunStatus::Over(_)) {
                over.push((at, run.job_id, job.is_some()));
            }
            statuses[at] = Some(status);
        }
        let jobs: Vec<SlurmJobId> = over.iter().map(|(_, job_id, _)| *job_id).collect();
        let slurm = slurm::fates(&jobs).await?;
        for (at, job_id, is_known) in over {
            let objection = fate::objection(is_known, slurm.get(&job_id).unwrap_or(&InSlurm::Forgotten));
            statuses[at] = objection.or(statuses[at].take());
        }
        Ok(statuses)
    }

    /// What is waited for.
    fn message(&self) -> String {
        let runs = self.campaign.runs.iter().zip(&self.known.statuses);
        let open = runs.filter_map(|(run, status)| match status {
            Some(RunStatus::Open { state, .. }) => Some(format!("{} {state} (cap {})", run.job_id, run.cap)),
            _ => None,
        });
        open.collect::<Vec<_>>().join(", ")
    }
}

pub(crate) fn style() -> ProgressStyle {
    let template = "{bar:24} {pos}/{len} runs, {elapsed}: {wide_msg}";
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
