//! What became of settings that are no more: one list, for who is told of a mistake and who is shown the way. Whoever drops or renames a
//! setting adds it here.

/// Settings of earlier releases, and what does their work now.
pub(crate) const REPLACED: [(&str, &str); 2] = [
    (
        "listen.tcp_is_operator",
        "there is no setting listen.tcp_is_operator any more: whoever comes over TCP proves who he is (auth.method), and operators \
         are those of listen.operator_uids; remove it ('pillion config migrate' shows how)",
    ),
    (
        "policy.partner_wait_seconds_max",
        "there is no setting policy.partner_wait_seconds_max any more: no job is held back for a partner that may come; remove it \
         ('pillion config migrate' shows how)",
    ),
];
