-- What the scheduler learns from: more of each profile, what was observed of sharings, and the models made of it.

alter table workload_profile
    add column family text,
    add column memory_busy_fraction double precision,
    add column throughput_per_second_at_cap double precision[] not null default '{}',
    add constraint workload_profile_memory_busy_fraction_check check (memory_busy_fraction between 0 and 1),
    add constraint workload_profile_throughput_at_cap_check check (cardinality(throughput_per_second_at_cap) in (0, 9));
comment on column workload_profile.family is 'what its kind is called, where that is known: workloads of one family differ in size only';
comment on column workload_profile.throughput_per_second_at_cap is 'alone under a cap of 0.1, 0.2, .. 0.9, where that was measured';

-- Moves on with every change of an observation: what a model was trained on is everything up to a number.
create sequence observation_change;

create table observation (
    observation_id bigint not null generated always as identity,
    change_number bigint not null default nextval('observation_change'),
    starts text[] not null,
    group_id bigint not null,
    device_model text not null,
    mechanism text not null,
    ccs_mode smallint,
    power_watts double precision,
    fits boolean not null,
    recorded_at timestamptz not null,
    constraint observation_pkey primary key (observation_id),
    constraint observation_starts_key unique (starts),
    constraint observation_starts_check check (cardinality(starts) between 2 and 4),
    constraint observation_mechanism_check check (mechanism in ('mps', 'ccs', 'none')),
    constraint observation_ccs_mode_check check (ccs_mode in (1, 2, 4))
);
create unique index observation_change_number_key on observation (change_number);
comment on table observation is 'tenants that really shared a device, and what came of it; stands by itself, so that decisions may be deleted';
comment on column observation.change_number is 'when it last changed, in the order of changes';
comment on column observation.starts is 'who was together, in order';
comment on column observation.power_watts is 'mean power of the device while all of them ran; null = unknown';
comment on column observation.fits is 'false: out of device memory together';

create table observed_tenant (
    observation_id bigint not null,
    position smallint not null,
    workload text not null,
    cap_fraction double precision,
    speed_fraction double precision,
    speed_fraction_deviation double precision,
    is_self_reported boolean not null,
    constraint observed_tenant_pkey primary key (observation_id, position),
    constraint observed_tenant_observation_fkey foreign key (observation_id) references observation on delete cascade,
    constraint observed_tenant_cap_fraction_check check (cap_fraction between 0 and 1),
    constraint observed_tenant_speed_fraction_check check (speed_fraction > 0)
);
comment on table observed_tenant is 'one tenant of an observation; its position is its place in observation.starts';
comment on column observed_tenant.speed_fraction is 'speed beside the others over speed alone; null = not known';
comment on column observed_tenant.is_self_reported is 'from the job''s own progress counter: teaches about this user''s workloads only';

create table model_version (
    version bigint not null generated always as identity,
    state text not null,
    kind text not null,
    trained_at timestamptz not null,
    observation_count bigint not null,
    observation_horizon bigint not null,
    score jsonb not null,
    reason text not null,
    body jsonb,
    constraint model_version_pkey primary key (version),
    constraint model_version_state_check check (state in ('active', 'retired', 'rejected'))
);
create unique index model_version_active_key on model_version (state) where state = 'active';
comment on table model_version is 'every model that was trained, with the backtest that promoted or rejected it';
comment on index model_version_active_key is 'invariant M-1: the engine plans with one model';
comment on column model_version.kind is 'the recipe: a version of another kind was made in another way';
comment on column model_version.observation_horizon is 'the greatest observation.change_number that it was trained on';
comment on column model_version.score is 'its backtest against the model that was active';
comment on column model_version.body is 'the trained model; null for old versions that are not active any more';
