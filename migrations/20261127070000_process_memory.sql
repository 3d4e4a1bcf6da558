-- How much one process of a job takes at most: what its memory is divided by where it has several (decision 0040).
alter table job_run
    add column process_memory_bytes_peak bigint,
    add constraint job_run_process_memory_bytes_peak_check check (process_memory_bytes_peak >= 0);
alter table workload_profile
    add column process_memory_bytes_peak bigint,
    add constraint workload_profile_process_memory_bytes_peak_check check (process_memory_bytes_peak >= 0);

comment on column job_run.process_memory_bytes_peak is 'the most that any one of its processes held; null: it could never be read, or the agent was an older one';
comment on column workload_profile.process_memory_bytes_peak is 'the most that any one process held in any run; null: no run tells it';
