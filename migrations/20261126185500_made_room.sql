-- A job that was submitted as a guest is started again where somebody else waits for its device.
alter table job_requeue
    drop constraint job_requeue_cause_check,
    add constraint job_requeue_cause_check
        check (cause in ('victim', 'evicted', 'sent-back', 'made-room', 'out-of-memory', 'memory-growing'));
comment on column job_requeue.cause is
    'victim: it died with a tenant beside it; evicted: an operator wants it to run alone; sent-back: a promise was being broken there; made-room: it is a guest, and somebody else waits for its device; out-of-memory: it ran out of device memory; memory-growing: it was about to';
