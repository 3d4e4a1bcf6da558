//! Who is ended when. Pure.

use crate::procfs::{ProcessId, TermFate};
use pillion_core::UnixTime;
use pillion_core::share::Share;

/// The longest that a job is held while Slurm is asked to take it.
pub(super) const HOLD_SECONDS_MAX: f64 = 10.0;

/// A client of a start's MPS daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    pub process: ProcessId,
    /// What SIGTERM does to it.
    pub fate: TermFate,
}

/// Which of a start's clients are ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Round {
    /// When Slurm has taken it: SIGTERM comes at once.
    First,
    /// When SIGKILL is near.
    Last,
}

/// The clients that are ended in this round. Who catches SIGTERM may be writing a checkpoint from the device until SIGKILL comes.
pub fn ended(clients: &[Client], round: Round) -> Vec<ProcessId> {
    let is_due = |client: &&Client| round == Round::Last || client.fate == TermFate::Dies;
    clients.iter().filter(is_due).map(|client| client.process).collect()
}

/// Why nobody of a start is touched: what is not known here as one that shares its device by MPS is not ours.
///
/// # Errors
/// A sentence.
pub fn may_be_ended(share: Option<&Share>, is_tracked: bool) -> Result<&Share, String> {
    let share = share.ok_or("it has no share here")?;
    if !share.mechanism().has_daemon() {
        return Err(format!("it shares by {}, without a daemon", share.mechanism()));
    }
    if is_tracked { Ok(share) } else { Err("none of its tasks runs here".to_owned()) }
}

/// Whether what was begun at `since` has lasted so long. A clock that was set back is no reason to wait longer.
pub(super) fn has_lasted(since: UnixTime, now: UnixTime, seconds: f64) -> bool {
    let passed = now.seconds() - since.seconds();
    passed >= seconds || passed < 0.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::share::tests::share;
    use pillion_core::device::Mechanism;

    #[test]
    fn who_catches_sigterm_is_ended_last() {
        let client = |pid, fate| Client { process: ProcessId { pid, start_ticks: 1 }, fate };
        let clients = [client(1, TermFate::Dies), client(2, TermFate::GoesOn)];
        assert_eq!(ended(&clients, Round::First), [clients[0].process]);
        assert_eq!(ended(&clients, Round::Last), [clients[0].process, clients[1].process]);
    }

    #[test]
    fn only_tenants_of_ours_are_touched() {
        let (mps, in_turns) = (share(33, Mechanism::Mps), share(33, Mechanism::TimeSliced));
        assert_eq!(may_be_ended(Some(&mps), true), Ok(&mps));
        for (share, is_tracked) in [(None, true), (Some(&mps), false), (Some(&in_turns), true)] {
            assert!(may_be_ended(share, is_tracked).is_err());
        }
    }

    #[test]
    fn a_clock_that_is_set_back_ends_a_hold() {
        let at = UnixTime::from_seconds;
        assert!(!has_lasted(at(100.0), at(109.9), 10.0) && has_lasted(at(100.0), at(110.0), 10.0));
        assert!(has_lasted(at(100.0), at(99.0), 10.0));
    }
}
