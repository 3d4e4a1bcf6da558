//! Puts the scheduler together from its configuration and runs it until told to stop: the store first, then the
//! reconcilers, then the servers; and back in the opposite order.

use crate::agents::Agents;
use crate::config::{operators, settings};
use crate::context::{Context, Settings};
use crate::engine::Engine;
use crate::grpc::agent::AgentServer;
use crate::grpc::fair::{Fair, Turns, incoming};
use crate::grpc::limits;
use crate::grpc::operator::OperatorServer;
use crate::heartbeat::behind_link;
use crate::metrics;
use crate::reconcilers;
use crate::rules::Rule;
use crate::submitted;
use crate::web;
use anyhow::Context as _;
use pillion_auth::{Gate, Prover};
use pillion_config::Scheduler;
use pillion_core::SystemClock;
use pillion_slurm::command::{CommandSettings, CommandSlurm};
use pillion_store::Store;
use pillion_store::postgres::{Leadership, PgStore};
use pillion_store::private_postgres::PrivatePostgres;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

/// Runs the scheduler until `stop` is cancelled. `path`: the configuration's file; `rules`: what of it is told to everybody.
///
/// # Errors
/// What kept it from starting: database, ports. Once it runs, nothing but `stop` ends it.
pub async fn run(
    config: Scheduler,
    path: PathBuf,
    rules: Vec<Rule>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let (store, postgres, database) = open_store(&config).await?;
    let store = Arc::new(store);
    let slurm = CommandSlurm::new(CommandSettings {
        binary_directory: config.slurm.binary_directory.clone(),
        conf: config.slurm.conf.clone(),
        timeout: Duration::from_secs(config.slurm.timeout_seconds),
    });
    let context = Arc::new(Context::new(
        Arc::new(SystemClock),
        Arc::new(slurm),
        Arc::clone(&store) as Arc<dyn Store>,
        Arc::new(Agents::default()),
        Settings { rules, config_path: Some(path), ..settings(&config) },
    ));
    let engine = Arc::new(Engine::new(Arc::clone(&context)));
    let mut tasks = JoinSet::new();
    let postgres = postgres.map(Arc::new);
    if let Some(postgres) = &postgres {
        tasks.spawn(keep_postgres(Arc::clone(postgres), stop.clone()));
    }
    spawn_servers(&mut tasks, &config, &context, &engine, (&store, database), &stop).await?;
    let scan_period = Duration::from_secs_f64(config.scan_period_seconds);
    reconcilers::spawn(&mut tasks, reconcilers::all(scan_period, &context, &engine), &context, &stop);
    let submitted = behind_link(&config.heartbeat_path).with_file_name(submitted::FILE_NAME);
    tasks.spawn(submitted::listen(submitted, Arc::clone(&context), stop.clone()));
    spawn_metrics(&mut tasks, &config, &context, &store, &stop);
    let unwatched = config.first_runs_unwatched();
    if !unwatched.is_empty() {
        warn!(partitions = ?unwatched, "first runs stay alone: policy.first_runs = \"host\" needs a watch that acts in every partition of the pool");
    }
    context.set_leading(false);
    let leading = tokio::spawn(lead(Arc::clone(&context), Arc::clone(&store), stop.clone()));
    let lock = leading.abort_handle();
    tasks.spawn(watch_over(leading, stop.clone()));
    info!(mode = config.mode.as_str(), pool = ?config.pool.partitions, tcp = %config.listen.tcp, "scheduler runs");
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended {
            error!(%error, "a task ended badly; stopping");
            stop.cancel();
        }
    }
    // Nobody else leads before the last of our calls has been answered.
    lock.abort();
    let _ = std::fs::remove_file(behind_link(&config.listen.socket));
    // Every task has ended, so nobody else holds it.
    if let Some(postgres) = postgres.and_then(Arc::into_inner) {
        postgres.stop().await;
    }
    Ok(())
}

/// Starts our own Postgres again whenever it has died. Until then the store does not answer, nothing is decided, and the
/// dead man's switch starts the jobs that wait.
async fn keep_postgres(postgres: Arc<PrivatePostgres>, stop: CancellationToken) {
    let mut last_error = None;
    loop {
        tokio::select! { () = stop.cancelled() => return, () = tokio::time::sleep(Duration::from_secs(1)) => {} }
        match postgres.keep_running().await {
            Ok(false) => {}
            Ok(true) => {
                warn!("the private Postgres was gone; it runs again");
                last_error = None;
            }
            Err(error) => {
                let text = pillion_core::report(&error);
                if last_error.as_ref() != Some(&text) {
                    error!(error = %text, "the private Postgres is gone and does not start; trying again");
                }
                last_error = Some(text);
            }
        }
    }
}

/// One that leads never again is of no use: systemd starts another.
async fn watch_over(leading: JoinHandle<()>, stop: CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => {}
        ended = leading => if let Err(error) = ended {
            error!(%error, "who leads is not asked any more; stopping");
            stop.cancel();
        }
    }
}

