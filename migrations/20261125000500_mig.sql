-- Tenants in MIG instances of their own.
alter table pairing_decision
    drop constraint pairing_decision_mechanism_check,
    add constraint pairing_decision_mechanism_check check (mechanism in ('mps', 'ccs', 'mig', 'none'));
alter table device
    drop constraint device_mechanism_check,
    add constraint device_mechanism_check check (mechanism in ('mps', 'ccs', 'mig', 'none'));
alter table pairing_member
    add column mig_slot text,
    add constraint pairing_member_mig_slot_check check (mig_slot ~ '^[1-9]g\.[1-9][0-9]*gb([+-][a-z.]+)?@[0-9]+$');
comment on column pairing_member.mig_slot is
    'its instance: the size and the memory slice at which it starts, as 3g.40gb@4; null: the mechanism has none';
