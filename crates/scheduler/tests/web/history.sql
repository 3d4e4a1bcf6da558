-- A month of a made-up site, the same for every run: :nodes nodes with 8 GPUs each and :jobs jobs that are over, the last
-- at :now (seconds since 1970), and jobs on most devices now. Two jobs a decision, of which every fifth is a job alone.
-- How two workloads go together follows from how much of compute (c) and of memory bandwidth (m) each uses alone.

select setseed(0.42);

create temporary table kind (k int, owner text, uid int, account text, name text, c float, m float, watts float, minutes float, gib float);
insert into kind values
    (0, 'amara', 2001, 'climate', 'icon-downscale', 0.34, 0.71, 410, 95, 31), (1, 'amara', 2001, 'climate', 'fourcast-eval', 0.62, 0.35, 520, 48, 22),
    (2, 'amara', 2001, 'climate', 'era5-regrid', 0.18, 0.42, 260, 22, 12), (3, 'bjorn', 2002, 'chem', 'gromacs-membrane', 0.71, 0.22, 540, 180, 6),
    (4, 'bjorn', 2002, 'chem', 'vasp-slab', 0.55, 0.66, 560, 150, 38), (5, 'bjorn', 2002, 'chem', 'openmm-ligand', 0.46, 0.14, 380, 64, 4),
    (6, 'chen', 2003, 'nlp', 'bert-base-b8', 0.24, 0.20, 300, 40, 9), (7, 'chen', 2003, 'nlp', 'bert-large-b32', 0.68, 0.48, 560, 85, 27),
    (8, 'chen', 2003, 'nlp', 'llama-8b-lora', 0.81, 0.62, 640, 140, 58), (9, 'chen', 2003, 'nlp', 'llama-8b-serve', 0.31, 0.78, 450, 60, 44),
    (10, 'chen', 2003, 'nlp', 'tokenise', 0.06, 0.09, 190, 12, 2), (11, 'dalia', 2004, 'vision', 'resnet50-b2', 0.21, 0.12, 280, 30, 5),
    (12, 'dalia', 2004, 'vision', 'resnet50-b256', 0.74, 0.55, 590, 70, 29), (13, 'dalia', 2004, 'vision', 'vit-h-finetune', 0.77, 0.44, 610, 120, 41),
    (14, 'dalia', 2004, 'vision', 'sam-label', 0.38, 0.26, 370, 25, 11), (15, 'emeka', 2005, 'bio', 'alphafold-infer', 0.42, 0.31, 400, 55, 36),
    (16, 'emeka', 2005, 'bio', 'deepvariant', 0.29, 0.19, 310, 35, 8), (17, 'emeka', 2005, 'bio', 'cryosparc-refine', 0.58, 0.51, 510, 110, 33),
    (18, 'fatou', 2006, 'astro', 'gadget-box', 0.49, 0.73, 530, 160, 47), (19, 'fatou', 2006, 'astro', 'cnn-transients', 0.16, 0.11, 250, 18, 3),
    (20, 'goran', 2007, 'physics', 'lattice-qcd', 0.52, 0.86, 570, 170, 26), (21, 'goran', 2007, 'physics', 'geant-shower', 0.33, 0.08, 330, 75, 3),
    (22, 'hana', 2008, 'speech', 'whisper-batch', 0.36, 0.33, 390, 28, 10), (23, 'hana', 2008, 'speech', 'tts-train', 0.59, 0.29, 480, 90, 18);

create function pg_temp.key(owner text, name text) returns text language sql immutable as $$ select owner || '/' || left(md5(name), 16) $$;
create function pg_temp.model(node int) returns text language sql immutable as $$ select case when node % 4 = 0 then 'max-1550' else 'h200' end $$;
create function pg_temp.sharing(node int) returns text language sql immutable as $$ select case when node % 4 = 0 then 'ccs' else 'mps' end $$;
create function pg_temp.speed(c1 float, m1 float, c2 float, m2 float) returns float language sql immutable as
    $$ select 1 / (1 + 0.02 + 0.75 * greatest(0, c1 + c2 - 0.92) * c2 / (c1 + c2) * 2 + 0.85 * greatest(0, m1 + m2 - 0.85) * m1 / 0.6) $$;
