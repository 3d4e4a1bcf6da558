//! `pillion pairs`: which jobs share which device, now or in a stretch of time; one line a job.

use crate::args::PairsArgs;
use crate::client::{Operator, answer};
use crate::error::CliError;
use crate::format;
use crate::output::{Answer, Table, json};
use pillion_api::{Decision, Member, PairsRequest, PairsResponse};
use pillion_core::UnixTime;

/// The question that the options mean; without a time it is about now.
///
/// # Errors
/// [`CliError::Usage`] for a time that cannot be read, or a stretch that ends before it begins.
pub fn request(args: &PairsArgs, now: UnixTime) -> Result<PairsRequest, CliError> {
    let (since, until) =
        format::stretch(args.start.as_deref(), args.end.as_deref(), now).map_err(CliError::Usage)?;
    Ok(PairsRequest {
        active_only: since.is_none() && until.is_none(),
        since_seconds: since.map_or(0.0, UnixTime::seconds),
        until_seconds: until.map_or(0.0, UnixTime::seconds),
        user: args.user.clone(),
        workload: args.workload.clone(),
        include_single: args.all,
        limit: args.limit,
        ..PairsRequest::default()
    })
}

/// Asks the scheduler.
///
/// # Errors
/// As [`answer`].
pub async fn fetch(client: &mut Operator, request: PairsRequest) -> Result<Answer, CliError> {
    Ok(show(&answer(client.pairs(request)).await?))
}

const COLUMNS: [&str; 18] = [
    ">DECISION",
    ">GROUP",
    "STATE",
    "NODE",
    "GRES",
    "MODEL",
    "MECHANISM",
    "JOBID",
    "USER",
    "WORKLOAD",
    "ROLE",
    "JOB_STATE",
    ">CAP",
    ">SHARDS",
    ">PREDICTED",
    ">MEASURED",
    "START",
    "END",
];

fn show(pairs: &PairsResponse) -> Answer {
    let mut table = Table::new(&COLUMNS);
    for decision in &pairs.decisions {
        for member in &decision.members {
            table.push(line(decision, member));
        }
    }
    Answer::table(table, json::render(pairs))
}

fn line(decision: &Decision, member: &Member) -> Vec<String> {
    vec![
        decision.decision_id.to_string(),
        decision.group_id.to_string(),
        decision.state.clone(),
        decision.node.clone(),
        decision.gres_type.clone(),
        decision.device_model.clone(),
        decision.mechanism.clone(),
        format::shown(member.job_id.as_ref()),
        format::shown(member.user.as_ref()),
        format::shown(member.workload_name.as_ref()),
        member.role.clone(),
        member.state.clone(),
        cap(member),
        member.shards.to_string(),
        format::fraction(member.predicted_speed_fraction),
        format::fraction(member.measured_speed_fraction),
        format::time_or_none(member.started_at_seconds),
        format::time_or_none(member.ended_at_seconds),
    ]
}

/// The cap of a member: a part of the compute units (`mps`), the card's mode (`ccs`), its instance (`mig`), or a part of that (`mig-mps`).
pub fn cap(member: &Member) -> String {
    let slot = member.mig_slot.as_ref();
    format::part(member.cap_fraction, member.ccs_mode, slot).unwrap_or_else(|| "none".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(start: Option<&str>, end: Option<&str>) -> PairsArgs {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        PairsArgs {
            active: false,
            start: owned(start),
            end: owned(end),
            user: String::new(),
            workload: String::new(),
            all: false,
            limit: 5,
        }
    }

    #[test]
    fn without_a_time_it_is_about_now() {
        let now = UnixTime::from_epoch(1_795_000_000);
        assert!(request(&args(None, None), now).expect("valid").active_only);
        let past = request(&args(Some("now-1hour"), None), now).expect("valid");
        assert!(!past.active_only);
        assert!((past.since_seconds - 1_794_996_400.0).abs() < 1e-6);
    }

    #[test]
    fn a_stretch_that_ends_before_it_begins_is_refused() {
        let error = request(&args(Some("now"), Some("now-1hour")), UnixTime::from_epoch(1_795_000_000));
        assert!(error.expect_err("swapped").to_string().contains("swap"));
    }
}
