//! Puts the components together and takes them down again in order: nobody new is served, then the devices finish what they
//! were asked, then the journal writes what they said.

use crate::assembly::{COMMANDS_LENGTH, REPORTS_LENGTH, ask_regularly, doors, make_private};
use crate::backend::backend;
use crate::config::{AgentMode, Config, mig_policy, mps_policy};
use crate::devices::{Command, Devices, DevicesParts};
use crate::ending::{CGROUPS, Endings, list_path};
use crate::handoff_server::{self, HandoffServer, Told};
use crate::inventory::{self, Site};
use crate::journal::Journal;
use crate::journal_writer::write_reports;
use crate::mechanism::Mechanisms;
use crate::mechanism::mig::Mig;
use crate::metrics;
use crate::node::{Inventory, Node};
use crate::observe;
use crate::procfs::ProcFs;
use crate::progress::ProgressFiles;
use crate::sampler::{Attribution, SamplerTools};
use crate::setup::Places;
use crate::share::ShareTable;
use crate::uplink::Uplink;
use anyhow::Context as _;
use pillion_core::Clock;
use pillion_core::device::DeviceDescription;
use pillion_core::share::Share;
use pillion_device::Backend;
use pillion_metrics::Page;
use rand::RngCore;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// How often it is looked whether more is to be done with starts that are being ended.
const ENDINGS_PERIOD: Duration = Duration::from_millis(500);
/// How many answers may wait for the scheduler.
const ANSWERS_LENGTH: usize = 256;

/// Runs the agent until `stop`. `chance` spreads the attempts to reach the scheduler and names a new journal.
///
/// # Errors
/// If it cannot begin: directories, socket or journal.
pub async fn run(
    config: Config,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
    chance: &mut (dyn RngCore + Send),
) -> anyhow::Result<()> {
    if !rustix::process::geteuid().is_root() {
        warn!("not root: jobs of other users cannot be measured, and devices may refuse changes");
    }
    if config.mode == AgentMode::Observe {
        return observe::run(config, clock, stop, chance).await;
    }
    let state = &config.state_directory;
    make_private(state).with_context(|| format!("making {}", state.display()))?;
    let new_id = format!("{:016x}{:016x}", chance.next_u64(), chance.next_u64());
    let journal = Arc::new(Journal::open(state, config.journal_bytes_max, || new_id.clone())?);
    let mut backend = backend(&config, &clock);
    let site = inventory::site(&config, &ProcFs::new("/proc").boot_id());
    let Some(inventory) = inventory::first(backend.as_mut(), &site, &stop).await else { return Ok(()) };
    if let Some(fault) = &inventory.fault {
        warn!("{}; jobs here are not shared, and it is looked for again", fault.detail);
    }
    // Only now: a task that finds no socket starts at once, one that finds a silent one waits.
    let listener = handoff_server::listen(&config.handoff_socket)
        .with_context(|| format!("listening on {}", config.handoff_socket.display()))?;
    info!(node = %config.node(), devices = inventory.devices.len(), journal = journal.id(), "agent starts");
    let components = Components { clock, stop, journal, backend, inventory, site, listener };
    let result = serve(&config, components, chance).await;
    let _ = std::fs::remove_file(&config.handoff_socket);
    result
}

/// What was opened.
struct Components {
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
    journal: Arc<Journal>,
    backend: Box<dyn Backend>,
    inventory: Inventory,
    site: Site,
    listener: UnixListener,
}

async fn tell_metrics<F>(config: &Config, page: F, stop: CancellationToken)
where
    F: Fn() -> Page + Send + Sync + 'static,
{
    if let Some(address) = config.metrics.listen_address {
        pillion_metrics::serve(address, page, stop).await;
    }
}

