-- How a workload scales is asked by its name over all that it ever ran: an index for that question.

create index observed_job_workload_idx on observed_job ((body ->> 'workload'), ended_at) where ended_at is not null;
create index observed_job_ended_idx on observed_job (ended_at) where ended_at is not null;
