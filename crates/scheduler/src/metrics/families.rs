//! The families of the scheduler's metrics: names, units, labels and meanings.

pillion_metrics::families! {
    // The scheduler itself.
    INFO = gauge("pillion_scheduler_info", "1", &["version", "mode", "objective"],
        "1, with the release, the mode and the objective of the site's policy as labels");
    LEADING = gauge("pillion_scheduler_leading", "0 or 1", &[],
        "Whether this scheduler leads; of several, one does");
    ACTING = gauge("pillion_scheduler_acting", "0 or 1", &[],
        "Whether it leads and Slurm's release is known and supported; without that nothing is released");
    HEARTBEAT_AT = gauge("pillion_heartbeat_timestamp_seconds", "seconds", &[],
        "When the heartbeat file was last written; 30 s later jobs stay as their users wrote them");
    SCAN_AT = gauge("pillion_scan_timestamp_seconds", "seconds", &[],
        "When Slurm's queue was last read; 15 s later nothing is decided");
    REPORT_AT = gauge("pillion_report_timestamp_seconds", "seconds", &[],
        "When the newest report of any agent was stored");
    TASK_SECONDS = histogram("pillion_task_duration_seconds", &["task"],
        "How long a tick of a reconciler took, whether or not it found anything to do");
    TASK_FAILURES = counter("pillion_task_failures_total", "ticks", &["task"],
        "Ticks of a reconciler that failed because somebody did not answer; the next one tries again");
    TASK_SUCCESS = gauge("pillion_task_success_timestamp_seconds", "seconds since the epoch", &["task"],
        "When a reconciler's last tick succeeded");

    // Jobs.
    JOBS = gauge("pillion_jobs", "jobs", &["state"],
        "Managed jobs by state: waiting for a partner or a device, held by something else, planned, released, alone \
         (runs alone as soon as it can), restarted (is being put back), running");
    WAIT_MAX = gauge("pillion_job_wait_seconds_max", "seconds", &[],
        "How long the oldest job that waits for a decision has waited since it was submitted");
    LEFT_WAITING = gauge("pillion_jobs_left_waiting", "jobs", &["reason"],
        "Jobs that the last plan left waiting, by its reason");
    SHARED_DEVICES = gauge("pillion_shared_devices", "devices", &["mechanism"],
        "Devices on which at least two jobs run by a decision now");
    SHARING_JOBS = gauge("pillion_sharing_jobs", "jobs", &["mechanism"],
        "Jobs that run on those devices now");

    // Decisions and what became of them.
    DECISIONS = counter("pillion_decisions_total", "decisions", &["kind", "mechanism"],
        "Decisions committed: pair (two or more start together), join (beside a running job), alone");
    PLANS_REFUSED = counter("pillion_plans_refused_total", "plans", &[],
        "Plans that came too late: something had changed since they were begun, and the next one was made");
    PLAN_SECONDS = histogram("pillion_plan_duration_seconds", &[],
        "How long the choice itself took, without reading and writing");
    DECISION_SECONDS = histogram("pillion_decision_duration_seconds", &[],
        "How long a decision took from reading the state of things to its commit");
    RELEASES = counter("pillion_releases_total", "jobs", &[],
        "Jobs released to Slurm with a device");
    STARTS = counter("pillion_planned_starts_total", "jobs", &[],
        "Released jobs that Slurm started as planned");
    UNDOS = counter("pillion_undos_total", "jobs", &["kind"],
        "Jobs taken out of their decision: undone (the release was put back, it runs alone), dropped (before its release)");
    LEASES_RESET = counter("pillion_leases_reset_total", "jobs", &[],
        "Jobs that waited with the pin of an earlier release and were put back to run alone");
    SHARE_FAILURES = counter("pillion_share_setup_failures_total", "shares", &[],
        "Shares that an agent could not set up");
    SWITCH_MISSES = counter("pillion_switch_misses_total", "starts", &["cause"],
        "Starts without a cap and unshared though managed: not-responding (the node did not report it), no-decision (the agent had none)");
    REQUEUES = counter("pillion_requeues_total", "jobs", &["outcome"],
        "Jobs that were to start again for a neighbour's crash, an order or lack of memory: requeued, refused");
    JOB_FAULTS = counter("pillion_job_faults_total", "jobs", &["fault"],
        "Runs that failed with signs of a cause: out-of-memory, device-fault, program-fault, victim (of a neighbour)");
    CREDIT_LOST = counter("pillion_credit_losses_total", "starts", &["cause"],
        "Starts that cost their user the right to share for some runs: profile-exceeded (it did far more than it was let in for), \
         promise-broken (a newcomer beside somebody who was slowed more than promised)");
    VIOLATIONS = counter("pillion_invariant_violations_total", "violations", &[],
        "Invariants that a scan found broken");
    NODES_STOPPED = gauge("pillion_nodes_stopped", "nodes", &[],
        "Nodes on which nothing is released because of a violation that lasts");

    // What it gained.
    PROMISES = counter("pillion_promises_total", "runs", &["result"],
        "Measured shared runs by whether they were as fast as promised: kept, broken");
    PROMISE_BUDGET = gauge("pillion_promise_budget_fraction", "fraction of 1", &[],
        "How many promises may be expected to be broken, by the site's policy");
    SHARED_RUNS = counter("pillion_shared_runs_total", "runs", &["measured"],
        "Shared runs that ended, by whether their speed is known");
    GPU_SECONDS = counter("pillion_gpu_seconds_total", "seconds", &["sharing"],
        "Device time of managed runs that ended, by whether it was shared; a second of one of two tenants counts half");
    GPU_SECONDS_SAVED = counter("pillion_gpu_seconds_saved_total", "seconds", &[],
        "Device time saved by shared runs that were faster beside others than their part of the device is worth");
    GPU_SECONDS_LOST = counter("pillion_gpu_seconds_lost_total", "seconds", &[],
        "Device time lost by shared runs that were slower; the gain is what was saved less this");
    ENERGY = counter("pillion_energy_joules_total", "joules", &[],
        "Energy of managed runs that ended, each one's part of its device");
    ENERGY_SAVED = counter("pillion_energy_joules_saved_total", "joules", &[],
        "Energy saved by completed shared runs against the same workloads alone");
    ENERGY_LOST = counter("pillion_energy_joules_lost_total", "joules", &[],
        "Energy that completed shared runs took more than the same workloads alone; the gain is what was saved less this");

    // What is learnt.
    OBSERVATIONS = counter("pillion_observations_total", "observations", &[],
        "Outcomes of sharing that were told to the learning");
    MODELS_TRAINED = counter("pillion_models_trained_total", "models", &["outcome"],
        "Models trained: promoted (in use), rejected (worse than the one in use)");
    MODEL_VERSION = gauge("pillion_model_version", "1", &[],
        "Number of the model in use; absent before the first");
    MODEL_STAND_IN = gauge("pillion_model_stand_in", "0 or 1", &[],
        "Whether the model in use cannot be read by this release, so that one without observations stands in");
    MODEL_TRAINED_AT = gauge("pillion_model_trained_timestamp_seconds", "seconds", &[],
        "When the newest model was trained, whether it was promoted or not");
    MODEL_OBSERVATIONS = gauge("pillion_model_observations", "observations", &[],
        "On how many outcomes the newest model was trained");
    MODEL_WAITING = gauge("pillion_model_observations_waiting", "observations", &[],
        "Outcomes that came since the newest model was trained");
    MODEL_ERROR = gauge("pillion_model_error_mean", "fraction of 1", &[],
        "Mean distance between the speed that the newest model expected and what was measured, in its backtest");

    // What it depends on.
    AGENT_CONNECTED = gauge("pillion_agent_connected", "0 or 1", &["node"],
        "Whether the agent of a pool node is connected");
    AGENT_MESSAGE_AT = gauge("pillion_agent_message_timestamp_seconds", "seconds", &["node"],
        "When an agent last said anything");
    AGENT_SKEW = gauge("pillion_agent_clock_skew_seconds", "seconds", &["node"],
        "An agent's clock less the scheduler's when it connected");
    REPORTS_DROPPED = counter("pillion_reports_disbelieved_total", "reports", &["reason"],
        "What agents told and was not believed: unknown-start, other-node, other-device, other-share (Slurm or we know \
         otherwise), times, seconds, energy, memory, reading, unreadable (it cannot be), speed (a job's own counter)");
    TURNED_AWAY = counter("pillion_connections_turned_away_total", "connections", &["cause"],
        "Connections that were closed because there are too many: unproven (had not said who it is and made room for another), \
         address (of one address), guest (of one user or node), line (of one user who wait at the Unix socket)");
    DEVICES = gauge("pillion_devices", "devices", &["model", "mechanism"],
        "Devices that agents announced");
    DEVICE_FAULT = gauge("pillion_device_fault", "1", &["node", "gres_type", "fault"],
        "1 for each fault of a device that lasts, as its agent tells: gone, unreadable, mps-fault, mps-died, held, divided, mode-held, \
         outsider, no-mechanism, no-partitions, one-user, metric-lost, overused, other; no line where there is none");
    NODES = gauge("pillion_nodes", "nodes", &["state"],
        "Nodes of the pool by whether Slurm can use them: up, unavailable");
    OBSERVED_GPUS = gauge("pillion_observed_gpus", "GPUs", &["state"],
        "GPUs that jobs hold in observed partitions: working, idle (busy under 5 % for an hour or longer), unseen (nobody can say)");
    QUEUE_LINES_DROPPED = counter("pillion_queue_lines_dropped_total", "lines", &[],
        "Lines of Slurm's queue that could not be read");
    SLURM_SECONDS = histogram("pillion_slurm_call_duration_seconds", &["call"],
        "How long calls of Slurm's programs took, whatever they answered");
    SLURM_ERRORS = counter("pillion_slurm_call_errors_total", "calls", &["call", "kind"],
        "Calls of Slurm that failed: refused (it said no; a job that has started meanwhile is one), unanswered");
    PASSED_OVER = counter("pillion_rows_passed_over_total", "rows", &["task"],
        "What a task of the scheduler could not do its work for and went past, so that the others were done: credit, ingest, watch, \
         engine, profile, judge, misses, names, observe, requeue, release, train; each is told in the log");
    UNREADABLE = gauge("pillion_store_rows_unreadable", "rows", &["table"],
        "Rows of a table that could not be read back since the start, and that were passed over");
    STORE_UP = gauge("pillion_store_up", "0 or 1", &[],
        "Whether the last call of Postgres was answered");
    STORE_SECONDS = histogram("pillion_store_call_duration_seconds", &["access"],
        "How long transactions in Postgres took that were committed, waiting and repeating included: read, write");
    STORE_ERRORS = counter("pillion_store_call_errors_total", "calls", &["access"],
        "Transactions that Postgres did not do");
}
