//! The agents of all nodes: each is ready for whatever it is asked, and tells of launches and ends as a real one does. Over
//! channels in this process, not over gRPC. No samples: those are the agents' own load on the database, not that of control.

use crate::options::Options;
use crate::site::{hello, journal, node_name, summary};
use crate::world::Told;
use pillion_core::report::{Launch, Report, ReportBody, ShareResult, ToAgent};
use pillion_core::{Clock as _, GresType, JobStart, SystemClock};
use pillion_scheduler::context::Context;
use pillion_scheduler::ingest::Ingest;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How long a report that was not stored waits.
const SENT_AGAIN_AFTER: Duration = Duration::from_secs(1);

struct Agent {
    number: u16,
    ingest: Arc<Ingest>,
    sequence: u64,
    shares: BTreeMap<JobStart, pillion_core::DecisionId>,
}

/// Connects all of them; they go with `stop`.
pub(crate) async fn connect(
    tasks: &mut JoinSet<()>,
    context: &Arc<Context>,
    options: &Options,
    told: Vec<mpsc::UnboundedReceiver<Told>>,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let now = SystemClock.now();
    let ingest = Arc::new(Ingest::new(Arc::clone(context)));
    for (number, told) in (0..options.nodes).zip(told) {
        let hello = hello(number, options.devices, now);
        context.store.record_devices(&hello.node, &hello.devices, now).await?;
        let (_, inbox) = context.agents.connect(&hello, now);
        let agent = Agent { number, ingest: Arc::clone(&ingest), sequence: 0, shares: BTreeMap::new() };
        let stop = stop.clone();
        tasks.spawn(async move {
            tokio::select! { () = stop.cancelled() => {} () = agent.run(inbox, told) => {} }
        });
    }
    Ok(())
}

impl Agent {
    async fn run(mut self, mut inbox: mpsc::Receiver<ToAgent>, mut told: mpsc::UnboundedReceiver<Told>) {
        loop {
            tokio::select! {
                order = inbox.recv() => match order {
                    Some(order) => self.obey(order).await,
                    None => return,
                },
                seen = told.recv() => match seen {
                    Some(seen) => self.report(seen).await,
                    None => return,
                },
            }
        }
    }

    async fn obey(&mut self, order: ToAgent) {
        match order {
            ToAgent::Prepare(share) => {
                let (decision_id, start) = (share.decision_id, share.start);
                self.shares.insert(start, decision_id);
                let ready = ShareResult { decision_id, start, error: None, revoked: false };
                // Where it is not stored the scheduler asks again.
                let _ = self.ingest.share_result(&node_name(self.number), &ready).await;
            }
            ToAgent::Revoke { start, .. } => {
                self.shares.remove(&start);
            }
            ToAgent::Ack(_) | ToAgent::Poke | ToAgent::End { .. } => {}
        }
    }

    async fn report(&mut self, seen: Told) {
        let now = SystemClock.now();
        let body = match seen {
            Told::Began(start, device) => ReportBody::Launch(Launch {
                at: now,
                start,
                step_id: 0,
                decision_id: self.shares.get(&start).copied(),
                gres_types: vec![GresType::new(format!("g{device}"))],
                profile_name: None,
            }),
            Told::Ended { start, device, seconds } => {
                self.shares.remove(&start);
                ReportBody::JobSummary(Box::new(summary(start, device, now, seconds)))
            }
        };
        self.sequence += 1;
        let (node, report) = (node_name(self.number), Report { sequence: self.sequence, body });
        // A real one keeps its reports until they are stored.
        while self.ingest.report(&node, &journal(&node), &report).await.is_err() {
            tokio::time::sleep(SENT_AGAIN_AFTER).await;
        }
    }
}
