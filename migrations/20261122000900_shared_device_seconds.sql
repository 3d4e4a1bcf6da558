-- Of the shared seconds of a run, the device's time that is its part: each second divided by the tenants of the device. Null
-- from an older agent, which counted no tenants: such runs are booked half, as if two had shared.
alter table job_run add column shared_device_seconds double precision;
