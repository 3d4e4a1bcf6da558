-- A run beside others tells by its counter how long it would have taken alone, so that durations are of more runs than the rest of a
-- profile (docs/decisions/0024-ends-by-runs.md).
alter table workload_profile add column duration_run_count bigint not null default 0 check (duration_run_count >= 0);
update workload_profile set duration_run_count = run_count where duration_seconds is not null;
comment on column workload_profile.duration_run_count is 'runs that duration_seconds is the mean of: those alone, and those beside others whose counters tell how long they would have taken alone';