async fn serve(
    config: &Config,
    components: Components,
    chance: &mut (dyn RngCore + Send),
) -> anyhow::Result<()> {
    let Components { clock, stop, journal, backend, inventory, site, listener } = components;
    let devices = inventory.devices.to_vec();
    let progress_files = progress_files(config)?;
    let node = Arc::new(node(config, inventory)?);
    let proc = ProcFs::new("/proc");
    let mechanisms = mechanisms(config, &devices, &node.all_shares(), &proc);
    let (commands, commands_out) = mpsc::channel(COMMANDS_LENGTH);
    let page = metrics::maker(Arc::clone(&node), Arc::clone(&journal));
    let (reports, reports_out) = mpsc::channel(REPORTS_LENGTH);
    let (answers, answers_out) = mpsc::channel(ANSWERS_LENGTH);
    let (appended, appended_out) = watch::channel(journal.last_sequence());
    let (conditions, conditions_out) = watch::channel(Vec::new());

    let handoff = HandoffServer {
        node: Arc::clone(&node),
        clock: Arc::clone(&clock),
        proc: proc.clone(),
        progress_files: progress_files.clone(),
        mps_pipe_directory: mechanisms.mps_pipe_finder(),
        commands: commands.clone(),
        reports: reports.clone(),
        told: Told::default(),
    };
    let uplink = Uplink {
        doors: doors(config, &clock),
        retry_max: Duration::from_secs_f64(config.scheduler.retry_seconds_max),
        node: Arc::clone(&node),
        clock: Arc::clone(&clock),
        journal: Arc::clone(&journal),
        appended: appended_out,
        commands: commands.clone(),
        answers: answers_out,
        conditions: conditions_out,
        inventory: node.inventory(),
        setup: Some(Places::of(config)),
    };
    let attribution = Attribution::Told(progress_files);
    let tools = SamplerTools { devices, proc, attribution, period_seconds: config.sample_period_seconds };
    let parts = DevicesParts {
        backend,
        clock,
        node,
        mechanisms,
        tools,
        site,
        state_path: config.state_directory.join("runs.json"),
        endings: Endings::new(list_path(&config.state_directory), CGROUPS),
        conditions,
        reports,
        answers,
    };
    // Before the first step is answered: it knows which starts run here.
    let devices = Devices::new(parts);
    let device_thread = tokio::task::spawn_blocking(move || devices.run(commands_out));
    let journal_thread = tokio::task::spawn_blocking(move || write_reports(&journal, reports_out, &appended));

    tokio::join!(
        tell_metrics(config, page, stop.clone()),
        handoff.serve(listener, stop.clone()),
        uplink.run(stop.clone(), chance),
        ask_regularly(commands.clone(), (config.sample_period(), || Command::Sample), stop.clone()),
        ask_regularly(commands, (ENDINGS_PERIOD, || Command::GoOnEnding), stop.clone()),
    );
    device_thread.await.context("the device thread failed")?;
    journal_thread.await.context("the journal thread failed")?;
    info!("agent has stopped");
    Ok(())
}

/// What sets up shares, from where an earlier agent left it.
fn mechanisms(config: &Config, devices: &[DeviceDescription], shares: &[Share], proc: &ProcFs) -> Mechanisms {
    let mig = Mig::open(mig_policy(config), &config.state_directory, &proc.boot_id());
    Mechanisms::new(&config.runtime_directory, mps_policy(config), devices, shares).cutting(mig)
}

/// Where jobs write their counters.
fn progress_files(config: &Config) -> anyhow::Result<ProgressFiles> {
    let directory = config.runtime_directory.join("progress");
    let files = ProgressFiles::new(&config.runtime_directory)
        .with_context(|| format!("making {}", directory.display()))?;
    if !files.is_bounded() {
        info!(directory = %directory.display(), "no file system of its own: jobs can fill the one that it lies on");
    }
    Ok(files)
}

/// What the parts of the agent share, from where an earlier agent left it.
fn node(config: &Config, inventory: Inventory) -> anyhow::Result<Node> {
    let markers = config.handoff_socket.parent().unwrap_or(Path::new("/")).join("jobs");
    let shares = ShareTable::open(config.state_directory.join("shares.json"));
    Node::new(config.node(), inventory, shares, markers).context("making the markers' directory")
}
