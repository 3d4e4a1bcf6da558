//! Programs of the site's own, alone under caps and two at a time: `tests/gpu programs FILE`. Each is started once for a split
//! and rests while others are measured, so that what a framework takes to start is not paid for every pair.
//!
//! A program says `ready` when it is warm; `go` and `pause` on its standard input let it run and rest; while it runs it says
//! `progress SECONDS ITERATIONS` some ten times a second, both since it was ready. It ends with its standard input.

use crate::bench::{Bench, Limits};
use crate::ours::Ours;
use crate::pairs;
use crate::programs::{command, end, until, with_cuda_variables};
use crate::report::{Findings, Measured, table};
use crate::results::{Results, Together};
use pillion_core::metric::Metric;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// How long a program may take to be warm: with it others start, and a framework compiles.
const READY_DEADLINE: Duration = Duration::from_mins(2);
const WARM_UP: Duration = Duration::from_millis(300);
const RUN: Duration = Duration::from_millis(1700);
/// A program that has said less in this time is given as much again, and so on, so often at most: one that works long at a time
/// and has little of the device left says something once in a second or two.
const LINES_MIN: usize = 4;
const RUNS_MAX: usize = 4;

/// One line of the file of programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// As it is called in all tables.
    pub name: String,
    /// What kind of workload it is.
    pub family: String,
    /// The program and its arguments.
    pub words: Vec<String>,
}

/// Reads lines of `NAME FAMILY COMMAND..`; `#` begins a remark.
///
/// # Errors
/// A sentence that names the line.
pub fn read(path: &Path) -> Result<Vec<Named>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    parse(&text).map_err(|reason| format!("{}: {reason}", path.display()))
}

fn parse(text: &str) -> Result<Vec<Named>, String> {
    let mut programs: Vec<Named> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        match words.as_slice() {
            [] => {}
            [first, ..] if first.starts_with('#') => {}
            [name, family, words @ ..] if !words.is_empty() => {
                let is_plain = |word: &String| !word.contains([',', '"']);
                if !(is_plain(name) && is_plain(family)) {
                    return Err(format!("line {}: no comma or quote may stand in a name", index + 1));
                }
                if programs.iter().any(|program| &program.name == name) {
                    return Err(format!("line {}: {name} is named twice", index + 1));
                }
                let (name, family, words) = (name.clone(), family.clone(), words.to_vec());
                programs.push(Named { name, family, words });
            }
            _ => {
                return Err(format!(
                    "line {}: it is to say NAME FAMILY COMMAND, with blanks between",
                    index + 1
                ));
            }
        }
    }
    if programs.is_empty() { Err("it names no program".to_owned()) } else { Ok(programs) }
}

/// A program that runs or rests; ended with this value.
pub(crate) struct Program {
    process: Child,
    input: Option<ChildStdin>,
    lines: Receiver<Said>,
}

/// What a program says.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Said {
    Ready,
    Progress(Progress),
}

/// How far a program is since it was ready.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Progress {
    seconds: f64,
    iterations: f64,
}

/// What a line says; `None` where it is none of ours.
fn heard(line: &str) -> Option<Said> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        ["ready"] => Some(Said::Ready),
        ["progress", seconds, iterations] => {
            let (seconds, iterations) = (seconds.parse().ok()?, iterations.parse().ok()?);
            Some(Said::Progress(Progress { seconds, iterations }))
        }
        _ => None,
    }
}

