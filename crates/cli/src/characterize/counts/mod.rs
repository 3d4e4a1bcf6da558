//! `pillion characterize --gpus 1,2,4 SCRIPT`: runs a training with different numbers of GPUs as ordinary jobs of its user, and says what
//! that is worth. Neither the scheduler nor an agent is needed; the jobs do not depend on this process, which may be ended at any
//! moment, and the same command follows them again.
//!
//! ```text
//! script ─► ask (how it asks for GPUs), place (on how many nodes?) ─► campaign (what is missing?) ─► intent, record (file), then sbatch
//!                                             ▲     └─► settle (squeue, sacct: was it submitted?)
//!                                             └── accounts ◄── squeue, sacct        campaign ─► show ─► pillion-scale
//! ```

mod accounts;
mod ask;
mod campaign;
mod place;
mod show;

use super::intent::Intent;
use super::record::Record;
use super::settle::{self, Settled};
use super::slurm::told;
use super::{Subject, script, submit, unusable};
use crate::args::CharacterizeArgs;
use crate::error::CliError;
use crate::exit::{self, ExitStatus};
use crate::output::Output;
use ask::Ask;
use campaign::{Campaign, Count, Run, Standing, Wanted, standing};
use indicatif::ProgressBar;
use pillion_core::{Clock, SlurmJobId};
use place::Nodes;
use std::time::Duration;

/// How often Slurm is asked for the jobs.
const POLL_PERIOD: Duration = Duration::from_secs(5);

/// Runs the command.
///
/// # Errors
/// [`CliError`]: before anything was submitted, or with what was submitted on record.
pub(super) async fn run(
    args: &CharacterizeArgs,
    clock: &dyn Clock,
    output: &Output,
) -> Result<ExitStatus, CliError> {
    let subject = super::subject(args)?;
    let ask = ask::ask(&subject.text, &subject.options, !args.cpus.is_empty())
        .map_err(|error| unusable(&args.script, &error.to_string()))?;
    let (record, campaign) = open(args, subject)?;
    let placed = placed(args, &ask, &campaign).await?;
    let wanted = Wanted::of(&placed, &args.cpus, usize::from(args.runs));
    let mut following = Following { clock, ask, wanted, record, campaign, standings: Vec::new() };
    let is_left = tokio::select! {
        outcome = following.follow(args.no_wait) => {
            outcome?;
            false
        }
        _ = tokio::signal::ctrl_c() => true,
    };
    let Following { campaign, wanted, standings, .. } = &following;
    output.print(&show::answer(campaign, standings, &name(args)))?;
    let is_open = !campaign.is_over(wanted);
    if is_left || is_open {
        eprintln!("{}", settle::goes_on(campaign.intent.as_ref()));
    }
    let is_as_asked = campaign.is_complete(wanted) || (args.no_wait && is_open);
    Ok(if is_as_asked && !is_left { exit::OK } else { exit::PROBLEM })
}

/// Each number of GPUs with the nodes that it takes: as before, where it ran before. Where Slurm tells of no GPUs, one.
async fn placed(
    args: &CharacterizeArgs,
    ask: &Ask,
    campaign: &Campaign,
) -> Result<Vec<(u32, u32)>, CliError> {
    let mut nodes = None;
    let mut placed = Vec::new();
    for gpus in &args.gpus {
        if let Some(before) = campaign.nodes_before(*gpus) {
            placed.push((*gpus, before));
            continue;
        }
        if nodes.is_none() {
            let format = format!("--format={}", place::SINFO_FORMAT);
            let sinfo = told("sinfo", &["--noheader", "--all", "--Node", &format]).await?;
            let environment = super::variable("SBATCH_PARTITION");
            nodes = Some(Nodes::read(&sinfo, ask.partition(environment.as_deref()), ask.gpu_type()));
        }
        let on = match nodes.as_ref().and_then(Option::as_ref) {
            None => 1,
            Some(nodes) => nodes
                .for_run(*gpus, ask.nodes(), &campaign.subject.text)
                .map_err(|error| unusable(&args.script, &error.to_string()))?,
        };
        placed.push((*gpus, on));
    }
    Ok(placed)
}

/// What people call it.
fn name(args: &CharacterizeArgs) -> String {
    args.script.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The campaign of this very script, as far as it came; what failed is tried anew.
fn open(args: &CharacterizeArgs, subject: Subject) -> Result<(Record, Campaign), CliError> {
    let (record, known) = Record::open::<Campaign>(&super::folder("characterize/gpus")?, &subject.script)?;
    let mut campaign = match known {
        Some(known) if !args.again && known.subject == subject => known,
        Some(known) if known.subject != subject => {
            eprintln!("{}", super::BEGINS_ANEW);
            Campaign::new(subject)
        }
        _ => Campaign::new(subject),
    };
    campaign.retry();
    Ok((record, campaign))
}

/// A campaign that is being followed.
struct Following<'a> {
    clock: &'a dyn Clock,
    ask: Ask,
    wanted: Wanted,
    record: Record,
    campaign: Campaign,
    /// How each run stands that is not over, in the order of the runs.
    standings: Vec<Option<Standing>>,
}

