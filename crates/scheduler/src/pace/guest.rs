//! Who of those on a device is the guest, and whether he may be sent back: pure. The guest is who joined last, for beside the
//! others a promise was kept before he came; also where it is he himself who is slowed. But whoever was submitted as a guest goes
//! before all others, and on anybody's word.

use super::estimate::Ground;
use pillion_core::UnixTime;
use pillion_pairing::Role;
use pillion_store::{Decision, Member};
use std::fmt;

/// Who was submitted as a guest, else who joined last; of those who were started together, one who was planned beside a host.
pub(super) fn guest<'a>(
    tenants: &[(&Decision, &'a Member)],
    as_guest: impl Fn(&Member) -> bool,
) -> Option<&'a Member> {
    let members = tenants.iter().map(|(_, member)| *member);
    members.max_by(|a, b| {
        let [began_a, began_b] = [a, b].map(|member| member.started_at.map_or(0.0, UnixTime::seconds));
        let [came_a, came_b] = [a, b].map(|member| (member.plan.role == Role::Joiner, member.plan.start));
        as_guest(a).cmp(&as_guest(b)).then(began_a.total_cmp(&began_b)).then(came_a.cmp(&came_b))
    })
}

/// Why a guest stays, beside whom a promise is being broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stays {
    /// Nobody's counter says it.
    NoCounter,
    /// Only the counter of another user says it.
    WordOfAnother,
    /// Its user asked for `--no-requeue`.
    NoRequeue,
    /// Its mark is gone, and with it what it had asked for.
    Overwritten,
    /// It was to be started again before.
    Once,
    /// Nobody knows how long they will be together.
    RestUnknown,
    /// They will not be together for as long as going back costs.
    TooLittleLeft,
}

impl fmt::Display for Stays {
    /// The rest of a sentence; tells nothing of who else is there, for the guest's user reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoCounter => "only the activity of the whole GPU tells it, which is a rough word",
            Self::WordOfAnother => {
                "a counter of another user tells it, and nothing that was measured of this job itself bears it out"
            }
            Self::NoRequeue => "it was submitted with --no-requeue",
            Self::Overwritten => "its AdminComment was overwritten, and with it what it had asked for",
            Self::Once => "a job is started again once at most, and that was decided of it before",
            Self::RestUnknown => "nobody knows how long it goes on: it has no time limit",
            Self::TooLittleLeft => "less time is left beside it than going back costs",
        })
    }
}

/// How long a tenant goes on, by what is known of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rest {
    /// For so long it has run.
    pub(super) elapsed_seconds: f64,
    /// How long its workload takes alone.
    pub(super) alone_seconds: Option<f64>,
    /// How fast it goes, over its speed alone.
    pub(super) speed_fraction: f64,
    /// Its time limit.
    pub(super) limit_seconds: Option<f64>,
}

impl Rest {
    /// Of one that runs for longer than it did so far, only the time limit tells.
    fn seconds(&self) -> Option<f64> {
        let by_limit = self.limit_seconds.map(|limit| (limit - self.elapsed_seconds).max(0.0));
        let expected = self.alone_seconds.map(|alone| alone / self.speed_fraction - self.elapsed_seconds);
        let expected = expected.filter(|rest| *rest > 0.0);
        match (expected, by_limit) {
            (Some(expected), Some(limit)) => Some(expected.min(limit)),
            (one, other) => one.or(other),
        }
    }
}

/// Whose word it is that a promise is being broken: how fast a counter counts is its user's to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    /// The one whose promise it is and the guest are one user's, or of users between whom the site believes counters
    /// (`policy.watch_believes`).
    Own,
    /// The guest holds more memory than it was let in with, and it is known less than the other.
    BorneOut,
    /// Another user's: of a first run, or with compute units in use that may be his own doing. It is believed, once an hour
    /// (`act::is_believed_again`).
    Believed,
    /// Another user's alone.
    OfAnother,
}

/// A promise that is being broken, and its guest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Case {
    /// By what it is known.
    pub(super) ground: Ground,
    pub(super) word: Word,
    /// It was submitted as a guest: its user agreed to whatever that costs it.
    pub(super) as_guest: bool,
    /// Its mark is there by which its own request is put back.
    pub(super) comes_back: bool,
    pub(super) guest: Rest,
    /// Of the one whose promise it is.
    pub(super) slowed: Rest,
    /// What a restart costs besides the work that is lost.
    pub(super) restart_seconds: f64,
}

/// Why the guest stays; `None`: it may go, unless Slurm or the store know better.
pub(super) fn stays(case: &Case) -> Option<Stays> {
    if case.as_guest {
        return (!case.comes_back).then_some(Stays::Overwritten);
    }
    if case.ground == Ground::Activity {
        return Some(Stays::NoCounter);
    }
    if case.word == Word::OfAnother {
        return Some(Stays::WordOfAnother);
    }
    if !case.comes_back {
        return Some(Stays::Overwritten);
    }
    let Some(rest) = together_seconds(case) else { return Some(Stays::RestUnknown) };
    // All that it did is done again: nobody knows what its checkpoints keep.
    let cost = case.restart_seconds + case.guest.elapsed_seconds;
    (rest <= cost).then_some(Stays::TooLittleLeft)
}

