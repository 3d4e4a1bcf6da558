//! Whose workloads are.

use super::auth::Caller;
use crate::context::Context;
use pillion_core::profile::WorkloadProfile;
use std::sync::Arc;

/// Whether a workload is this user's: its key begins with whose it is.
pub(super) fn is_of(profile: &WorkloadProfile, user: &str) -> bool {
    profile.workload.as_str().strip_prefix(user).is_some_and(|rest| rest.starts_with('/'))
}

/// The name of a calling user, from his jobs in the last scans.
pub(super) fn own_user_name(context: &Context, caller: Caller) -> Option<String> {
    let (scan, observed) = {
        let board = context.board();
        (board.scan.clone(), Arc::clone(&board.observed))
    };
    let managed = scan.as_ref().and_then(|scan| {
        scan.jobs.values().find(|job| Some(job.uid) == caller.uid).map(|job| job.user.to_string())
    });
    managed
        .or_else(|| observed.jobs.iter().find(|job| Some(job.uid) == caller.uid).map(|job| job.user.clone()))
}
