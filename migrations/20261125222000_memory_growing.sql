-- A job that will all but certainly run out of device memory, and whose user lets it, is ended before it does and started again: once,
-- with more.
alter table job_requeue
    drop constraint job_requeue_cause_check,
    drop constraint job_requeue_memory_bytes_check,
    add constraint job_requeue_cause_check
        check (cause in ('victim', 'evicted', 'sent-back', 'out-of-memory', 'memory-growing')),
    add constraint job_requeue_memory_bytes_check
        check ((memory_bytes is not null) = (cause in ('out-of-memory', 'memory-growing')) and memory_bytes > 0);
comment on column job_requeue.cause is
    'victim: it died with a tenant beside it; evicted: an operator wants it to run alone; sent-back: a promise was being broken there; out-of-memory: it ran out of device memory; memory-growing: it was about to';
comment on column job_requeue.memory_bytes is
    'device memory that the next start is to have at least; null = neither out-of-memory nor memory-growing';
comment on table job_requeue is
    'jobs that are started again: a victim, one that is sent back and one that ran out of memory, or was about to, once at most each; alone, but for the last';
