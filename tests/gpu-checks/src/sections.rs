//! The order of the sections, the time that there is for them, and the files, which are written anew after each section: a
//! run that is ended leaves what it had.

use crate::bench::Bench;
use crate::forms::{self, Transcript};
use crate::kernels::Workload;
use crate::ours::Ours;
use crate::programs::now;
use crate::report::{
    Findings, Measured, Outcome, Section, Verdict, file_name, render, skipped, table, verdict, without_names,
};
use crate::results::Results;
use crate::smi::Smi;
use crate::tenant::{Client, Tenant};
use crate::{caps, early, energy, kills, life, memory, overhead, own, pairs, values};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How a report is made.
#[derive(Debug, clap::Args)]
pub struct ReportArguments {
    /// Where the report goes
    #[arg(long)]
    pub out: PathBuf,
    /// Where pipes and logs go meanwhile; a short path
    #[arg(long)]
    pub work: PathBuf,
    /// Today, for the report
    #[arg(long)]
    pub date: String,
    /// The command that is to stand in the report
    #[arg(long)]
    pub command: String,
    /// The control program of MPS
    #[arg(long, default_value = "/usr/bin/nvidia-cuda-mps-control")]
    pub control: PathBuf,
    /// The NVML to load, if not the driver's
    #[arg(long)]
    pub library: Option<PathBuf>,
    /// How often each way of ending a client is tried
    #[arg(long, default_value_t = 5)]
    pub kills: usize,
    /// No section is begun after so many seconds
    #[arg(long, default_value_t = 470.0)]
    pub seconds: f64,
}

/// Why there is no report.
#[derive(Debug)]
pub enum Failure {
    /// There is nothing to be measured here.
    Skipped(String),
    /// It cannot be written.
    Broken(String),
}

/// What sections work with, and what they leave for the files.
pub(crate) struct Parts {
    pub(crate) smi: Smi,
    ours: Result<Ours, String>,
    bench: Bench,
    transcript: Transcript,
    pub(crate) results: Results,
}

impl Parts {
    /// For the first GPU.
    pub(crate) fn open(arguments: &ReportArguments) -> Result<Self, Failure> {
        let uuids = Smi::uuids().map_err(Failure::Skipped)?;
        let uuid =
            uuids.into_iter().next().ok_or_else(|| Failure::Skipped("nvidia-smi names no GPU".to_owned()))?;
        let mut parts = Self {
            ours: Ours::open(arguments.library.clone(), &uuid),
            bench: Bench::new(arguments.control.clone(), arguments.work.clone(), &uuid),
            smi: Smi { uuid },
            transcript: Transcript::default(),
            results: Results::default(),
        };
        if let Ok(ours) = &parts.ours {
            parts.results.device_model.clone_from(&ours.device.model);
        }
        Ok(parts)
    }

    /// Our backend beside the rest, where it works.
    fn split(&mut self) -> Result<(&mut Ours, &mut Bench, &Smi, &mut Results), String> {
        let ours = self.ours.as_mut().map_err(|reason| reason.clone())?;
        Ok((ours, &mut self.bench, &self.smi, &mut self.results))
    }
}

/// Runs everything on the first GPU.
///
/// # Errors
/// [`Failure`]: there is no GPU, or no file can be written.
pub fn report(arguments: &ReportArguments) -> Result<Verdict, Failure> {
    let mut parts = Parts::open(arguments)?;
    let before = parts.smi.settings();
    let mut run = Run::begin(arguments, &parts.smi);
    sections(&mut run, &mut parts, arguments.kills)?;
    let verdict = verdict(&run.sections);
    finish(run, &mut parts, &before)?;
    Ok(verdict)
}

/// Runs programs of the site's own on the first GPU, alone and together.
///
/// # Errors
/// [`Failure`]: there is no GPU, no MPS, or no file can be read or written.
pub fn report_own(arguments: &ReportArguments, programs: &Path) -> Result<Verdict, Failure> {
    with_programs(arguments, programs, "-programs", |run, parts, session| {
        for (caps, title) in OWN_SPLITS {
            pairs_of(run, parts, session, caps, title)?;
        }
        Ok(())
    })
}

