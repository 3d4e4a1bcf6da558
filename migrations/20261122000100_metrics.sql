-- More of what devices tell, and where each value was read: a mean never mixes sources of different quality.

alter table device_sample
    add column tensor_active_fraction double precision,
    add column memory_busy_fraction double precision,
    add column nvlink_tx_bytes_per_second double precision,
    add column nvlink_rx_bytes_per_second double precision,
    add column sm_clock_hertz double precision,
    add column throttles text[],
    add column sources jsonb not null default '{}',
    add constraint device_sample_more_fractions_check check (
        tensor_active_fraction between 0 and 1 and memory_busy_fraction between 0 and 1
    ) not valid;
-- Not valid: rows from before have neither value, and to look at all of them would keep the scheduler waiting.
comment on column device_sample.throttles is 'what holds the clock down; empty = nothing, null = unknown';
comment on column device_sample.sources is 'where each value was read, by its column';

alter table workload_profile
    add column tensor_active_fraction double precision,
    add column nvlink_tx_bytes_per_second double precision,
    add column nvlink_rx_bytes_per_second double precision,
    add column throttled_fraction double precision,
    add column sources jsonb not null default '{}',
    add constraint workload_profile_more_fractions_check check (
        tensor_active_fraction between 0 and 1 and throttled_fraction between 0 and 1
    );
comment on column workload_profile.throttled_fraction is 'the part of the time in which power or heat held the clock down';
comment on column workload_profile.sources is 'the source of each metric that was averaged';