create function pg_temp.estimate(speed float, sure float) returns jsonb language sql immutable as $$
    select jsonb_build_object('speed_fraction', round(speed::numeric, 4), 'speed_fraction_deviation', round((0.015 / sure)::numeric, 4),
        'has_heavy_tail', true, 'speed_fraction_low', round((speed - 0.035 / sure)::numeric, 4),
        'speed_fraction_high', round(least(1, speed + 0.03 / sure)::numeric, 4),
        'terms', jsonb_build_object('prior', round((speed + 0.021)::numeric, 4), 'workload', -0.008, 'memory-pair', round((-0.013)::numeric, 4))) $$;

insert into device (node, gres_type, device_index, device_uuid, device_model, memory_bytes, mechanism, seen_at)
select 'n' || lpad(node::text, 4, '0'), 'g' || gpu, gpu, 'GPU-' || node || '-' || gpu, pg_temp.model(node), 141::bigint << 30, pg_temp.sharing(node), to_timestamp(:now)
from generate_series(1, :nodes) as node, generate_series(0, 7) as gpu;

insert into workload_name (workload, owner, uid, name, source, named_at)
select pg_temp.key(owner, name), owner, uid, name, 'profile', to_timestamp(:now) from kind;

insert into workload_profile (workload, device_model, run_count, duration_seconds, duration_variation_fraction, duration_deviation_squares,
    throughput_per_second, throughput_per_second_at_cap, sm_active_fraction, sm_occupancy_fraction, stall_fraction, fp32_active_fraction, tensor_active_fraction,
    gpu_busy_fraction, memory_bandwidth_fraction, cache_bandwidth_fraction, memory_bytes_peak, process_count_peak, power_watts_mean, energy_joules, updated_at)
select pg_temp.key(owner, name), model, 14 + k, minutes * 60, 0.03, 100, 40, array(select 40 * least(1.0, (tenth / 10.0 / greatest(c, 0.15)) ^ 0.8) from generate_series(1, 9) as tenth),
    c, c * 0.6, m * 0.4, c * 0.3, c * 0.7, least(1.0, c * 1.3 + 0.1), m, m * 0.8, (gib * 1073741824)::bigint, 1, watts, watts * minutes * 60, to_timestamp(:now)
from kind, (values ('h200'), ('max-1550')) as models (model);

-- What is over: decision d takes jobs 2d-1 and 2d. Kinds that go badly together meet seldom, as the engine leaves them apart.
create temporary table past as
select d, (d % 5 = 0) as is_alone, 1 + (d * 7) % :nodes as node, (d * 3) % 8 as gpu,
    to_timestamp(:now - 7200 - 2592000.0 * ((:jobs / 2 - d) / (:jobs / 2.0))) as created_at,
    a.k as ka, b.k as kb, random() as r1, random() as r2
from generate_series(1, :jobs / 2) as d
join lateral (select floor(24 * ((d * 0.6180339887) % 1))::int as ka, floor(24 * ((d * 0.7548776662) % 1))::int as kb) as drawn on true
join kind as a on a.k = drawn.ka
join kind as b on b.k = case
    when pg_temp.speed(a.c, a.m, (select c from kind where k = drawn.kb), (select m from kind where k = drawn.kb)) > 0.72 or d % 23 = 0 then drawn.kb
    else (array[6, 10, 11, 16, 19, 21])[1 + d % 6] end;

insert into pairing_decision (decision_id, parent_revision, state, created_at, node, gres_type, device_model, mechanism, ccs_mode, gain)
overriding system value
select d, d, 'ended', created_at, 'n' || lpad(node::text, 4, '0'), 'g' || gpu, pg_temp.model(node), case when is_alone then 'none' else pg_temp.sharing(node) end,
    case when is_alone or node % 4 > 0 then null else 2 end,
    case when is_alone then 0 else pg_temp.speed(a.c, a.m, b.c, b.m) + pg_temp.speed(b.c, b.m, a.c, a.m) - 1 end
from past join kind as a on a.k = ka join kind as b on b.k = kb;

create temporary table tenancy as
select d, 2 * d - 1 + seat as job, seat, is_alone, node, gpu, created_at, own.*, other.k as other_k, other.owner as other_owner, other.name as other_name,
    case when is_alone then 1 else pg_temp.speed(own.c, own.m, other.c, other.m) end as expected,
    (case when seat = 0 then r1 else r2 end - 0.5) as chance
from past
cross join generate_series(0, 1) as seat
join kind as own on own.k = case when seat = 0 then ka else kb end
join kind as other on other.k = case when seat = 0 then kb else ka end
where seat = 0 or not is_alone;

