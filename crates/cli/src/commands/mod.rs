//! One file a command: it fetches, makes an [`crate::output::Answer`], and leaves the printing to `output`.

pub mod acct;
pub mod backtest;
pub mod config;
pub mod doctor;
pub mod drain;
pub mod events;
pub mod evict;
pub mod explain;
pub mod idle;
pub(crate) mod job_status;
pub mod keygen;
pub mod model;
pub mod nodes;
pub mod pairs;
pub mod plan;
mod plan_files;
mod plan_mig;
pub mod poke;
pub mod policy;
pub mod profile;
pub mod queue;
pub mod replay;
pub mod report;
pub mod rescue;
pub mod rightsize;
pub mod scale;
pub mod setup;
pub mod shadow;
pub mod slurm_conf;
pub mod snapshot;
pub mod status;
pub mod why;

use crate::args::{Args, Command, SnapshotAction, SnapshotArgs, TopArgs};
use crate::client::{Target, connect};
use crate::error::CliError;
use crate::exit::{self, ExitStatus};
use crate::output::{Answer, Format, Output};
use crate::{canary, characterize};
use pillion_core::Clock;

/// Why `top` takes none of the options for scripts.
const TOP_IS_DRAWN: &str = "top is for people; scripts read 'nodes', 'pairs' and 'queue'";

/// Runs the command that was asked for.
///
/// # Errors
/// [`CliError`]; [`crate::run`] prints it and turns it into the exit status.
pub async fn run(args: &Args, clock: &dyn Clock, output: &Output) -> Result<ExitStatus, CliError> {
    let address = &Target::of(&args.global);
    let answer = match &args.command {
        Command::Queue(queue) => queue::fetch(&mut connect(address).await?, queue).await?,
        Command::Pairs(pairs) => {
            let request = pairs::request(pairs, clock.now())?;
            pairs::fetch(&mut connect(address).await?, request).await?
        }
        Command::Why(job) => return about(why::fetch(&mut connect(address).await?, job).await?, output),
        Command::Report(job) => {
            return about(report::fetch(&mut connect(address).await?, job).await?, output);
        }
        Command::Explain(job) => {
            return about(explain::fetch(&mut connect(address).await?, job).await?, output);
        }
        Command::Acct(acct) => {
            let request = acct::request(acct, clock.now())?;
            acct::fetch(&mut connect(address).await?, request).await?
        }
        Command::Profile(profile) => profile::fetch(&mut connect(address).await?, profile).await?,
        Command::Characterize(order) => return characterize::run(order, address, clock, output).await,
        Command::Canary(order) => return canary::run(order, address, clock, output).await,
        Command::Model(model) => model::fetch(&mut connect(address).await?, model).await?,
        Command::Plan(plan) => plan::make(plan, address).await?,
        Command::Backtest(backtest) => backtest::make(backtest)?,
        Command::Replay(order) => replay::make(order)?,
        Command::Scale(order) => scale::make(order, address).await?,
        Command::Snapshot(SnapshotArgs { action: SnapshotAction::Save { file } }) => {
            snapshot::save(&mut connect(address).await?, file).await?
        }
        Command::Doctor(doctor) => return doctor::run(doctor, &args.global, clock, output).await,
        Command::SlurmConf(slurm_conf) => return slurm_conf::run(slurm_conf, &args.global, output),
        Command::Setup(order) => return setup::run(order, &args.global, output).await,
        Command::Config(config) => return config::run(config, &args.global, output),
        Command::Keygen(order) => keygen::run(order, &args.global, clock.now())?,
        Command::Rescue(rescue) => {
            return rescue::run(rescue, args.global.config.as_deref(), clock, output).await;
        }
        Command::Poke => {
            poke::poke(address).await;
            return Ok(exit::OK);
        }
        Command::Nodes => nodes::fetch(&mut connect(address).await?).await?,
        Command::Status => status::fetch(&mut connect(address).await?).await?,
        Command::Drain(order) => {
            let request = drain::request(order)?;
            drain::drain(&mut connect(address).await?, request).await?
        }
        Command::Undrain(order) => {
            let request = drain::undrain_request(order)?;
            return about(drain::undrain(&mut connect(address).await?, request).await?, output);
        }
        Command::Evict(order) => evict::evict(&mut connect(address).await?, order).await?,
        Command::Policy => policy::fetch(&mut connect(address).await?).await?,
        Command::Idle(idle) => idle::fetch(&mut connect(address).await?, idle).await?,
        Command::Rightsize(rightsize) => rightsize::fetch(&mut connect(address).await?, rightsize).await?,
        Command::Shadow(order) => {
            let request = shadow::request(order, clock.now())?;
            shadow::fetch(&mut connect(address).await?, request).await?
        }
        Command::Events(events) => {
            let request = events::request(events, clock.now())?;
            events::fetch(&mut connect(address).await?, request).await?
        }
        Command::Top(top) => return drawn(args, top, clock).await,
    };
    output.print(&answer)?;
    Ok(exit::OK)
}

/// `top`, until its user leaves it.
async fn drawn(args: &Args, top: &TopArgs, clock: &dyn Clock) -> Result<ExitStatus, CliError> {
    if args.global.format() != Format::Table || !args.global.columns.is_empty() {
        return Err(CliError::Usage(TOP_IS_DRAWN.to_owned()));
    }
    crate::top::run(top, &Target::of(&args.global), clock).await?;
    Ok(exit::OK)
}

/// An answer about what is named; not to find it is a problem.
fn about((answer, found): (Answer, bool), output: &Output) -> Result<ExitStatus, CliError> {
    output.print(&answer)?;
    Ok(if found { exit::OK } else { exit::PROBLEM })
}
