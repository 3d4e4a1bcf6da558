//! Whether a job that will run out of device memory is ended before it does, to start again with more. Pure. By its user's consent to
//! just that (`--colocate=restart=early`), and any doubt means that it goes on.
//!
//! Who may act after the intent, and what then comes of it (`failure/requeue.rs` carries it out):
//!
//! ```text
//!  trend: the need is in job_requeue ─► its agent holds it, where it is beside others ─► scontrol requeue ─► Mark::again
//!        │ it fails first: judged when this is settled, and started again for that     │ held: the hold stays, its request is put back
//!        │ cancelled, or over: it is left so                                           │ cancelled: gone
//!        │ its user, or Slurm, requeues it: the same, it has its need                  │ nobody is left: rescue puts it back, alone
//!        │ Requeue=0: Slurm refuses, it is let go and goes on                          │ an old pillion.lua refuses it: alone
//!        └ we die: whoever leads next finds the row, for two minutes
//! ```

use super::growth::Soon;
use crate::failure::memory::more_than;
use pillion_core::fault::RESTART_RUN_SECONDS_MAX;
use pillion_core::mark::Mark;

/// Less than this is not worth a restart: a job takes as long to begin.
const GAIN_SECONDS_MIN: f64 = 60.0;
/// How often what is foretold surely has to come true for this to be worth it: of ten that are ended one loses what it did for nothing.
const PRECISION: f64 = 0.9;

/// What is known of a job whose memory grows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case<'a> {
    /// As Slurm has it now.
    pub(super) mark: &'a Mark,
    /// Whether the site lets users have it so.
    pub(super) is_let: bool,
    /// For how long it has run: what it loses.
    pub(super) ran_seconds: f64,
    /// When it runs out.
    pub(super) soon: Soon,
    /// What it has.
    pub(super) limit_bytes: u64,
    /// What its device has.
    pub(super) device_bytes: u64,
}

/// With how much memory it is to start again; `None`: it goes on.
pub(super) fn with(case: &Case<'_>) -> Option<u64> {
    let Case { mark, is_let, ran_seconds, soon, limit_bytes, device_bytes } = *case;
    let is_wanted = is_let && mark.restart.lets_end() && mark.again_lease_epoch.is_none();
    // What it would still do is done for nothing if it runs out, and what it did if it would not have.
    let gains = soon.seconds >= GAIN_SECONDS_MIN
        && PRECISION * soon.seconds >= (1.0 - PRECISION) * ran_seconds
        && ran_seconds <= RESTART_RUN_SECONDS_MAX;
    let memory_bytes = more_than(limit_bytes);
    (is_wanted && soon.is_sure && gains && memory_bytes <= device_bytes).then_some(memory_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillion_core::restart::RestartConsent;

    const GIB: u64 = 1 << 30;

    fn consent() -> Mark {
        Mark { restart: RestartConsent::Early, ..Mark::default() }
    }

    fn soon(seconds: f64) -> Soon {
        Soon { memory_bytes: 9 * GIB, bytes_per_second: 1e6, seconds, is_sure: true }
    }

    fn case(mark: &Mark) -> Case<'_> {
        let (ran_seconds, soon) = (900.0, soon(300.0));
        Case { mark, is_let: true, ran_seconds, soon, limit_bytes: 10 * GIB, device_bytes: 80 * GIB }
    }

    #[test]
    fn who_will_surely_run_out_starts_again_with_half_as_much_again() {
        assert_eq!(with(&case(&consent())), Some(15 * GIB));
    }

    #[test]
    fn only_with_consent_to_just_that_once_and_where_the_site_lets_it() {
        for restart in [RestartConsent::No, RestartConsent::Yes] {
            assert_eq!(with(&case(&Mark { restart, ..consent() })), None, "{restart}");
        }
        assert_eq!(with(&case(&Mark { again_lease_epoch: Some(5), ..consent() })), None, "never twice");
        assert_eq!(with(&Case { is_let: false, ..case(&consent()) }), None);
    }

    #[test]
    fn not_by_a_guess_nor_where_too_little_is_gained() {
        let mark = consent();
        let is_left = |case: Case<'_>| assert_eq!(with(&case), None, "{case:?}");
        is_left(Case { soon: Soon { is_sure: false, ..soon(300.0) }, ..case(&mark) });
        is_left(Case { soon: soon(59.0), ..case(&mark) });
        is_left(Case { ran_seconds: 2_800.0, ..case(&mark) });
        is_left(Case { ran_seconds: 3_601.0, soon: soon(9_000.0), ..case(&mark) });
        is_left(Case { device_bytes: 14 * GIB, ..case(&mark) });
        assert!(with(&Case { ran_seconds: 2_600.0, ..case(&mark) }).is_some());
        assert!(with(&Case { device_bytes: 15 * GIB, ..case(&mark) }).is_some());
    }
}
