-- A job that ran out of device memory for certain, and whose user lets it, is started again: once, with more.
alter table job_requeue
    add column memory_bytes bigint,
    drop constraint job_requeue_cause_check,
    add constraint job_requeue_cause_check check (cause in ('victim', 'evicted', 'sent-back', 'out-of-memory')),
    add constraint job_requeue_memory_bytes_check check ((memory_bytes is not null) = (cause = 'out-of-memory') and memory_bytes > 0);
comment on column job_requeue.cause is
    'victim: it died with a tenant beside it; evicted: an operator wants it to run alone; sent-back: a promise was being broken there; out-of-memory: it ran out of device memory';
comment on column job_requeue.memory_bytes is 'device memory that the next start is to have at least; null = not out-of-memory';
comment on table job_requeue is
    'jobs that are started again: a victim, one that is sent back and one that ran out of memory once at most each; alone, but for the last';
