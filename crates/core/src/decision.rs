//! The life of a decision and of its members, each as one `match`.
//!
//! ```text
//! decision: planned ──► released ──► ended          member: planned ──► released ──► running ──► ended
//!              └───────────┴───────► abandoned                  └───────────┴───► undone
//! ```

use crate::word::spelt_as_serialized;
use serde::{Deserialize, Serialize};

/// Where a decision stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DecisionState {
    /// Durable, not yet carried out.
    Planned,
    /// At least its first member was released.
    Released,
    /// Every member that started has ended.
    Ended,
    /// Given up before any member ran under it.
    Abandoned,
}

/// Where one job of a decision stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberState {
    /// Not touched yet.
    Planned,
    /// Pinned and eligible: the lease runs.
    Released,
    /// Slurm says that it runs.
    Running,
    /// It ran under this decision and is over.
    Ended,
    /// Given back: it waits as before, or runs alone.
    Undone,
}

/// A step that the life of a decision or member does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no step from {from} to {to}")]
pub struct IllegalTransition {
    /// Where it stood.
    pub from: &'static str,
    /// Where it should have gone.
    pub to: &'static str,
}

impl DecisionState {
    /// As written in the store and on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Planned => "planned",
            Self::Released => "released",
            Self::Ended => "ended",
            Self::Abandoned => "abandoned",
        }
    }
    /// Whether its members still hold, or may soon hold, a device.
    pub const fn is_active(self) -> bool {
        matches!(self, Self::Planned | Self::Released)
    }
    /// Where a decision that stands here stands once its members stand there.
    #[must_use]
    pub fn after(self, members: &[MemberState]) -> Self {
        if !self.is_active() {
            return self;
        }
        let any = |states: &[MemberState]| members.iter().any(|member| states.contains(member));
        if members.iter().any(|member| member.is_active()) {
            let was_released = any(&[MemberState::Released, MemberState::Running, MemberState::Ended]);
            return if was_released { Self::Released } else { self };
        }
        if any(&[MemberState::Ended]) { Self::Ended } else { Self::Abandoned }
    }
    /// The next state.
    ///
    /// # Errors
    /// [`IllegalTransition`] where the diagram above has no such arrow. Staying where it is is no step.
    pub fn advance(self, to: Self) -> Result<Self, IllegalTransition> {
        match (self, to) {
            (Self::Planned, Self::Released | Self::Abandoned)
            | (Self::Released, Self::Ended | Self::Abandoned) => Ok(to),
            _ => Err(IllegalTransition { from: self.as_str(), to: to.as_str() }),
        }
    }
}

impl MemberState {
    /// As written in the store and on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Planned => "planned",
            Self::Released => "released",
            Self::Running => "running",
            Self::Ended => "ended",
            Self::Undone => "undone",
        }
    }
    /// Whether the job still belongs to this decision (invariant P-1: at most one such member a job).
    pub const fn is_active(self) -> bool {
        matches!(self, Self::Planned | Self::Released | Self::Running)
    }
    /// The next state.
    ///
    /// # Errors
    /// [`IllegalTransition`] where the diagram above has no such arrow.
    pub fn advance(self, to: Self) -> Result<Self, IllegalTransition> {
        match (self, to) {
            (Self::Planned, Self::Released | Self::Undone)
            | (Self::Released, Self::Running | Self::Ended | Self::Undone)
            | (Self::Running, Self::Ended) => Ok(to),
            _ => Err(IllegalTransition { from: self.as_str(), to: to.as_str() }),
        }
    }
}

spelt_as_serialized!(DecisionState => "known state", MemberState => "known state");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ended_decision_stays_ended() {
        for to in
            [DecisionState::Planned, DecisionState::Released, DecisionState::Ended, DecisionState::Abandoned]
        {
            assert!(DecisionState::Ended.advance(to).is_err());
            assert!(DecisionState::Abandoned.advance(to).is_err());
        }
    }

    #[test]
    fn a_decision_follows_its_members() {
        use MemberState::{Ended, Planned, Released, Running, Undone};
        for (from, members, to) in [
            (DecisionState::Planned, [Planned, Undone], DecisionState::Planned),
            (DecisionState::Planned, [Released, Planned], DecisionState::Released),
            (DecisionState::Released, [Undone, Running], DecisionState::Released),
            (DecisionState::Released, [Undone, Ended], DecisionState::Ended),
            (DecisionState::Released, [Undone, Undone], DecisionState::Abandoned),
            (DecisionState::Planned, [Undone, Undone], DecisionState::Abandoned),
            (DecisionState::Ended, [Ended, Ended], DecisionState::Ended),
        ] {
            assert_eq!(from.after(&members), to, "{from} {members:?}");
            assert!(from == to || from.advance(to).is_ok());
        }
    }

    #[test]
    fn only_a_planned_member_is_released() {
        assert_eq!(MemberState::Planned.advance(MemberState::Released), Ok(MemberState::Released));
        assert!(MemberState::Undone.advance(MemberState::Released).is_err());
        assert!(MemberState::Running.advance(MemberState::Undone).is_err(), "a running job is never resized");
    }
}
