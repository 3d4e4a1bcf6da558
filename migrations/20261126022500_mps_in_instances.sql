-- Tenants of one user that share a MIG instance by MPS.
alter table pairing_decision
    drop constraint pairing_decision_mechanism_check,
    add constraint pairing_decision_mechanism_check check (mechanism in ('mps', 'ccs', 'mig', 'mig-mps', 'none'));
