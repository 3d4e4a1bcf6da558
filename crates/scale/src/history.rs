//! Runs by workload. A workload does not tell by how many GPUs it ran; that is what its runs are compared by.

use pillion_replay::{Accounting, Ended};
use rustc_hash::FxHashMap;
use serde::Serialize;

/// What a time was made of. Times of two kinds are never compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// How long the run took from its start to its end, whatever it did in it.
    Elapsed,
    /// One over the progress that it made a second: how long one unit of progress takes. More GPUs may need more of them for the
    /// same result.
    Progress,
}

impl Measure {
    /// For a person, behind "times are".
    pub const fn text(self) -> &'static str {
        match self {
            Self::Elapsed => "elapsed times of whole runs",
            Self::Progress => {
                "seconds for a unit of progress, which is not time to a result: larger batches may need more units"
            }
        }
    }
}

/// One run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Run {
    /// Nodes that it had, where that is known.
    pub nodes: Option<u32>,
    /// GPUs on all of its nodes, from 1 on.
    pub gpus: u32,
    /// CPUs on all of its nodes, where that is known.
    pub cpus: Option<u32>,
    /// By [`Measure`]: how long it took, or how long one unit of progress takes; above 0.
    pub seconds: f64,
    /// Mean power of all of its GPUs together, in watts, where it was measured.
    pub power_watts: Option<f64>,
}

impl Run {
    /// One that took so long from its start to its end, with the energy of all of its GPUs where that was measured.
    pub fn metered(nodes: u32, gpus: u32, elapsed_seconds: f64, energy_joules: Option<f64>) -> Self {
        Self {
            nodes: Some(nodes),
            gpus,
            cpus: None,
            seconds: elapsed_seconds,
            power_watts: energy_joules.map(|joules| joules / elapsed_seconds),
        }
    }
}

/// Runs of one workload on one model of GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// What people know it by.
    pub name: String,
    /// The model of its GPUs; empty where that is not known.
    pub gpu_model: String,
    /// What its times are.
    pub measure: Measure,
    /// In the order of the file.
    pub runs: Vec<Run>,
}

impl Workload {
    /// What all of its runs held, in GPU-hours; of progress it is not known how long they took.
    pub fn gpu_hours(&self) -> Option<f64> {
        let seconds = self.runs.iter().map(|run| f64::from(run.gpus) * run.seconds);
        (self.measure == Measure::Elapsed).then(|| seconds.sum::<f64>() / 3600.0)
    }
}

/// All workloads of a file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    /// In the order in which they came.
    pub workloads: Vec<Workload>,
    places: FxHashMap<(String, String, Measure), usize>,
}

impl History {
    /// Adds a run of a workload on a model of GPU.
    pub fn add(&mut self, name: &str, gpu_model: &str, measure: Measure, run: Run) {
        let key = (name.to_owned(), gpu_model.to_owned(), measure);
        let next = self.workloads.len();
        let at = *self.places.entry(key).or_insert(next);
        if at == next {
            self.workloads.push(Workload {
                name: name.to_owned(),
                gpu_model: gpu_model.to_owned(),
                measure,
                runs: Vec::new(),
            });
        }
        self.workloads[at].runs.push(run);
    }

    /// The workloads that are called so: by their whole name, else those whose name contains the text.
    pub fn named(&self, text: &str) -> Vec<&Workload> {
        let exact: Vec<&Workload> = self.workloads.iter().filter(|workload| workload.name == text).collect();
        if !exact.is_empty() {
            return exact;
        }
        self.workloads.iter().filter(|workload| workload.name.contains(text)).collect()
    }
}

