//! Files of runs, a row a run. Everything in them is foreign: a row is believed whole or not at all, and what is dropped is counted by
//! cause. Must not know where the text comes from.
//!
//! The columns tell the layout: that of the [contract](COLUMNS), of the results of `MLPerf`, or of Sia's measurements, the last two as they
//! lie among the public tables of this project.

use crate::history::{History, Measure, Run};
use std::collections::BTreeMap;
use std::io::Read;

/// The columns of a file of runs. Any order, any case; others are passed over.
pub const COLUMNS: [&str; 9] = [
    "workload",
    "gpu_model",
    "nodes",
    "gpus",
    "cpus",
    "elapsed_seconds",
    "progress_per_second",
    "energy_joules",
    "power_watts",
];
/// More GPUs, nodes and CPUs than any job has.
const COUNT_MAX: u32 = 1 << 24;
/// Longer than any name is.
const NAME_BYTES_MAX: usize = 1024;

/// Why nothing was read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file broke off.
    #[error("cannot be read further")]
    Io(#[from] std::io::Error),
    /// Its first line is no header.
    #[error(
        "the first line has no column {0}; needed are workload, gpus, and elapsed_seconds or progress_per_second (docs/scale.md)"
    )]
    Lacks(&'static str),
    /// No row can be used.
    #[error("no row in it can be used: of {rows} rows {dropped} are dropped, {why}")]
    Nothing {
        /// Rows behind the first line.
        rows: u64,
        /// Of these dropped.
        dropped: u64,
        /// Most of them for this.
        why: &'static str,
    },
    /// It has a header only.
    #[error("it has no rows")]
    Empty,
}

/// Why a row is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// It cannot be split, or is no UTF-8.
    NotText,
    /// It has more or fewer cells than the header.
    FieldCount,
    /// It names no workload, or one that is longer than a kilobyte.
    Workload,
    /// A count is none.
    Count,
    /// Its time or progress is none.
    Time,
    /// Its energy or power is none.
    Energy,
}

impl Fault {
    /// For a person, behind a number of rows.
    pub const fn text(self) -> &'static str {
        match self {
            Self::NotText => "not in UTF-8, or with quotes that do not close",
            Self::FieldCount => "with more or fewer cells than the first line",
            Self::Workload => "without a workload, or with a name longer than a kilobyte",
            Self::Count => "with GPUs, nodes or CPUs that are no whole number from 1 to 16777216",
            Self::Time => "without a time or a progress above 0",
            Self::Energy => "with an energy or a power that is no number from 0 on",
        }
    }
}

/// What became of the rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Rows behind the first line.
    pub rows: u64,
    /// Rows that were dropped, by cause.
    pub dropped: BTreeMap<Fault, u64>,
}

/// Where in a row what stands.
#[derive(Debug, Clone, Default)]
struct Layout {
    /// The parts of a workload's name, joined by `/`.
    name: Vec<usize>,
    gpu_model: Option<usize>,
    nodes: Option<usize>,
    gpus: usize,
    cpus: Option<usize>,
    elapsed: Option<usize>,
    /// One of these, in seconds.
    elapsed_unit_seconds: f64,
    progress: Option<usize>,
    energy: Option<usize>,
    power: Option<usize>,
}

impl Layout {
    fn of(header: &csv::StringRecord) -> Result<Self, ReadError> {
        let find = |name: &str| header.iter().position(|cell| cell.trim().eq_ignore_ascii_case(name));
        let layout = Self { nodes: find("nodes"), elapsed_unit_seconds: 1.0, ..Self::default() };
        if let (Some(name), Some(gpus), Some(minutes)) =
            (find("benchmark"), find("accelerators"), find("minutes_olympic_mean"))
        {
            return Ok(Self {
                name: vec![name],
                gpu_model: find("accelerator"),
                gpus,
                elapsed: Some(minutes),
                elapsed_unit_seconds: 60.0,
                ..layout
            });
        }
        if let (Some(cluster), Some(model), Some(gpus), Some(progress)) =
            (find("cluster"), find("model"), find("n_gpus"), find("samples_per_s"))
        {
            let name = [Some(cluster), Some(model), find("local_batch")].into_iter().flatten().collect();
            return Ok(Self { name, gpus, nodes: find("n_nodes"), progress: Some(progress), ..layout });
        }
        let (elapsed, progress) = (find("elapsed_seconds"), find("progress_per_second"));
        if elapsed.is_none() && progress.is_none() {
            return Err(ReadError::Lacks("elapsed_seconds"));
        }
        Ok(Self {
            name: vec![find("workload").ok_or(ReadError::Lacks("workload"))?],
            gpu_model: find("gpu_model"),
            gpus: find("gpus").ok_or(ReadError::Lacks("gpus"))?,
            cpus: find("cpus"),
            elapsed,
            progress,
            energy: find("energy_joules"),
            power: find("power_watts"),
            ..layout
        })
    }
}

