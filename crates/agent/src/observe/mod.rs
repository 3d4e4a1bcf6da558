//! `agent.mode = "observe"`: the agent of an ordinary node, which measures the jobs of others and changes nothing. No mechanism, no
//! socket for the plugin, no folder but its own: what could touch a job or a device is not even made here.
//!
//! ```text
//!  scheduler ◄─ uplink ─ journal ◄─ this thread: sampler (tracker, observe::steps) ─► drivers, read only
//! ```

pub mod steps;

use crate::assembly::{COMMANDS_LENGTH, REPORTS_LENGTH, ask_regularly, doors, make_private};
use crate::backend::observing;
use crate::backoff::Backoff;
use crate::config::Config;
use crate::devices::Command;
use crate::disk;
use crate::health::{self, Health};
use crate::inventory::{self, Site};
use crate::journal::Journal;
use crate::journal_writer::write_reports;
use crate::looks;
use crate::metrics;
use crate::node::Node;
use crate::procfs::ProcFs;
use crate::sampler::{Attribution, Sampler, SamplerState, SamplerTools};
use crate::uplink::Uplink;
use anyhow::Context as _;
use pillion_core::health::DeviceCondition;
use pillion_core::report::{EndOutcome, EndResult, FromAgent, ReportBody, ShareResult};
use pillion_core::{Clock, UnixTime};
use pillion_device::{Backend, DeviceError, DeviceStates};
use rand::RngCore;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// How often runs in progress are written down: what a killed agent loses of them at most.
const SAVE_SECONDS: f64 = 15.0;
/// Why it takes no share.
const NO_SHARES: &str = "this agent observes (agent.mode): nothing is shared on its node";

/// Observes until `stop`. `chance` spreads the attempts to reach the scheduler and names a new journal.
///
/// # Errors
/// If it cannot begin: its folder or its journal.
pub(crate) async fn run(
    config: Config,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
    chance: &mut (dyn RngCore + Send),
) -> anyhow::Result<()> {
    let state = &config.state_directory;
    make_private(state).with_context(|| format!("making {}", state.display()))?;
    let new_id = format!("{:016x}{:016x}", chance.next_u64(), chance.next_u64());
    let journal = Arc::new(Journal::open(state, config.journal_bytes_max, || new_id.clone())?);
    let mut backend = observing(&config, &clock);
    let proc = ProcFs::new("/proc");
    let site = inventory::site(&config, &proc.boot_id());
    let Some(inventory) = inventory::first(backend.as_mut(), &site, &stop).await else { return Ok(()) };
    info!(node = %config.node(), devices = inventory.devices.len(), journal = journal.id(), "agent observes");
    let devices = inventory.devices.to_vec();
    let node = Arc::new(Node::observed(config.node(), inventory));
    let (commands, commands_out) = mpsc::channel(COMMANDS_LENGTH);
    let (reports, reports_out) = mpsc::channel(REPORTS_LENGTH);
    let (answers, answers_out) = mpsc::channel(COMMANDS_LENGTH);
    let (appended, appended_out) = watch::channel(journal.last_sequence());
    let (conditions, conditions_out) = watch::channel(Vec::new());
    let uplink = Uplink {
        doors: doors(&config, &clock),
        retry_max: Duration::from_secs_f64(config.scheduler.retry_seconds_max),
        node: Arc::clone(&node),
        clock: Arc::clone(&clock),
        journal: Arc::clone(&journal),
        appended: appended_out,
        commands: commands.clone(),
        answers: answers_out,
        conditions: conditions_out,
        inventory: node.inventory(),
        setup: None,
    };
    let page = metrics::maker(Arc::clone(&node), Arc::clone(&journal));
    let attribution = Attribution::Observed;
    let tools = SamplerTools { devices, proc, attribution, period_seconds: config.sample_period_seconds };
    let state_path = state.join("observed.json");
    let observer =
        Observer::new(backend, clock, node, (tools, site), state_path, conditions, (reports, answers));
    let device_thread = tokio::task::spawn_blocking(move || observer.run(commands_out));
    let journal_thread = tokio::task::spawn_blocking(move || write_reports(&journal, reports_out, &appended));
    let told = async {
        if let Some(address) = config.metrics.listen_address {
            pillion_metrics::serve(address, page, stop.clone()).await;
        }
    };
    tokio::join!(
        told,
        uplink.run(stop.clone(), chance),
        ask_regularly(commands, (config.sample_period(), || Command::Sample), stop.clone()),
    );
    device_thread.await.context("the device thread failed")?;
    journal_thread.await.context("the journal thread failed")?;
    info!("agent has stopped");
    Ok(())
}

