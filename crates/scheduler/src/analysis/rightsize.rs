//! With how much less a workload would have done: fewer GPUs, a smaller model, less memory. From its runs alone; pure.
//!
//! Each of the three is said for itself: with fewer GPUs a job may need more of the memory of each.

use super::advice::mebibytes;
use pillion_core::WorkloadKey;
use pillion_core::metric::Metric;
use pillion_core::profile::WorkloadProfile;
use pillion_core::units::SECONDS_PER_HOUR;
use pillion_core::workload::on_one;
use pillion_pairing::memory_need;
use std::collections::BTreeMap;

/// As fast as before: a run took no longer than this of its time.
const DURATION_RATIO_MAX: f64 = 1.1;
/// Of compute units and memory bandwidth a workload uses no more, of which a smaller model is expected to have enough.
const USED_FRACTION_MAX_FOR_MODEL: f64 = 0.25;
/// The same of which half of them would be enough.
const USED_FRACTION_MAX_FOR_MEMORY: f64 = 0.5;
/// Less memory is worth to be told where this part of it would have been enough.
const MEMORY_FRACTION_MAX: f64 = 0.5;

/// A device model that the site has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SiteModel {
    pub(crate) memory_bytes: u64,
    pub(crate) name: String,
}

/// What was seen of the starts of a workload that held so many devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UsedDevices {
    pub(crate) start_count: u32,
    /// The most of them that were used by any start, or of which nobody can say that they were not.
    pub(crate) used_count: u32,
}

/// What runs are compared with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Site<'a> {
    /// Of the same workloads, and all that the answer is of.
    pub(crate) profiles: &'a [&'a WorkloadProfile],
    pub(crate) models: &'a [SiteModel],
    /// By workload on one device, and how many it held.
    pub(crate) used: &'a BTreeMap<(WorkloadKey, u32), UsedDevices>,
    /// So many runs are needed to say anything.
    pub(crate) run_count_min: u32,
}

/// Why fewer devices would have done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum FewerBecause {
    /// In so many starts the others were never used.
    Unused { start_count: u32 },
    /// Its runs on fewer took so much of the time.
    AsFast { duration_ratio: f64 },
}

/// A smaller model that would have done.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Smaller {
    pub(crate) name: String,
    /// How long its runs there took, over the present ones; `None`: it never ran there.
    pub(crate) duration_ratio: Option<f64>,
}

/// A workload as it is used, and with how much less it would have done.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rightsizing {
    pub(crate) device_count: u32,
    /// Device time of the runs that were measured.
    pub(crate) gpu_hours: Option<f64>,
    /// The greater part of what it uses of compute units and of memory bandwidth, as far as they are known.
    pub(crate) used_fraction: Option<f64>,
    /// What memory it needs of each device, with the margin that the planner admits it with.
    pub(crate) memory_bytes_need: Option<u64>,
    /// What memory each has.
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) fewer: Option<(u32, FewerBecause)>,
    pub(crate) smaller: Option<Smaller>,
    /// Whether [`Self::memory_bytes_need`] alone is worth to be told.
    pub(crate) has_memory_to_spare: bool,
}

impl Rightsizing {
    /// Whether less of anything would have done.
    pub(crate) fn is_less(&self) -> bool {
        self.fewer.is_some() || self.smaller.is_some() || self.has_memory_to_spare
    }

    /// One sentence each.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let mut sentences = Vec::new();
        if let Some((enough, because)) = self.fewer {
            let why = match because {
                FewerBecause::Unused { start_count } => {
                    format!("in {start_count} starts it never used more")
                }
                FewerBecause::AsFast { duration_ratio } => {
                    format!("its runs on {enough} took {duration_ratio:.2} of the time")
                }
            };
            sentences.push(format!("{enough} of its {} GPUs would have done: {why}", self.device_count));
        }
        if let Some(Smaller { name, duration_ratio }) = &self.smaller {
            let why = match duration_ratio {
                Some(ratio) => format!("its runs there took {ratio:.2} of the time"),
                None => format!(
                    "its memory is enough, and no more than {:.0} % of compute units and memory bandwidth were used; it has not run there",
                    self.used_fraction.unwrap_or(1.0) * 100.0
                ),
            };
            sentences.push(format!("a GPU of model {name} would have done: {why}"));
        }
        if let (true, Some(need), Some(whole)) =
            (self.has_memory_to_spare, self.memory_bytes_need, self.memory_bytes)
        {
            sentences.push(format!(
                "{} of the GPU's {} of memory would have done, and half of its compute units",
                mebibytes(need),
                mebibytes(whole)
            ));
        }
        sentences
    }
}

