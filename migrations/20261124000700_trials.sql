-- A decision that the bounds did not admit, and that was tried.
alter table pairing_decision
    add column trial_keep_fraction double precision,
    add constraint pairing_decision_trial_keep_fraction_check check (trial_keep_fraction between 0 and 1);
comment on column pairing_decision.trial_keep_fraction is
    'how probably all keep their promises, where they are together for a trial; null: it is none';
