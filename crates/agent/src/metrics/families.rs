//! The families of the agent's metrics: names, units, labels and meanings.

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
        "1 for each fault of a device that lasts, as its agent tells: gone, unreadable, mps-fault, mps-died, divided, mode-held, \
         no-mechanism, no-partitions, one-user, metric-lost, overused, other; no line where there is none");
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
    MPS_UP = gauge("pillion_device_mps_up", "0 or 1", &["node", "gres_type"],
        "Whether the device's MPS daemon serves its tenants; 0 while it is in a fault or has died; absent while nobody shares by \
         MPS");
    MEMORY_BYTES = gauge("pillion_device_memory_bytes", "bytes", &["node", "gres_type"],
        "Memory of the device");
    MEMORY_BYTES_USED = gauge("pillion_device_memory_bytes_used", "bytes", &["node", "gres_type"],
        "Memory of the device in use by anybody");
    POWER = gauge("pillion_device_power_watts", "watts", &["node", "gres_type"],
        "Power now");
    ENERGY = counter("pillion_device_energy_joules_total", "joules", &["node", "gres_type"],
        "Energy since the device came up");
    SM_ACTIVE = gauge("pillion_device_sm_active_fraction", "fraction of 1", &["node", "gres_type"],
        "Compute units with work on them (SM or XVE active)");
    SM_OCCUPANCY = gauge("pillion_device_sm_occupancy_fraction", "fraction of 1", &["node", "gres_type"],
        "Resident warps or threads of the most possible");
    STALL = gauge("pillion_device_stall_fraction", "fraction of 1", &["node", "gres_type"],
        "Compute units that wait for memory");
    GPU_BUSY = gauge("pillion_device_gpu_busy_fraction", "fraction of 1", &["node", "gres_type"],
        "Time in which anything ran at all, as nvidia-smi shows it: 1 says nothing of how full the device is");
    MEMORY_BUSY = gauge("pillion_device_memory_busy_fraction", "fraction of 1", &["node", "gres_type"],
        "Time in which the device memory was read or written at all");
    MEMORY_BANDWIDTH = gauge("pillion_device_memory_bandwidth_fraction", "fraction of 1", &["node", "gres_type"],
        "Memory bandwidth of the greatest possible");
    SM_CLOCK = gauge("pillion_device_sm_clock_hertz", "hertz", &["node", "gres_type"],
        "Clock of the compute units now");
    PCIE_TX = gauge("pillion_device_pcie_tx_bytes_per_second", "bytes per second", &["node", "gres_type"],
        "Bytes to the host");
    PCIE_RX = gauge("pillion_device_pcie_rx_bytes_per_second", "bytes per second", &["node", "gres_type"],
        "Bytes from the host");
    THROTTLED = gauge("pillion_device_throttled", "1", &["node", "gres_type", "reason"],
        "1 for each thing that holds the clock down now: power_limit, heat, power_brake, setting; no line where there is none");
}
