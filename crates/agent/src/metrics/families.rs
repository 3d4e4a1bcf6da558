//! The families of the agent's metrics: names, units, labels and meanings. Those of what devices tell are made of what core
//! says of each metric.

use pillion_core::metric::{Family, Metric};
use pillion_metrics::Description;
use std::sync::LazyLock;

/// The labels of whatever is of one device.
const DEVICE: &[&str] = &["node", "gres_type"];

/// A family for each metric that Prometheus has.
pub(crate) static MEASURED: LazyLock<Vec<(Metric, Description)>> = LazyLock::new(|| {
    Metric::ALL.into_iter().filter_map(|metric| Some((metric, described(metric, metric.family()?)))).collect()
});

fn described(metric: Metric, Family { name, meaning }: Family) -> Description {
    let of = if name.ends_with("_total") { Description::counter } else { Description::gauge };
    of(name, metric.unit().text(), DEVICE, meaning)
}

/// All of the agent's, in the order of docs/metrics.md.
pub fn all() -> Vec<&'static Description> {
    ALL.iter().copied().chain(MEASURED.iter().map(|(_, family)| family)).collect()
}

pillion_metrics::families! {
    // The agent itself.
    INFO = gauge("pillion_agent_info", "1", &["node", "version"],
        "1, with the node's name and the release as labels");
    UPLINK_CONNECTED = gauge("pillion_uplink_connected", "0 or 1", &["node"],
        "Whether the scheduler listens");
    UPLINK_FAILURES = counter("pillion_uplink_failures_total", "attempts", &["node"],
        "Streams to the scheduler that broke or could not be opened");
    SAMPLED_AT = gauge("pillion_sample_timestamp_seconds", "seconds", &["node"],
        "When the devices were last sampled");
    SAMPLE_SECONDS = histogram("pillion_sample_duration_seconds", &["node"],
        "How long it took to read all devices");
    TASKS = counter("pillion_task_starts_total", "tasks", &["node", "answer"],
        "Tasks that the SPANK plugin asked for: decided (its decision was applied), no-decision (none was known)");
    SHARES_SET_UP = counter("pillion_share_setups_total", "shares", &["node", "mechanism", "result"],
        "Shares that the scheduler asked for: prepared, failed");
    JOURNAL_BYTES = gauge("pillion_journal_bytes", "bytes", &["node"],
        "Size of the reports that are kept for the scheduler");
    JOURNAL_BYTES_MAX = gauge("pillion_journal_bytes_max", "bytes", &["node"],
        "What the journal may keep; then the oldest samples go");
    JOURNAL_WAITING = gauge("pillion_journal_waiting_reports", "reports", &["node"],
        "Reports that the scheduler has not acknowledged; absent until it has answered once");
    REPORTS_DROPPED = counter("pillion_reports_dropped_total", "reports", &["node"],
        "Reports dropped because the journal was full, since it was made");
    REPORTS_LOST = counter("pillion_reports_lost_total", "reports", &["node"],
        "Reports that could not be written to the journal");

    // Its devices.
    DEVICE_INFO = gauge("pillion_device_info", "1", &["node", "gres_type", "model", "mechanism"],
        "1, with what the device is and how it can be shared as labels");
    DEVICE_FAULT = gauge("pillion_device_fault", "1", &["node", "gres_type", "fault"],
        "1 for each fault of a device that lasts, as its agent tells: gone, unreadable, mps-fault, mps-died, held, divided, mode-held, \
         outsider, no-mechanism, no-partitions, one-user, metric-lost, overused, other; no line where there is none");
    READ_ERRORS = counter("pillion_device_read_errors_total", "looks", &["node", "gres_type"],
        "Looks at which a device could not be read");
    TENANTS = gauge("pillion_device_tenants", "jobs", &["node", "gres_type"],
        "Managed jobs that were seen on the device");
    PROCESSES = gauge("pillion_device_processes", "processes", &["node", "gres_type"],
        "Processes that were seen on the device, whoever's they are");
    SHARES = gauge("pillion_device_shares", "shares", &["node", "gres_type", "mechanism"],
        "Shares that are set up, those of jobs included that have not begun");
    SHARDS = gauge("pillion_device_shards", "hundredths of a GPU", &["node", "gres_type"],
        "What Slurm books for those shares together");
    INSTANCES = gauge("pillion_device_instances", "instances", &["node", "gres_type", "profile"],
        "MIG instances of the device that are set up for tenants, by size; no line of a device that is not cut");
    MPS_UP = gauge("pillion_device_mps_up", "0 or 1", &["node", "gres_type"],
        "Whether the device's MPS daemon serves its tenants; 0 while it is in a fault or has died; absent while nobody shares by \
         MPS");
    MEMORY_BYTES = gauge("pillion_device_memory_bytes", "bytes", &["node", "gres_type"],
        "Memory of the device");
    THROTTLED = gauge("pillion_device_throttled", "1", &["node", "gres_type", "reason"],
        "1 for each thing that holds the clock down now: power_limit, heat, power_brake, setting; no line where there is none");
}
