-- Why starts failed, who is requeued for it, and what was wrong with devices.

alter table job add column exit_status bigint;
alter table job add column exit_signal bigint;
comment on column job.exit_status is 'what it exited with, once it is over; null = not over, or not known';
comment on column job.exit_signal is 'the signal that ended it, 0 = none; null as exit_status';

-- Runs from before are of the past: nobody judges them.
alter table job_run add column signs jsonb;
alter table job_run add column is_judged boolean not null default true;
alter table job_run alter column is_judged set default false;
create index job_run_unjudged_idx on job_run (ended_at) where not is_judged;
comment on column job_run.signs is 'what its agent saw towards its end that may tell why it failed; null = an older agent';
comment on column job_run.is_judged is 'whether it was asked already why the run ended';

create table job_requeue (
    job_id text not null,
    restart_count integer not null,
    node text not null,
    decided_at timestamptz not null,
    reason text not null,
    outcome text,
    constraint job_requeue_pkey primary key (job_id),
    constraint job_requeue_restart_count_check check (restart_count >= 0),
    constraint job_requeue_outcome_check check (outcome in ('requeued', 'refused'))
);
create index job_requeue_open_idx on job_requeue (decided_at) where outcome is null;
comment on table job_requeue is 'jobs that died with a tenant beside them and are started again, alone; a job once at most';
comment on column job_requeue.restart_count is 'of the start that died';
comment on column job_requeue.outcome is 'null = to be carried out';

create table device_fault (
    node text not null,
    gres_type text not null,
    kind text not null,
    since timestamptz not null,
    detail text not null,
    cleared_at timestamptz,
    constraint device_fault_pkey primary key (node, gres_type, kind, since, detail)
);
create index device_fault_open_idx on device_fault (node) where cleared_at is null;
comment on table device_fault is 'what was wrong with devices, as their agents told; each fault once';
comment on column device_fault.cleared_at is 'when it was told to be over; null = it lasts';
