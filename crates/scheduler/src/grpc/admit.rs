//! Whether an agent, of which is known whose it is, may report for its node: the node is in Slurm and in the pool, and the agent
//! calls from the node's own address. Of two streams of one node the first goes before, until it ends or misses its keep-alive.

use crate::context::Context;
use crate::scan::Scan;
use pillion_auth::{Claimant, Identity, Peer};
use pillion_core::report::AgentHello;
use pillion_slurm::Node;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;
use tonic::Status;
use tracing::{info, warn};

/// How long the first scan of Slurm is waited for.
const SCAN_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long the name of a node may be looked up.
const LOOKUP_WAIT_MAX: Duration = Duration::from_secs(3);
/// How long an agent waits for another stream of its node: a little longer than that one's keep-alive, interval and answer
/// (`run.rs`).
const RIVAL_WAIT_MAX: Duration = Duration::from_secs(30);

/// Lets an agent in, or says why not.
pub(super) async fn admit(context: &Context, peer: Option<&Peer>, hello: &AgentHello) -> Result<(), Status> {
    let peer = peer.ok_or_else(|| Status::unauthenticated("agents come over TCP only"))?;
    let judged = judge(context, peer, hello).await;
    let claimant = Claimant::Agent(hello.node.clone());
    let ip = peer.address.ip().to_canonical();
    match &judged {
        Ok(()) => context.refusals.forget(ip, &claimant),
        Err(status) => {
            let noted = context.refusals.note(ip, &claimant, status.message().to_owned(), context.now());
            if let Some(untold_count) = noted {
                let why = status.message();
                warn!(address = %peer.address, who = %claimant, why, untold_count, "not let in");
            }
        }
    }
    judged
}

async fn judge(context: &Context, peer: &Peer, hello: &AgentHello) -> Result<(), Status> {
    if peer.identity != Identity::Agent(hello.node.clone()) {
        return Err(Status::permission_denied("it has proven to be another node, or no node"));
    }
    if *context.following().borrow() {
        return Err(another_leads());
    }
    let scan = context.first_scan(SCAN_WAIT_MAX).await.ok_or_else(|| {
        Status::unavailable("Slurm's nodes are not known yet; see that slurmctld answers the scheduler")
    })?;
    let node = if hello.observes {
        observed_node(context, hello, &scan).await?
    } else {
        scan.node(&hello.node).cloned().ok_or_else(|| {
            let pool = context.settings.pool.join(",");
            Status::permission_denied(format!(
                "it is no node of the pool (pool.partitions: {pool}), as Slurm has it"
            ))
        })?
    };
    let name = if node.address.is_empty() { node.name.as_str() } else { &node.address };
    let addresses = addresses(name).await.ok_or_else(|| {
        Status::unavailable(format!("the address of its node cannot be found (NodeAddr={name})"))
    })?;
    let ip = peer.address.ip().to_canonical();
    if is_from(ip, &addresses, is_own) {
        return Ok(());
    }
    let listed: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    Err(Status::permission_denied(format!(
        "it calls from {ip}, and the address of its node is {} (NodeAddr={name} in slurm.conf)",
        listed.join(" or ")
    )))
}

/// The node of an agent that observes. One of the pool is no such node, whatever other partitions it stands in: who runs there
/// beside managed jobs is not told from them.
async fn observed_node(context: &Context, hello: &AgentHello, scan: &Scan) -> Result<Node, Status> {
    let partitions = context.settings.observed.join(",");
    if partitions.is_empty() {
        let why = "it observes (agent.mode), and this scheduler observes no partition (observe.partitions)";
        return Err(Status::permission_denied(why));
    }
    if scan.node(&hello.node).is_some() {
        let why = "it observes (agent.mode), and its node is in the pool; write agent.mode = \"share\" there";
        return Err(Status::permission_denied(why));
    }
    let observed = context.first_observed(SCAN_WAIT_MAX).await.ok_or_else(|| {
        Status::unavailable("Slurm's nodes are not known yet; see that slurmctld answers the scheduler")
    })?;
    observed.nodes.get(&hello.node).cloned().ok_or_else(|| {
        Status::permission_denied(format!(
            "it is no node of an observed partition (observe.partitions: {partitions}), as Slurm has it"
        ))
    })
}

/// To an agent that belongs to another scheduler.
pub(super) fn another_leads() -> Status {
    Status::unavailable("another scheduler leads; agents report to that one")
}

/// What a name or an address stands for; `None`: nobody knows.
async fn addresses(name: &str) -> Option<Vec<IpAddr>> {
    if let Ok(address) = name.parse::<IpAddr>() {
        return Some(vec![address.to_canonical()]);
    }
    let found = tokio::time::timeout(LOOKUP_WAIT_MAX, tokio::net::lookup_host((name, 0))).await.ok()?.ok()?;
    let found: Vec<IpAddr> = found.map(|address: SocketAddr| address.ip().to_canonical()).collect();
    (!found.is_empty()).then_some(found)
}

/// Whether a caller has one of these addresses. A node that is this very machine may come by loopback.
fn is_from(caller: IpAddr, addresses: &[IpAddr], is_own: impl Fn(IpAddr) -> bool) -> bool {
    addresses.contains(&caller) || (caller.is_loopback() && addresses.iter().any(|address| is_own(*address)))
}

/// Whether an address is this machine's: only then can something be bound to it.
fn is_own(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

/// Waits until no other stream of this node is open.
pub(super) async fn vacated(context: &Context, hello: &AgentHello) -> Result<(), Status> {
    if !context.agents.is_connected(&hello.node) {
        return Ok(());
    }
    info!(node = %hello.node, "a second agent of this node waits until the first has gone");
    if tokio::time::timeout(RIVAL_WAIT_MAX, context.agents.vacated(&hello.node)).await.is_ok() {
        return Ok(());
    }
    if context.agents.has_rival(hello) {
        warn!(
            node = %hello.node,
            "two agents say that they are this node, and the first one stays: look for two agents on that machine"
        );
    }
    Err(taken())
}

/// To an agent whose node has one.
pub(super) fn taken() -> Status {
    Status::unavailable("another agent of this node is connected; stop one of the two")
}

#[cfg(test)]
mod tests;
