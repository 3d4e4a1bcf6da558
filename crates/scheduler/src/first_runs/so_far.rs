//! What was seen of a run so far, in blocks of time: pure. Samples in a row are alike, so that an error is taken from the means
//! of blocks and not from samples.

use crate::agents::DeviceSeen;
use pillion_core::metric::{Measured, Metric, MetricSource, Metrics};
use pillion_core::profile::WorkloadProfile;
use pillion_core::{JobStart, UnixTime, WorkloadKey};
use pillion_pairing::FirstRun;
use std::collections::{BTreeMap, VecDeque};

/// How long a block is.
const BLOCK_SECONDS: f64 = 30.0;
/// Samples further apart than this do not follow each other: the time between them was not seen.
const GAP_SECONDS_MAX: f64 = 10.0;
/// A block of fewer samples says nothing.
const BLOCK_SAMPLES_MIN: u32 = 3;
/// Fewer blocks than these have no error.
const BLOCKS_MIN: usize = 4;
/// Who uses the compute units less than this in the mean still prepares what it is to do.
const ACTIVITY_MIN: f64 = 0.02;
/// Memory that grew by less than this stands still.
const MEMORY_GROWTH_MAX: f64 = 0.02;
/// Of the least time that is asked for, so much is kept: what is older was another part of the run.
const WINDOW_RATIO: f64 = 2.0;

/// Some seconds of a run.
#[derive(Debug, Clone)]
struct Block {
    began_at: UnixTime,
    seconds: f64,
    sample_count: u32,
    sums: BTreeMap<Metric, Sum>,
    memory_bytes_peak: Option<u64>,
    /// The first and the last word of the job's counter, and when.
    progress: Option<[(UnixTime, f64); 2]>,
}

#[derive(Debug, Clone, Copy)]
struct Sum {
    value: f64,
    count: f64,
    source: Option<MetricSource>,
}

/// A run, as far as it was seen with its device to itself.
#[derive(Debug, Clone)]
pub(super) struct SoFar {
    window_seconds: f64,
    last_at: Option<UnixTime>,
    blocks: VecDeque<Block>,
    memory_bytes_peak: Option<u64>,
    process_count_peak: u32,
}

impl SoFar {
    pub(super) fn new(seconds_min: f64) -> Self {
        Self {
            window_seconds: WINDOW_RATIO * seconds_min,
            last_at: None,
            blocks: VecDeque::new(),
            memory_bytes_peak: None,
            process_count_peak: 0,
        }
    }

    /// One more sample. `false`: it shows nothing new, or somebody else as well.
    pub(super) fn add(&mut self, start: JobStart, sample: &DeviceSeen) -> bool {
        if self.last_at.is_some_and(|last| sample.at <= last) {
            return false;
        }
        let own = sample
            .tenants
            .iter()
            .find(|used| (used.job_id, used.restart_count) == (start.job_id, start.restart_count));
        let is_alone = sample.tenants.len() == 1;
        let Some(own) = own.filter(|own| is_alone && own.process_count > 0) else { return false };
        let since = self.last_at.map_or(0.0, |last| sample.at.seconds_since(last));
        self.last_at = Some(sample.at);
        let memory = own
            .memory_bytes
            .or(sample.reading.metrics.bytes(Metric::MemoryBytesUsed))
            .filter(|bytes| *bytes > 0);
        self.memory_bytes_peak = self.memory_bytes_peak.max(memory);
        self.process_count_peak = self.process_count_peak.max(own.process_count);
        let block = self.block(sample.at);
        block.seconds += if since <= GAP_SECONDS_MAX { since } else { 0.0 };
        block.sample_count += 1;
        block.memory_bytes_peak = block.memory_bytes_peak.max(memory);
        if let Some(progress) = own.progress {
            let here = (sample.at, progress);
            block.progress = Some([block.progress.map_or(here, |[first, _]| first), here]);
        }
        for (metric, Measured { value, source }) in sample.reading.metrics.iter() {
            if metric.mean_word().is_some() {
                let sum = block.sums.entry(metric).or_insert(Sum { value: 0.0, count: 0.0, source });
                (sum.value, sum.count) = (sum.value + value, sum.count + 1.0);
            }
        }
        true
    }

