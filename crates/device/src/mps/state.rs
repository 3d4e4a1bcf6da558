//! How a daemon is, from what is seen of it; and what of that is worth telling, once each. Pure.
//!
//! ```text
//! Starting ─ well ─► Up ◄─ well ─ Fault          Up ─ drain ─► Draining ─ resume ─► Up
//!                     └─ faulted ─►┘               from anywhere ─ lost ─► Died, until it is started anew
//! ```

use super::parse::ServerStatus;
use crate::MpsState;
use pillion_core::device::NoticeKind;
use std::fmt::Write as _;

/// What was seen of a daemon at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Sight {
    /// Its servers: one, or none before the first client. An old one may still be closing.
    pub(super) servers: Vec<(u32, ServerStatus)>,
    /// The clients of all servers.
    pub(super) client_pids: Vec<u32>,
}

/// What it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finding {
    /// New clients are let in, or will be in a moment.
    Well,
    /// The server is blocked.
    Faulted,
    /// The server of clients that still run is gone.
    ServerLost,
    /// The control daemon is gone.
    DaemonLost,
}

/// Compares two samples of a daemon that answers. `orphans`: the clients of `before` whose processes still run and that are
/// no clients `now`. A server that only changed its user had none.
pub(super) fn find(before: &Sight, now: &Sight, orphans: &[u32]) -> Finding {
    let there: Vec<u32> = now.servers.iter().map(|(pid, _)| *pid).collect();
    if !orphans.is_empty() && before.servers.iter().any(|(pid, _)| !there.contains(pid)) {
        Finding::ServerLost
    } else if now.servers.iter().any(|(_, status)| *status == ServerStatus::Fault) {
        Finding::Faulted
    } else {
        Finding::Well
    }
}

/// The next state, and what is to be told of the step.
pub(super) fn observe(state: MpsState, finding: Finding) -> (MpsState, Option<NoticeKind>) {
    match (state, finding) {
        (MpsState::Died, _) => (MpsState::Died, None),
        (_, Finding::ServerLost | Finding::DaemonLost) => (MpsState::Died, Some(NoticeKind::MpsDied)),
        (MpsState::Fault, Finding::Faulted) => (MpsState::Fault, None),
        (_, Finding::Faulted) => (MpsState::Fault, Some(NoticeKind::MpsFault)),
        (MpsState::Fault, Finding::Well) => (MpsState::Up, Some(NoticeKind::MpsClear)),
        (MpsState::Draining, Finding::Well) => (MpsState::Draining, None),
        (MpsState::Starting | MpsState::Up, Finding::Well) => (MpsState::Up, None),
    }
}

/// It is to stop. A daemon with a fault, or that died, stays what it is.
pub(super) fn drain(state: MpsState) -> MpsState {
    if state == MpsState::Up { MpsState::Draining } else { state }
}

/// A tenant came before it had stopped.
pub(super) fn resume(state: MpsState) -> MpsState {
    if state == MpsState::Draining { MpsState::Up } else { state }
}

/// A sentence for a person: what happened, and whom it concerns.
pub(super) fn detail(finding: Finding, control_pid: u32, sight: &Sight) -> String {
    let mut text = match finding {
        Finding::Well => "the MPS server takes clients again".to_owned(),
        Finding::Faulted => {
            "the MPS server is in state FAULT and takes no clients until all have left".to_owned()
        }
        Finding::ServerLost => "the MPS server died under its clients".to_owned(),
        Finding::DaemonLost => format!("the MPS control daemon (process {control_pid}) is gone"),
    };
    for (name, pids) in [("server", server_pids(sight)), ("clients", sight.client_pids.clone())] {
        if !pids.is_empty() && finding != Finding::Well {
            let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
            // Writing to a string cannot fail.
            let _ = write!(text, "; {name} {}", pids.join(", "));
        }
    }
    text
}

