//! Slurm's words for states and reasons. Every state of `slurm/slurm.h` is known; an unknown one is a value.

use crate::types::{Ending, JobState, NodeAvailability, ReasonKind};

/// A job state as squeue prints it in full (`-O State`).
pub fn job_state(text: &str) -> JobState {
    match text {
        // What was launched in vain or lost its reservation is back in the queue; so is what was requeued to start before others
        // (25.11 and later, `sbatch --requeue=expedite`).
        "PENDING" | "REQUEUED" | "REQUEUE_FED" | "REQUEUE_HOLD" | "SPECIAL_EXIT" | "RESV_DEL_HOLD"
        | "LAUNCH_FAILED" | "RECONFIG_FAIL" | "EXPEDITING" => JobState::Pending,
        "RUNNING" | "CONFIGURING" | "POWER_UP_NODE" | "SIGNALING" | "STAGE_OUT" | "RESIZING"
        | "UPDATE_DB" => JobState::Running,
        "SUSPENDED" | "STOPPED" => JobState::Suspended,
        "COMPLETING" => JobState::Completing,
        other => ending(other).map_or_else(|| JobState::Other(other.to_owned()), JobState::Ended),
    }
}

fn ending(text: &str) -> Option<Ending> {
    Some(match text {
        "COMPLETED" => Ending::Completed,
        "FAILED" => Ending::Failed,
        "CANCELLED" => Ending::Cancelled,
        "TIMEOUT" | "DEADLINE" => Ending::Timeout,
        "NODE_FAIL" | "BOOT_FAIL" => Ending::NodeFail,
        "PREEMPTED" => Ending::Preempted,
        "OUT_OF_MEMORY" => Ending::OutOfMemory,
        "REVOKED" => Ending::Revoked,
        _ => return None,
    })
}

/// Why a job waits, from the text of `-O Reason`: a word, or a word and a sentence (`ReqNodeNotAvail, May be reserved for other job`).
/// `account`: what it is charged to, empty for nothing.
pub fn reason(text: &str, account: &str) -> ReasonKind {
    let word = text.split([',', ' ', '(']).next().unwrap_or_default();
    let of_text: fn(String) -> ReasonKind = match word {
        "" | "None" => return ReasonKind::None,
        "BeginTime" => return ReasonKind::BeginTime,
        "Dependency" | "DependencyNeverSatisfied" => return ReasonKind::Dependency,
        "Resources" | "Priority" | "ReqNodeNotAvail" | "Nodes" | "NodeDown" => ReasonKind::Resources,
        // So 23.11 and 24.05 say of who excludes nodes and waits for the others, on a cluster that keeps no accounts (recorded).
        "InvalidAccount" if account.is_empty() => ReasonKind::Resources,
        "JobHeldUser" | "JobHeldAdmin" | "JobHoldMaxRequeue" | "ReservationDeleted" => ReasonKind::Held,
        "JobArrayTaskLimit" | "Licenses" | "AccountNotAllowed" | "InvalidAccount" | "InvalidQOS" => {
            ReasonKind::Limit
        }
        _ if is_limit(word) => ReasonKind::Limit,
        _ => ReasonKind::Other,
    };
    of_text(text.to_owned())
}

/// Limits have some hundred words, made of these beginnings.
fn is_limit(word: &str) -> bool {
    ["Assoc", "QOS", "Partition", "Max", "Grp"].iter().any(|prefix| word.starts_with(prefix))
}

/// Whether a node takes new jobs, from `State=MIXED+DRAIN`. An unknown flag means no: better one pairing missed than a
/// job pinned to a node that cannot start it.
pub fn node_availability(state: &str) -> NodeAvailability {
    let state = state.trim_end_matches(['*', '~', '#', '!', '%', '$', '@', '^', '-']);
    let mut words = state.split('+');
    let base_usable = matches!(words.next(), Some("IDLE" | "MIXED" | "ALLOCATED"));
    let are_harmless = words
        .all(|flag| matches!(flag, "PLANNED" | "COMPLETING" | "CLOUD" | "DYNAMIC_NORM" | "DYNAMIC_FUTURE"));
    if base_usable && are_harmless {
        NodeAvailability::Up
    } else {
        NodeAvailability::Unavailable(state.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_states_of_every_release_are_known() {
        let words = "PENDING RUNNING SUSPENDED COMPLETED CANCELLED FAILED TIMEOUT NODE_FAIL PREEMPTED BOOT_FAIL DEADLINE \
                     OUT_OF_MEMORY LAUNCH_FAILED REQUEUED REQUEUE_HOLD SPECIAL_EXIT RESIZING CONFIGURING COMPLETING \
                     STOPPED RECONFIG_FAIL POWER_UP_NODE REVOKED REQUEUE_FED RESV_DEL_HOLD SIGNALING STAGE_OUT EXPEDITING";
        for word in words.split_whitespace() {
            assert!(!matches!(job_state(word), JobState::Other(_)), "{word}");
        }
        // Its pin and its lease are of the start before: they are undone only where the job waits.
        assert_eq!(job_state("EXPEDITING"), JobState::Pending);
        assert_eq!(job_state("TELEPORTING"), JobState::Other("TELEPORTING".to_owned()));
        assert_eq!(job_state("OUT_OF_MEMORY"), JobState::Ended(Ending::OutOfMemory));
    }

    #[test]
    fn reasons() {
        assert_eq!(reason("None", ""), ReasonKind::None);
        assert_eq!(reason("BeginTime", ""), ReasonKind::BeginTime);
        assert!(matches!(
            reason("ReqNodeNotAvail, May be reserved for other job", ""),
            ReasonKind::Resources(_)
        ));
        assert!(matches!(reason("ReqNodeNotAvail(Unavailable:n1)", ""), ReasonKind::Resources(_)));
        assert!(matches!(reason("Nodes required for job are DOWN, DRAINED", ""), ReasonKind::Resources(_)));
        for word in [
            "QOSMaxGRESPerUser",
            "AssocGrpGRES",
            "PartitionTimeLimit",
            "JobArrayTaskLimit",
            "MaxCpuPerAccount",
            "InvalidAccount",
        ] {
            assert!(matches!(reason(word, "research"), ReasonKind::Limit(_)), "{word}");
        }
        assert!(matches!(reason("JobHeldAdmin", ""), ReasonKind::Held(_)));
        assert!(matches!(reason("BadConstraints", ""), ReasonKind::Other(_)));
        assert!(matches!(reason("InvalidAccount", ""), ReasonKind::Resources(_)));
    }

    #[test]
    fn only_known_good_nodes_are_up() {
        for state in ["IDLE", "MIXED", "ALLOCATED", "IDLE+PLANNED", "MIXED+CLOUD+PLANNED", "MIXED+COMPLETING"]
        {
            assert_eq!(node_availability(state), NodeAvailability::Up, "{state}");
        }
        let unusable = "DOWN UNKNOWN FUTURE ERROR INVAL IDLE+DRAIN MIXED+DRAIN IDLE+RESERVED IDLE+MAINTENANCE+RESERVED \
                        IDLE+NOT_RESPONDING IDLE+POWERED_DOWN IDLE+POWERING_UP IDLE+POWERING_DOWN IDLE+POWER_DOWN \
                        IDLE+FAIL MIXED+REBOOT_REQUESTED MIXED+REBOOT_ISSUED IDLE+INVALID_REG IDLE+BLOCKED IDLE+NEWFLAG";
        for state in unusable.split_whitespace() {
            assert_eq!(node_availability(state), NodeAvailability::Unavailable(state.to_owned()), "{state}");
        }
    }
}