create temporary table lived as
select *, greatest(0.2, expected * (1 + 0.07 * chance)) as speed, created_at + interval '20 seconds' as started_at,
    created_at + interval '20 seconds' + make_interval(secs => minutes * 60 / greatest(0.2, expected * (1 + 0.07 * chance))) as ended_at
from tenancy;

insert into job (job_id, restart_count, uid, user_name, account, partition_name, workload, submitted_at, started_at, ended_at, ending, node, gres, is_alone, seen_at)
select job, 0, uid, owner, account, 'shared', pg_temp.key(owner, name), created_at - interval '3 minutes', started_at, ended_at, 'completed', 'n' || lpad(node::text, 4, '0'),
    'shard:g' || gpu || ':50', is_alone, ended_at from lived;

create function pg_temp.explained(job int, text text, reason text, partner int, other text, own jsonb, its jsonb, gain float) returns jsonb language sql immutable as $$
    select jsonb_build_object('job_id', job::text, 'reason', reason, 'text', text, 'model', 'learned-14', 'candidates',
        case when partner is null then '[]'::jsonb else jsonb_build_array(
            jsonb_build_object('partner', partner::text, 'workload', other, 'is_running', false, 'cap_fractions', jsonb_build_array(null, null), 'own', own,
                'other', its, 'gain', round(gain::numeric, 3), 'excluded_by', null, 'chosen', true),
            jsonb_build_object('partner', (partner + 4)::text, 'workload', 'amara/era5-regrid', 'is_running', true, 'cap_fractions', jsonb_build_array(null, null),
                'own', pg_temp.estimate(0.87, 0.8), 'other', pg_temp.estimate(0.84, 0.8), 'gain', 0.52, 'excluded_by', 'better-plan-elsewhere', 'chosen', false),
            jsonb_build_object('partner', (partner + 8)::text, 'workload', 'goran/lattice-qcd', 'is_running', false, 'cap_fractions', jsonb_build_array(0.6, null),
                'own', pg_temp.estimate(0.61, 0.4), 'other', pg_temp.estimate(0.58, 0.4), 'gain', 0.19, 'excluded_by', 'promise-at-risk', 'chosen', false),
            jsonb_build_object('partner', (partner + 10)::text, 'workload', 'chen/llama-8b-lora', 'is_running', true, 'cap_fractions', jsonb_build_array(null, null),
                'own', null, 'other', null, 'gain', null, 'excluded_by', 'memory-does-not-fit', 'chosen', false)) end) $$;

insert into pairing_member (decision_id, job_id, restart_count, position, uid, workload, role, cap_fraction, shard_count, memory_bytes, memory_limit_bytes,
    slowdown_ratio_max, estimate, solo_duration_seconds, explanation, state, prepared_at, released_at, started_at, ended_at, measured_speed_fraction, energy_joules)
select d, job, 0, seat, uid, pg_temp.key(owner, name), case when is_alone then 'alone' when seat = 0 then 'host' else 'joiner' end,
    case when is_alone or node % 4 = 0 or c < 0.7 then null else 0.8 end, case when is_alone then 100 else 50 end, (gib * 1073741824)::bigint,
    case when is_alone or node % 4 = 0 then null else (gib * 1.1 * 1073741824)::bigint end, 1.25,
    case when is_alone then null else pg_temp.estimate(expected, 1) end, minutes * 60,
    case when is_alone then pg_temp.explained(job, 'starts alone: no partner gains enough', 'alone-joinable', null, null, null, null, null)
        else pg_temp.explained(job, 'shares n' || lpad(node::text, 4, '0') || ' g' || gpu || ' from the start: both are expected above their promise', 'paired',
            2 * d - seat, pg_temp.key(other_owner, other_name), pg_temp.estimate(expected, 1), pg_temp.estimate(expected, 1), 2 * expected - 1) end,
    'ended', created_at + interval '2 seconds', created_at + interval '3 seconds', started_at, ended_at,
    case when is_alone then null else speed end, watts * minutes * 60 * case when is_alone then 1 else 0.62 + 0.35 * (1 / speed - 1) end
from lived;

insert into job_run (job_id, restart_count, gres_type, node, started_at, ended_at, shared_seconds, memory_bytes_peak, process_count_peak, energy_joules, solo_seconds,
    shared_progress_seconds, solo_sample_count, neighbour_starts, is_profiled, is_accounted, is_judged)
select job, 0, 'g' || gpu, 'n' || lpad(node::text, 4, '0'), started_at, ended_at, case when is_alone then 0 else extract(epoch from ended_at - started_at) * 0.93 end,
    (gib * 1073741824)::bigint, 1, watts * minutes * 60 * case when is_alone then 1 else 0.62 + 0.35 * (1 / speed - 1) end, 0, 0, 0, '{}', true, true, true
