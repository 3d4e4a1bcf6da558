-- Jobs of ordinary partitions, which are only observed: beside the tables of managed jobs, so that nothing that acts on those ever
-- sees one of these.

create table observed_job (
    job_id text not null,
    restart_count integer not null,
    inner_id bigint not null,
    started_at timestamptz not null,
    ended_at timestamptz,
    body jsonb not null,
    is_learned boolean not null default false,
    lesson_kind text,
    lesson_detail text,
    constraint observed_job_pkey primary key (job_id, restart_count),
    constraint observed_job_job_id_check check (job_id ~ '^[1-9][0-9]*(_[0-9]+)?$'),
    constraint observed_job_restart_count_check check (restart_count >= 0)
);
create index observed_job_inner_id_idx on observed_job (inner_id, started_at);
create index observed_job_unlearned_idx on observed_job (ended_at) where not is_learned;
create index observed_job_open_idx on observed_job (started_at) where ended_at is null;
comment on table observed_job is 'starts of jobs in observed partitions, as Slurm reports them, with what was seen of the devices that they hold';
comment on column observed_job.inner_id is 'the number by which control groups and Slurm''s own processes name the job';

create table observed_run (
    job_id text not null,
    restart_count integer not null,
    node text not null,
    gres_type text not null,
    started_at timestamptz not null,
    ended_at timestamptz not null,
    summary jsonb not null,
    constraint observed_run_pkey primary key (job_id, restart_count, node, gres_type, started_at)
);
comment on table observed_run is 'a part of a start on one device, as its agent summarised it; there are several where nothing of the job was on the node in between';
