//! How jobs used their GPUs, from what a site's Prometheus has kept of dcgm-exporter and of jobstats' exporter: which queries are
//! asked, what the answers say, and how they are joined: by node, GPU and time, for sacct does not say which GPU of a node a job had.
//!
//! ```text
//! nvidia_gpu_jobId ─► holder of (GPU, time) ─┐
//! DCGM_FI_*, nvidia_gpu_* ─► (GPU, time) ────┴─► sacct: did it run then, and there? ─► means, greatest memory ─► Telemetry
//! ```
//!
//! The two exporters number a node's GPUs differently (dcgm-exporter by the bus, jobstats' by `/dev/nvidiaN`), so a GPU is known by its
//! UUID where both tell it. Job numbers are foreign too: one Prometheus serves several clusters, and a file of the exporter's can be
//! older than the job, so what sacct does not have there and then belongs to nobody.
//!
//! Pure: asks nobody. Answers are foreign: what is out of its range is dropped and counted.
//!
//! Sources: `plazonic/nvidia_gpu_prometheus_exporter` `main.go` (labels, units: what it calls percent of `GPM` lies in 0..=1),
//! the page on detailed GPU metrics of `PrincetonUniversity/jobstats`; of dcgm-exporter `pillion-device` `exporter/dcgm.rs`.

use super::Telemetry;
use super::telemetry::Sample;
use crate::jobs::{Accounting, Job};
use rustc_hash::FxHashMap;
use serde::Deserialize;

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Question {
    /// Which job holds a GPU.
    Holder,
    /// The part of the time in which a kernel runs.
    Busy,
    /// Compute units in use.
    Units,
    /// Memory bandwidth.
    Bandwidth,
    /// Device memory in use.
    Memory,
    /// Power.
    Power,
}

impl Question {
    /// All of them; who holds a GPU first.
    pub const ALL: [Self; 6] =
        [Self::Holder, Self::Busy, Self::Units, Self::Bandwidth, Self::Memory, Self::Power];

    /// In `PromQL`. Where both exporters run on a node both are taken, for they say the same.
    pub const fn query(self) -> &'static str {
        match self {
            Self::Holder => "nvidia_gpu_jobId > 0",
            Self::Busy => {
                "(DCGM_FI_DEV_GPU_UTIL or nvidia_gpu_duty_cycle) / 100 or DCGM_FI_DEV_GPU_UTIL_RATIO"
            }
            Self::Units => {
                "DCGM_FI_PROF_SM_ACTIVE or DCGM_FI_PROF_SM_UTIL_RATIO or nvidia_gpu_sm_util_percent"
            }
            Self::Bandwidth => {
                "DCGM_FI_PROF_DRAM_ACTIVE or DCGM_FI_PROF_DRAM_UTIL_RATIO or nvidia_gpu_dram_bw_util_percent"
            }
            Self::Memory => {
                "DCGM_FI_DEV_FB_USED * 1048576 or DCGM_FI_DEV_FB_USED_BYTES or nvidia_gpu_memory_used_bytes"
            }
            Self::Power => {
                "DCGM_FI_DEV_POWER_USAGE or DCGM_FI_DEV_BOARD_POWER_WATTS or nvidia_gpu_power_usage_milliwatts / 1000"
            }
        }
    }

    /// For a person.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Holder => "which job holds a GPU",
            Self::Busy => "busy time",
            Self::Units => "compute units",
            Self::Bandwidth => "memory bandwidth",
            Self::Memory => "device memory",
            Self::Power => "power",
        }
    }

    fn range(self) -> std::ops::RangeInclusive<f64> {
        match self {
            Self::Holder => 1.0..=4_294_967_295.0,
            Self::Busy | Self::Units | Self::Bandwidth => 0.0..=1.0,
            // What DCGM writes for "unknown" is more.
            Self::Memory => 0.0..=1e13,
            Self::Power => 0.0..=1e5,
        }
    }
}

/// An answer that is none of Prometheus'.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// It is something else that answers there.
    #[error("what answers there is no Prometheus")]
    NoPrometheus,
    /// It refuses.
    #[error("it refuses the query: '{0}'")]
    Refused(String),
}