/// What one profile says; `None`: its workload ran too seldom.
pub(crate) fn rightsize(profile: &WorkloadProfile, site: &Site<'_>) -> Option<Rightsizing> {
    if profile.run_count < site.run_count_min {
        return None;
    }
    let (workload, device_count) = on_one(&profile.workload);
    let used_fraction = used_fraction(profile);
    let memory_bytes_need = memory_need(None, profile);
    let memory_bytes = memory_of(&profile.device_model, site.models);
    let uses_at_most = |most: f64| used_fraction.is_some_and(|used| used <= most);
    let has_memory_to_spare = memory_bytes_need
        .zip(memory_bytes)
        .is_some_and(|(need, whole)| is_at_most_part(need, MEMORY_FRACTION_MAX, whole))
        && uses_at_most(USED_FRACTION_MAX_FOR_MEMORY);
    let hours = profile
        .duration_seconds
        .map(|seconds| seconds * f64::from(profile.run_count) * f64::from(device_count) / SECONDS_PER_HOUR);
    let smaller = memory_bytes_need.zip(memory_bytes).and_then(|(need, whole)| {
        smaller(profile, need, whole, uses_at_most(USED_FRACTION_MAX_FOR_MODEL), site)
    });
    Some(Rightsizing {
        device_count,
        gpu_hours: hours,
        used_fraction,
        memory_bytes_need,
        memory_bytes,
        fewer: fewer(profile, &workload, device_count, site),
        smaller,
        has_memory_to_spare,
    })
}

/// Of compute units and bandwidth the greater; where no compute units are told, the time in which any kernel ran stands for them.
fn used_fraction(profile: &WorkloadProfile) -> Option<f64> {
    let metrics = &profile.metrics;
    let active = metrics.get(Metric::SmActiveFraction).or_else(|| metrics.get(Metric::GpuBusyFraction))?;
    Some(active.max(metrics.get(Metric::MemoryBandwidthFraction).unwrap_or(0.0)))
}

fn memory_of(model: &str, models: &[SiteModel]) -> Option<u64> {
    // Of one model with several sizes nobody knows which it ran on: what the smallest has.
    models.iter().filter(|it| it.name == model).map(|it| it.memory_bytes).min()
}

#[expect(clippy::cast_precision_loss, reason = "a part of a size needs no last digit")]
fn is_at_most_part(bytes: u64, part: f64, whole: u64) -> bool {
    bytes as f64 <= part * whole as f64
}

fn fewer(
    profile: &WorkloadProfile,
    workload: &WorkloadKey,
    device_count: u32,
    site: &Site<'_>,
) -> Option<(u32, FewerBecause)> {
    if device_count < 2 {
        return None;
    }
    let seen = site.used.get(&(workload.clone(), device_count));
    let seen = seen.filter(|seen| seen.start_count >= site.run_count_min);
    let unused =
        seen.map(|seen| (seen.used_count.max(1), FewerBecause::Unused { start_count: seen.start_count }));
    let faster = site.profiles.iter().filter_map(|other| {
        let (other_workload, count) = on_one(&other.workload);
        let is_same = other_workload == *workload && other.device_model == profile.device_model;
        let duration_ratio = duration_ratio(other, profile, site)?;
        is_same.then_some((count, FewerBecause::AsFast { duration_ratio }))
    });
    unused
        .into_iter()
        .chain(faster)
        .filter(|(enough, _)| *enough < device_count)
        .min_by_key(|(enough, _)| *enough)
}

/// How long runs elsewhere took over those here, where they were as fast as these.
fn duration_ratio(other: &WorkloadProfile, profile: &WorkloadProfile, site: &Site<'_>) -> Option<f64> {
    let ratio = other.duration_seconds? / profile.duration_seconds.filter(|seconds| *seconds > 0.0)?;
    (other.run_count >= site.run_count_min && ratio <= DURATION_RATIO_MAX).then_some(ratio)
}

