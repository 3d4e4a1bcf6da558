//! What slurm.conf says of hosts: who runs slurmctld, and as whom, and what a node serves.

use super::files::{Files, SLURM_CONF};
use super::nodes::names;

/// What slurm.conf has a host serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Served {
    /// Shards: it is a node of a pool.
    Shards,
    /// Something else.
    NoShards,
    /// It is no node.
    NoNode,
}

impl Files {
    /// The hosts that may run slurmctld, in their order: `SlurmctldHost=c1(10.0.0.1)`.
    pub fn controllers(&self) -> Vec<String> {
        let lines = self.read(SLURM_CONF);
        let hosts = lines.iter().filter_map(|(_, line)| line.get("SlurmctldHost"));
        hosts.map(|host| host.split('(').next().unwrap_or_default().to_owned()).collect()
    }

    /// Who slurmctld runs as; root where nobody is named, as with Slurm.
    pub fn slurm_user(&self) -> String {
        let lines = self.read(SLURM_CONF);
        let named = lines.iter().rev().find_map(|(_, line)| line.get("SlurmUser"));
        named.unwrap_or("root").to_owned()
    }

    /// What the host serves of which this holds.
    pub fn served_by(&self, is_host: impl Fn(&str) -> bool) -> Served {
        let mut served = Served::NoNode;
        for (_, line) in self.read(SLURM_CONF) {
            let named = line.get("NodeName").filter(|name| !name.eq_ignore_ascii_case("DEFAULT"));
            let Some(named) = named else { continue };
            let hosts = line.get("NodeHostname").unwrap_or(named);
            if names(hosts).iter().any(|host| is_host(host)) {
                let gres = line.get("Gres").unwrap_or_default();
                let has_shards = gres.split(',').any(|entry| entry.trim().starts_with("shard:"));
                served = if has_shards { Served::Shards } else { Served::NoShards };
            }
        }
        served
    }
}
