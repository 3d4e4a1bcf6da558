-- What people call workloads, whose keys end in a digest.

create table workload_name (
    workload text not null,
    owner text not null,
    uid bigint not null,
    name text not null,
    source text not null,
    named_at timestamptz not null,
    constraint workload_name_pkey primary key (workload),
    constraint workload_name_source_check check (source in ('job', 'profile'))
);
create index workload_name_name_idx on workload_name (name, owner);
comment on table workload_name is 'by what name people know a workload, made safe to print';
comment on column workload_name.owner is 'the user in the key';
comment on column workload_name.source is 'profile: of profile=, which takes the place of a job''s name';

alter table job_launch add column profile_name text;
comment on column job_launch.profile_name is 'profile= of the job, where the step carried it';
