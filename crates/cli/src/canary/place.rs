//! Where a canary runs: one node of the pool, by what the scheduler and Slurm say of it. Pure.

use pillion_api::StatusResponse;
use pillion_core::UnixTime;
use std::collections::BTreeSet;

/// States of a node in which Slurm starts jobs there, now or when others have ended.
const STATES_UP: [&str; 5] = ["idle", "mixed", "allocated", "completing", "planned"];
/// So long a node may be away in one stretch before a canary waits for it no longer.
const AWAY_SECONDS_MAX: f64 = 60.0;

/// What `sinfo` is asked for: a line a node and partition.
pub const SINFO_FORMAT: &str = "%N|%R|%T";

/// A node of the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub node: String,
    pub partition: String,
    /// The other nodes of that partition. A job that names its node is not Pillion's to place, so a run keeps away from these.
    pub others: Vec<String>,
}

/// Why there is none: one sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoPlace {
    #[error("the scheduler has no pool; name one node's partition in pool.partitions")]
    NoPool,
    #[error("the scheduler's mode is {0}: it puts nobody together; set mode = \"active\"")]
    Mode(String),
    #[error("Slurm knows no node in {0}, the pool's partitions")]
    NoNode(String),
    #[error("{node} is in none of the pool's partitions ({partitions}); its nodes are {nodes}")]
    Elsewhere { node: String, partitions: String, nodes: String },
    #[error("the pool has several nodes ({0}); name the one on which the scripts are to run")]
    Several(String),
    #[error("{node} is no node of the pool's partition {partition} any more")]
    Gone { node: String, partition: String },
    #[error("Slurm starts nothing on {node}: it is {state}")]
    Down { node: String, state: String },
    #[error("the agent of {0} is not connected, or has no GPU; 'pillion nodes' says more")]
    NoAgent(String),
    #[error("{node} was drained by {by}: {reason}; 'pillion undrain {node}' lets jobs onto it again")]
    Drained { node: String, by: String, reason: String },
}

/// The node that was named, or the only one, whether anything can start there or not. `sinfo`: what it printed by [`SINFO_FORMAT`].
///
/// # Errors
/// [`NoPlace`].
pub fn find(status: &StatusResponse, sinfo: &str, named: Option<&str>) -> Result<Place, NoPlace> {
    if status.pool_partitions.is_empty() {
        return Err(NoPlace::NoPool);
    }
    let partitions = status.pool_partitions.join(",");
    let rows = rows(status, sinfo);
    let nodes: BTreeSet<&str> = rows.iter().map(|[node, ..]| *node).collect();
    let all = crate::format::listed(&nodes);
    let node = match (named, nodes.len()) {
        (_, 0) => return Err(NoPlace::NoNode(partitions)),
        (Some(node), _) => node,
        (None, 1) => nodes.first().copied().unwrap_or_default(),
        (None, _) => return Err(NoPlace::Several(all)),
    };
    let Some([_, partition, _]) = rows.iter().find(|[own, ..]| *own == node) else {
        return Err(NoPlace::Elsewhere { node: node.to_owned(), partitions, nodes: all });
    };
    let others: BTreeSet<&str> = rows
        .iter()
        .filter(|[other, of, _]| of == partition && *other != node)
        .map(|[other, ..]| *other)
        .collect();
    Ok(Place {
        node: node.to_owned(),
        partition: (*partition).to_owned(),
        others: others.into_iter().map(str::to_owned).collect(),
    })
}

/// Whether jobs start there, and are put together.
///
/// # Errors
/// [`NoPlace`]: why not.
pub fn ready(status: &StatusResponse, sinfo: &str, place: &Place) -> Result<(), NoPlace> {
    if status.mode != "active" {
        return Err(NoPlace::Mode(status.mode.clone()));
    }
    let node = place.node.clone();
    let rows = rows(status, sinfo);
    let own = rows.iter().find(|[own, of, _]| *own == node && *of == place.partition);
    let Some([_, _, state]) = own else {
        return Err(NoPlace::Gone { node, partition: place.partition.clone() });
    };
    // `idle*`: the node does not respond; `mixed+`, `idle~` and others still start jobs.
    let is_up = STATES_UP.iter().any(|up| state.trim_end_matches(['+', '-', '~', '#', '@', '^']) == *up);
    if !is_up {
        return Err(NoPlace::Down { node, state: (*state).to_owned() });
    }
    let agent = status.agents.iter().find(|agent| agent.node == node);
    if !agent.is_some_and(|agent| agent.connected && !agent.devices.is_empty()) {
        return Err(NoPlace::NoAgent(node));
    }
    match status.drains.iter().find(|drain| drain.node == node && drain.gres_type.is_none()) {
        Some(drain) => {
            Err(NoPlace::Drained { node, by: drain.drained_by.clone(), reason: drain.reason.clone() })
        }
        None => Ok(()),
    }
}

/// Since when nothing starts on the node of a canary, and why.
#[derive(Debug, Default)]
pub struct Away(Option<(UnixTime, NoPlace)>);

impl Away {
    /// Takes note of what [`ready`] says now.
    pub fn saw(&mut self, ready: Result<(), NoPlace>, now: UnixTime) {
        let since = self.0.as_ref().map_or(now, |(since, _)| *since);
        self.0 = ready.err().map(|why| (since, why));
    }

