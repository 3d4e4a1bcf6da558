-- What became of runs in MIG instances: in which sizes a workload has room, and how fast it is there.
create table slice (
    workload text not null,
    device_model text not null,
    profile text not null,
    memory_bytes bigint,
    completed_count integer not null,
    out_of_memory_count integer not null,
    speed_count integer not null,
    speed_fraction double precision,
    measured_at timestamptz not null,
    constraint slice_pkey primary key (workload, device_model, profile),
    constraint slice_profile_check check (profile ~ '^[1-9]g\.[1-9][0-9]*gb([+-][a-z.]+)?$'),
    constraint slice_memory_bytes_check check (memory_bytes >= 0),
    constraint slice_counts_check check (completed_count >= 0 and out_of_memory_count >= 0 and speed_count >= 0),
    constraint slice_speed_fraction_check check (speed_fraction > 0 and speed_fraction < 'Infinity')
);
comment on table slice is 'runs in MIG instances, by workload, model of device and size of the instance';
comment on column slice.memory_bytes is 'of such an instance; null: nobody has told it';
comment on column slice.speed_fraction is 'the mean speed there, of the speed on the whole device; null: none of the runs told it';
