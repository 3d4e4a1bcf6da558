-- What operators close and restart, and what is told of a stretch of time.

create table drain (
    node text not null,
    gres_type text,
    drained_by text not null,
    reason text not null,
    since timestamptz not null
);
create unique index drain_key on drain (node, coalesce(gres_type, ''));
comment on table drain is 'nodes and devices that operators keep new tenants away from';
comment on column drain.gres_type is 'null = the whole node';

-- Requeues from before are of victims.
alter table job_requeue
    add column cause text not null default 'victim',
    add constraint job_requeue_cause_check check (cause in ('victim', 'evicted'));
comment on column job_requeue.cause is 'victim: it died with a tenant beside it; evicted: an operator wants it to run alone';
comment on table job_requeue is 'jobs that are started again, alone; of a victim once at most';

create index event_happened_at_idx on event (happened_at);
