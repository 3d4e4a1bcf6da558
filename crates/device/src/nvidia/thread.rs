//! What a thread of NVML is asked, and how it answers: from one opening of the library to the next.

use super::library::Library;
use super::open::LIBRARY;
use super::session::{Memory, Session};
use super::settings::NvidiaSettings;
use crate::mps::ComputeMode;
use crate::worker::{Answer, Worker};
use crate::{DeviceError, DeviceState};
use nvml_wrapper::Nvml;
use pillion_core::DeviceUuid;
use pillion_core::device::{DeviceDescription, DeviceNotice, DeviceProcess, Reading};
use pillion_core::link::Link;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

/// What a thread is asked.
#[derive(Debug)]
pub(super) enum Question {
    /// How many devices NVML counts.
    Count(Answer<u32>),
    /// Which the one is that NVML counts by this number. From then on the thread knows it.
    Describe(u32, Answer<DeviceDescription>),
    /// How the devices reach each other.
    Links(Answer<Vec<(u32, u32, Link)>>),
    Read(u32, Answer<Reading>),
    Processes(u32, Answer<Vec<DeviceProcess>>),
    State(u32, Answer<DeviceState>),
    Notices(Answer<Vec<DeviceNotice>>),
    SetComputeMode(DeviceUuid, ComputeMode, Answer<()>),
}

/// Starts a thread, which opens the library when it is first asked. `device`: the one that it knows already.
///
/// # Errors
/// [`DeviceError::NoAnswer`] if the system gives us no thread.
pub(super) fn start(
    settings: &NvidiaSettings,
    library: &Arc<Library>,
    device: Option<DeviceDescription>,
) -> Result<Worker<Question>, DeviceError> {
    let path = settings.library.clone().unwrap_or_else(|| PathBuf::from(LIBRARY));
    let (memory, library) = (Memory::new(settings, device), Arc::clone(library));
    Worker::start("nvml", path, settings.deadline, move |asked| work(&library, memory, asked))
}

fn work(library: &Library, mut memory: Memory, asked: &Receiver<Question>) {
    let mut next = asked.recv().ok();
    while let Some(question) = next {
        let unanswered = match library.open() {
            Ok(nvml) => {
                let unanswered = serve(library, &nvml, &mut memory, question, asked);
                library.release(nvml);
                unanswered
            }
            Err(error) => {
                refuse(question, error, &mut memory);
                None
            }
        };
        next = unanswered.or_else(|| asked.recv().ok());
    }
}

/// Answers until the driver goes away, or nobody can ask any more. Returns the question that another opening is to answer.
fn serve(
    library: &Library,
    nvml: &Nvml,
    memory: &mut Memory,
    first: Question,
    asked: &Receiver<Question>,
) -> Option<Question> {
    let mut session = Session::new(nvml, memory);
    let mut question = first;
    loop {
        answer(&mut session, question);
        if session.is_closed() {
            library.close();
            return None;
        }
        question = asked.recv().ok()?;
        // Another thread has met that the driver went away.
        if library.is_closed() {
            return Some(question);
        }
    }
}

/// What comes too late is of no use, but for notices: each is told once.
fn answer(session: &mut Session<'_, '_>, question: Question) {
    match question {
        Question::Count(answer) => drop(answer.give(session.count())),
        Question::Describe(place, answer) => drop(answer.give(session.describe(place))),
        Question::Links(answer) => drop(answer.give(session.links())),
        Question::Read(index, answer) => drop(answer.give(session.read(index))),
        Question::Processes(index, answer) => drop(answer.give(session.processes(index))),
        Question::State(index, answer) => drop(answer.give(session.state(index))),
        Question::SetComputeMode(device, mode, answer) => {
            drop(answer.give(session.set_compute_mode(&device, mode)));
        }
        Question::Notices(answer) => {
            if let Err(Ok(unreported)) = answer.give(Ok(session.notices())) {
                session.keep(unreported);
            }
        }
    }
}

fn refuse(question: Question, error: DeviceError, memory: &mut Memory) {
    match question {
        Question::Count(answer) => drop(answer.give(Err(error))),
        Question::Describe(_, answer) => drop(answer.give(Err(error))),
        Question::Links(answer) => drop(answer.give(Err(error))),
        Question::Read(_, answer) => drop(answer.give(Err(error))),
        Question::Processes(_, answer) => drop(answer.give(Err(error))),
        Question::State(_, answer) => drop(answer.give(Err(error))),
        Question::SetComputeMode(_, _, answer) => drop(answer.give(Err(error))),
        // What was told before the driver went away.
        Question::Notices(answer) => {
            if let Err(Ok(unreported)) = answer.give(Ok(memory.take_notices())) {
                memory.keep(unreported);
            }
        }
    }
}
