-- The size of the MIG instance that a run had to itself, which accounts may be told by.
alter table run_account
    add column mig_profile text,
    add constraint run_account_mig_profile_check check (mig_profile ~ '^[1-9]g\.[1-9][0-9]*gb([+-][a-z.]+)?$');
comment on column run_account.mig_profile is 'size of its MIG instance, as 3g.40gb; null: it ran in none, or before this was kept';
