-- What was seen of a workload's first run before others were let in beside it: its promise is followed by that, whoever leads.
alter table pairing_decision add column first_run jsonb;
comment on column pairing_decision.first_run is
    'what was seen of the host that is joined, where it is a workload''s first run: its means, for how long, how steady; null: it is none';
