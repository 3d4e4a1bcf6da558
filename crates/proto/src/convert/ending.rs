//! `EndStart` and `EndResult`.

use super::field::{self, InvalidField};
use crate::v1 as wire;
use pillion_core::JobStart;
use pillion_core::report::{END_DELAY_SECONDS_MAX, EndOrder, EndOutcome, EndResult};
use pillion_core::text::quoted;
use pillion_core::units::OutOfRange;

/// An order to end a start, or what became of one, that cannot be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InvalidEnd {
    /// One of its fields is invalid.
    #[error("invalid end of a start")]
    Field(#[from] InvalidField),
    /// A step of a newer release.
    #[error("'{0}' is no step in the end of a start that is known here")]
    Step(String),
    /// Of none nobody speaks.
    #[error("no client of a start was ended")]
    NoClient,
}

pub(super) fn order(wire: wire::EndStart) -> Result<(JobStart, EndOrder), InvalidEnd> {
    let wire::EndStart { job_id, restart_count, step, delay_seconds } = wire;
    let order = match step.as_str() {
        "hold" => EndOrder::Hold,
        "end" => EndOrder::End { delay_seconds: checked_delay(delay_seconds)? },
        "let-go" => EndOrder::LetGo,
        _ => return Err(InvalidEnd::Step(quoted(&step))),
    };
    Ok((field::start(&job_id, restart_count)?, order))
}

fn checked_delay(seconds: f64) -> Result<f64, InvalidField> {
    if (0.0..=END_DELAY_SECONDS_MAX).contains(&seconds) {
        return Ok(seconds);
    }
    let source = OutOfRange { value: seconds, unit: "s", low: 0.0, high: END_DELAY_SECONDS_MAX };
    Err(InvalidField::Range { field: "delay_seconds", source })
}

pub(super) fn written(start: JobStart, order: EndOrder) -> wire::EndStart {
    let (step, delay_seconds) = match order {
        EndOrder::Hold => ("hold", 0.0),
        EndOrder::End { delay_seconds } => ("end", delay_seconds),
        EndOrder::LetGo => ("let-go", 0.0),
    };
    let (job_id, restart_count) = (start.job_id.to_string(), start.restart_count);
    wire::EndStart { job_id, restart_count, step: step.to_owned(), delay_seconds }
}

impl TryFrom<wire::EndResult> for EndResult {
    type Error = InvalidEnd;
    fn try_from(wire: wire::EndResult) -> Result<Self, InvalidEnd> {
        let wire::EndResult {
            job_id,
            restart_count,
            step,
            client_count,
            reason,
            outlasts_sigterm,
            is_of_it_alone,
        } = wire;
        let outcome = match step.as_str() {
            "held" => EndOutcome::Held,
            "not-held" => {
                EndOutcome::NotHeld { why: field::words(&reason), outlasts_sigterm, is_of_it_alone }
            }
            "ended" if client_count == 0 => return Err(InvalidEnd::NoClient),
            "ended" => EndOutcome::Ended { client_count },
            _ => return Err(InvalidEnd::Step(quoted(&step))),
        };
        Ok(Self { start: field::start(&job_id, restart_count)?, outcome })
    }
}

impl From<EndResult> for wire::EndResult {
    fn from(result: EndResult) -> Self {
        let EndResult { start, outcome } = result;
        let (job_id, restart_count) = (start.job_id.to_string(), start.restart_count);
        let of = |step: &str| Self { job_id, restart_count, step: step.to_owned(), ..Self::default() };
        match outcome {
            EndOutcome::Held => of("held"),
            EndOutcome::NotHeld { why, outlasts_sigterm, is_of_it_alone } => {
                Self { reason: why, outlasts_sigterm, is_of_it_alone, ..of("not-held") }
            }
            EndOutcome::Ended { client_count } => Self { client_count, ..of("ended") },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillion_core::report::ToAgent;

    /// It said so before there was a word for it.
    #[test]
    fn of_an_agent_of_before_who_is_not_held_tells_how_it_is_with_all() {
        let before = wire::EndResult {
            job_id: "7".into(),
            step: "not-held".into(),
            reason: "its processes do not stand still in time".into(),
            ..Default::default()
        };
        let outcome = EndResult::try_from(before).unwrap().outcome;
        assert!(matches!(outcome, EndOutcome::NotHeld { is_of_it_alone: false, .. }), "{outcome:?}");
    }

    #[test]
    fn an_end_that_cannot_be_is_refused() {
        let end = wire::EndStart {
            job_id: "7".into(),
            step: "end".into(),
            delay_seconds: 28.0,
            ..Default::default()
        };
        let order = |end: wire::EndStart| {
            let body = Some(wire::scheduler_message::Body::EndStart(end));
            ToAgent::try_from(wire::SchedulerMessage { body }).map_err(|error| pillion_core::report(&error))
        };
        assert!(order(end.clone()).is_ok());
        for delay_seconds in [-1.0, f64::NAN, f64::INFINITY, 65_534.0] {
            assert!(order(wire::EndStart { delay_seconds, ..end.clone() }).is_err(), "{delay_seconds}");
        }
        let unknown = order(wire::EndStart { step: "kill\n".into(), ..end.clone() }).unwrap_err();
        assert!(unknown.contains("is no step in the end of a start that is known here"), "{unknown}");
        assert!(order(wire::EndStart { job_id: "x".into(), ..end }).is_err());
        let nobody = wire::EndResult { job_id: "7".into(), step: "ended".into(), ..Default::default() };
        assert!(EndResult::try_from(nobody).is_err());
    }
}
