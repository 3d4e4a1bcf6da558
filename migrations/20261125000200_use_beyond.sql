-- What runs beside others used of their device beyond what their profiles say: where the site books by use, the next runs of the
-- workload, or of a workload of that user of which nothing is known yet, are booked with that besides.
create table use_beyond (
    uid bigint not null,
    workload text not null,
    run_count integer not null,
    beyond_fraction double precision not null,
    measured_at timestamptz not null,
    constraint use_beyond_pkey primary key (uid, workload),
    constraint use_beyond_beyond_fraction_check check (beyond_fraction between 0 and 1)
);
create index use_beyond_measured_at_idx on use_beyond (measured_at);
comment on table use_beyond is 'what shared runs used of a device beyond their profiles, in the mean of the last ten or so';
comment on column use_beyond.workload is 'empty: of all workloads of that user';