    /// Why nothing starts there.
    pub fn why(&self) -> Option<&NoPlace> {
        self.0.as_ref().map(|(_, why)| why)
    }

    /// Whether nothing is to be waited for: what runs there, as on a node that is being drained, may run to its end, and agents and
    /// slurmd are restarted now and then.
    pub fn is_over(&self, is_running: bool, now: UnixTime) -> bool {
        !is_running && self.0.as_ref().is_some_and(|(since, _)| now.seconds_since(*since) >= AWAY_SECONDS_MAX)
    }
}

/// The rows of the pool.
fn rows<'a>(status: &StatusResponse, sinfo: &'a str) -> Vec<[&'a str; 3]> {
    let rows = sinfo.lines().filter_map(row);
    rows.filter(|[_, partition, _]| status.pool_partitions.iter().any(|own| own == partition)).collect()
}

fn row(line: &str) -> Option<[&str; 3]> {
    line.trim().split('|').collect::<Vec<_>>().try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillion_api::{AgentStatus, DeviceStatus, DrainedPlace};

    const SINFO: &str = "n1|canary|idle\nn2|canary|mixed\nn3|canary|drained\nn4|canary|idle*\nw1|gpu|idle\n";

    fn status() -> StatusResponse {
        let agent = |node: &str, connected, devices| AgentStatus {
            node: node.to_owned(),
            connected,
            devices,
            ..AgentStatus::default()
        };
        StatusResponse {
            mode: "active".to_owned(),
            pool_partitions: vec!["canary".to_owned()],
            agents: vec![
                agent("n1", true, vec![DeviceStatus::default()]),
                agent("n2", false, vec![DeviceStatus::default()]),
                agent("n3", true, vec![DeviceStatus::default()]),
                agent("n4", true, vec![DeviceStatus::default()]),
                agent("w1", true, vec![DeviceStatus::default()]),
            ],
            ..StatusResponse::default()
        }
    }

    fn place(status: &StatusResponse, sinfo: &str, named: Option<&str>) -> Result<Place, NoPlace> {
        let place = find(status, sinfo, named)?;
        ready(status, sinfo, &place).map(|()| place)
    }

    #[test]
    fn the_node_that_was_named_or_the_only_one() {
        let found = place(&status(), SINFO, Some("n1")).unwrap();
        let others = ["n2", "n3", "n4"].map(str::to_owned).to_vec();
        assert_eq!(found, Place { node: "n1".into(), partition: "canary".into(), others });
        let only = place(&status(), "n1|canary|completing\nw1|gpu|idle\n", None).unwrap();
        assert_eq!((only.node.as_str(), only.others), ("n1", vec![]));
    }

    #[test]
    fn where_nothing_can_run_it_says_why() {
        let why = |status: &StatusResponse, sinfo: &str, named| {
            place(status, sinfo, named).unwrap_err().to_string()
        };
        assert!(why(&status(), SINFO, None).starts_with("the pool has several nodes (n1,n2,n3,n4)"));
        assert!(
            why(&status(), SINFO, Some("w1")).starts_with("w1 is in none of the pool's partitions (canary)")
        );
        assert!(why(&status(), SINFO, Some("n3")).ends_with("it is drained"));
        assert!(why(&status(), SINFO, Some("n4")).ends_with("it is idle*"), "it does not respond");
        assert!(why(&status(), SINFO, Some("n2")).starts_with("the agent of n2 is not connected"));
        assert_eq!(why(&status(), "", None), "Slurm knows no node in canary, the pool's partitions");
        let off = StatusResponse { mode: "off".to_owned(), ..status() };
        assert!(why(&off, SINFO, Some("n1")).starts_with("the scheduler's mode is off"));
        let none = StatusResponse { pool_partitions: vec![], ..status() };
        assert!(why(&none, SINFO, Some("n1")).starts_with("the scheduler has no pool"));
        let drain = DrainedPlace {
            node: "n1".into(),
            drained_by: "root".into(),
            reason: "fans".into(),
            ..DrainedPlace::default()
        };
        let drained = StatusResponse { drains: vec![drain], ..status() };
        assert!(why(&drained, SINFO, Some("n1")).starts_with("n1 was drained by root: fans"));
        let own = find(&status(), SINFO, Some("n1")).unwrap();
        let gone = ready(&status(), "n1|gpu|idle\n", &own).unwrap_err().to_string();
        assert_eq!(gone, "n1 is no node of the pool's partition canary any more");
    }

    #[test]
    fn a_node_that_stays_away_is_waited_for_only_while_jobs_run_there() {
        let at = |seconds: f64| UnixTime::from_seconds(1000.0 + seconds);
        let down = || Err(NoPlace::Down { node: "n1".into(), state: "down*".into() });
        let mut away = Away::default();
        assert!(away.why().is_none() && !away.is_over(false, at(1e6)));
        for (seconds, said, is_over) in [
            (0.0, down(), false),
            (50.0, Err(NoPlace::NoAgent("n1".into())), false),
            (59.0, Ok(()), false),
            (70.0, down(), false),
            (129.0, down(), false),
            (130.0, down(), true),
        ] {
            let is_there = said.is_ok();
            away.saw(said, at(seconds));
            assert_eq!(
                (away.why().is_none(), away.is_over(false, at(seconds))),
                (is_there, is_over),
                "{seconds}"
            );
            assert!(!away.is_over(true, at(seconds)), "a draining node runs its jobs to their ends");
        }
    }
}
