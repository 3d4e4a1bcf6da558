-- What the web page asks of a long history is found by index.

create index pairing_member_outcome_idx on pairing_member (ended_at) where measured_speed_fraction is not null;
create index pairing_member_workload_idx on pairing_member (workload, decision_id);
create index pairing_member_uid_idx on pairing_member (uid, decision_id);
create index pairing_decision_node_idx on pairing_decision (node, decision_id);
comment on index pairing_member_outcome_idx is 'the newest outcomes, which the heatmap is made of';
