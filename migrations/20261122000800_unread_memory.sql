-- The device memory of a run whose processes' memory could never be read is not known: it is not 0.

alter table job_run alter column memory_bytes_peak drop not null;
update job_run set memory_bytes_peak = null where memory_bytes_peak = 0;

comment on column job_run.memory_bytes_peak is 'the most at any look at which it could be read of all its processes; null: at none';
