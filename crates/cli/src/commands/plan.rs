//! `pillion plan`: what would be decided, without doing it: on the live queue (the scheduler's own dry run), on a saved
//! snapshot, or on CSV files. The same pure function decides in all three.

use super::plan_mig::{self, Called};
use crate::args::PlanArgs;
use crate::client::{Target, answer, connect};
use crate::error::CliError;
use crate::format;
use crate::names::{self, Names};
use crate::output::{Answer, Block, Table, json};
use pillion_api::{DryRunRequest, DryRunResponse};
use pillion_core::Fraction;
use pillion_pairing::shape::let_be_cut;
use pillion_pairing::{ClusterView, Contention, Member, Pairing, Plan};
use std::path::Path;

/// Makes the plan that was asked for.
///
/// # Errors
/// [`CliError::Data`] with file, line and column for input that makes no sense, before anything is printed.
pub async fn make(args: &PlanArgs, address: &Target) -> Result<Answer, CliError> {
    if let Some(file) = &args.view {
        let text = read(file)?;
        let mut view = read_view(&text, &file.display().to_string())?;
        if args.mig {
            let_be_cut(&mut view);
            let plan = pillion_pairing::plan(&view, &Contention, &args.policy());
            return Ok(plan_mig::show(&view, &plan, &Names::new(), Called::ByJob));
        }
        return Ok(show(&pillion_pairing::plan(&view, &Contention, &args.policy()), &Names::new()));
    }
    if let (Some(solo), Some(queue)) = (&args.solo, &args.queue) {
        return super::plan_files::make(args, solo, queue);
    }
    live(args, address).await
}

async fn live(args: &PlanArgs, address: &Target) -> Result<Answer, CliError> {
    let mut client = connect(address).await?;
    let response = answer(client.dry_run(DryRunRequest {})).await?;
    let DryRunResponse { plan_json, view_json, workload_names } = response;
    let mut view = None;
    if args.has_policy() || args.mig {
        view = Some(read_view(&view_json, "the scheduler's answer")?);
    }
    let is_otherwise = args.has_policy() || (args.mig && view.as_mut().is_some_and(let_be_cut));
    if let Some(view) = view.as_ref().filter(|_| is_otherwise) {
        // Another policy than the site's, or devices that no agent cuts yet: what would be chosen on the same view?
        let plan = pillion_pairing::plan(view, &Contention, &args.policy());
        return Ok(shown(args, view, &plan, &workload_names));
    }
    let plan: Plan = serde_json::from_str(&plan_json).map_err(|error| {
        CliError::Data(format!(
            "the scheduler sent a plan that this version of pillion cannot read ({error}); install the same version on \
             both sides"
        ))
    })?;
    Ok(match &view {
        Some(view) => shown(args, view, &plan, &workload_names),
        None => show(&plan, &workload_names),
    })
}

fn shown(args: &PlanArgs, view: &ClusterView, plan: &Plan, names: &Names) -> Answer {
    if args.mig { plan_mig::show(view, plan, names, Called::ByJob) } else { show(plan, names) }
}

fn read(file: &Path) -> Result<String, CliError> {
    std::fs::read_to_string(file).map_err(CliError::file("read", file))
}

/// Reads a snapshot.
///
/// # Errors
/// [`CliError::Data`] that names the place and what was expected.
pub(super) fn read_view(text: &str, place: &str) -> Result<ClusterView, CliError> {
    serde_json::from_str(text).map_err(|error| {
        CliError::Data(format!("{place} is no snapshot of 'pillion snapshot save': {error}"))
    })
}

const COLUMNS: [&str; 13] = [
    "JOBID",
    "RESULT",
    "NODE",
    "GRES",
    "MODEL",
    "MECHANISM",
    "ROLE",
    ">CAP",
    ">SHARDS",
    ">EXPECTED",
    ">AT_LEAST",
    ">GAIN",
    "WHY",
];

fn show(plan: &Plan, names: &Names) -> Answer {
    let mut table = Table::new(&COLUMNS);
    for pairing in &plan.pairings {
        for member in &pairing.members {
            table.push(start_line(pairing, member));
        }
    }
    let is_let_go = |job_id| plan.let_go.iter().any(|one| one.start.job_id == job_id);
    for left in &plan.left_waiting {
        let what = if is_let_go(left.job_id) { "starts" } else { "waits" };
        let mut row = vec![left.job_id.to_string(), what.to_owned()];
        row.extend(std::iter::repeat_n(String::new(), COLUMNS.len() - 3));
        row.push(format!("{}: {}", left.reason, left.text));
        table.push(row);
    }
    let paired: usize = plan.pairings.iter().map(|pairing| pairing.members.len()).sum();
    let let_go = plan.left_waiting.iter().filter(|left| is_let_go(left.job_id)).count();
    let places = plan.pairings.len() + plan.let_go.iter().map(|one| one.devices.len()).sum::<usize>();
    let (starts, waits) = (paired + let_go, plan.left_waiting.len() - let_go);
    let summary = format!(
        "{} would start on {}, {} would wait (revision {})",
        format::counted(starts, "job"),
        format::counted(places, "device"),
        format::counted(waits, "job"),
        plan.parent_revision
    );
    let blocks = vec![Block::Table(table.clone(), 0), Block::Line(summary)];
    let mut body = serde_json::to_value(plan).unwrap_or_default();
    names::insert(&mut body, names);
    Answer { blocks, parsable: table, json: json::render(&body) }
}

fn start_line(pairing: &Pairing, member: &Member) -> Vec<String> {
    let estimate = member.estimate.as_ref();
    let sharing = member.sharing;
    let cap = format::part(sharing.cap().map(Fraction::value), sharing.ccs_mode(), sharing.mig_slot());
    let role = serde_json::to_value(member.role).ok().and_then(|role| role.as_str().map(str::to_owned));
    vec![
        member.start.job_id.to_string(),
        "starts".to_owned(),
        pairing.node.to_string(),
        pairing.gres_types.to_string(),
        pairing.device_model.clone(),
        pairing.mechanism().to_string(),
        role.unwrap_or_default(),
        cap.unwrap_or_else(|| "none".to_owned()),
        member.shards.to_string(),
        format::fraction(estimate.map(|estimate| estimate.speed_fraction)),
        format::fraction(estimate.map(|estimate| estimate.speed_fraction_low)),
        format::fraction(Some(pairing.gain)),
        format!("{}: {}", member.explanation.reason, member.explanation.text),
    ]
}
