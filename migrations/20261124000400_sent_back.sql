-- A job that came last to a device on which a promise is being broken is started again, alone: once at most.
alter table job_requeue
    drop constraint job_requeue_cause_check,
    add constraint job_requeue_cause_check check (cause in ('victim', 'evicted', 'sent-back'));
comment on column job_requeue.cause is
    'victim: it died with a tenant beside it; evicted: an operator wants it to run alone; sent-back: a promise was being broken there';
comment on table job_requeue is 'jobs that are started again, alone; of a victim once at most, and of one that is sent back';