/// Leads whenever nobody else does: reconcilers act only then. Told to stop, it acts no more and keeps the lock until it is ended itself,
/// because what was begun goes on until it is done.
async fn lead(context: Arc<Context>, store: Arc<PgStore>, stop: CancellationToken) {
    let second = Duration::from_secs(1);
    while !stop.is_cancelled() {
        let asked_at = Instant::now();
        match store.try_lead().await {
            Ok(Some(leadership)) => {
                info!("leading");
                context.set_following(false);
                context.set_leads_until(asked_at + Leadership::HELD_FOR);
                context.set_leading(true);
                keep(leadership, &context, &stop).await;
                warn!("not leading any more: the connection to the database broke");
            }
            Ok(None) => {
                debug!("another scheduler leads");
                context.set_following(true);
            }
            Err(error) => debug!(error = %pillion_core::report(&error), "cannot ask who leads"),
        }
        tokio::time::sleep(second).await;
    }
}

/// Leads while the lock is ours, and keeps it.
async fn keep(mut leadership: Leadership, context: &Context, stop: &CancellationToken) {
    loop {
        let asked_at = Instant::now();
        if !leadership.is_held().await {
            context.set_leading(false);
            return;
        }
        context.set_leads_until(asked_at + Leadership::HELD_FOR);
        tokio::select! {
            () = stop.cancelled(), if context.is_leading() => context.set_leading(false),
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    }
}

/// The store that is configured, and our own Postgres where that is it, with a sentence on where it is.
pub(crate) async fn open_store(
    config: &Scheduler,
) -> anyhow::Result<(PgStore, Option<PrivatePostgres>, String)> {
    if let Some(url) = &config.database.url {
        let store = PgStore::connect(url).await.context("cannot open the database of database.url")?;
        return Ok((store, None, "as configured by database.url".to_owned()));
    }
    let directory = config.state_directory.join("postgres");
    info!(directory = %directory.display(), "starting a private Postgres");
    let postgres = PrivatePostgres::start(&directory, config.database.binary_directory.as_deref())
        .await
        .context("cannot run a private Postgres")?;
    let store = PgStore::connect(postgres.url()).await.context("cannot open the private database")?;
    Ok((store, Some(postgres), format!("private, in {}", directory.display())))
}

fn spawn_metrics(
    tasks: &mut JoinSet<()>,
    config: &Scheduler,
    context: &Arc<Context>,
    store: &Arc<PgStore>,
    stop: &CancellationToken,
) {
    let Some(address) = config.metrics.listen_address else { return };
    let (context, store) = (Arc::clone(context), Arc::clone(store));
    let served =
        pillion_metrics::serve(address, move || metrics::current(&context, Some(&store)), stop.clone());
    tasks.spawn(served);
}

async fn spawn_servers(
    tasks: &mut JoinSet<()>,
    config: &Scheduler,
    context: &Arc<Context>,
    engine: &Arc<Engine>,
    (store, database): (&Arc<PgStore>, String),
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let operators = operators(config);
    let prover = Arc::new(Prover::new(&config.auth, Arc::clone(&context.clock)));
    let operator = OperatorServer::new(Arc::clone(context), Arc::clone(engine), Arc::clone(store), database);
    let operator = Arc::new(operator.with_prover(Arc::clone(&prover)));
    let turns = Arc::new(Turns::default());
    let operator_service = || {
        let service = Fair::new(limits::operators(Arc::clone(&operator)), Arc::clone(&turns));
        let operators = operators.clone();
        tonic::service::interceptor::InterceptedService::new(service, move |request| {
            operators.identify(request)
        })
    };
    let gate = Gate::new(prover, Arc::clone(&context.refusals), Arc::clone(&context.turned_away));
    let gate = gate.context("cannot set up TLS (auth)")?;
    let gate = Arc::new(gate);
    let agent_service = limits::agents(AgentServer::new(Arc::clone(context), stop.clone()));

    let listen = &config.listen;
    let tcp =
        TcpListener::bind(listen.tcp).await.with_context(|| format!("cannot listen on {}", listen.tcp))?;
    let over_tcp = limits::server()
        .add_service(agent_service)
        .add_service(operator_service())
        .serve_with_incoming_shutdown(gate.serve(tcp, stop.clone()), stop.clone().cancelled_owned());
    let unix = bind_socket(&listen.socket)?;
    let (connections, accepting) = incoming(unix, Arc::clone(&context.turned_away));
    tasks.spawn(accepting);
    let over_unix = limits::server()
        .add_service(operator_service())
        .serve_with_incoming_shutdown(connections, stop.clone().cancelled_owned());
    if let Some(address) = config.web.listen_address {
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("cannot serve the web page on {address}"))?;
        let allow_remote = config.web.allow_remote;
        let served =
            web::serve(listener, Arc::clone(&operator), operators.clone(), allow_remote, stop.clone());
        tasks.spawn(served);
        info!(%address, allow_remote, "web page");
    }
    for server in [tokio::spawn(over_tcp), tokio::spawn(over_unix)] {
        tasks.spawn(async move {
            match server.await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => error!(error = %pillion_core::report(&error), "a server ended badly"),
                Err(error) => error!(%error, "a server ended badly"),
            }
        });
    }
    Ok(())
}

/// Everybody may ask on the socket; `grpc::auth` tells callers apart by their credentials.
fn bind_socket(path: &Path) -> anyhow::Result<UnixListener> {
    let path = &behind_link(path);
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    }
    // A killed scheduler leaves its socket behind.
    let _ = std::fs::remove_file(path);
    let socket = UnixListener::bind(path).with_context(|| format!("cannot listen on {}", path.display()))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))
        .with_context(|| format!("cannot open {} to everybody", path.display()))?;
    Ok(socket)
}

#[cfg(test)]
mod tests;
