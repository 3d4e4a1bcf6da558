//! One scheduler process of the simulation: the real reconcilers over doubles. Dropping it is a crash; whatever was not
//! durable is gone.

use crate::faulty::FaultySlurm;
use crate::node::Node;
use pillion_core::report::ToAgent;
use pillion_core::{ManualClock, NodeName};
use pillion_memory_store::MemoryStore;
use pillion_scheduler::agents::{Agents, StreamId};
use pillion_scheduler::context::{Context, Settings};
use pillion_scheduler::drive::Task;
use pillion_scheduler::engine::Engine;
use pillion_scheduler::ingest::Ingest;
use pillion_scheduler::reconcilers;
use pillion_scheduler::tick_error::TickError;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// How often Slurm is scanned; the simulation ticks when it likes.
const SCAN_PERIOD: Duration = Duration::from_secs(2);

pub(crate) struct Scheduler {
    pub(crate) context: Arc<Context>,
    /// All reconcilers that the program starts.
    tasks: Vec<Task>,
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
        let engine = Arc::new(Engine::new(Arc::clone(&context)));
        // As the program does: what was decided before it is another's.
        context.set_leading(false);
        context.set_leading(true);
        Self {
            tasks: reconcilers::all(SCAN_PERIOD, &context, &engine),
            ingest: Ingest::new(Arc::clone(&context)),
            streams: BTreeMap::new(),
            context,
        }
    }

    /// How many reconcilers there are.
    pub(crate) fn task_count(&self) -> usize {
        self.tasks.len()
    }

    /// One tick of the reconciler of that number. Errors are what a crash in the middle looks like: the next tick goes on.
    pub(crate) async fn tick(&self, which: usize) -> Result<(), TickError> {
        self.tasks[which].reconciler.tick().await
    }

    /// All of them once; where it does not look at Slurm, by what it saw before.
    pub(crate) async fn tick_all(&self, looks: bool) {
        for task in self.tasks.iter().filter(|task| looks || task.name != "watch") {
            let _ = task.reconciler.tick().await;
        }
    }

    /// Connects, disconnects, and carries messages both ways: at most `count` reports.
    pub(crate) async fn talk(&mut self, node: &mut Node, count: usize, twice: bool) {
        let now = self.context.now();
        if !node.is_agent_alive {
            if let Some((stream, _)) = self.streams.remove(&node.name) {
                self.context.agents.disconnect(&stream);
            }
            node.end_results.clear();
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
        let (stream, inbox) = self.streams.get_mut(&node.name).expect("connected above");
        self.context.agents.set_conditions(stream, &node.conditions(now));
        let mut answers = Vec::new();
        while let Ok(order) = inbox.try_recv() {
            answers.extend(node.order(&order));
        }
        for answer in answers {
            let _ = self.ingest.share_result(&node.name, &answer).await;
        }
        for result in std::mem::take(&mut node.end_results) {
            let _ = self.context.endings.result(&self.context, &node.name, &result).await;
        }
    }
}
