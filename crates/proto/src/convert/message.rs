//! The envelopes: `AgentMessage`, `Report` and `SchedulerMessage`.

use super::field::{self, InvalidField};
use super::{
    InvalidCondition, InvalidEnd, InvalidHello, InvalidLaunch, InvalidRevoke, InvalidSample, InvalidShare,
    InvalidShareResult, InvalidSummary, ending, share,
};
use crate::v1 as wire;
use pillion_core::health::DeviceCondition;
use pillion_core::report::{
    AgentHello, DeviceSample, DeviceSamples, EndResult, FromAgent, JobSummary, Launch, Report, ReportBody,
    ShareResult, ToAgent,
};
use pillion_core::share::Share;

/// A report that cannot be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InvalidReport {
    /// It tells nothing, or something that a newer agent knows.
    #[error("report {0} has no body that is known here")]
    NoBody(u64),
    /// Sequences start at 1.
    #[error("a report has sequence 0; sequences start at 1")]
    NoSequence,
    /// The time of the samples is invalid.
    #[error("invalid samples")]
    Time(#[from] InvalidField),
    /// One of the samples is invalid.
    #[error("invalid samples")]
    Sample(#[from] InvalidSample),
    /// The summary of a start is invalid.
    #[error("invalid report")]
    Summary(#[from] InvalidSummary),
    /// The launch of a task is invalid.
    #[error("invalid report")]
    Launch(#[from] InvalidLaunch),
}

/// A message of an agent that cannot be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InvalidAgentMessage {
    /// It says nothing, or something that a newer agent knows.
    #[error("the agent's message has no body that is known here")]
    NoBody,
    /// The agent's introduction is invalid.
    #[error("invalid message of an agent")]
    Hello(#[from] InvalidHello),
    /// One of its reports is invalid.
    #[error("invalid message of an agent")]
    Report(#[from] InvalidReport),
    /// Its answer about a share is invalid.
    #[error("invalid message of an agent")]
    ShareResult(#[from] InvalidShareResult),
    /// How a device is.
    #[error("invalid message of an agent")]
    Condition(#[from] InvalidCondition),
    /// What became of an order to end a start.
    #[error("invalid message of an agent")]
    End(#[from] InvalidEnd),
}

/// A message of the scheduler that cannot be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InvalidSchedulerMessage {
    /// It says nothing, or something that a newer scheduler knows.
    #[error("the scheduler's message has no body that is known here")]
    NoBody,
    /// The share to prepare is invalid.
    #[error("invalid message of the scheduler")]
    Share(#[from] InvalidShare),
    /// What is to be revoked is invalid.
    #[error("invalid message of the scheduler")]
    Revoke(#[from] InvalidRevoke),
    /// The order to end a start is invalid.
    #[error("invalid message of the scheduler")]
    End(#[from] InvalidEnd),
}

fn checked_samples(wire: wire::DeviceSamples) -> Result<DeviceSamples, InvalidReport> {
    let wire::DeviceSamples { recorded_at_seconds, samples } = wire;
    Ok(DeviceSamples {
        recorded_at: field::time("recorded_at_seconds", recorded_at_seconds)?,
        samples: field::few("samples", samples, field::DEVICES_MAX)?
            .into_iter()
            .map(DeviceSample::try_from)
            .collect::<Result<_, _>>()?,
    })
}

impl TryFrom<wire::Report> for Report {
    type Error = InvalidReport;
    fn try_from(wire: wire::Report) -> Result<Self, InvalidReport> {
        use wire::report::Body;
        let wire::Report { sequence, body } = wire;
        if sequence == 0 {
            return Err(InvalidReport::NoSequence);
        }
        let body = match body.ok_or(InvalidReport::NoBody(sequence))? {
            Body::Samples(samples) => ReportBody::Samples(checked_samples(samples)?),
            Body::JobSummary(summary) => ReportBody::JobSummary(Box::new(JobSummary::try_from(summary)?)),
            Body::Launch(launch) => ReportBody::Launch(Launch::try_from(launch)?),
            Body::ObservedRun(run) => ReportBody::ObservedRun(Box::new(JobSummary::try_from(run)?)),
        };
        Ok(Self { sequence, body })
    }
}

impl From<Report> for wire::Report {
    fn from(report: Report) -> Self {
        use wire::report::Body;
        let Report { sequence, body } = report;
        let body = match body {
            ReportBody::Samples(DeviceSamples { recorded_at, samples }) => {
                Body::Samples(wire::DeviceSamples {
                    recorded_at_seconds: recorded_at.seconds(),
                    samples: samples.into_iter().map(wire::DeviceSample::from).collect(),
                })
            }
            ReportBody::JobSummary(summary) => Body::JobSummary((*summary).into()),
            ReportBody::Launch(launch) => Body::Launch(launch.into()),
            ReportBody::ObservedRun(run) => Body::ObservedRun((*run).into()),
        };
        Self { sequence, body: Some(body) }
    }
}

impl TryFrom<wire::AgentMessage> for FromAgent {
    type Error = InvalidAgentMessage;
    fn try_from(wire: wire::AgentMessage) -> Result<Self, InvalidAgentMessage> {
        use wire::agent_message::Body;
        let wire::AgentMessage { body } = wire;
        Ok(match body.ok_or(InvalidAgentMessage::NoBody)? {
            Body::Hello(hello) => Self::Hello(AgentHello::try_from(hello)?),
            Body::Report(report) => Self::Report(Report::try_from(report)?),
            Body::ShareResult(result) => Self::ShareResult(ShareResult::try_from(result)?),
            Body::DeviceConditions(wire::DeviceConditions { conditions }) => Self::Conditions(
                field::few("conditions", conditions, field::DEVICES_MAX)
                    .map_err(InvalidHello::Field)?
                    .into_iter()
                    .map(DeviceCondition::try_from)
                    .collect::<Result<_, _>>()?,
            ),
            Body::EndResult(result) => Self::EndResult(EndResult::try_from(result)?),
        })
    }
}

impl From<FromAgent> for wire::AgentMessage {
    fn from(message: FromAgent) -> Self {
        use wire::agent_message::Body;
        let body = match message {
            FromAgent::Hello(hello) => Body::Hello(hello.into()),
            FromAgent::Report(report) => Body::Report(report.into()),
            FromAgent::ShareResult(result) => Body::ShareResult(result.into()),
            FromAgent::Conditions(conditions) => Body::DeviceConditions(wire::DeviceConditions {
                conditions: conditions.into_iter().map(wire::DeviceCondition::from).collect(),
            }),
            FromAgent::EndResult(result) => Body::EndResult(result.into()),
        };
        Self { body: Some(body) }
    }
}

impl TryFrom<wire::SchedulerMessage> for ToAgent {
    type Error = InvalidSchedulerMessage;
    fn try_from(wire: wire::SchedulerMessage) -> Result<Self, InvalidSchedulerMessage> {
        use wire::scheduler_message::Body;
        let wire::SchedulerMessage { body } = wire;
        Ok(match body.ok_or(InvalidSchedulerMessage::NoBody)? {
            Body::Ack(wire::Ack { sequence }) => Self::Ack(sequence),
            Body::PrepareShare(prepare) => Self::Prepare(Share::try_from(prepare)?),
            Body::RevokeShare(revoke) => {
                let (decision_id, start) = share::revoked(revoke)?;
                Self::Revoke { decision_id, start }
            }
            Body::Poke(wire::Poke {}) => Self::Poke,
            Body::EndStart(end) => {
                let (start, order) = ending::order(end)?;
                Self::End { start, order }
            }
        })
    }
}

impl From<ToAgent> for wire::SchedulerMessage {
    fn from(message: ToAgent) -> Self {
        use wire::scheduler_message::Body;
        let body = match message {
            ToAgent::Ack(sequence) => Body::Ack(wire::Ack { sequence }),
            ToAgent::Prepare(share) => Body::PrepareShare(share.into()),
            ToAgent::Revoke { decision_id, start } => Body::RevokeShare(wire::RevokeShare {
                decision_id: decision_id.0,
                job_id: start.job_id.to_string(),
                restart_count: start.restart_count,
            }),
            ToAgent::Poke => Body::Poke(wire::Poke {}),
            ToAgent::End { start, order } => Body::EndStart(ending::written(start, order)),
        };
        Self { body: Some(body) }
    }
}
