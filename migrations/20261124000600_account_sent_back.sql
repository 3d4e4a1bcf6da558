-- Runs that were ended so that their job starts again alone: an operator evicted it, or the watch sent it back. What they did is
-- counted as lost.
alter table run_account add column sent_back_run_count integer not null default 0;
alter table account_hour add column sent_back_run_count integer not null default 0;
comment on column run_account.sent_back_run_count is
    '1: it was ended so that its job starts again alone; its device time counts as lost in gpu_seconds_saved';