    /// The block that a moment belongs to; those that are too old go.
    fn block(&mut self, at: UnixTime) -> &mut Block {
        let is_over =
            self.blocks.back().is_none_or(|block| at.seconds_since(block.began_at) >= BLOCK_SECONDS);
        if is_over {
            self.blocks.push_back(Block {
                began_at: at,
                seconds: 0.0,
                sample_count: 0,
                sums: BTreeMap::new(),
                memory_bytes_peak: None,
                progress: None,
            });
        }
        while self.blocks.len() > 1 && at.seconds_since(self.blocks[0].began_at) > self.window_seconds {
            self.blocks.pop_front();
        }
        self.blocks.back_mut().expect("one was pushed where there was none")
    }

    /// What the engine has to know. What the user declared is not seen here.
    pub(super) fn first_run(&self, workload: &WorkloadKey, device_model: &str) -> FirstRun {
        let activity = [Metric::SmActiveFraction, Metric::GpuBusyFraction];
        let activity = activity.into_iter().find(|metric| self.mean_of(*metric).is_some());
        let means = activity.map(|metric| self.block_means(metric)).unwrap_or_default();
        FirstRun {
            profile: WorkloadProfile {
                metrics: self.means(),
                throughput_per_second: self.progress_per_second(),
                memory_bytes_peak: self.memory_bytes_peak,
                process_count_peak: self.process_count_peak,
                ..WorkloadProfile::empty(workload.clone(), device_model)
            },
            measured_seconds: self.blocks.iter().map(|block| block.seconds).sum(),
            sample_count: self.blocks.iter().map(|block| block.sample_count).sum(),
            activity_error_fraction: error_fraction(&means),
            drift_fraction: drift_fraction(&means),
            has_memory_settled: self.has_memory_settled(),
            memory_bytes_declared: None,
        }
    }

    fn means(&self) -> Metrics {
        let mut means = Metrics::default();
        for metric in Metric::ALL {
            if let Some(mean) = self.mean_of(metric) {
                means.put(metric, mean);
            }
        }
        means
    }

    fn mean_of(&self, metric: Metric) -> Option<Measured> {
        let sums = self.blocks.iter().filter_map(|block| block.sums.get(&metric));
        let all = sums.fold(None, |all: Option<Sum>, sum| {
            let all = all.unwrap_or(Sum { value: 0.0, count: 0.0, source: sum.source });
            Some(Sum { value: all.value + sum.value, count: all.count + sum.count, source: sum.source })
        })?;
        Some(Measured { value: all.value / all.count, source: all.source })
    }

    fn block_means(&self, metric: Metric) -> Vec<f64> {
        let full = self.blocks.iter().filter(|block| block.sample_count >= BLOCK_SAMPLES_MIN);
        full.filter_map(|block| block.sums.get(&metric)).map(|sum| sum.value / sum.count).collect()
    }

    /// By the counter's first and last word; `None` where it stood still or went back.
    fn progress_per_second(&self) -> Option<f64> {
        let mut words = self.blocks.iter().filter_map(|block| block.progress);
        let [first, mut last] = words.next()?;
        if let Some([_, newest]) = words.next_back() {
            last = newest;
        }
        let seconds = last.0.seconds_since(first.0);
        Some((last.1 - first.1) / seconds).filter(|rate| rate.is_finite() && *rate > 0.0)
    }

    #[expect(clippy::cast_precision_loss, reason = "memory is far below 2^53 bytes")]
    fn has_memory_settled(&self) -> bool {
        let half = self.blocks.len() / 2;
        let peak = |blocks: &mut dyn Iterator<Item = &Block>| {
            blocks.filter_map(|block| block.memory_bytes_peak).max().map(|bytes| bytes as f64)
        };
        let (before, after) =
            (peak(&mut self.blocks.iter().take(half)), peak(&mut self.blocks.iter().skip(half)));
        before.zip(after).is_some_and(|(before, after)| after <= before * (1.0 + MEMORY_GROWTH_MAX))
    }
}

#[expect(clippy::cast_precision_loss, reason = "a few blocks")]
fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The standard error of the mean of blocks, over that mean.
#[expect(clippy::cast_precision_loss, reason = "a few blocks")]
fn error_fraction(blocks: &[f64]) -> Option<f64> {
    let (mean, count) = (mean(blocks), blocks.len() as f64);
    if blocks.len() < BLOCKS_MIN || mean < ACTIVITY_MIN {
        return None;
    }
    let variance = blocks.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    Some((variance / count).sqrt() / mean)
}

/// How far the means of both halves are apart, over the mean of all.
fn drift_fraction(blocks: &[f64]) -> Option<f64> {
    let all = mean(blocks);
    if blocks.len() < BLOCKS_MIN || all < ACTIVITY_MIN {
        return None;
    }
    let (before, after) = blocks.split_at(blocks.len() / 2);
    Some((mean(after) - mean(before)).abs() / all)
}