impl Program {
    pub(crate) fn start(bench: &Bench, named: &Named, cap: u32) -> Result<Self, String> {
        let (name, arguments) = named.words.split_first().ok_or("a program without a name")?;
        let mut command = command(name);
        command.args(arguments);
        with_cuda_variables(&mut command, &bench.variables(Limits::cap(cap)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut process = command.spawn().map_err(|error| format!("{}: {error}", named.name))?;
        let input = process.stdin.take();
        let output = process.stdout.take().ok_or("a program without output")?;
        let (told, lines) = channel();
        std::thread::spawn(move || {
            for said in BufReader::new(output).lines().map_while(Result::ok).filter_map(|line| heard(&line)) {
                if told.send(said).is_err() {
                    return;
                }
            }
        });
        Ok(Self { process, input, lines })
    }

    pub(crate) fn wait_until_ready(&self, name: &str) -> Result<(), String> {
        self.lines
            .recv_timeout(READY_DEADLINE)
            .map(drop)
            .map_err(|_| format!("{name} is not ready in time, or ended"))
    }

    fn say(&mut self, word: &str) -> Result<(), String> {
        let input = self.input.as_mut().ok_or("it has no input")?;
        writeln!(input, "{word}").map_err(|error| format!("a program does not listen: {error}"))
    }

    /// What it has said of its progress since it was last asked.
    fn progress(&self) -> impl Iterator<Item = Progress> {
        self.lines.try_iter().filter_map(|said| match said {
            Said::Progress(progress) => Some(progress),
            Said::Ready => None,
        })
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.input.take());
        let process = &mut self.process;
        until(Duration::from_secs(3), || !matches!(process.try_wait(), Ok(None)));
        end(process);
    }
}

/// The speed between the first and the last of these.
fn speed(said: &[Progress]) -> Result<f64, String> {
    match (said.first(), said.last()) {
        (Some(first), Some(last)) if last.seconds > first.seconds => {
            Ok((last.iterations - first.iterations) / (last.seconds - first.seconds))
        }
        _ => Err("a program got nowhere".to_owned()),
    }
}

/// The speeds of programs that run at the same time; afterwards they rest.
pub(crate) fn speeds(running: &mut [&mut Program]) -> Result<Vec<f64>, String> {
    for program in running.iter_mut() {
        program.say("go")?;
    }
    std::thread::sleep(WARM_UP);
    for program in running.iter() {
        program.lines.try_iter().for_each(drop);
    }
    let mut said: Vec<Vec<Progress>> = vec![Vec::new(); running.len()];
    for _ in 0..RUNS_MAX {
        std::thread::sleep(RUN);
        for (said, program) in said.iter_mut().zip(running.iter()) {
            said.extend(program.progress());
        }
        if said.iter().all(|said| said.len() >= LINES_MIN) {
            break;
        }
    }
    let speeds = said.iter().map(|said| speed(said)).collect();
    for program in running.iter_mut() {
        program.say("pause")?;
    }
    // What it has launched it still does.
    std::thread::sleep(WARM_UP / 2);
    speeds
}

/// All programs under one cap, started at the same time.
pub(crate) struct Capped {
    cap: u32,
    pub(crate) programs: Vec<Program>,
}

impl Capped {
    fn start(bench: &mut Bench, named: &[Named], cap: u32) -> Result<Self, String> {
        let mut programs = Vec::new();
        for program in named {
            programs.push(Program::start(bench, program, cap)?);
        }
        for (program, named) in programs.iter().zip(named) {
            program.wait_until_ready(&named.name)?;
        }
        let clients = bench.status()?.map(|status| status.client_pids).unwrap_or_default();
        match named.iter().zip(&programs).find(|(_, program)| !clients.contains(&program.process.id())) {
            Some((named, _)) => Err(format!("{} runs, and the daemon does not know it", named.name)),
            None => Ok(Self { cap, programs }),
        }
    }
}

/// The programs, each started without a cap; what is measured is left in `results`.
pub struct Session {
    pub(crate) named: Vec<Named>,
    pub(crate) uncapped: Capped,
}

impl Session {
    /// Starts the daemon and the programs. One that does not come up is left out, and said.
    ///
    /// # Errors
    /// A sentence: what does not come up.
    pub fn start(bench: &mut Bench, named: Vec<Named>) -> Result<Self, String> {
        bench.start()?;
        let (mut kept, mut programs) = (Vec::new(), Vec::new());
        let started: Vec<_> = named.into_iter().map(|it| (Program::start(bench, &it, 100), it)).collect();
        for (program, named) in started {
            match program.and_then(|program| program.wait_until_ready(&named.name).map(|()| program)) {
                Ok(program) => {
                    programs.push(program);
                    kept.push(named);
                }
                Err(reason) => println!("left out: {reason}"),
            }
        }
        Ok(Self { named: kept, uncapped: Capped { cap: 100, programs } })
    }

    /// Each alone without a cap: its speed, and what our backend reads of it.
    ///
    /// # Errors
    /// A sentence: who fails.
    pub fn alone(&mut self, ours: &mut Ours, results: &mut Results) -> Measured {
        let mut rows = Vec::new();
        for (named, program) in self.named.iter().zip(&mut self.uncapped.programs) {
            program.say("go")?;
            std::thread::sleep(WARM_UP);
            // What comes after is the mean of the time between.
            ours.state()?;
            std::thread::sleep(RUN);
            let state = ours.state()?;
            let speed = speeds(&mut [program])?[0];
            let solo = results.solo.entry(named.name.clone()).or_default();
            solo.family.clone_from(&named.family);
            solo.speeds.entry(100).or_default().push(speed);
            let pid = program.process.id();
            let mine = state.processes.iter().find(|process| process.pid == pid);
            solo.memory_bytes_peak = mine.and_then(|process| process.memory_bytes);
            solo.reading = state.reading;
            let told = |metric| solo.reading.metrics.get(metric).map(|value| format!("{value:.3}"));
            let told =
                [Metric::SmActiveFraction, Metric::SmOccupancyFraction, Metric::MemoryBandwidthFraction]
                    .map(|metric| told(metric).unwrap_or_default());
            rows.push([vec![named.name.clone(), format!("{speed:.2}")], told.to_vec()].concat());
        }
        let heading = ["program", "iterations a second", "SM active", "SM occupancy", "memory bandwidth"];
        Ok((table(&heading, rows), 0).into())
    }

