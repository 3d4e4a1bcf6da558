-- Runs in the pool count among those by which it is told how a workload scales: on how many nodes a job ran is known of jobs from this
-- release on, and they are found by what they run whatever the number of their devices.
alter table job
    add column node_count bigint,
    add constraint job_node_count_check check (node_count >= 1);
comment on column job.node_count is 'nodes that this start has or had; null = it has none yet, or an earlier release wrote the row';

create index job_completed_idx on job (ended_at) where ending = 'completed';
create index job_completed_workload_idx on job ((regexp_replace(workload, '^([^/]*/)[0-9]+x-', '\1')), ended_at)
    where ending = 'completed';