/// How long they will still be together.
fn together_seconds(case: &Case) -> Option<f64> {
    match (case.guest.seconds(), case.slowed.seconds()) {
        (Some(guest), Some(slowed)) => Some(guest.min(slowed)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{NOW, at, decision, member};
    use pillion_core::decision::MemberState;
    use pillion_core::{JobStart, SlurmJobId};
    use proptest::prelude::*;

    fn tenant(id: u32, role: Role, started: u64) -> Member {
        let mut member = member(MemberState::Running);
        member.plan.start = JobStart { job_id: SlurmJobId::plain(id), restart_count: 0 };
        member.plan.role = role;
        Member { started_at: Some(at(started)), ..member }
    }

    fn guest_of(tenants: &[Member]) -> u32 {
        let decision = decision(&tenants[0]);
        let pairs: Vec<_> = tenants.iter().map(|member| (&decision, member)).collect();
        guest(&pairs, |member| member.plan.start.job_id.id >= 100).unwrap().plan.start.job_id.id
    }

    #[test]
    fn the_guest_is_who_joined_last() {
        assert_eq!(guest_of(&[tenant(8, Role::Host, NOW), tenant(7, Role::Joiner, NOW + 1)]), 7);
        assert_eq!(guest_of(&[tenant(7, Role::Joiner, NOW), tenant(8, Role::Host, NOW)]), 7, "together");
        let three =
            [tenant(1, Role::Host, NOW), tenant(3, Role::Joiner, NOW + 5), tenant(2, Role::Joiner, NOW + 9)];
        assert_eq!(guest_of(&three), 2);
        let of_three = [
            tenant(100, Role::Host, NOW),
            tenant(3, Role::Joiner, NOW + 5),
            tenant(2, Role::Joiner, NOW + 9),
        ];
        assert_eq!(guest_of(&of_three), 100, "it was submitted as one");
        assert!(guest(&[], |_| true).is_none());
    }

    const REST: Rest = Rest {
        elapsed_seconds: 80.0,
        alone_seconds: Some(1_000.0),
        speed_fraction: 0.5,
        limit_seconds: Some(10_000.0),
    };
    const CASE: Case = Case {
        ground: Ground::Counter,
        word: Word::Own,
        as_guest: false,
        comes_back: true,
        guest: REST,
        slowed: REST,
        restart_seconds: 120.0,
    };

    #[test]
    fn a_guest_goes_back_where_nothing_speaks_against_it() {
        assert_eq!(stays(&CASE), None);
        assert_eq!(stays(&Case { ground: Ground::Activity, ..CASE }), Some(Stays::NoCounter));
        assert_eq!(stays(&Case { word: Word::OfAnother, ..CASE }), Some(Stays::WordOfAnother));
        for word in [Word::BorneOut, Word::Believed] {
            assert_eq!(stays(&Case { word, ..CASE }), None);
        }
        assert_eq!(stays(&Case { comes_back: false, ..CASE }), Some(Stays::Overwritten));
    }

    #[test]
    fn who_was_submitted_as_a_guest_goes_on_anybodys_word_and_whatever_it_costs() {
        let old = Rest { elapsed_seconds: 9_000.0, ..REST };
        let case =
            Case { as_guest: true, guest: old, word: Word::OfAnother, ground: Ground::Activity, ..CASE };
        assert_eq!(stays(&case), None);
        assert_eq!(
            stays(&Case { comes_back: false, ..case }),
            Some(Stays::Overwritten),
            "it would not come back"
        );
    }

    #[test]
    fn it_stays_where_it_would_be_over_sooner_than_it_is_back() {
        let short = Rest { alone_seconds: Some(139.0), ..REST };
        for case in [Case { guest: short, ..CASE }, Case { slowed: short, ..CASE }] {
            assert_eq!(stays(&case), Some(Stays::TooLittleLeft), "198 s are left, 200 it costs");
        }
        let longer = Rest { alone_seconds: Some(141.0), ..REST };
        assert_eq!(stays(&Case { guest: longer, ..CASE }), None);
        let limited = Rest { limit_seconds: Some(200.0), ..REST };
        assert_eq!(stays(&Case { slowed: limited, ..CASE }), Some(Stays::TooLittleLeft));
        let old = Rest { elapsed_seconds: 5_100.0, alone_seconds: Some(5_000.0), ..REST };
        assert_eq!(stays(&Case { guest: old, ..CASE }), Some(Stays::TooLittleLeft), "its work is worth more");
        let endless = Rest { alone_seconds: None, limit_seconds: None, ..REST };
        assert_eq!(stays(&Case { guest: endless, slowed: endless, ..CASE }), Some(Stays::RestUnknown));
        let beyond = Rest { alone_seconds: Some(10.0), ..REST };
        assert_eq!(stays(&Case { guest: beyond, ..CASE }), None, "it is longer than it ever was");
    }

    proptest! {
        #[test]
        fn what_runs_longer_is_never_easier_to_send_back(
            elapsed in 0.0..1e5_f64, more in 0.0..1e5_f64, limit in 1.0..2e5_f64,
        ) {
            let rest = |elapsed_seconds| Rest {
                elapsed_seconds, alone_seconds: None, speed_fraction: 1.0, limit_seconds: Some(limit),
            };
            let of = |elapsed| stays(&Case { guest: rest(elapsed), slowed: rest(elapsed), ..CASE });
            prop_assert!(of(elapsed).is_none() || of(elapsed + more).is_some());
        }
    }
}