    /// All under one split of caps: each alone under it, and each two together, of their speeds alone without a cap just before.
    ///
    /// # Errors
    /// A sentence: who fails.
    pub fn together(
        &mut self,
        bench: &mut Bench,
        ours: &mut Ours,
        results: &mut Results,
        caps: [u32; 2],
        has_time: &dyn Fn() -> bool,
    ) -> Measured {
        let whole = self.speeds_alone()?;
        // Without caps, those of the session are the first of each two.
        let mut firsts = (caps[0] < 100).then(|| Capped::start(bench, &self.named, caps[0])).transpose()?;
        let mut seconds = Capped::start(bench, &self.named, caps[1])?;
        for group in firsts.iter_mut().chain([&mut seconds]) {
            for (named, program) in self.named.iter().zip(&mut group.programs) {
                let solo = results.solo.entry(named.name.clone()).or_default();
                // A split of two alike has two groups under one cap: the median of both counts.
                solo.speeds.entry(group.cap).or_default().extend(speeds(&mut [program])?);
            }
        }
        let firsts = firsts.as_mut().unwrap_or(&mut self.uncapped);
        let (mut found, mut missing, mut skipped) = (Vec::new(), 0, Vec::new());
        for [first, second] in numbers(self.named.len(), caps) {
            if !has_time() {
                missing += 1;
                continue;
            }
            ours.state()?;
            let workloads = [first, second].map(|index| self.named[index].name.clone());
            let both = speeds(&mut [&mut firsts.programs[first], &mut seconds.programs[second]]);
            let Some(both) = or_skipped(both, &workloads, &mut skipped) else { continue };
            let power_watts = ours.reading()?.metrics.get(Metric::PowerWatts);
            let speed_fractions = [both[0] / whole[first], both[1] / whole[second]];
            found.push(Together { workloads, caps, speed_fractions, power_watts });
        }
        let text = pairs::text(&found, RUN);
        results.pairs.append(&mut found);
        skipped.extend((missing > 0).then(|| format!("{missing} pairs: no time was left")));
        Ok(Findings { text, apart: 0, skipped })
    }

    pub(crate) fn speeds_alone(&mut self) -> Result<Vec<f64>, String> {
        self.uncapped.programs.iter_mut().map(|program| Ok(speeds(&mut [program])?[0])).collect()
    }
}

/// What was measured of some of all; where it failed, that is among what was skipped, and the others are not lost by it.
pub(crate) fn or_skipped<T>(
    measured: Result<T, String>,
    names: &[String],
    skipped: &mut Vec<String>,
) -> Option<T> {
    measured.map_err(|reason| skipped.push(format!("{}: {reason}", names.join(" beside ")))).ok()
}

/// Each two programs once, by their numbers; of two under different caps both ways round.
fn numbers(count: usize, caps: [u32; 2]) -> Vec<[usize; 2]> {
    let from = |first: usize| if caps[0] == caps[1] { first } else { 0 };
    (0..count).flat_map(|first| (from(first)..count).map(move |second| [first, second])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_programs_is_read_and_says_which_line_is_none() {
        let read = parse("# remark\n\na vision python3 a.py --size 3\nb language ./b\n").unwrap();
        assert_eq!(read.len(), 2);
        assert_eq!(read[0].words, ["python3", "a.py", "--size", "3"]);
        let error = |text| parse(text).unwrap_err();
        assert_eq!(error("a vision\n"), "line 1: it is to say NAME FAMILY COMMAND, with blanks between");
        assert_eq!(error("a v x\na v y\n"), "line 2: a is named twice");
        assert_eq!(error("a,b v x\n"), "line 1: no comma or quote may stand in a name");
        assert_eq!(error("# nothing\n"), "it names no program");
    }

    #[test]
    fn what_a_program_says_is_heard_and_the_rest_is_not() {
        assert_eq!(heard("ready"), Some(Said::Ready));
        let progress = Progress { seconds: 1.5, iterations: 30.0 };
        assert_eq!(heard("progress 1.5 30"), Some(Said::Progress(progress)));
        assert_eq!(heard("epoch 1 of 3"), None);
        assert_eq!(heard("progress soon 30"), None);
    }

    #[test]
    fn what_fails_is_skipped_with_its_reason() {
        let mut skipped = Vec::new();
        let names = ["a", "b"].map(str::to_owned);
        assert_eq!(or_skipped(Ok(3), &names, &mut skipped), Some(3));
        assert_eq!(or_skipped::<u32>(Err("got nowhere".to_owned()), &names, &mut skipped), None);
        assert_eq!(skipped, ["a beside b: got nowhere"]);
    }

    #[test]
    fn a_speed_is_from_the_first_word_to_the_last() {
        let at = |seconds, iterations| Progress { seconds, iterations };
        assert_eq!(speed(&[at(1.0, 10.0), at(2.0, 15.0), at(3.0, 30.0)]), Ok(10.0));
        assert_eq!(speed(&[at(1.0, 10.0)]), Err("a program got nowhere".to_owned()));
        assert!(speed(&[]).is_err());
    }

    #[test]
    fn two_are_measured_once_and_under_different_caps_both_ways_round() {
        assert_eq!(numbers(8, [50, 50]).len(), 36);
        assert_eq!(numbers(8, [30, 70]).len(), 64);
        assert!(numbers(3, [100, 100]).contains(&[1, 1]), "two of a kind too");
    }
}
