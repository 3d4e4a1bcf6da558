-- What the scheduler remembers. Expand-only: a later migration adds, and drops nothing that the release before it reads.
--
-- Jobs are named as Slurm names them: 33, or 33_2 for a task of an array. Times are timestamptz, units stand in names,
-- a fraction is 0 to 1. Constraints that the code recognises have names; the names are part of the interface.

-- The revision of the view. A plan is committed only by moving this row on from the revision that the plan was made from.
create table plan_head (
    is_only boolean not null default true,
    revision bigint not null,
    constraint plan_head_pkey primary key (is_only),
    constraint plan_head_is_only_check check (is_only),
    constraint plan_head_revision_check check (revision >= 0)
);
comment on table plan_head is 'one row: the revision that the next plan must be made from';
insert into plan_head (revision) values (0);

create table job (
    job_id text not null,
    restart_count integer not null,
    uid bigint not null,
    user_name text not null,
    account text not null,
    partition_name text not null,
    workload text not null,
    slowdown_ratio_max double precision,
    memory_bytes_declared bigint,
    submitted_at timestamptz not null,
    eligible_at timestamptz,
    started_at timestamptz,
    ended_at timestamptz,
    ending text,
    node text,
    gres text not null,
    is_alone boolean not null,
    seen_at timestamptz not null,
    constraint job_pkey primary key (job_id),
    constraint job_job_id_check check (job_id ~ '^[1-9][0-9]*(_[0-9]+)?$'),
    constraint job_restart_count_check check (restart_count >= 0),
    constraint job_slowdown_ratio_max_check check (slowdown_ratio_max >= 1),
    constraint job_memory_bytes_declared_check check (memory_bytes_declared >= 0),
    constraint job_ending_check check (ending in (
        'completed', 'failed', 'cancelled', 'timeout', 'node-fail', 'preempted', 'out-of-memory', 'revoked'
    ))
);
comment on table job is 'managed jobs, as the last scan that saw them reported them';
comment on column job.workload is 'what is profiled: user and profile name or digest of the script';
comment on column job.is_alone is 'undone once: runs alone and is not released again';

create table pairing_decision (
    decision_id bigint not null generated always as identity,
    joins_decision_id bigint,
    group_id bigint not null generated always as (coalesce(joins_decision_id, decision_id)) stored,
    parent_revision bigint not null,
    state text not null,
    created_at timestamptz not null,
    node text not null,
    gres_type text not null,
    device_model text not null,
    mechanism text not null,
    ccs_mode smallint,
    gain double precision not null,
    abandoned_reason text,
    constraint pairing_decision_pkey primary key (decision_id),
    constraint pairing_decision_joins_fkey foreign key (joins_decision_id) references pairing_decision,
    constraint pairing_decision_state_check check (state in ('planned', 'released', 'ended', 'abandoned')),
    constraint pairing_decision_mechanism_check check (mechanism in ('mps', 'ccs', 'none')),
    constraint pairing_decision_ccs_mode_check check (ccs_mode in (1, 2, 4))
);
create index pairing_decision_active_idx on pairing_decision (decision_id) where state in ('planned', 'released');
create index pairing_decision_group_id_idx on pairing_decision (group_id);
create index pairing_decision_created_at_idx on pairing_decision (created_at);
comment on table pairing_decision is 'what the engine chose for one device at one moment';
comment on column pairing_decision.group_id is 'the decision that began this sharing: its own, or its host''s';
comment on column pairing_decision.parent_revision is 'the revision of the view that it was made from';
comment on column pairing_decision.gain is 'expected sum of the speed fractions of all tenants, less one';

