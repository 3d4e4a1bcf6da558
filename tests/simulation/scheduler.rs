//! One scheduler process of the simulation: the real reconcilers over doubles. Dropping it is a crash; whatever was not
//! durable is gone.

use crate::faulty::FaultySlurm;
use crate::node::Node;
use pillion_core::report::ToAgent;
use pillion_core::{ManualClock, NodeName};
use pillion_scheduler::agents::{Agents, StreamId};
use pillion_scheduler::context::{Context, Settings};
use pillion_scheduler::engine::Engine;
use pillion_scheduler::failure::Judge;
use pillion_scheduler::failure::requeue::Requeuer;
use pillion_scheduler::ingest::Ingest;
use pillion_scheduler::profile::Profile;
use pillion_scheduler::release::Release;
use pillion_scheduler::renew::Renew;
use pillion_scheduler::store::memory::MemoryStore;
use pillion_scheduler::tick_error::TickError;
use pillion_scheduler::train::Train;
use pillion_scheduler::watch::Watch;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::mpsc;

/// How many different ticks there are.
pub(crate) const TICKS: u64 = 8;

pub(crate) struct Scheduler {
    pub(crate) context: Arc<Context>,
    watch: Watch,
    renew: Renew,
    engine: Engine,
    release: Release,
    profile: Profile,
    train: Train,
    judge: Judge,
    requeuer: Requeuer,
    ingest: Ingest,
    streams: BTreeMap<NodeName, (StreamId, mpsc::Receiver<ToAgent>)>,
}

impl Scheduler {
    pub(crate) fn new(
        clock: Arc<ManualClock>,
        slurm: Arc<FaultySlurm>,
        store: Arc<MemoryStore>,
        settings: Settings,
    ) -> Self {
        let context = Arc::new(Context::new(clock, slurm, store, Arc::new(Agents::default()), settings));
        let world = || Arc::clone(&context);
        Self {
            watch: Watch::new(world()),
            renew: Renew::new(world()),
            engine: Engine::new(world()),
            release: Release::new(world()),
            profile: Profile::new(world()),
            train: Train::new(world()),
            judge: Judge::new(world()),
            requeuer: Requeuer::new(world()),
            ingest: Ingest::new(world()),
            streams: BTreeMap::new(),
            context,
        }
    }

    /// One tick of the reconciler of that number. Errors are what a crash in the middle looks like: the next tick goes on.
    pub(crate) async fn tick(&self, which: u64) -> Result<(), TickError> {
        match which % TICKS {
            0 => self.watch.tick().await,
            1 => self.engine.tick().await,
            2 => self.release.tick().await,
            3 => self.renew.tick().await,
            4 => self.profile.tick().await,
            5 => self.train.tick().await,
            6 => self.judge.tick().await,
            _ => self.requeuer.tick().await,
        }
    }

    /// All of them once, in the order of the day.
    pub(crate) async fn tick_all(&self) {
        for which in [0, 4, 5, 6, 7, 1, 2, 3] {
            let _ = self.tick(which).await;
        }
    }

    /// Connects, disconnects, and carries messages both ways: at most `count` reports.
    pub(crate) async fn talk(&mut self, node: &mut Node, count: usize, twice: bool) {
        let now = self.context.now();
        if !node.is_agent_alive {
            if let Some((stream, _)) = self.streams.remove(&node.name) {
                self.context.agents.disconnect(&stream);
            }
            return;
        }
        if !self.streams.contains_key(&node.name) {
            let hello = node.hello(now);
            if self.context.store.record_devices(&hello.node, &hello.devices, now).await.is_err() {
                return;
            }
            self.streams.insert(node.name.clone(), self.context.agents.connect(&hello, now));
        }
        'reports: for report in node.pending(count) {
            for _ in 0..if twice { 2 } else { 1 } {
                match self.ingest.report(&node.name, &node.journal_id(), &report).await {
                    Ok(Some(ack)) => drop(node.order(&ack)),
                    // Nobody can say yet whether it is true: it is told again.
                    Ok(None) => break 'reports,
                    Err(_) => return,
                }
            }
        }
        let (_, inbox) = self.streams.get_mut(&node.name).expect("connected above");
        let mut answers = Vec::new();
        while let Ok(order) = inbox.try_recv() {
            answers.extend(node.order(&order));
        }
        for answer in answers {
            let _ = self.ingest.share_result(&node.name, &answer).await;
        }
    }
}
