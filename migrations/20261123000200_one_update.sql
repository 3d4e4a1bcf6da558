-- A release is one update, and nothing stands between planned and released: what was guarded when the scheduler was replaced
-- goes on as planned. The word and the column stay, for a release that is rolled back to.
update pairing_member set state = 'planned' where state = 'guarded';
comment on column pairing_member.guarded_at is 'not written any more: a release was made in two updates';

-- A decision follows its members in the same transaction from now on. These were left in between.
update pairing_decision as decision
set state = case when exists (
        select from pairing_member as member
        where member.decision_id = decision.decision_id and member.state = 'ended'
    ) then 'ended' else 'abandoned' end
where state in ('planned', 'released') and not exists (
    select from pairing_member as member where member.decision_id = decision.decision_id and member.active
);
