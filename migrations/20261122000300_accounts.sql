-- What was gained in a stretch of time is read by when runs ended.

create index job_run_ended_at_idx on job_run (ended_at);
