//! The pool at one glance.

use super::{JobRow, MemberRow, some_text};
use pillion_proto::v1 as wire;

/// A page of devices and one of waiting jobs, with counts of all.
#[derive(Debug, Clone, PartialEq)]
pub struct Overview {
    /// The scheduler's clock.
    pub now_seconds: f64,
    /// off or active.
    pub mode: String,
    /// Devices of all agents, by what is on them.
    pub counts: Counts,
    /// Agents that are connected.
    pub agent_count: u32,
    /// Agents that are gone.
    pub agents_gone_count: u32,
    /// Jobs that wait.
    pub waiting_count: u32,
    /// Jobs that run where Slurm put them.
    pub unplaced_count: u32,
    /// The page that was asked for.
    pub devices: Vec<TopDeviceRow>,
    /// The page that was asked for.
    pub jobs: Vec<JobRow>,
}

/// How many devices there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// In all.
    pub devices: u32,
    /// With two tenants or more.
    pub shared: u32,
    /// With one job.
    pub single: u32,
    /// With none.
    pub idle: u32,
    /// Closed to new tenants, whatever is on them.
    pub closed: u32,
}

/// One device now.
#[derive(Debug, Clone, PartialEq)]
pub struct TopDeviceRow {
    /// The node.
    pub node: String,
    /// The device.
    pub gres_type: String,
    /// Its model.
    pub device_model: String,
    /// Its memory.
    pub memory_bytes: u64,
    /// What Slurm has booked of 100.
    pub shards_used: u32,
    /// Why it takes no new tenants.
    pub closed: Option<String>,
    /// Who is on it by a decision; those that the caller may not see have no name.
    pub tenants: Vec<MemberRow>,
    /// Compute units active.
    pub sm_active_fraction: Option<f64>,
    /// Any kernel running at all: where nothing better is known.
    pub gpu_busy_fraction: Option<f64>,
    /// In use by anybody.
    pub memory_bytes_used: Option<u64>,
    /// Its power.
    pub power_watts: Option<f64>,
}

impl From<wire::TopResponse> for Overview {
    fn from(top: wire::TopResponse) -> Self {
        let wire::TopResponse {
            now_seconds,
            mode,
            counts,
            agent_count,
            agents_gone_count,
            waiting_count,
            unplaced_count,
            devices,
            jobs,
        } = top;
        let wire::TopCounts { devices: all, shared, single, idle, closed } = counts.unwrap_or_default();
        Self {
            now_seconds,
            mode,
            counts: Counts { devices: all, shared, single, idle, closed },
            agent_count,
            agents_gone_count,
            waiting_count,
            unplaced_count,
            devices: devices.into_iter().map(TopDeviceRow::from).collect(),
            jobs: jobs.into_iter().map(JobRow::from).collect(),
        }
    }
}

impl From<wire::TopDevice> for TopDeviceRow {
    fn from(device: wire::TopDevice) -> Self {
        let wire::TopDevice {
            node,
            gres_type,
            device_model,
            mechanism: _,
            memory_bytes,
            shards_used,
            closed,
            tenants,
            sm_active_fraction,
            gpu_busy_fraction,
            memory_bytes_used,
            power_watts,
        } = device;
        Self {
            node,
            gres_type,
            device_model,
            memory_bytes,
            shards_used,
            closed: some_text(closed),
            tenants: tenants.into_iter().map(MemberRow::from).collect(),
            sm_active_fraction,
            gpu_busy_fraction,
            memory_bytes_used,
            power_watts,
        }
    }
}