from lived;

insert into run_account
select job, 0, 'g' || gpu, ended_at, 'n' || lpad(node::text, 4, '0'), uid, owner, account, 'shared', pg_temp.key(owner, name), (shared > 0)::int, elapsed - shared / 2,
    shared, 0, (speed - 0.5) * shared, watts * minutes * 60 * used, watts * minutes * 60 * (1 - used), (shared > 0 and speed * 1.25 >= 1)::int,
    (shared > 0 and speed * 1.25 < 1)::int
from (select *, extract(epoch from ended_at - started_at)::float as elapsed, case when is_alone then 0 else extract(epoch from ended_at - started_at)::float * 0.93 end as shared,
    case when is_alone then 1 else 0.62 + 0.35 * (1 / speed - 1) end as used from lived) as run;
insert into account_hour
select date_trunc('hour', ended_at, 'UTC'), uid, user_name, account, partition_name, workload, count(*), sum(shared_run_count), sum(gpu_seconds), sum(shared_seconds),
    sum(unmeasured_seconds), sum(gpu_seconds_saved), sum(energy_joules), sum(energy_joules_saved), sum(promises_kept), sum(promises_broken)
from run_account group by 1, 2, 3, 4, 5, 6;

-- What runs now, on three of four devices: two jobs on most of them.
create temporary table present as
select row_number() over (order by node, gpu)::int + :jobs as d, node, gpu, (node * 5 + gpu * 3) % 24 as ka, (array[6, 10, 11, 14, 16, 19, 21, 22])[1 + (node + gpu) % 8] as kb,
    (node * 3 + gpu) % 5 < 2 as is_alone, to_timestamp(:now - 60 * (7 + (node * 13 + gpu * 29) % 90)) as created_at
from generate_series(1, :nodes) as node, generate_series(0, 7) as gpu where (node + gpu * 3) % 7 <> 0;

insert into pairing_decision (decision_id, parent_revision, state, created_at, node, gres_type, device_model, mechanism, ccs_mode, gain)
overriding system value
select d, d, 'released', created_at, 'n' || lpad(node::text, 4, '0'), 'g' || gpu, pg_temp.model(node), pg_temp.sharing(node), case when node % 4 = 0 then 2 end,
    case when is_alone then 0 else pg_temp.speed(a.c, a.m, b.c, b.m) + pg_temp.speed(b.c, b.m, a.c, a.m) - 1 end
from present join kind as a on a.k = ka join kind as b on b.k = kb;

create temporary table resident as
select present.*, 4 * :jobs + 2 * (d - :jobs) + seat as job, seat, own.*, other.owner as other_owner, other.name as other_name, pg_temp.speed(own.c, own.m, other.c, other.m) as expected
from present cross join generate_series(0, 1) as seat
join kind as own on own.k = case when seat = 0 then ka else kb end
join kind as other on other.k = case when seat = 0 then kb else ka end
where seat = 0 or not is_alone;

insert into job (job_id, restart_count, uid, user_name, account, partition_name, workload, submitted_at, started_at, node, gres, is_alone, seen_at)
select job, 0, uid, owner, account, 'shared', pg_temp.key(owner, name), created_at - interval '4 minutes', created_at + interval '20 seconds', 'n' || lpad(node::text, 4, '0'),
    'shard:g' || gpu || ':50', false, to_timestamp(:now) from resident;
insert into pairing_member (decision_id, job_id, restart_count, position, uid, workload, role, cap_fraction, shard_count, slowdown_ratio_max, estimate, explanation, state, prepared_at, released_at, started_at)
select d, job, 0, seat, uid, pg_temp.key(owner, name), case when seat = 0 then 'host' else 'joiner' end, case when c < 0.7 or node % 4 = 0 then null else 0.8 end, 50, 1.25,
    case when is_alone then null else pg_temp.estimate(expected, 1) end,
    pg_temp.explained(job, case when is_alone then 'starts alone, and others may join' else 'shares a device from the start' end, case when is_alone then 'alone-joinable' else 'paired' end,
        case when is_alone then null else job + 1 - 2 * seat end, pg_temp.key(other_owner, other_name), pg_temp.estimate(expected, 1), pg_temp.estimate(expected, 1), 2 * expected - 1),
    'running', created_at, created_at, created_at + interval '20 seconds' from resident;

analyze;
