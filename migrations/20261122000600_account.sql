-- What each run used and gained, kept when the run is profiled, and the same by the hour: a question about months adds up
-- hours, and of the runs only those of the part hours at its ends, or of single nodes.

-- Runs that an older release profiles from now on are accounted by the next one that looks: none of them is taken to be.
alter table job_run add column is_accounted boolean not null default true;
alter table job_run alter column is_accounted set default false;
update job_run set is_accounted = false where not is_profiled;
create index job_run_unaccounted_idx on job_run (ended_at) where not is_accounted;
comment on column job_run.is_accounted is 'whether it stands in run_account and account_hour';

create table run_account (
    job_id text not null,
    restart_count integer not null,
    gres_type text not null,
    ended_at timestamptz not null,
    node text not null,
    uid bigint not null,
    user_name text not null,
    account text not null,
    partition_name text not null,
    workload text not null,
    shared_run_count integer not null,
    gpu_seconds double precision not null,
    shared_seconds double precision not null,
    unmeasured_seconds double precision not null,
    gpu_seconds_saved double precision not null,
    energy_joules double precision not null,
    energy_joules_saved double precision not null,
    promises_kept integer not null,
    promises_broken integer not null,
    constraint run_account_pkey primary key (job_id, restart_count, gres_type)
);
create index run_account_ended_at_idx on run_account (ended_at);
comment on table run_account is 'what one run used and gained, by what was known when it was profiled; never changed';
comment on column run_account.shared_run_count is '1: it was beside others for a while';

create table account_hour (
    hour timestamptz not null,
    uid bigint not null,
    user_name text not null,
    account text not null,
    partition_name text not null,
    workload text not null,
    run_count integer not null,
    shared_run_count integer not null,
    gpu_seconds double precision not null,
    shared_seconds double precision not null,
    unmeasured_seconds double precision not null,
    gpu_seconds_saved double precision not null,
    energy_joules double precision not null,
    energy_joules_saved double precision not null,
    promises_kept integer not null,
    promises_broken integer not null,
    constraint account_hour_pkey primary key (hour, uid, user_name, account, partition_name, workload)
);
comment on table account_hour is 'run_account summed by the hour in which the runs ended, over all nodes';

-- Runs from before, by what is known of them now (crates/scheduler/src/story/account.rs says why so).
insert into run_account
select run.job_id, run.restart_count, run.gres_type, run.ended_at, run.node, job.uid, job.user_name, job.account,
    job.partition_name, job.workload, (shared > 0)::integer, elapsed - shared / 2, shared,
    case when shared > 0 and speed is null then shared else 0 end,
    case when shared > 0 and speed is not null then (speed - 0.5) * shared else 0 end,
    coalesce(run.energy_joules, 0),
    case when shared > 0 and job.restart_count = run.restart_count and job.ending = 'completed'
        then coalesce(profile.energy_joules - run.energy_joules, 0) else 0 end,
    case when shared > 0 and speed * promise >= 1 then 1 else 0 end,
    case when shared > 0 and speed * promise < 1 then 1 else 0 end
from job_run as run
cross join lateral (select greatest(0, extract(epoch from run.ended_at - run.started_at))::double precision as elapsed) as timed
cross join lateral (select least(greatest(0, run.shared_seconds), elapsed) as shared) as parted
join job on job.job_id = run.job_id
left join device on device.node = run.node and device.gres_type = run.gres_type
left join workload_profile as profile
    on profile.workload = job.workload and profile.device_model = device.device_model
left join lateral (
    select one.measured_speed_fraction as speed, one.slowdown_ratio_max as promise from pairing_member as one
    where one.job_id = run.job_id and one.restart_count = run.restart_count and one.state <> 'undone'
    order by one.decision_id desc limit 1
) as member on true
where run.is_accounted;

insert into account_hour
select date_trunc('hour', ended_at, 'UTC'), uid, user_name, account, partition_name, workload, count(*),
    sum(shared_run_count), sum(gpu_seconds), sum(shared_seconds), sum(unmeasured_seconds), sum(gpu_seconds_saved),
    sum(energy_joules), sum(energy_joules_saved), sum(promises_kept), sum(promises_broken)
from run_account group by 1, 2, 3, 4, 5, 6;

-- How many hold each device is read from an index alone: a member's row is long, with all its reasons.
create index pairing_member_active_decision_idx on pairing_member (decision_id) where active;