create table pairing_member (
    decision_id bigint not null,
    job_id text not null,
    restart_count integer not null,
    position smallint not null,
    uid bigint not null,
    workload text not null,
    role text not null,
    cap_fraction double precision,
    shard_count smallint not null,
    memory_bytes bigint,
    memory_limit_bytes bigint,
    slowdown_ratio_max double precision not null,
    estimate jsonb,
    solo_duration_seconds double precision,
    explanation jsonb not null,
    state text not null,
    active boolean not null generated always as (state in ('planned', 'guarded', 'released', 'running')) stored,
    prepared_at timestamptz,
    guarded_at timestamptz,
    released_at timestamptz,
    started_at timestamptz,
    ended_at timestamptz,
    measured_speed_fraction double precision,
    energy_joules double precision,
    constraint pairing_member_pkey primary key (decision_id, job_id),
    constraint pairing_member_decision_fkey foreign key (decision_id) references pairing_decision,
    constraint pairing_member_position_key unique (decision_id, position),
    constraint pairing_member_role_check check (role in ('host', 'joiner', 'alone')),
    constraint pairing_member_cap_fraction_check check (cap_fraction between 0 and 1),
    constraint pairing_member_shard_count_check check (shard_count between 1 and 100),
    constraint pairing_member_memory_bytes_check check (memory_bytes >= 0),
    constraint pairing_member_memory_limit_bytes_check check (memory_limit_bytes >= 0),
    constraint pairing_member_slowdown_ratio_max_check check (slowdown_ratio_max >= 1),
    constraint pairing_member_state_check check (
        state in ('planned', 'guarded', 'released', 'running', 'ended', 'undone')
    ),
    constraint pairing_member_measured_speed_fraction_check check (measured_speed_fraction >= 0)
);
create unique index pairing_member_active_key on pairing_member (job_id) where active;
create index pairing_member_job_id_idx on pairing_member (job_id, restart_count);
comment on table pairing_member is 'one start of one job under a decision; what was planned, how far it came, what was measured';
comment on index pairing_member_active_key is 'invariant P-1: a job is an active member of at most one decision';
comment on column pairing_member.position is 'order of release, the host first';
comment on column pairing_member.measured_speed_fraction is 'speed beside its neighbours over speed alone; above 1 by noise; null = unknown';

create table explanation (
    explanation_id bigint not null generated always as identity,
    job_id text not null,
    revision bigint not null,
    recorded_at timestamptz not null,
    reason text not null,
    explanation jsonb not null,
    constraint explanation_pkey primary key (explanation_id)
);
create index explanation_job_id_idx on explanation (job_id, explanation_id);
comment on table explanation is 'why a job was left waiting; one row for each time the reason changed (those of decisions are with their members)';

create table event (
    event_id bigint not null generated always as identity,
    happened_at timestamptz not null,
    kind text not null,
    job_id text,
    node text,
    detail text not null,
    constraint event_pkey primary key (event_id)
);
create index event_job_id_idx on event (job_id, event_id) where job_id is not null;
create index event_kind_idx on event (kind);
comment on table event is 'what operators should be able to read later';

create table agent_journal (
    node text not null,
    journal_id text not null,
    last_sequence bigint not null,
    constraint agent_journal_pkey primary key (node, journal_id),
    constraint agent_journal_last_sequence_check check (last_sequence >= 0)
);
comment on table agent_journal is 'up to where each agent''s reports are stored: what makes a report count once';

create table device (
    node text not null,
    gres_type text not null,
    device_index bigint not null,
    device_uuid text not null,
    device_model text not null,
    memory_bytes bigint not null,
    mechanism text not null,
    seen_at timestamptz not null,
    constraint device_pkey primary key (node, gres_type),
    constraint device_memory_bytes_check check (memory_bytes >= 0),
    constraint device_mechanism_check check (mechanism in ('mps', 'ccs', 'none'))
);
comment on table device is 'devices, as their agents announced them last';