/// The thread that looks at the devices and at who is on them.
struct Observer {
    backend: Box<dyn Backend>,
    clock: Arc<dyn Clock>,
    node: Arc<Node>,
    sampler: Sampler,
    health: Health,
    site: Site,
    backoff: Backoff,
    backend_fails: bool,
    state_path: PathBuf,
    saved_at: UnixTime,
    /// How many starts were written down then.
    saved_starts: usize,
    conditions: watch::Sender<Vec<DeviceCondition>>,
    reports: mpsc::Sender<ReportBody>,
    answers: mpsc::Sender<FromAgent>,
}

impl Observer {
    /// Goes on where an earlier agent stopped.
    fn new(
        backend: Box<dyn Backend>,
        clock: Arc<dyn Clock>,
        node: Arc<Node>,
        (tools, site): (SamplerTools, Site),
        state_path: PathBuf,
        conditions: watch::Sender<Vec<DeviceCondition>>,
        (reports, answers): (mpsc::Sender<ReportBody>, mpsc::Sender<FromAgent>),
    ) -> Self {
        let state: SamplerState = disk::read_or_default(&state_path);
        let (sampler, health) = (Sampler::new(tools, state), Health::new(&node.devices()));
        let (saved_at, backoff) = (clock.now(), Backoff::new(Instant::now()));
        Self {
            backend,
            clock,
            node,
            sampler,
            health,
            site,
            backoff,
            backend_fails: false,
            state_path,
            saved_at,
            saved_starts: 0,
            conditions,
            reports,
            answers,
        }
    }

    /// Works until nobody can ask any more; then writes down what is in progress.
    fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        while let Some(command) = commands.blocking_recv() {
            match command {
                Command::Sample => self.sample(),
                Command::Prepare(share) => {
                    let (decision_id, start, error) =
                        (share.decision_id, share.start, Some(NO_SHARES.to_owned()));
                    self.answer(FromAgent::ShareResult(ShareResult {
                        decision_id,
                        start,
                        error,
                        revoked: false,
                    }));
                }
                Command::Revoke { decision_id, start } => {
                    self.answer(FromAgent::ShareResult(ShareResult {
                        decision_id,
                        start,
                        error: None,
                        revoked: true,
                    }));
                }
                Command::End { start, .. } => {
                    let outcome = EndOutcome::NotHeld {
                        why: NO_SHARES.to_owned(),
                        outlasts_sigterm: false,
                        is_of_it_alone: false,
                    };
                    self.answer(FromAgent::EndResult(EndResult { start, outcome }));
                }
                // Nobody is there who could ask for it.
                Command::Register(_) | Command::GoOnEnding | Command::Whole { .. } => {}
            }
        }
        self.save();
    }

    fn sample(&mut self) {
        if self.backoff.is_due(Instant::now()) {
            let watching = (&mut self.health, &mut self.sampler);
            looks::for_devices(self.backend.as_mut(), &self.site, &self.node, &mut self.backoff, watching);
        }
        let begun = Instant::now();
        let states = looks::at_all(self.backend.as_mut(), &self.node);
        let now = self.clock.now();
        self.node.figures().sampled(now, begun.elapsed());
        self.watch_health(now, states.as_ref());
        let states = looks::or_nothing(states, &mut self.backend_fails);
        let sampled = self.sampler.sample(now, states);
        self.node.figures().tenants(&sampled.tenants);
        self.health.outsiders(now, &sampled.outsiders);
        for report in sampled.reports {
            if self.reports.blocking_send(report).is_err() {
                warn!("the journal takes no more reports");
            }
        }
        // A job that was just found, or has ended, is written down at once: an agent that starts anew goes on with it.
        let starts = self.sampler.start_count();
        let due = !self.sampler.is_idle() && now.seconds_since(self.saved_at) >= SAVE_SECONDS;
        if due || !sampled.ended.is_empty() || starts != self.saved_starts {
            self.save();
            self.saved_starts = starts;
        }
    }

    fn watch_health(&mut self, now: UnixTime, states: Result<&DeviceStates, &DeviceError>) {
        looks::count(&self.node, states.ok());
        self.health.sampled(now, states);
        for notice in self.backend.notices() {
            self.health.noticed(now, &notice);
            self.sampler.noticed(now, &notice);
            let (sentence, _) = health::sentence(&notice);
            info!(device = notice.index, "{sentence}");
        }
        looks::tell(&self.health, &self.node, &self.conditions);
    }

    fn answer(&self, answer: FromAgent) {
        // Nobody listens: the scheduler asks again when it is back.
        let _ = self.answers.try_send(answer);
    }

    fn save(&mut self) {
        self.saved_at = self.clock.now();
        looks::save(&self.sampler, &self.state_path);
    }
}
