-- Decisions that are only recorded (mode = "shadow"): beside the tables of real ones, so that what releases, judges or counts those
-- never sees one of these. Nothing refers to this table, and it refers to none.

create table shadow_decision (
    job_id text not null,
    restart_count integer not null,
    group_start text not null,
    uid bigint not null,
    role text not null,
    reason text not null,
    decided_at timestamptz not null,
    closed_at timestamptz,
    body jsonb not null,
    score jsonb,
    constraint shadow_decision_pkey primary key (job_id, restart_count),
    constraint shadow_decision_job_id_check check (job_id ~ '^[1-9][0-9]*(_[0-9]+)?$'),
    constraint shadow_decision_restart_count_check check (restart_count >= 0),
    constraint shadow_decision_role_check check (role in ('host', 'joiner', 'alone')),
    constraint shadow_decision_score_check check ((closed_at is null) = (score is null))
);
create index shadow_decision_open_idx on shadow_decision (decided_at) where closed_at is null;
create index shadow_decision_group_idx on shadow_decision (group_start);
create index shadow_decision_decided_idx on shadow_decision (decided_at);
create index shadow_decision_closed_idx on shadow_decision (closed_at) where closed_at is not null;
comment on table shadow_decision is 'what would have been decided of starts in observed partitions, once a start; never carried out';
comment on column shadow_decision.group_start is 'the start on whose device it would have been: its own, or its host''s';
comment on column shadow_decision.score is 'what came of the jobs, held against what was decided; speeds in it stay predictions';