fn server_pids(sight: &Sight) -> Vec<u32> {
    sight.servers.iter().map(|(pid, _)| *pid).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [MpsState; 5] =
        [MpsState::Starting, MpsState::Up, MpsState::Draining, MpsState::Fault, MpsState::Died];

    fn sight(servers: &[(u32, ServerStatus)], client_pids: &[u32]) -> Sight {
        Sight { servers: servers.to_vec(), client_pids: client_pids.to_vec() }
    }

    #[test]
    fn a_fault_and_its_end_are_told_once_each() {
        let told = |state, finding| observe(state, finding).1;
        for state in [MpsState::Starting, MpsState::Up, MpsState::Draining] {
            assert_eq!(observe(state, Finding::Faulted), (MpsState::Fault, Some(NoticeKind::MpsFault)));
        }
        assert_eq!(told(MpsState::Fault, Finding::Faulted), None);
        assert_eq!(observe(MpsState::Fault, Finding::Well), (MpsState::Up, Some(NoticeKind::MpsClear)));
        assert_eq!(told(MpsState::Up, Finding::Well), None);
        assert_eq!(observe(MpsState::Starting, Finding::Well), (MpsState::Up, None));
    }

    #[test]
    fn what_died_stays_dead_and_is_told_once() {
        for finding in [Finding::ServerLost, Finding::DaemonLost] {
            for state in ALL.into_iter().filter(|state| *state != MpsState::Died) {
                assert_eq!(observe(state, finding), (MpsState::Died, Some(NoticeKind::MpsDied)));
            }
        }
        for finding in [Finding::Well, Finding::Faulted, Finding::ServerLost, Finding::DaemonLost] {
            assert_eq!(observe(MpsState::Died, finding), (MpsState::Died, None));
        }
    }

    #[test]
    fn draining_hides_neither_a_fault_nor_a_death() {
        assert_eq!(drain(MpsState::Up), MpsState::Draining);
        assert_eq!(observe(MpsState::Draining, Finding::Well), (MpsState::Draining, None));
        assert_eq!(resume(MpsState::Draining), MpsState::Up);
        for state in [MpsState::Fault, MpsState::Died, MpsState::Starting] {
            assert_eq!((drain(state), resume(state)), (state, state));
        }
    }

    #[test]
    fn only_a_healthy_daemon_takes_tenants() {
        assert_eq!(ALL.map(MpsState::takes_clients), [true, true, true, false, false]);
    }

    #[test]
    fn a_server_is_lost_only_under_clients_that_still_run() {
        let active = |pid| (pid, ServerStatus::Active);
        let before = sight(&[active(10)], &[7, 8]);
        assert_eq!(
            find(&before, &sight(&[active(10)], &[7]), &[8]),
            Finding::Well,
            "one has closed its device"
        );
        assert_eq!(find(&before, &sight(&[active(11)], &[9]), &[]), Finding::Well, "another user's");
        assert_eq!(find(&before, &sight(&[active(11)], &[]), &[8]), Finding::ServerLost);
        assert_eq!(find(&before, &sight(&[], &[]), &[7, 8]), Finding::ServerLost);
        let fault = [(10, ServerStatus::Fault)];
        assert_eq!(find(&before, &sight(&fault, &[7, 8]), &[]), Finding::Faulted);
        let starting = [(10, ServerStatus::Initializing)];
        assert_eq!(find(&Sight::default(), &sight(&starting, &[]), &[]), Finding::Well);
    }

    #[test]
    fn a_notice_names_who_is_concerned() {
        let seen = sight(&[(10, ServerStatus::Fault)], &[7, 8]);
        let text = detail(Finding::Faulted, 5, &seen);
        assert!(text.ends_with("; server 10; clients 7, 8"), "{text}");
        assert!(detail(Finding::DaemonLost, 5, &Sight::default()).contains("process 5"));
        assert_eq!(detail(Finding::Well, 5, &seen), "the MPS server takes clients again");
    }
}
