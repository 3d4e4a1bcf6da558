-- A user whose workload did far more than the profile that it was let in by, or as a newcomer broke a promise to somebody else,
-- runs alone for some runs: by user, for a name is anybody's to make up. Rows are only added; how much is still owed is counted
-- from the runs alone since.
create table credit_loss (
    loss_id bigint not null generated always as identity,
    uid bigint not null,
    lost_at timestamptz not null,
    job_id text not null,
    restart_count integer not null,
    node text not null,
    reason text not null,
    constraint credit_loss_pkey primary key (loss_id),
    constraint credit_loss_start_key unique (job_id, restart_count)
);
create index credit_loss_uid_idx on credit_loss (uid, lost_at);
create index run_account_uid_idx on run_account (uid, ended_at);
comment on table credit_loss is 'starts that cost their user the right to share, for some runs';
