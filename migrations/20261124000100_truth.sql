-- What Slurm said of each start: reports of agents are held against it. The row of a job tells of its newest start alone.
create table job_start (
    job_id text not null,
    restart_count integer not null,
    node text not null,
    started_at timestamptz not null,
    ended_at timestamptz,
    constraint job_start_pkey primary key (job_id, restart_count)
);
create index job_start_started_at_idx on job_start (started_at);
comment on table job_start is 'starts of managed jobs, as scans of Slurm told of them';
comment on column job_start.ended_at is 'null = it runs, or nobody saw its end because it was started again';

insert into job_start (job_id, restart_count, node, started_at, ended_at)
select job_id, restart_count, node, started_at, ended_at from job where node is not null and started_at is not null;
