-- What is measured stands in one object: each value by the word of its metric, and "sources" by metric. A new metric needs no
-- column. The columns of before stay for rows that were written into them, which are read as they stand.
alter table device_sample
    add column metrics jsonb,
    add constraint device_sample_metrics_check check (
        jsonb_typeof(metrics) = 'object' and jsonb_typeof(metrics -> 'sources') = 'object'
        and not jsonb_path_exists(metrics, '$.keyvalue() ? (@.key != "sources" && @.value.type() != "number")')
        and not jsonb_path_exists(metrics, '$.keyvalue() ? (@.key like_regex "_fraction$" && (@.value < 0 || @.value > 1))')
    ) not valid;
-- Not valid: rows from before have none, and to look at all of them would keep the scheduler waiting.
comment on column device_sample.metrics is 'each value by its metric, and "sources": where it was read; null = the row is from before, and has columns';

alter table workload_profile
    add column metrics jsonb,
    add constraint workload_profile_metrics_check check (
        jsonb_typeof(metrics) = 'object' and jsonb_typeof(metrics -> 'sources') = 'object'
        and not jsonb_path_exists(metrics, '$.keyvalue() ? (@.key != "sources" && @.value.type() != "number")')
        and not jsonb_path_exists(metrics, '$.keyvalue() ? (@.key like_regex "_fraction$" && (@.value < 0 || @.value > 1))')
    );
comment on column workload_profile.metrics is 'the mean of each metric, and "sources"; null = the row is from before, and has columns';