/// Reads a file of runs.
///
/// # Errors
/// [`ReadError`].
pub fn read(from: impl Read) -> Result<(History, Tally), ReadError> {
    let mut csv = csv::ReaderBuilder::new().flexible(true).from_reader(from);
    let header = match csv.headers() {
        Ok(header) => header.clone(),
        Err(error) => return Err(broken_off(error).map_or(ReadError::Lacks("gpus"), ReadError::Io)),
    };
    let layout = Layout::of(&header)?;
    let (mut history, mut tally) = (History::default(), Tally::default());
    let mut record = csv::StringRecord::new();
    loop {
        let taken = match csv.read_record(&mut record) {
            Ok(false) => break,
            Ok(true) if record.len() != header.len() => Err(Fault::FieldCount),
            Ok(true) => take(&layout, &record, &mut history),
            Err(error) => match broken_off(error) {
                Some(error) => return Err(error.into()),
                None => Err(Fault::NotText),
            },
        };
        tally.rows += 1;
        if let Err(fault) = taken {
            *tally.dropped.entry(fault).or_default() += 1;
        }
    }
    if !history.workloads.is_empty() {
        return Ok((history, tally));
    }
    let most = tally.dropped.iter().max_by_key(|(_, count)| **count);
    match most {
        Some((fault, dropped)) => {
            Err(ReadError::Nothing { rows: tally.rows, dropped: *dropped, why: fault.text() })
        }
        None => Err(ReadError::Empty),
    }
}

/// The error of the file itself, and not of a row.
fn broken_off(error: csv::Error) -> Option<std::io::Error> {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => Some(error),
        _ => None,
    }
}

fn take(layout: &Layout, row: &csv::StringRecord, history: &mut History) -> Result<(), Fault> {
    let cell = |at: usize| row.get(at).unwrap_or_default().trim();
    let optional = |at: Option<usize>| at.map(cell).filter(|text| !text.is_empty());
    let name = layout.name.iter().map(|at| cell(*at)).collect::<Vec<_>>().join("/");
    if cell(layout.name[0]).is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(Fault::Workload);
    }
    let gpu_model = optional(layout.gpu_model).unwrap_or_default();
    if gpu_model.len() > NAME_BYTES_MAX {
        return Err(Fault::Workload);
    }
    let gpus = count(cell(layout.gpus))?;
    let nodes = optional(layout.nodes).map(count).transpose()?;
    let cpus = optional(layout.cpus).map(count).transpose()?;
    let elapsed = optional(layout.elapsed).map(positive).transpose()?;
    let elapsed = elapsed.map(|elapsed| elapsed * layout.elapsed_unit_seconds);
    let progress = optional(layout.progress).map(positive).transpose()?;
    let energy = optional(layout.energy).map(amount).transpose()?;
    let power = optional(layout.power).map(amount).transpose()?;
    let power_watts = power.or_else(|| Some(energy? / elapsed?));
    // Progress tells of the work itself; elapsed time beside it says what an energy is a power of.
    let (measure, seconds) = match (progress, elapsed) {
        (Some(progress), _) => (Measure::Progress, 1.0 / progress),
        (None, Some(elapsed)) => (Measure::Elapsed, elapsed),
        (None, None) => return Err(Fault::Time),
    };
    history.add(&name, gpu_model, measure, Run { nodes, gpus, cpus, seconds, power_watts });
    Ok(())
}

fn count(text: &str) -> Result<u32, Fault> {
    text.parse().ok().filter(|count| (1..=COUNT_MAX).contains(count)).ok_or(Fault::Count)
}

