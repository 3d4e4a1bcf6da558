//! The program `pillion-scheduler`: arguments, log, configuration, run.

use crate::keep;
use crate::rules::{self, Rule};
use anyhow::Context as _;
use clap::{Parser, Subcommand};
use pillion_config::Scheduler;
use pillion_core::exit;
use pillion_store::postgres::ConnectError;
use pillion_store::private_postgres::PrivatePostgresError;
use std::path::PathBuf;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// What is logged unless `PILLION_LOG` says otherwise. Not Postgres' notices, which its own log has: where it refuses a commit
/// that we then run again, sqlx sends a rollback after it, and Postgres warns that there is no transaction.
const LOG_FILTER: &str = "info,sqlx::postgres::notice=error";

/// Pairs jobs on GPUs where neither slows the other more than promised. Runs beside slurmctld, as `SlurmUser`.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Configuration file
    #[arg(long, default_value = "/etc/pillion/pillion.toml")]
    config: PathBuf,
    #[command(subcommand)]
    command: Option<Action>,
}

#[derive(Subcommand)]
enum Action {
    /// Run until SIGTERM (the default)
    Run,
    /// Read the configuration, say what is wrong with it, and end
    CheckConfig,
    /// Write what was learnt (profiles, names of workloads, who shared a device with whom) into a file, whether a scheduler runs or not.
    /// The file names users, and is made for its owner alone
    Export {
        /// It is replaced when the new one is whole
        file: PathBuf,
    },
    /// Take in what such a file holds, all of it or nothing. No scheduler may run. Of a profile that is known here the one of more runs
    /// stays, of as many the newer one; a name and an observation that are known here stay
    Import {
        /// Written by this release or an earlier one
        file: PathBuf,
    },
    /// Bring a database up to date whose tables belong to another role than the scheduler's, and let that one read and write them. Run
    /// it before the scheduler of a new release, as somebody who may act as the owner
    Migrate {
        /// Where it is, written as `database.url` is. A password belongs into PGPASSFILE: a command line is seen by everybody
        #[arg(long, value_name = "URL")]
        database: String,
        /// To whom the tables belong
        #[arg(long, default_value = "pillion_owner")]
        owner: String,
        /// As whom the scheduler connects
        #[arg(long, default_value = "pillion_scheduler")]
        role: String,
    },
}

/// Runs the program.
pub fn main() -> ExitCode {
    // For the end-to-end tests, which kill it at the points that `FAILPOINTS` names; a release has none.
    let _armed = cfg!(debug_assertions).then(fail::FailScenario::setup);
    let arguments = Arguments::parse();
    pillion_log::start("PILLION_LOG", LOG_FILTER);
    if let Some(Action::Migrate { database, owner, role }) = &arguments.command {
        return done(at_once(keep::migrate(database, owner, role)));
    }
    let (config, in_force) = match pillion_config::read_scheduler_in_force(&arguments.config) {
        Ok(read) => read,
        Err(error) => {
            eprintln!("pillion-scheduler: {}", pillion_core::report(&error));
            return ExitCode::from(exit::BAD_CONFIG);
        }
    };
    match &arguments.command {
        Some(Action::CheckConfig) => return ExitCode::SUCCESS,
        Some(Action::Export { file }) => return done(at_once(keep::export(&config, file))),
        Some(Action::Import { file }) => return done(at_once(keep::import(&config, file))),
        Some(Action::Run | Action::Migrate { .. }) | None => {}
    }
    let path = std::path::absolute(&arguments.config).unwrap_or_else(|_| arguments.config.clone());
    done(serve(config, path, rules::configured(&in_force, &arguments.config)).map(|()| String::new()))
}