create table device_sample (
    recorded_at timestamptz not null,
    node text not null,
    gres_type text not null,
    energy_joules double precision,
    power_watts double precision,
    sm_active_fraction double precision,
    sm_occupancy_fraction double precision,
    stall_fraction double precision,
    fp32_active_fraction double precision,
    gpu_busy_fraction double precision,
    memory_bandwidth_fraction double precision,
    cache_bandwidth_fraction double precision,
    pcie_tx_bytes_per_second double precision,
    pcie_rx_bytes_per_second double precision,
    memory_bytes_used bigint,
    tenants jsonb not null,
    constraint device_sample_fraction_check check (
        sm_active_fraction between 0 and 1
        and sm_occupancy_fraction between 0 and 1
        and stall_fraction between 0 and 1
        and fp32_active_fraction between 0 and 1
        and gpu_busy_fraction between 0 and 1
        and memory_bandwidth_fraction between 0 and 1
        and cache_bandwidth_fraction between 0 and 1
    )
);
-- Rows arrive in the order of time and are deleted in the order of time: a range index costs next to nothing for both.
create index device_sample_recorded_at_idx on device_sample using brin (recorded_at);
comment on table device_sample is 'what each device did, once a second; pruned by age';

create table job_run (
    job_id text not null,
    restart_count integer not null,
    gres_type text not null,
    node text not null,
    started_at timestamptz not null,
    ended_at timestamptz not null,
    shared_seconds double precision not null,
    memory_bytes_peak bigint not null,
    process_count_peak bigint not null,
    energy_joules double precision,
    solo_progress double precision,
    solo_seconds double precision not null,
    shared_progress double precision,
    shared_progress_seconds double precision not null,
    solo_means jsonb,
    solo_sample_count bigint not null,
    neighbour_starts text[] not null,
    is_profiled boolean not null default false,
    constraint job_run_start_key unique (job_id, restart_count, gres_type),
    constraint job_run_memory_bytes_peak_check check (memory_bytes_peak >= 0)
);
create index job_run_unprofiled_idx on job_run (ended_at) where not is_profiled;
comment on table job_run is 'one start of a job on one device, summarised by its agent when the last process had gone';
comment on column job_run.is_profiled is 'whether it is part of its workload''s profile already, or was found to be of no use for it';

create table job_launch (
    launch_id bigint not null generated always as identity,
    job_id text not null,
    restart_count integer not null,
    step_id bigint not null,
    launched_at timestamptz not null,
    node text not null,
    decision_id bigint,
    gres_types text[] not null,
    constraint job_launch_pkey primary key (launch_id)
);
create index job_launch_job_id_idx on job_launch (job_id, restart_count);
comment on table job_launch is 'what SPANK was told at the start of each task';
comment on column job_launch.decision_id is 'the decision that was carried out, as the agent says; null = it knew none';

create table workload_profile (
    workload text not null,
    device_model text not null,
    run_count bigint not null,
    duration_seconds double precision,
    duration_variation_fraction double precision,
    duration_deviation_squares double precision not null,
    throughput_per_second double precision,
    sm_active_fraction double precision,
    sm_occupancy_fraction double precision,
    stall_fraction double precision,
    fp32_active_fraction double precision,
    gpu_busy_fraction double precision,
    memory_bandwidth_fraction double precision,
    cache_bandwidth_fraction double precision,
    pcie_tx_bytes_per_second double precision,
    pcie_rx_bytes_per_second double precision,
    memory_bytes_peak bigint,
    process_count_peak bigint not null,
    power_watts_mean double precision,
    energy_joules double precision,
    updated_at timestamptz not null,
    constraint workload_profile_pkey primary key (workload, device_model),
    constraint workload_profile_run_count_check check (run_count >= 0),
    constraint workload_profile_fraction_check check (
        sm_active_fraction between 0 and 1
        and sm_occupancy_fraction between 0 and 1
        and stall_fraction between 0 and 1
        and fp32_active_fraction between 0 and 1
        and gpu_busy_fraction between 0 and 1
        and memory_bandwidth_fraction between 0 and 1
        and cache_bandwidth_fraction between 0 and 1
    )
);
comment on table workload_profile is 'how one workload uses one device model alone: means over its solo runs';
comment on column workload_profile.duration_variation_fraction is 'standard deviation of the solo duration over its mean; may exceed 1';
comment on column workload_profile.duration_deviation_squares is 'sum of squared deviations of the solo duration, for the next run (Welford)';