#[derive(Deserialize)]
struct Document {
    status: String,
    #[serde(default)]
    error: String,
    data: Option<Matrix>,
    #[serde(default)]
    warnings: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Matrix {
    result_type: String,
    result: Vec<Series>,
}

#[derive(Deserialize)]
struct Series {
    metric: FxHashMap<String, String>,
    values: Vec<(f64, String)>,
}

/// A GPU, by the number of its name, and seconds since 1970.
type Moment = (u32, i64);

/// The labels that name a GPU everywhere, by exporter and version.
const UUID_LABELS: [&str; 3] = ["UUID", "uuid", "gpu_uuid"];
/// The labels that name it on its node.
const NUMBER_LABELS: [&str; 2] = ["gpu", "minor_number"];
/// Labels of a part of a GPU: jobs on parts are not what is replayed.
const PART_LABELS: [&str; 2] = ["GPU_I_ID", "gpu_i_id"];
/// dcgm-exporter can be told by Slurm's Prolog whose a GPU is; jobstats' writes it beside each value since the end of 2025.
const JOB_LABELS: [&str; 2] = ["hpc_job", "jobid"];

/// Puts answers together. Answers of one stretch of time come one after the other, who holds the GPUs first.
#[derive(Debug)]
pub struct Joined<'a> {
    accounting: &'a Accounting,
    /// By number.
    runs: Vec<&'a Job>,
    names: FxHashMap<String, u32>,
    holders: FxHashMap<Moment, u32>,
    /// Whether those who said who holds a GPU gave its UUID.
    holders_have_uuids: bool,
    telemetry: Telemetry,
    values_of: FxHashMap<Question, u64>,
    /// Values of GPUs of which nobody says which job held them then.
    pub unheld: u64,
    /// Values of jobs that did not run there and then, as sacct has it.
    pub elsewhere: u64,
    /// Values out of their range, and series of no node or GPU.
    pub dropped: u64,
    /// Series of parts of GPUs.
    pub parts: u64,
    /// Answers that were said to be of a part of the data only.
    pub partial: u64,
}

/// What a series is of: the node, and the GPU's names as numbers.
struct Of<'s> {
    node: Option<&'s str>,
    uuid: Option<u32>,
    number: Option<u32>,
    /// Whose it says that it is.
    job: Option<u32>,
}

impl<'a> Joined<'a> {
    /// For these jobs; nothing is known yet.
    pub fn new(accounting: &'a Accounting) -> Self {
        let mut runs: Vec<&Job> = accounting.jobs.iter().collect();
        runs.sort_by_key(|job| job.id);
        Self {
            accounting,
            runs,
            names: FxHashMap::default(),
            holders: FxHashMap::default(),
            holders_have_uuids: false,
            telemetry: Telemetry::default(),
            values_of: FxHashMap::default(),
            unheld: 0,
            elsewhere: 0,
            dropped: 0,
            parts: 0,
            partial: 0,
        }
    }

    /// The next stretch of time begins: who held GPUs before is no matter.
    pub fn begin(&mut self) {
        self.holders.clear();
    }