impl Following<'_> {
    /// Submits and polls until nothing is left to do, or once.
    async fn follow(&mut self, is_once: bool) -> Result<(), CliError> {
        let bar = ProgressBar::new(self.wanted.run_count() as u64).with_style(super::style());
        bar.enable_steady_tick(Duration::from_secs(1));
        loop {
            match self.step().await {
                Ok(()) => {}
                Err(CliError::SlurmBusy(_)) if !is_once => {
                    bar.set_message("Slurm does not answer; the jobs go on");
                }
                Err(error) => return Err(error),
            }
            bar.set_position(self.campaign.over_count() as u64);
            if is_once || self.campaign.is_over(&self.wanted) {
                break;
            }
            bar.set_message(self.message());
            tokio::time::sleep(POLL_PERIOD).await;
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// Submits what is missing, once it is known of all before whether they were submitted; then asks what became of them.
    async fn step(&mut self) -> Result<(), CliError> {
        if self.settle().await? {
            for count in self.campaign.missing(&self.wanted) {
                self.submit(count).await?;
            }
        }
        self.poll().await
    }

    async fn submit(&mut self, count: Count) -> Result<(), CliError> {
        let intent = Intent::new(count, self.clock.now());
        let mut options = self.ask.options(count);
        options.extend(self.campaign.last_open().map(|job| format!("--dependency=afterany:{job}")));
        options.push(intent.option(script::comment(&self.campaign.subject).as_deref()));
        // Before: who is cut off behind this finds by its token what was submitted.
        self.campaign.intent = Some(intent);
        self.record.save(&self.campaign)?;
        match submit::plain(&self.campaign.subject, &options).await {
            Ok(job_id) => self.take_up(job_id),
            Err(error) => {
                if !settle::may_be_submitted(&error) {
                    self.forget_intent()?;
                }
                Err(error)
            }
        }
    }

    /// The run that was to be submitted is this job.
    fn take_up(&mut self, job_id: SlurmJobId) -> Result<(), CliError> {
        if let Some(Intent { what, at, .. }) = self.campaign.intent.take() {
            self.campaign.runs.push(Run { count: what, job_id, submitted_at: at, outcome: None });
        }
        self.record.save(&self.campaign)
    }

    fn forget_intent(&mut self) -> Result<(), CliError> {
        self.campaign.intent = None;
        self.record.save(&self.campaign)
    }

    /// Finds out about a run that may have been submitted before; true where none such is left.
    async fn settle(&mut self) -> Result<bool, CliError> {
        match settle::settle(self.campaign.intent.as_ref(), self.clock.now()).await? {
            Settled::Nothing => {}
            Settled::Submitted(job_id) => self.take_up(job_id)?,
            Settled::Never => self.forget_intent()?,
            Settled::NotKnownYet => return Ok(false),
            Settled::Unknowable(why) => {
                self.forget_intent()?;
                return Err(CliError::Unknowable(why.to_owned()));
            }
        }
        Ok(true)
    }

    /// Asks what became of each open run.
    async fn poll(&mut self) -> Result<(), CliError> {
        let seen = accounts::seen(&self.campaign.open()).await?;
        let now = self.clock.now();
        self.standings = vec![None; self.campaign.runs.len()];
        let mut has_changed = false;
        for (run, slot) in self.campaign.runs.iter_mut().zip(&mut self.standings) {
            if run.outcome.is_some() {
                continue;
            }
            let stands = standing(run, seen.get(&run.job_id), now);
            if let Standing::Over(outcome) = &stands {
                run.outcome = Some(outcome.clone());
                has_changed = true;
            }
            *slot = Some(stands);
        }
        if has_changed { self.record.save(&self.campaign) } else { Ok(()) }
    }

    /// What is waited for.
    fn message(&self) -> String {
        let runs = self.campaign.runs.iter().zip(&self.standings);
        let open = runs.filter_map(|(run, standing)| match standing {
            Some(Standing::Open(state, _)) => Some(format!(
                "{} {state} ({})",
                run.job_id,
                crate::format::counted(run.count.gpus as usize, "GPU")
            )),
            _ => None,
        });
        open.collect::<Vec<_>>().join(", ")
    }
}