/// Runs programs of the site's own on the first GPU, more than two at a time: what their pairs say of them is measured first.
///
/// # Errors
/// As of [`report_own`].
pub fn report_groups(arguments: &ReportArguments, programs: &Path) -> Result<Verdict, Failure> {
    with_programs(arguments, programs, "-groups", |run, parts, session| {
        let (caps, title) = OWN_SPLITS[0];
        pairs_of(run, parts, session, caps, title)?;
        for (size, title) in [(3, "Three at a time"), (4, "Four at a time")] {
            run.section(parts, title, Ok(()), |parts, has_time| {
                session.different(&mut parts.results, size, has_time)
            })?;
        }
        run.section(parts, "Copies", Ok(()), |parts, has_time| {
            session.copies(&mut parts.bench, &mut parts.results, has_time)
        })
    })
}

fn pairs_of(
    run: &mut Run<'_>,
    parts: &mut Parts,
    session: &mut own::Session,
    caps: [u32; 2],
    title: &str,
) -> Result<(), Failure> {
    run.section(parts, title, Ok(()), |parts, has_time| {
        let (ours, bench, _, results) = parts.split()?;
        session.together(bench, ours, results, caps, has_time)
    })
}

/// Starts the programs, measures each alone, and then what `sections` does with them.
fn with_programs<S>(
    arguments: &ReportArguments,
    programs: &Path,
    suffix: &str,
    sections: S,
) -> Result<Verdict, Failure>
where
    S: FnOnce(&mut Run<'_>, &mut Parts, &mut own::Session) -> Result<(), Failure>,
{
    let named = own::read(programs).map_err(Failure::Broken)?;
    let mut parts = Parts::open(arguments)?;
    mps_is_possible(&parts.smi, &arguments.control).map_err(Failure::Skipped)?;
    let before = parts.smi.settings();
    let mut run = Run::begin(arguments, &parts.smi);
    run.file_name.push_str(suffix);
    let mut session = own::Session::start(&mut parts.bench, named).map_err(Failure::Broken)?;
    run.section(&mut parts, "Each alone", Ok(()), |parts, _| {
        let (ours, _, _, results) = parts.split()?;
        session.alone(ours, results)
    })?;
    sections(&mut run, &mut parts, &mut session)?;
    drop(session);
    parts.bench.stop().map_err(Failure::Broken)?;
    let verdict = verdict(&run.sections);
    finish(run, &mut parts, &before)?;
    Ok(verdict)
}

/// The splits of caps for programs of the site's own; under the last, each two both ways round.
const OWN_SPLITS: [([u32; 2], &str); 3] =
    [([100, 100], "Pairs without caps"), ([50, 50], "Pairs at 50 and 50"), ([30, 70], "Pairs at 30 and 70")];

/// Whether the GPU's settings are as they were, and what was skipped.
pub(crate) fn finish(mut run: Run<'_>, parts: &mut Parts, before: &[(&str, String)]) -> Result<(), Failure> {
    run.begin_last();
    run.section(parts, "Settings", Ok(()), |parts, _| Ok(unchanged(before, &parts.smi.settings())))?;
    for reason in skipped(&run.sections) {
        println!("skipped: {reason}");
    }
    Ok(())
}

fn sections(run: &mut Run<'_>, parts: &mut Parts, kills: usize) -> Result<(), Failure> {
    run.section(parts, "CUDA", Ok(()), |parts, _| cuda(&parts.bench.without_mps()))?;
    let has_cuda = run.last_is_done();
    let possible = if has_cuda { Ok(()) } else { Err("CUDA does not work, as told above".to_owned()) };
    run.section(parts, "Readings", possible.clone(), |parts, _| {
        let (ours, bench, smi, _) = parts.split()?;
        values::measure(ours, smi, &bench.without_mps())
    })?;
    run.section(parts, "Energy", possible.clone(), |parts, _| {
        let (ours, bench, ..) = parts.split()?;
        energy::measure(ours, &bench.without_mps())
    })?;
    run.section(parts, "Overhead of the agent's looks", possible.clone(), |parts, _| {
        let (ours, bench, ..) = parts.split()?;
        overhead::measure(ours, &bench.without_mps())
    })?;
    let mps = mps_is_possible(&parts.smi, &run.arguments.control);
    // What it prints while nobody is its client is there without CUDA, too.
    run.section(parts, "MPS: printed forms", mps.clone(), |parts, _| {
        forms::record(&mut parts.bench, &mut parts.transcript)
    })?;
    with_mps(run, parts, &mps.and(possible), kills)
}

/// Whether a program runs at all, and what the GPU shows it.
fn cuda(environment: &[(String, String)]) -> Measured {
    let mut tenant = Tenant::start(&Client::new(Workload::Launch, environment.to_vec()))?;
    tenant.run_on(Duration::from_millis(300))?;
    let facts = tenant.facts.clone();
    tenant.leave();
    let show =
        |value: Option<f64>| value.map_or_else(|| "not known".to_owned(), |value| format!("{value:.3e}"));
    let rows = [
        ("device", facts.device),
        ("multiprocessors", facts.multiprocessors.to_string()),
        ("FP32 operations per clock", show(facts.operations_per_clock)),
        ("bytes a second of its memory, at most", show(facts.memory_bytes_per_second_max)),
    ];
    let rows = rows.map(|(what, value)| vec![what.to_owned(), value]);
    Ok((table(&["of the GPU, as a program sees it", "value"], rows), 0).into())
}

/// Those that answer a question first; those that gather data take the time that is left.
fn with_mps(
    run: &mut Run<'_>,
    parts: &mut Parts,
    mps: &Result<(), String>,
    kills: usize,
) -> Result<(), Failure> {
    let work = &run.arguments.work;
    run.section(parts, "MPS: start, drain and end", mps.clone(), |parts, _| life::drains(&mut parts.bench))?;
    run.section(parts, "MPS: other users", mps.clone(), |parts, _| {
        life::other_users(&mut parts.bench, work)
    })?;
    run.section(parts, "MPS: memory by job", mps.clone(), |parts, _| {
        let (ours, bench, smi, _) = parts.split()?;
        memory::measure(bench, ours, smi, work)
    })?;
    run.section(parts, "MPS: each workload alone, under caps", mps.clone(), |parts, has_time| {
        let (ours, bench, _, results) = parts.split()?;
        caps::alone(bench, ours, results, has_time)
    })?;
    run.section(parts, "MPS: deaths of server and daemon", mps.clone(), |parts, _| {
        kills::deaths(&mut parts.bench)
    })?;
    run.section(parts, "MPS: a client ends", mps.clone(), |parts, has_time| {
        kills::neighbours(&mut parts.bench, kills, has_time)
    })?;
    run.section(parts, "MPS: how early a speed can be read", mps.clone(), |parts, has_time| {
        early::measure(&mut parts.bench, has_time)
    })?;
    let titles = ["without caps", "at 50 and 50", "at 30 and 70", "at 70 and 30"];
    for (caps, title) in pairs::SPLITS.into_iter().zip(titles) {
        let title = format!("MPS: pairs {title}");
        run.section(parts, &title, mps.clone(), |parts, has_time| {
            let (ours, bench, _, results) = parts.split()?;
            pairs::together(bench, ours, results, caps, has_time)
        })?;
    }
    Ok(())
}

/// Whether MPS can be tried at all; a sentence if not.
fn mps_is_possible(smi: &Smi, control: &Path) -> Result<(), String> {
    if !control.exists() {
        return Err("there is no nvidia-cuda-mps-control, neither on PATH nor where drivers lie".to_owned());
    }
    if !rustix::process::geteuid().is_root() {
        return Err("only root sets up MPS as the agent does".to_owned());
    }
    if smi.text("mig.mode.current").is_some_and(|mode| mode == "Enabled") {
        return Err("MIG is on, and is left as it is".to_owned());
    }
    match smi.text("compute_mode") {
        Some(mode) if mode == "Prohibited" => Err("the compute mode prohibits programs".to_owned()),
        _ => Ok(()),
    }
}

/// A run: its sections so far, and where they are written.
pub(crate) struct Run<'a> {
    arguments: &'a ReportArguments,
    begun: Instant,
    is_last: bool,
    facts: Vec<(&'static str, String)>,
    file_name: String,
    names: Vec<String>,
    pub(crate) sections: Vec<Section>,
}

impl<'a> Run<'a> {
    pub(crate) fn begin(arguments: &'a ReportArguments, smi: &Smi) -> Self {
        let text = |field: &str| smi.text(field).unwrap_or_else(|| "not told".to_owned());
        let model = text("name");
        let facts = vec![
            ("date", arguments.date.clone()),
            ("command", arguments.command.clone()),
            ("GPU", model.clone()),
            ("driver", text("driver_version")),
            ("MIG mode", text("mig.mode.current")),
            ("compute mode", text("compute_mode")),
            ("compute capability", text("compute_cap")),
        ];
        for (what, value) in &facts {
            println!("{what}: {value}");
        }
        let (file_name, names) = (file_name(&arguments.date, &model), names(arguments));
        Self { arguments, begun: now(), is_last: false, facts, file_name, names, sections: Vec::new() }
    }

    fn last_is_done(&self) -> bool {
        self.sections.last().is_some_and(|section| matches!(section.outcome, Outcome::Done(_)))
    }

    /// What comes now is done whether there is time or not.
    pub(crate) fn begin_last(&mut self) {
        self.is_last = true;
    }

    /// Does one section, prints it and writes all files anew. The section may ask whether there still is time.
    pub(crate) fn section(
        &mut self,
        parts: &mut Parts,
        title: &str,
        possible: Result<(), String>,
        section: impl FnOnce(&mut Parts, &dyn Fn() -> bool) -> Measured,
    ) -> Result<(), Failure> {
        let (begun, most) = (self.begun, Duration::from_secs_f64(self.arguments.seconds));
        let has_time = move || begun.elapsed() < most;
        let possible = possible.and_then(|()| {
            if has_time() || self.is_last { Ok(()) } else { Err("no time was left".to_owned()) }
        });
        let section = Section::of(title, possible, || section(parts, &has_time));
        let said = match &section.outcome {
            Outcome::Done(Findings { apart: 0, .. }) => "done",
            Outcome::Done(_) => "APART",
            Outcome::Skipped(_) => "skipped",
            Outcome::Failed(_) => "FAILED",
        };
        let text = without_names(&section.render(), &self.names);
        println!("{:4} s  {said}  {}", begun.elapsed().as_secs(), text.trim_start_matches(['\n', '#', ' ']));
        self.sections.push(section);
        self.write(parts).map_err(Failure::Broken)
    }

    fn write(&self, parts: &Parts) -> Result<(), String> {
        let files = [
            (".md", without_names(&render(&self.facts, &self.sections), &self.names)),
            ("-mps-forms.txt", without_names(parts.transcript.text(), &self.names)),
            // Names of workloads alone: a host may be called like one.
            ("-SOLO.csv", parts.results.solo_csv()),
            ("-PAIRS.csv", parts.results.pairs_csv()),
            ("-GROUPS.csv", parts.results.groups_csv()),
        ];
        for (end, text) in files.into_iter().filter(|(_, text)| !text.is_empty()) {
            let path = self.arguments.out.join(format!("{}{end}", self.file_name));
            std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(())
    }
}

/// The GPU's settings before and after.
fn unchanged(before: &[(&str, String)], after: &[(&str, String)]) -> Findings {
    let pairs: Vec<_> = before.iter().zip(after).collect();
    let rows = pairs.iter().map(|((what, before), (_, after))| {
        vec![
            (*what).to_owned(),
            before.clone(),
            if before == after { "the same" } else { "CHANGED" }.to_owned(),
        ]
    });
    let changed = pairs.iter().filter(|(before, after)| before.1 != after.1).count();
    (table(&["setting", "before", "after"], rows), changed).into()
}

/// What must not stand in a report.
fn names(arguments: &ReportArguments) -> Vec<String> {
    let system = rustix::system::uname();
    let host = system.nodename().to_string_lossy().into_owned();
    let paths = [&arguments.work, &arguments.out].map(|path| path.display().to_string());
    [host].into_iter().chain(paths).collect()
}