/// Seconds and progress a second, within what any program does.
fn positive(text: &str) -> Result<f64, Fault> {
    text.parse().ok().filter(|value: &f64| (1e-12..=1e12).contains(value)).ok_or(Fault::Time)
}

fn amount(text: &str) -> Result<f64, Fault> {
    text.parse().ok().filter(|value: &f64| (0.0..=1e15).contains(value)).ok_or(Fault::Energy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_contract_is_read_by_name_and_a_bad_row_costs_itself() {
        let text = "gpus,Workload,elapsed_seconds,energy_joules,note\n\
                    1,bert,100,20000,x\n2,bert,60,,\n0,bert,50,,\n2,bert,-1,,\n2,,60,,\n2,bert,60,-4,\n2,bert\n\n";
        let (history, tally) = read(text.as_bytes()).unwrap();
        let [bert] = history.workloads.as_slice() else { panic!("{history:?}") };
        assert_eq!(bert.runs.len(), 2);
        assert_eq!((bert.runs[0].power_watts, bert.runs[1].power_watts), (Some(200.0), None));
        let dropped: Vec<_> = tally.dropped.iter().map(|(fault, count)| (*fault, *count)).collect();
        let expected = [
            (Fault::FieldCount, 1),
            (Fault::Workload, 1),
            (Fault::Count, 1),
            (Fault::Time, 1),
            (Fault::Energy, 1),
        ];
        assert_eq!((tally.rows, dropped.as_slice()), (7, expected.as_slice()));
    }

    #[test]
    fn progress_goes_before_elapsed_time_and_the_two_are_never_mixed() {
        let text = "workload,gpus,elapsed_seconds,progress_per_second,energy_joules\n\
                    a,1,50,4,1000\na,2,25,,\n";
        let (history, _) = read(text.as_bytes()).unwrap();
        let found: Vec<_> = history.workloads.iter().map(|it| (it.measure, it.runs[0].seconds)).collect();
        assert_eq!(found, [(Measure::Progress, 0.25), (Measure::Elapsed, 25.0)]);
        assert_eq!(history.workloads[0].runs[0].power_watts, Some(20.0));
    }

    #[test]
    fn the_public_tables_are_known_by_their_columns() {
        let mlperf = "mlperf_version,benchmark,accelerator,nodes,accelerators,minutes_olympic_mean\n4.1,bert,H100,1,8,5.5\n";
        let (history, _) = read(mlperf.as_bytes()).unwrap();
        let bert = &history.workloads[0];
        assert_eq!((bert.name.as_str(), bert.gpu_model.as_str()), ("bert", "H100"));
        assert_eq!((bert.runs[0].nodes, bert.runs[0].gpus, bert.runs[0].seconds), (Some(1), 8, 330.0));
        let sia = "cluster,model,n_nodes,n_gpus,local_batch,step_s,samples_per_s\naws,bert,2,4,8,1.0,32\n";
        let (history, _) = read(sia.as_bytes()).unwrap();
        assert_eq!(history.workloads[0].name, "aws/bert/8");
        assert_eq!(
            (history.workloads[0].measure, history.workloads[0].runs[0].seconds),
            (Measure::Progress, 1.0 / 32.0)
        );
    }

    #[test]
    fn what_is_no_file_of_runs_is_refused_with_what_is_needed() {
        for (text, said) in [
            ("", "no column elapsed_seconds"),
            ("workload,gpus\na,1\n", "no column elapsed_seconds"),
            ("gpus,elapsed_seconds\n1,1\n", "no column workload"),
            ("workload,elapsed_seconds\na,1\n", "no column gpus"),
            ("workload,gpus,elapsed_seconds\n", "it has no rows"),
            ("workload,gpus,elapsed_seconds\na,x,1\n", "of 1 rows 1 are dropped, with GPUs, nodes or CPUs"),
        ] {
            let error = read(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(said), "{text:?}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(cells in prop::collection::vec("[ -~\n\"é]{0,12}", 0..40)) {
            let text = format!("workload,gpus,elapsed_seconds,power_watts\n{}", cells.join(","));
            let _ = read(text.as_bytes());
            let _ = read(cells.join(",").as_bytes());
        }
    }
}