/// The runs of an accounting that came to their end by themselves. One that was cancelled, failed or ran into its limit took the time
/// that somebody gave it.
///
/// A workload is a user's jobs of one name whose command lines are the same but for numbers, which the number of GPUs is one of; a
/// number in the *name* of a job that is its own number of GPUs counts as none, too (`bert-4gpu`, `bert_8gpus`).
pub fn of_accounting(accounting: &Accounting) -> History {
    let mut history = History::default();
    // Of each workload and count the number in the history: a name is made once and not a million times.
    let mut known: FxHashMap<(u32, u32, u32), usize> = FxHashMap::default();
    let mut labels = Labels::default();
    for job in accounting.jobs.iter().filter(|job| job.ended == Ended::Completed) {
        let model = job.gpu_type_given.or(job.gpu_type).unwrap_or(u32::MAX);
        let run = Run {
            nodes: Some(job.nodes),
            gpus: job.gpus,
            cpus: Some(job.cpus).filter(|cpus| *cpus > 0),
            seconds: seconds(job.seconds()),
            power_watts: job.usage.power_watts.map(|watts| f64::from(watts) * f64::from(job.gpus)),
        };
        let key = (job.workload, model, job.gpus);
        if let Some(at) = known.get(&key) {
            history.workloads[*at].runs.push(run);
            continue;
        }
        let Some(source) = accounting.workloads.get(job.workload as usize) else { continue };
        let name = name_without_count(&source.name, job.gpus);
        let label = labels.of(accounting.users.text(source.user), &name, source.command);
        history.add(&label, accounting.gpu_types.text(model), Measure::Elapsed, run);
        known.insert(
            key,
            history.places[&(label, accounting.gpu_types.text(model).to_owned(), Measure::Elapsed)],
        );
    }
    history
}

/// `user/name`; of several that differ by their command lines alone the second is `user/name:2`.
#[derive(Default)]
struct Labels {
    commands: FxHashMap<String, Vec<u64>>,
}

impl Labels {
    fn of(&mut self, user: &str, name: &str, command: u64) -> String {
        let label = format!("{user}/{name}");
        let known = self.commands.entry(label.clone()).or_default();
        let at = known.iter().position(|other| *other == command).unwrap_or_else(|| {
            known.push(command);
            known.len() - 1
        });
        if at == 0 { label } else { format!("{label}:{}", at + 1) }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a run is far shorter than 2^53 seconds")]
fn seconds(whole: u64) -> f64 {
    whole as f64
}

/// `bert-4gpu` of a job of 4 GPUs as `bert-Ngpu`: the number is its count where `gpu` or a `g` stands right behind it, or `gpu` before.
fn name_without_count(name: &str, gpus: u32) -> String {
    let count = gpus.to_string();
    let mut text = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find(|letter: char| letter.is_ascii_digit()) {
        let (before, from) = rest.split_at(at);
        let length = from.bytes().take_while(u8::is_ascii_digit).count();
        let (digits, after) = from.split_at(length);
        text.push_str(before);
        let is_count = digits == count && (is_of_gpus(after) || ends_with_gpu(&text));
        text.push_str(if is_count { "N" } else { digits });
        rest = after;
    }
    text + rest
}

fn is_of_gpus(after: &str) -> bool {
    let after = after.trim_start_matches(['-', '_', 'x']).to_ascii_lowercase();
    let word: &str = after.split(|letter: char| !letter.is_ascii_alphabetic()).next().unwrap_or_default();
    matches!(word, "g" | "gpu" | "gpus")
}

fn ends_with_gpu(before: &str) -> bool {
    let before = before.trim_end_matches(['-', '_', '=', ':']).to_ascii_lowercase();
    before.ends_with("gpu") || before.ends_with("gpus")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_gpus_in_a_name_tells_no_workloads_apart_and_other_numbers_do() {
        for (name, gpus, expected) in [
            ("bert-4gpu", 4, "bert-Ngpu"),
            ("bert_8_GPUs", 8, "bert_N_GPUs"),
            ("gpu=2", 2, "gpu=N"),
            ("resnet50-4g", 4, "resnet50-Ng"),
            ("bert-4gpu", 2, "bert-4gpu"),
            ("llama-4-goes", 4, "llama-4-goes"),
            ("v2", 2, "v2"),
        ] {
            assert_eq!(name_without_count(name, gpus), expected, "{name} of {gpus}");
        }
    }

    #[test]
    fn a_workload_is_found_by_its_name_and_else_by_a_part_of_it() {
        let run = Run { nodes: None, gpus: 1, cpus: None, seconds: 1.0, power_watts: None };
        let mut history = History::default();
        for name in ["alice/bert", "alice/bert-large", "bob/unet"] {
            history.add(name, "a100", Measure::Elapsed, run);
            history.add(name, "a100", Measure::Elapsed, run);
        }
        assert_eq!(history.workloads.iter().map(|it| it.runs.len()).collect::<Vec<_>>(), [2, 2, 2]);
        let names = |text: &str| history.named(text).iter().map(|it| it.name.clone()).collect::<Vec<_>>();
        assert_eq!(names("alice/bert"), ["alice/bert"]);
        assert_eq!(names("bert"), ["alice/bert", "alice/bert-large"]);
        assert!(names("resnet").is_empty());
    }
}