    /// Takes an answer to a question.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub fn take(&mut self, question: Question, answer: &[u8]) -> Result<(), NoAnswer> {
        let document: Document = serde_json::from_slice(answer).map_err(|_| NoAnswer::NoPrometheus)?;
        if document.status != "success" {
            return Err(NoAnswer::Refused(pillion_core::text::quoted(&document.error)));
        }
        let matrix = document.data.filter(|data| data.result_type == "matrix");
        self.partial += u64::from(!document.warnings.is_empty());
        for series in matrix.ok_or(NoAnswer::NoPrometheus)?.result {
            self.take_series(question, &series);
        }
        Ok(())
    }

    fn take_series(&mut self, question: Question, series: &Series) {
        if first(series, &PART_LABELS).is_some() {
            self.parts += 1;
            return;
        }
        let of = self.of(series);
        if of.uuid.or(of.number).is_none() {
            self.dropped += 1;
            return;
        }
        for (at, value) in &series.values {
            let value = value.parse().ok().filter(|value| question.range().contains(value));
            let Some(value) = value else {
                self.dropped += 1;
                continue;
            };
            *self.values_of.entry(question).or_default() += 1;
            #[expect(
                clippy::cast_possible_truncation,
                reason = "seconds since 1970, rounded down to whole ones"
            )]
            let at = *at as i64;
            if question == Question::Holder {
                self.holders_have_uuids |= of.uuid.is_some();
                for gpu in [of.uuid, of.number].into_iter().flatten() {
                    self.holders.insert((gpu, at), whole(value));
                }
            } else {
                self.add(&of, at, sample(question, value));
            }
        }
    }

    fn add(&mut self, of: &Of<'_>, at: i64, sample: Sample) {
        let gpu = if self.holders_have_uuids { of.uuid.or(of.number) } else { of.number };
        let held = || gpu.and_then(|gpu| self.holders.get(&(gpu, at)).copied());
        match of.job.or_else(held) {
            None => self.unheld += 1,
            Some(job) if self.ran(job, of.node, at) => self.telemetry.add(job, sample),
            Some(_) => self.elsewhere += 1,
        }
    }

    /// Whether a job ran then, and on that node. Of a job of several nodes only the first is known.
    fn ran(&self, job: u32, node: Option<&str>, at: i64) -> bool {
        let first = self.runs.partition_point(|run| run.id < job);
        self.runs[first..].iter().take_while(|run| run.id == job).any(|run| {
            let is_then = u64::try_from(at).is_ok_and(|at| (run.started_at..=run.ended_at).contains(&at));
            let known = Some(short(self.accounting.nodes.text(run.node))).filter(|known| !known.is_empty());
            is_then && (run.nodes > 1 || known.zip(node).is_none_or(|(known, node)| known == node))
        })
    }

    fn of<'s>(&mut self, series: &'s Series) -> Of<'s> {
        let node = first(series, &["Hostname", "instance"]).map(short).filter(|node| !node.is_empty());
        let number = first(series, &NUMBER_LABELS).and_then(|number| number.parse::<u32>().ok());
        let job = first(series, &JOB_LABELS).and_then(|job| job.parse::<u32>().ok()).filter(|job| *job > 0);
        let of_node = node.zip(number).map(|(node, number)| format!("{node}/{number}"));
        Of {
            node,
            uuid: first(series, &UUID_LABELS).map(|uuid| self.name(uuid.to_owned())),
            number: of_node.map(|name| self.name(name)),
            job,
        }
    }

    fn name(&mut self, name: String) -> u32 {
        let next = u32::try_from(self.names.len()).expect("a Prometheus knows fewer GPUs than 2^32");
        *self.names.entry(name).or_insert(next)
    }

    /// How many values came as answers to a question.
    pub fn count(&self, question: Question) -> u64 {
        self.values_of.get(&question).copied().unwrap_or(0)
    }

    /// What it comes to.
    pub fn into_telemetry(self) -> Telemetry {
        self.telemetry
    }
}

/// The first of the labels that says something.
fn first<'s>(series: &'s Series, labels: &[&str]) -> Option<&'s str> {
    labels
        .iter()
        .find_map(|label| series.metric.get(*label))
        .map(String::as_str)
        .filter(|text| !text.is_empty())
}

/// `n1` of `n1.cluster.site:9400`.
fn short(name: &str) -> &str {
    name.split([':', '.']).next().unwrap_or_default()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "held in its range before")]
fn whole(value: f64) -> u32 {
    value as u32
}

fn sample(question: Question, value: f64) -> Sample {
    let value = Some(value);
    match question {
        Question::Holder => Sample::default(),
        Question::Busy => Sample { busy: value, ..Sample::default() },
        Question::Units => Sample { sm_active: value, ..Sample::default() },
        Question::Bandwidth => Sample { bandwidth: value, ..Sample::default() },
        Question::Memory => Sample { memory_bytes: value, ..Sample::default() },
        Question::Power => Sample { power: value, ..Sample::default() },
    }
}

/// Stretches of time that are asked about one after the other, so that no answer is large: from, to; points lie `step_seconds`
/// apart, the same in all of them.
pub fn stretches(since: u64, until: u64, step_seconds: u64) -> impl Iterator<Item = (u64, u64)> {
    let long = step_seconds * POINTS_MAX;
    let first = since / step_seconds * step_seconds;
    (first..=until)
        .step_by(usize::try_from(long).unwrap_or(usize::MAX))
        .map(move |from| (from, (from + long - step_seconds).min(until)))
}

