//! What somebody is on a device, in a word.

use pillion_core::WorkloadKey;
use pillion_core::workload::is_session;
use pillion_pairing::Role;

/// What somebody is on a device, for whoever may know what he runs.
pub(super) fn role_of(role: Role, workload: &WorkloadKey) -> &'static str {
    match role {
        Role::Host if is_session(workload) => "interactive host",
        Role::Alone if is_session(workload) => "interactive",
        role => role_word(role),
    }
}

pub(super) const fn role_word(role: Role) -> &'static str {
    match role {
        Role::Host => "host",
        Role::Joiner => "joiner",
        Role::Alone => "alone",
    }
}