/// The smallest model with the memory for it, on which it was as fast, or on which it has not run and leaves enough unused here.
fn smaller(
    profile: &WorkloadProfile,
    need: u64,
    whole: u64,
    leaves_enough: bool,
    site: &Site<'_>,
) -> Option<Smaller> {
    let mut models: Vec<&SiteModel> = site.models.iter().collect();
    models.sort();
    models.into_iter().filter(|model| need <= model.memory_bytes && model.memory_bytes < whole).find_map(
        |model| {
            let ran = site
                .profiles
                .iter()
                .find(|other| other.workload == profile.workload && other.device_model == model.name);
            let duration_ratio = match ran {
                Some(other) => Some(duration_ratio(other, profile, site)?),
                None if leaves_enough => None,
                None => return None,
            };
            Some(Smaller { name: model.name.clone(), duration_ratio })
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillion_core::metric::Metrics;

    const GIB: u64 = 1 << 30;

    fn profile(workload: &str, model: &str, seconds: f64, active: f64) -> WorkloadProfile {
        WorkloadProfile {
            run_count: 3,
            duration_seconds: Some(seconds),
            metrics: Metrics::from([(Metric::SmActiveFraction, active)]),
            memory_bytes_peak: Some(10 * GIB),
            ..WorkloadProfile::empty(WorkloadKey::new(workload), model)
        }
    }

    fn models() -> Vec<SiteModel> {
        let of = |name: &str, gib: u64| SiteModel { memory_bytes: gib * GIB, name: name.to_owned() };
        vec![of("h100", 80), of("a100-40", 40), of("t4", 16), of("p4", 8)]
    }

    fn asked(
        profile: &WorkloadProfile,
        others: &[WorkloadProfile],
        used: Option<(u32, u32, u32)>,
    ) -> Rightsizing {
        let models = models();
        let profiles: Vec<&WorkloadProfile> = others.iter().chain([profile]).collect();
        let (workload, _) = on_one(&profile.workload);
        let used = used.map(|(held, used_count, start_count)| {
            ((workload, held), UsedDevices { start_count, used_count })
        });
        let used = used.into_iter().collect();
        let site = Site { profiles: &profiles, models: &models, used: &used, run_count_min: 2 };
        rightsize(profile, &site).unwrap()
    }

    #[test]
    fn the_smallest_model_with_room_is_named_and_one_without_the_memory_is_not() {
        let quiet = asked(&profile("alice/w", "h100", 3600.0, 0.1), &[], None);
        assert_eq!(quiet.smaller, Some(Smaller { name: "t4".to_owned(), duration_ratio: None }));
        assert!(quiet.has_memory_to_spare && quiet.gpu_hours == Some(3.0), "{quiet:?}");
        assert_eq!(
            quiet.sentences()[0],
            "a GPU of model t4 would have done: its memory is enough, and no more than 10 % of compute units and memory \
             bandwidth were used; it has not run there"
        );
        // It needs most of the bandwidth, or nobody knows what it does.
        let mut bound = profile("alice/w", "h100", 3600.0, 0.1);
        bound.metrics.set_known(Metric::MemoryBandwidthFraction, Some(0.8));
        let unknown = WorkloadProfile { metrics: Metrics::default(), ..bound.clone() };
        for it in [asked(&bound, &[], None), asked(&unknown, &[], None)] {
            assert!(!it.is_less() && it.sentences().is_empty(), "{it:?}");
        }
    }

    #[test]
    fn where_it_ran_on_a_smaller_one_that_is_what_counts() {
        let busy = profile("alice/w", "h100", 1000.0, 0.9);
        let as_fast = asked(&busy, &[profile("alice/w", "a100-40", 1050.0, 0.95)], None);
        assert_eq!(as_fast.smaller, Some(Smaller { name: "a100-40".to_owned(), duration_ratio: Some(1.05) }));
        let quiet = profile("alice/w", "h100", 1000.0, 0.1);
        let slow = asked(&quiet, &[profile("alice/w", "t4", 2000.0, 0.9)], None);
        assert_eq!(
            slow.smaller.map(|it| it.name),
            Some("a100-40".to_owned()),
            "on a t4 it took twice as long"
        );
        let once = WorkloadProfile { run_count: 1, ..profile("alice/w", "a100-40", 900.0, 0.9) };
        assert_eq!(asked(&busy, &[once], None).smaller, None, "once is too seldom");
    }

    #[test]
    fn of_several_gpus_those_that_were_never_used_or_gave_nothing_are_told() {
        let four = profile("alice/4x-w", "h100", 1000.0, 0.9);
        let unused = asked(&four, &[], Some((4, 1, 5)));
        assert_eq!(
            (unused.device_count, unused.fewer),
            (4, Some((1, FewerBecause::Unused { start_count: 5 })))
        );
        assert_eq!(unused.sentences(), ["1 of its 4 GPUs would have done: in 5 starts it never used more"]);
        for (held, used, starts) in [(4, 4, 5), (2, 1, 5), (4, 1, 1)] {
            assert_eq!(asked(&four, &[], Some((held, used, starts))).fewer, None, "{held} {used} {starts}");
        }
        let two = asked(
            &four,
            &[profile("alice/2x-w", "h100", 1020.0, 0.9), profile("alice/w", "h100", 2000.0, 0.9)],
            None,
        );
        assert_eq!(two.fewer, Some((2, FewerBecause::AsFast { duration_ratio: 1.02 })));
        let others =
            [profile("alice/2x-v", "h100", 900.0, 0.9), profile("alice/2x-w", "a100-40", 900.0, 0.9)];
        assert_eq!(asked(&four, &others, None).fewer, None, "another work, another model");
    }

    #[test]
    fn memory_alone_is_told_where_half_of_the_gpu_would_be_enough_and_never_of_who_ran_out_of_it() {
        let half = asked(&profile("alice/w", "h100", 1000.0, 0.4), &[], None);
        assert!(half.smaller.is_none() && half.has_memory_to_spare, "{half:?}");
        assert!(half.sentences()[0].ends_with("of memory would have done, and half of its compute units"));
        let ran_out = WorkloadProfile {
            memory_bytes_ran_out: Some(60 * GIB),
            ..profile("alice/w", "h100", 1000.0, 0.1)
        };
        assert!(!asked(&ran_out, &[], None).is_less());
        let busy = asked(&profile("alice/w", "h100", 1000.0, 0.7), &[], None);
        assert!(!busy.is_less(), "{busy:?}");
    }
}
