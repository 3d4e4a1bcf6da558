//! Runs that the scheduler knows, observed ones and those of the pool, as `pillion-scale` takes them.

use super::{Found, Input, LeftOut, runs};
use crate::args::MeasureArg;
use crate::client::{Operator, answer};
use crate::error::CliError;
use pillion_api::{ScaleRequest, ScaleResponse, ScaleRun};
use pillion_scale::{History, Measure, Rank, Run, Watched};
use std::collections::{BTreeMap, BTreeSet};

/// Asks the scheduler for the runs of one workload, or of all.
///
/// # Errors
/// As [`answer`]; [`CliError::Data`] where there are none.
pub(super) async fn fetch(
    client: &mut Operator,
    workload: Option<&str>,
    by: MeasureArg,
) -> Result<Found, CliError> {
    let request = ScaleRequest { workload: workload.unwrap_or_default().to_owned() };
    let response = answer(client.scale(request)).await?;
    let found = found(&response, by);
    if found.history.workloads.is_empty() {
        let of = workload.map_or_else(|| "of yours".to_owned(), |name| format!("of '{name}'"));
        let kind = if by == MeasureArg::Progress && !response.runs.is_empty() {
            "wrote its progress (PILLION_PROGRESS, in the pool); without --by it is compared how long they took"
        } else {
            "that had its GPUs to itself is known, of the pool or of what is observed (observe.partitions); --sacct and --from read files"
        };
        return Err(CliError::Data(format!("no completed run {of} {kind}")));
    }
    Ok(found)
}

fn found(response: &ScaleResponse, by: MeasureArg) -> Found {
    let models = models(&response.runs);
    let (mut history, mut watched): (_, BTreeMap<_, Vec<Watched>>) = (History::default(), BTreeMap::new());
    let mut uncounted = 0_u64;
    for run in &response.runs {
        let name = name(run);
        let model = run.device_model.as_deref().or_else(|| only(models.get(name)?)).unwrap_or_default();
        let Some((measure, timed)) = timed(run, by) else {
            uncounted += 1;
            continue;
        };
        history.add(name, model, measure, timed);
        // What devices did is of the whole run, and so of no use beside the part of it in which something was counted.
        if by == MeasureArg::Elapsed {
            watched.entry((name.to_owned(), model.to_owned())).or_default().push(devices(run));
        }
    }
    let ScaleResponse { shared_run_count, unclear_run_count, is_cut, .. } = response;
    let mut left_out = Vec::new();
    for (count, cause) in [
        (u64::from(*shared_run_count), "runs with others on their GPUs, or with a part of one"),
        (
            u64::from(*unclear_run_count),
            "runs of which it is not known which GPUs they had, or whether alone, or that had several models",
        ),
        (uncounted, "runs that wrote no progress"),
    ] {
        if count > 0 {
            left_out.push(LeftOut::new(count, cause.to_owned()));
        }
    }
    let rows = response.runs.len() as u64 + u64::from(*shared_run_count) + u64::from(*unclear_run_count);
    let input = Input { rows, runs: runs(&history), left_out, is_cut: *is_cut };
    Found { history, input, watched }
}

/// What its time is, where there is one of that kind.
fn timed(run: &ScaleRun, by: MeasureArg) -> Option<(Measure, Run)> {
    let elapsed = Run::metered(run.node_count, run.gpu_count, run.elapsed_seconds, run.energy_joules);
    match by {
        MeasureArg::Elapsed => Some((Measure::Elapsed, elapsed)),
        MeasureArg::Progress => {
            let rate = run.progress_per_second.filter(|rate| *rate > 0.0)?;
            Some((Measure::Progress, Run { seconds: 1.0 / rate, ..elapsed }))
        }
    }
}

/// As people call it, else its key.
fn name(run: &ScaleRun) -> &str {
    run.workload_name.as_deref().or(run.workload.as_deref()).unwrap_or_default()
}

/// The models that each workload ran on.
fn models(runs: &[ScaleRun]) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut models: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for run in runs {
        if let Some(model) = &run.device_model {
            models.entry(name(run)).or_default().insert(model);
        }
    }
    models
}

/// Of a run without one it is the only one that the others had.
fn only<'m>(models: &BTreeSet<&'m str>) -> Option<&'m str> {
    models.first().copied().filter(|_| models.len() == 1)
}

fn devices(run: &ScaleRun) -> Watched {
    let ranks = run.ranks.iter().map(|rank| Rank {
        node: rank.node.clone(),
        device: rank.gres_type.clone(),
        active_fraction: rank.active_fraction,
        link_bytes_per_second: rank.link_bytes_per_second,
    });
    Watched { gpus: run.gpu_count, ranks: ranks.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(gpus: u32, model: Option<&str>) -> ScaleRun {
        ScaleRun {
            workload: Some("alice/1f".to_owned()),
            workload_name: Some("alice/bert".to_owned()),
            device_model: model.map(str::to_owned),
            gpu_count: gpus,
            node_count: 1,
            elapsed_seconds: 100.0,
            energy_joules: Some(20_000.0),
            ..ScaleRun::default()
        }
    }

    #[test]
    fn runs_are_of_the_model_that_the_others_of_their_workload_had() {
        let response = ScaleResponse {
            runs: vec![run(1, Some("h100")), run(2, None)],
            shared_run_count: 2,
            ..ScaleResponse::default()
        };
        let Found { history, input, watched } = found(&response, MeasureArg::Elapsed);
        let [workload] = history.workloads.as_slice() else { panic!("{history:?}") };
        assert_eq!((workload.name.as_str(), workload.gpu_model.as_str()), ("alice/bert", "h100"));
        assert_eq!(workload.runs[0].power_watts, Some(200.0));
        assert_eq!((input.rows, input.runs, input.left_out.len()), (4, 2, 1));
        assert_eq!(watched[&("alice/bert".to_owned(), "h100".to_owned())].len(), 2);
        let several = vec![run(1, Some("h100")), run(1, Some("a100")), run(2, None)];
        let response = ScaleResponse { runs: several, ..ScaleResponse::default() };
        assert_eq!(
            found(&response, MeasureArg::Elapsed).history.workloads.len(),
            3,
            "nobody knows which it was"
        );
    }

    #[test]
    fn by_progress_those_count_that_wrote_it_and_never_beside_elapsed_times() {
        let counted =
            |gpus: u32, rate: f64| ScaleRun { progress_per_second: Some(rate), ..run(gpus, Some("h100")) };
        let runs = vec![counted(1, 10.0), counted(2, 16.0), run(4, Some("h100")), counted(4, 0.0)];
        let response = ScaleResponse { runs, ..ScaleResponse::default() };
        let Found { history, input, .. } = found(&response, MeasureArg::Progress);
        let [workload] = history.workloads.as_slice() else { panic!("{history:?}") };
        assert_eq!(workload.measure, Measure::Progress);
        let times: Vec<_> =
            workload.runs.iter().map(|run| (run.gpus, run.seconds, run.power_watts)).collect();
        assert_eq!(times, [(1, 0.1, Some(200.0)), (2, 0.0625, Some(200.0))]);
        assert_eq!((input.rows, input.runs, input.left_out[0].count), (4, 2, 2));
    }
}
