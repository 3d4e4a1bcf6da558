-- What is learnt is bounded by combination: an array of a thousand short pairs is one of them, and pushes no other out (decision 0004).
create function observation_combination(
    device_model text, mechanism text, ccs_mode smallint, workloads text[], cap_fractions double precision[]
) returns bytea
language sql immutable parallel safe as $$
select substring(sha256(convert_to(jsonb_build_array(
    device_model, mechanism, ccs_mode,
    (
        select jsonb_agg(jsonb_build_array(workload, cap_fraction) order by workload collate "C", cap_fraction nulls first)
        from unnest(workloads, cap_fractions) as tenant (workload, cap_fraction)
    )
)::text, 'UTF8')) for 8)
$$;

alter table observation add column combination bytea;
update observation set combination = (
    select observation_combination(device_model, mechanism, ccs_mode, array_agg(workload), array_agg(cap_fraction))
    from observed_tenant where observed_tenant.observation_id = observation.observation_id
);

comment on function observation_combination is 'digest of which workloads shared a device of which model, and how, whatever the order of tenants';
comment on column observation.combination is 'observation_combination of it and its tenants; null: an earlier release wrote it, and it counts for itself';
