//! `pillion characterize --gpus 1,2,4 SCRIPT`: runs a training with different numbers of GPUs as ordinary jobs of its user, and says what
//! that is worth. Neither the scheduler nor an agent is needed; the jobs do not depend on this process, which may be ended at any
//! moment, and the same command follows them again.
//!
//! ```text
//! script ─► ask (how it asks for GPUs) ─► campaign (what is missing?) ─► sbatch, each after the one before
//!                                             ▲     └─► record (file)
//!                                             └── accounts ◄── squeue, sacct        campaign ─► show ─► pillion-scale
//! ```

mod accounts;
mod ask;
mod campaign;
mod show;

use super::record::Record;
use super::{Subject, submit, unusable};
use crate::args::CharacterizeArgs;
use crate::error::CliError;
use crate::exit::{self, ExitStatus};
use crate::output::Output;
use ask::Ask;
use campaign::{Campaign, Count, Run, Standing, Wanted, standing};
use indicatif::ProgressBar;
use pillion_core::Clock;
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
    let wanted = Wanted::of(&args.gpus, &args.cpus, usize::from(args.runs));
    let (record, campaign) = open(args, subject)?;
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
        eprintln!("pillion: the jobs go on; the same command follows them again");
    }
    let is_as_asked = campaign.is_complete(wanted) || (args.no_wait && is_open);
    Ok(if is_as_asked && !is_left { exit::OK } else { exit::PROBLEM })
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
            // Each is on record before the next is submitted: who is cut off here goes on with what is missing.
            for count in self.campaign.missing(&self.wanted) {
                self.submit(count).await?;
            }
            match self.poll().await {
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

    async fn submit(&mut self, count: Count) -> Result<(), CliError> {
        // Before: a record that cannot be written must not come to light when the job is there.
        self.record.save(&self.campaign)?;
        let mut options = self.ask.options(count);
        options.extend(self.campaign.last_open().map(|job| format!("--dependency=afterany:{job}")));
        let job_id = submit::plain(&self.campaign.subject, &options).await?;
        let submitted_at = self.clock.now();
        self.campaign.runs.push(Run { count, job_id, submitted_at, outcome: None });
        self.record.save(&self.campaign)
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
