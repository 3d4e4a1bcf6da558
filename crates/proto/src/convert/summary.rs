//! `JobSummary` and `ActivityMeans`.

use super::fault;
use super::field::{self, InvalidField};
use super::metric;
use crate::v1 as wire;
use pillion_core::metric::Metric;
use pillion_core::report::{ActivityMeans, JobSummary, ProgressPart};
use pillion_core::text::quoted;
use pillion_core::{GresType, JobStart};

/// A summary that cannot be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("invalid summary of job '{job_id}'")]
pub struct InvalidSummary {
    /// Which, as it was written.
    pub job_id: String,
    /// What is wrong with it.
    pub source: InvalidField,
}

impl TryFrom<wire::JobSummary> for JobSummary {
    type Error = InvalidSummary;
    fn try_from(wire: wire::JobSummary) -> Result<Self, InvalidSummary> {
        let job_id = wire.job_id.clone();
        checked_summary(wire).map_err(|source| InvalidSummary { job_id: quoted(&job_id), source })
    }
}

fn checked_summary(wire: wire::JobSummary) -> Result<JobSummary, InvalidField> {
    let wire::JobSummary {
        job_id,
        restart_count,
        gres_type,
        started_at_seconds,
        ended_at_seconds,
        shared_seconds,
        shared_device_seconds,
        memory_bytes_peak,
        process_count_peak,
        process_memory_bytes_peak,
        energy_joules,
        progress_solo,
        progress_solo_seconds,
        progress_shared,
        progress_shared_seconds,
        solo_means,
        solo_sample_count,
        neighbours,
        signs,
    } = wire;
    Ok(JobSummary {
        start: field::start(&job_id, restart_count)?,
        gres_type: GresType::new(field::name("gres_type", gres_type)?),
        started_at: field::time("started_at_seconds", started_at_seconds)?,
        ended_at: field::time("ended_at_seconds", ended_at_seconds)?,
        shared_seconds: field::quantity("shared_seconds", shared_seconds)?,
        shared_device_seconds: field::known_quantity("shared_device_seconds", shared_device_seconds)?,
        memory_bytes_peak,
        process_count_peak,
        process_memory_bytes_peak,
        energy_joules: field::known_quantity("energy_joules", energy_joules)?,
        solo: ProgressPart {
            progress: field::progress(progress_solo),
            seconds: field::quantity("progress_solo_seconds", progress_solo_seconds)?,
        },
        shared: ProgressPart {
            progress: field::progress(progress_shared),
            seconds: field::quantity("progress_shared_seconds", progress_shared_seconds)?,
        },
        solo_means: solo_means.map(checked_means).transpose()?,
        solo_sample_count,
        neighbours: checked_neighbours(&neighbours)?,
        signs: signs.map(fault::checked_signs).transpose()?,
    })
}

/// Those that came first: who had so many changed them all the time, and teaches nothing of any.
fn checked_neighbours(texts: &[String]) -> Result<Vec<JobStart>, InvalidField> {
    let starts = texts.iter().take(field::NEIGHBOURS_MAX).map(|text| text.parse());
    Ok(starts.collect::<Result<_, _>>()?)
}

fn checked_means(wire: wire::ActivityMeans) -> Result<ActivityMeans, InvalidField> {
    let earlier =
        metric::earlier_fields!(wire).into_iter().chain([(Metric::Throttles, wire.throttled_fraction)]);
    let mut metrics = metric::checked_metrics(wire.metrics)?;
    metric::add_earlier(&mut metrics, earlier, wire.sources)?;
    Ok(ActivityMeans(metrics))
}

impl From<ActivityMeans> for wire::ActivityMeans {
    fn from(ActivityMeans(metrics): ActivityMeans) -> Self {
        Self { metrics: metric::metric_values(&metrics), ..Self::default() }
    }
}

impl From<JobSummary> for wire::JobSummary {
    fn from(summary: JobSummary) -> Self {
        let JobSummary {
            start,
            gres_type,
            started_at,
            ended_at,
            shared_seconds,
            shared_device_seconds,
            memory_bytes_peak,
            process_count_peak,
            process_memory_bytes_peak,
            energy_joules,
            solo,
            shared,
            solo_means,
            solo_sample_count,
            neighbours,
            signs,
        } = summary;
        Self {
            job_id: start.job_id.to_string(),
            restart_count: start.restart_count,
            gres_type: gres_type.0.into(),
            started_at_seconds: started_at.seconds(),
            ended_at_seconds: ended_at.seconds(),
            shared_seconds,
            shared_device_seconds,
            memory_bytes_peak,
            process_count_peak,
            process_memory_bytes_peak,
            energy_joules,
            progress_solo: solo.progress,
            progress_solo_seconds: solo.seconds,
            progress_shared: shared.progress,
            progress_shared_seconds: shared.seconds,
            solo_means: solo_means.map(wire::ActivityMeans::from),
            solo_sample_count,
            neighbours: neighbours.iter().map(ToString::to_string).collect(),
            signs: signs.map(wire::FaultSigns::from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_progress_that_is_no_number_costs_the_speed_and_not_the_summary() {
        for progress in [f64::INFINITY, f64::NAN, -1.0] {
            let wire = wire::JobSummary {
                job_id: "33".into(),
                gres_type: "g0".into(),
                energy_joules: Some(7.0),
                progress_solo: Some(progress),
                progress_shared: Some(3.0),
                ..wire::JobSummary::default()
            };
            let summary = JobSummary::try_from(wire).expect("all else is sound");
            assert_eq!((summary.solo.progress, summary.shared.progress), (None, Some(3.0)), "{progress}");
            assert_eq!(summary.energy_joules, Some(7.0));
        }
    }
}