/// Points of a series in an answer, at most.
pub const POINTS_MAX: u64 = 144;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::{Usage, UsageSource};

    fn answer(series: &str) -> Vec<u8> {
        format!(r#"{{"status":"success","data":{{"resultType":"matrix","result":[{series}]}}}}"#).into_bytes()
    }

    /// Jobs 7, 8 and 11 as sacct has them: number, first node, first and last second.
    fn accounting() -> Accounting {
        let mut accounting = crate::read::tests::accounting(3);
        let [n1, n9] = ["n1", "n9.site"].map(|name| accounting.nodes.number(name));
        for (job, (id, node, from, to)) in
            accounting.jobs.iter_mut().zip([(7, n1, 100, 599), (8, n1, 600, 1200), (11, n9, 100, 900)])
        {
            (job.id, job.node, job.nodes, job.started_at, job.ended_at) = (id, node, 1, from, to);
        }
        accounting
    }

    #[test]
    fn both_exporters_are_joined_by_node_gpu_and_time() {
        let accounting = accounting();
        let mut joined = Joined::new(&accounting);
        // As recorded of jobstats' exporter and of dcgm-exporter, cut short: job 7 until 600, job 8 from then on. The one calls the GPU 1,
        // the other 0.
        let holders = r#"{"metric":{"__name__":"nvidia_gpu_jobId","cluster":"della","instance":"n1:9445","job":"gpu","minor_number":"1","name":"NVIDIA A100-PCIE-40GB","uuid":"GPU-ff986cfe"},
            "values":[[300,"7"],[600,"8"],[900,"8"],[1500,"8"]]},
            {"metric":{"__name__":"nvidia_gpu_jobId","instance":"n1:9445","minor_number":"0","uuid":"GPU-3348bc6f"},"values":[[300,"4711"]]}"#;
        joined.take(Question::Holder, &answer(holders)).unwrap();
        let busy = r#"{"metric":{"Hostname":"n1.site","gpu":"0","UUID":"GPU-ff986cfe"},"values":[[300,"0.2"],[600,"0.4"],[900,"0.6"],[1200,"0.9"]]},
            {"metric":{"Hostname":"n1","gpu":"3","UUID":"GPU-1"},"values":[[300,"1"]]},{"metric":{"gpu":"1"},"values":[[300,"1"]]},
            {"metric":{"Hostname":"n1","gpu":"0","UUID":"GPU-ff986cfe","GPU_I_ID":"1"},"values":[[300,"1"]]}"#;
        joined.take(Question::Busy, &answer(busy)).unwrap();
        let memory = r#"{"metric":{"instance":"n1:9445","minor_number":"1"},"values":[[300,"1e9"],[600,"2e9"],[900,"3e9"],[900.7,"-1"],[900,"NaN"]]}"#;
        joined.take(Question::Memory, &answer(memory)).unwrap();
        assert_eq!((joined.unheld, joined.dropped, joined.parts, joined.count(Question::Busy)), (2, 3, 1, 5));
        // Of a job that sacct does not have (of another cluster), and of one that had ended.
        let others = r#"{"metric":{"Hostname":"n1","gpu":"1","UUID":"GPU-3348bc6f"},"values":[[300,"300"]]},
            {"metric":{"Hostname":"n1","gpu":"0","UUID":"GPU-ff986cfe"},"values":[[1500,"300"]]}"#;
        joined.take(Question::Power, &answer(others)).unwrap();
        assert_eq!(joined.elsewhere, 2);
        let told = r#"{"metric":{"Hostname":"n9","gpu":"3","hpc_job":"11"},"values":[[300,"0.5"]]},
            {"metric":{"instance":"n8:9445","minor_number":"3","jobid":"11"},"values":[[300,"0.9"]]}"#;
        joined.take(Question::Units, &answer(told)).unwrap();
        assert_eq!(joined.elsewhere, 3, "job 11 ran on another node");
        joined.begin();
        joined
            .take(Question::Power, &answer(r#"{"metric":{"instance":"n1","gpu":"1"},"values":[[300,"99"]]}"#))
            .unwrap();
        assert_eq!(joined.unheld, 3, "who held it in another stretch is no matter");
        let telemetry = joined.into_telemetry();
        let used = telemetry.over(8, Usage::default());
        assert_eq!((used.source, used.memory_bytes_peak), (UsageSource::Telemetry, Some(3_000_000_000)));
        assert!((used.busy_fraction.unwrap() - 0.5).abs() < 1e-6 && used.power_watts.is_none());
        assert_eq!(telemetry.over(7, Usage::default()).memory_bytes_peak, Some(1_000_000_000));
        assert_eq!(telemetry.over(11, Usage::default()).sm_active_fraction, Some(0.5));
    }

    #[test]
    fn what_a_prometheus_was_recorded_to_answer_is_joined() {
        // Of a Prometheus 2.42 that held half an hour of pages as both exporters write them (jobstats' with the label jobid): two GPUs
        // of n1, of which job 7 and then job 8 held one. Made without marks of staleness, so that job 7 is still told of once after
        // its end.
        let recorded: FxHashMap<String, serde_json::Value> =
            serde_json::from_str(include_str!("prometheus.json")).unwrap();
        let mut accounting = crate::read::tests::accounting(2);
        let n1 = accounting.nodes.number("n1");
        let start = 1_790_812_800;
        for (job, (id, from, to)) in accounting.jobs.iter_mut().zip([(7, 0, 899), (8, 900, 1800)]) {
            (job.id, job.node, job.nodes) = (id, n1, 1);
            (job.started_at, job.ended_at) = (start + from, start + to);
        }
        let mut joined = Joined::new(&accounting);
        let names = ["holder", "busy", "units", "bandwidth", "memory", "power"];
        for (question, name) in Question::ALL.into_iter().zip(names) {
            joined.take(question, recorded[name].to_string().as_bytes()).unwrap();
        }
        assert_eq!((joined.dropped, joined.parts, joined.partial), (0, 0, 0));
        assert_eq!((joined.unheld, joined.elsewhere), (56, 3), "the free GPU; job 7 after its end");
        let telemetry = joined.into_telemetry();
        for (job, busy, memory) in [(7, 0.2, 7_340_032_000), (8, 0.6, 8_388_608_000)] {
            let used = telemetry.over(job, Usage::default());
            let near = |value: Option<f32>, wanted: f32| (value.unwrap() - wanted).abs() < 1e-6;
            assert!(near(used.busy_fraction, busy) && near(used.power_watts, 120.0), "{used:?}");
            assert!(near(used.sm_active_fraction, 0.25) && near(used.memory_bandwidth_fraction, 0.125));
            assert_eq!(used.memory_bytes_peak, Some(memory));
        }
    }

    #[test]
    fn without_uuids_a_gpu_is_known_by_its_number_on_its_node() {
        let accounting = accounting();
        let mut joined = Joined::new(&accounting);
        let holders = r#"{"metric":{"instance":"n1:9445","minor_number":"0"},"values":[[300,"7"]]}"#;
        joined.take(Question::Holder, &answer(holders)).unwrap();
        let busy = r#"{"metric":{"Hostname":"n1","gpu":"0","UUID":"GPU-ff986cfe"},"values":[[300,"0.2"]]}"#;
        joined.take(Question::Busy, &answer(busy)).unwrap();
        assert_eq!(joined.into_telemetry().over(7, Usage::default()).busy_fraction, Some(0.2));
    }

    #[test]
    fn what_is_no_answer_is_refused_in_words_and_a_part_is_counted() {
        let accounting = Accounting::default();
        let mut joined = Joined::new(&accounting);
        let mut said =
            |text: &str| joined.take(Question::Units, text.as_bytes()).map_err(|error| error.to_string());
        for other in [
            "",
            "<html>",
            "[]",
            r#"{"status":"success"}"#,
            r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#,
        ] {
            assert_eq!(said(other), Err("what answers there is no Prometheus".to_owned()), "{other}");
        }
        let refused = r#"{"status":"error","errorType":"bad_data","error":"parse error"}"#;
        assert_eq!(said(refused), Err("it refuses the query: 'parse error'".to_owned()));
        let partial = r#"{"status":"success","warnings":["a store is gone"],"data":{"resultType":"matrix","result":[]}}"#;
        assert_eq!((said(partial), joined.partial, joined.count(Question::Units)), (Ok(()), 1, 0));
    }

    #[test]
    fn stretches_cover_all_of_the_time_once() {
        let all: Vec<(u64, u64)> = stretches(1_000_100, 1_100_000, 300).collect();
        assert_eq!((all[0].0, all.last().unwrap().1), (999_900, 1_100_000));
        assert!(all.windows(2).all(|two| two[0].1 + 300 == two[1].0) && all.len() == 3, "{all:?}");
    }
}
