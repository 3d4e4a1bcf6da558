-- What each run taught of its workload, and how often each cap was measured alone.

alter table job_run
    add column lesson_kind text,
    add column lesson_detail text not null default '',
    add constraint job_run_lesson_kind_check check (lesson_kind in ('alone', 'capped', 'shared', 'nothing'));

comment on column job_run.lesson_kind is 'what was learnt of the run; null where it was not looked at yet, or was before this was kept';

alter table workload_profile
    add column run_counts_at_cap bigint[] not null default '{}',
    add constraint workload_profile_run_counts_at_cap_check check (cardinality(run_counts_at_cap) in (0, 9));

comment on column workload_profile.run_counts_at_cap is 'how many runs each of throughput_per_second_at_cap is the mean of';
