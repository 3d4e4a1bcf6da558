-- What is known of a workload's need of device memory besides the most that it held.
alter table workload_profile
    add column memory_bytes_completed bigint,
    add column memory_bytes_ran_out bigint,
    add constraint workload_profile_memory_fit_check check (memory_bytes_completed > 0 and memory_bytes_ran_out > 0);
comment on column workload_profile.memory_bytes_completed is 'least memory limit under which a run has completed; null = none ran under one';
comment on column workload_profile.memory_bytes_ran_out is 'most device memory with which a run certainly ran out of it; null = none did';