/// Says what was done, or why not, and ends.
fn done(outcome: anyhow::Result<String>) -> ExitCode {
    match outcome {
        Ok(said) => {
            if !said.is_empty() {
                println!("{said}");
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("pillion-scheduler: {error:#}");
            if needs_somebody(&error) { ExitCode::from(exit::BAD_SETUP) } else { ExitCode::FAILURE }
        }
    }
}

/// Runs what ends by itself.
fn at_once<T>(what: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    runtime().context("cannot start threads")?.block_on(what)
}

/// Whether starting again gives the same answer until somebody changes something.
fn needs_somebody(error: &anyhow::Error) -> bool {
    if let Some(error) = error.downcast_ref::<PrivatePostgresError>() {
        return error.needs_somebody();
    }
    if let Some(error) = error.downcast_ref::<ConnectError>() {
        return error.needs_somebody();
    }
    error.downcast_ref::<std::io::Error>().is_some_and(exit::needs_somebody)
}

/// Threads at least: a scan of a long queue and a plan for it are a second of arithmetic each, and nothing else is to wait for
/// them. Where there are fewer cores, Linux divides those.
const THREADS_MIN: usize = 4;

/// The runtime of the scheduler.
///
/// # Errors
/// What kept its threads from starting.
pub fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).max(THREADS_MIN);
    tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()
}

fn serve(config: Scheduler, path: PathBuf, rules: Vec<Rule>) -> anyhow::Result<()> {
    runtime().context("cannot start threads")?.block_on(run(config, path, rules))
}

async fn run(config: Scheduler, path: PathBuf, rules: Vec<Rule>) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let on_signal = stop.clone();
    tokio::spawn(async move {
        tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
        on_signal.cancel();
    });
    crate::run::run(config, path, rules, stop).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;
    use pillion_config::DatabaseConfig;

    fn failure(config: Scheduler) -> anyhow::Error {
        serve(config, PathBuf::new(), Vec::new()).expect_err("it cannot start")
    }

    /// As root the sentence is another one: Postgres refuses root.
    #[test]
    fn without_programs_of_postgres_it_ends_for_good_with_one_sentence() {
        let folder = tempfile::tempdir().unwrap();
        let database =
            DatabaseConfig { binary_directory: Some("/nowhere".into()), ..DatabaseConfig::default() };
        let error =
            failure(Scheduler { state_directory: folder.path().into(), database, ..Scheduler::default() });
        let text = format!("{error:#}");
        assert!(text.starts_with("cannot run a private Postgres: ") && text.lines().count() == 1, "{text}");
        assert!(needs_somebody(&error), "{text}");
        let missing = PrivatePostgresError::NoPrograms { searched: "/nowhere".to_owned() };
        assert!(needs_somebody(&anyhow::Error::new(missing).context("cannot run a private Postgres")));
    }

    #[test]
    fn a_database_that_nobody_could_open_ends_it_for_good_and_one_that_is_away_does_not() {
        let url = Some("postgres://pillion@localhost:0x/pillion".to_owned());
        let error = failure(Scheduler {
            database: DatabaseConfig { url, ..DatabaseConfig::default() },
            ..Scheduler::default()
        });
        assert!(needs_somebody(&error), "{error:#}");
        let not_responding = ConnectError::NotResponding {
            waited: std::time::Duration::ZERO,
            source: sqlx::Error::PoolTimedOut,
        };
        assert!(!needs_somebody(&anyhow::Error::new(not_responding).context("cannot open")));
        let newer = ConnectError::NewerSchema { found: 2, known: 1 };
        assert!(needs_somebody(&anyhow::Error::new(newer).context("cannot open")));
    }

    #[test]
    fn a_socket_in_a_folder_of_somebody_else_ends_it_for_good() {
        let of_kind = |kind| anyhow::Error::new(std::io::Error::from(kind)).context("cannot listen on it");
        assert!(needs_somebody(&of_kind(std::io::ErrorKind::PermissionDenied)));
        assert!(!needs_somebody(&of_kind(std::io::ErrorKind::AddrInUse)));
    }

    /// With `PILLION_BLESS=1` the page is written anew.
    #[test]
    fn the_manual_page_is_current() {
        let mut page = Vec::new();
        clap_mangen::Man::new(Arguments::command().name("pillion-scheduler"))
            .section("8")
            .render(&mut page)
            .unwrap();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/man/pillion-scheduler.8");
        if std::env::var_os("PILLION_BLESS").is_some() {
            std::fs::write(path, &page).unwrap();
        }
        assert!(
            std::fs::read(path).unwrap() == page,
            "docs/man/pillion-scheduler.8 is old; PILLION_BLESS=1 cargo test -p pillion-scheduler the_manual writes it anew"
        );
    }
}
