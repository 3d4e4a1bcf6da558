-- Up to sixteen copies of one workload share a device.
alter table observation
    drop constraint observation_starts_check,
    add constraint observation_starts_check check (cardinality(starts) between 2 and 16);
