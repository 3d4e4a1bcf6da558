//! The program: arguments, logging, configuration; the work is in [`run`](mod@crate::run).

use crate::cleanup::cleanup;
use crate::config::Config;
use crate::ending::{let_go, list_path};
use crate::poke::{job_of, poke_before};
use clap::{Parser, Subcommand};
use pillion_config::{AGENT_CONFIG_PATH, CONFIG_PATH};
use pillion_core::text::shown;
use pillion_core::{SystemClock, exit};
use rand::SeedableRng as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// How long a reason for Slurm may be.
const REASON_CHARS_MAX: usize = 200;

/// Measures this node's devices, carries out shares and answers the SPANK plugin.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The configuration [default: /etc/pillion/agent.toml where it exists, else /etc/pillion/pillion.toml]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<Task>,
}

#[derive(Subcommand)]
enum Task {
    /// Run the agent (the default)
    Run,
    /// Read the configuration, say what is wrong with it, and end
    CheckConfig,
    /// Tell the running agent to look at its devices now, and to make whole what a job gets all of: for Prolog, always succeeds
    Poke,
    /// End MPS daemons and take away instances that nobody uses any more, with or without an agent: for Epilog. Succeeds within
    /// 5 s, but for 69: it prints why a device that nobody has any of cannot be made whole, for which the node is to be drained
    Cleanup,
    /// Let jobs go on that an agent held and does not hold any more: when its unit stops, always succeeds
    LetGo,
}

/// What the program does with its arguments.
pub fn main() -> ExitCode {
    let Arguments { config, command } = Arguments::parse();
    let config = pillion_config::read_agent(&config.unwrap_or_else(usual_config), &crate::host_name())
        .map_err(anyhow::Error::from);
    match (command.unwrap_or(Task::Run), config) {
        (Task::Poke, config) => never_fails(
            config.and_then(|config| poke_before(&config.handoff_socket, |name| std::env::var(name).ok())),
        ),
        (Task::Cleanup, config) => {
            let ending = job_of(|name| std::env::var(name).ok());
            cleaned(config.and_then(|config| cleanup(&config, ending)))
        }
        (Task::LetGo, config) => never_fails(config.map(|config| {
            let_go(&list_path(&config.state_directory));
        })),
        (_, Err(error)) => crate::failed(exit::BAD_CONFIG, &error),
        (Task::CheckConfig, Ok(_)) => ExitCode::SUCCESS,
        (Task::Run, Ok(config)) => run(config).map_or_else(|error| failed(&error), |()| ExitCode::SUCCESS),
    }
}

/// Its unit starts it again, but not where somebody has to change something first.
fn failed(error: &anyhow::Error) -> ExitCode {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    let status = if causes.any(exit::needs_somebody) { exit::BAD_SETUP } else { 1 };
    crate::failed(status, error)
}

/// The file of the agent alone, as earlier releases had it, else the common one.
fn usual_config() -> PathBuf {
    let own = PathBuf::from(AGENT_CONFIG_PATH);
    if own.exists() { own } else { PathBuf::from(CONFIG_PATH) }
}

/// Fails only where the node is to be drained: for what it prints.
fn cleaned(result: anyhow::Result<Vec<String>>) -> ExitCode {
    match result {
        Ok(not_whole) if !not_whole.is_empty() => {
            println!("{}", shown(&not_whole.join("; "), REASON_CHARS_MAX));
            ExitCode::from(exit::NOT_WHOLE)
        }
        result => never_fails(result.map(drop)),
    }
}

/// A hook that fails drains its node.
fn never_fails(result: anyhow::Result<()>) -> ExitCode {
    if let Err(error) = result {
        eprintln!("pillion-agent: {error:#}");
    }
    ExitCode::SUCCESS
}

#[tokio::main(flavor = "current_thread")]
async fn run(config: Config) -> anyhow::Result<()> {
    crate::start_logging();
    let stop = crate::stop_on_signals()?;
    let mut chance = rand::rngs::StdRng::from_os_rng();
    crate::run(config, Arc::new(SystemClock), stop, &mut chance).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    /// With `PILLION_BLESS=1` the page is written anew.
    #[test]
    fn the_manual_page_is_current() {
        let mut page = Vec::new();
        clap_mangen::Man::new(Arguments::command().name("pillion-agent"))
            .section("8")
            .render(&mut page)
            .unwrap();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/man/pillion-agent.8");
        if std::env::var_os("PILLION_BLESS").is_some() {
            std::fs::write(path, &page).unwrap();
        }
        assert!(
            std::fs::read(path).unwrap() == page,
            "docs/man/pillion-agent.8 is old; PILLION_BLESS=1 cargo test -p pillion-agent the_manual writes it anew"
        );
    }
}
