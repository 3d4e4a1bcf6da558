//! What NVML's thread is asked, and how it answers: from one opening of the library to the next.

use super::NvidiaSettings;
use super::open::{LIBRARY, open};
use super::session::{Memory, Session};
use crate::mps::ComputeMode;
use crate::worker::{Answer, Worker};
use crate::{DeviceError, DeviceStates};
use nvml_wrapper::Nvml;
use pillion_core::DeviceUuid;
use pillion_core::device::{DeviceDescription, DeviceNotice, DeviceProcess, Reading};
use std::path::PathBuf;
use std::sync::mpsc::Receiver;

/// What the thread is asked.
#[derive(Debug)]
pub(super) enum Question {
    Devices(Answer<Vec<DeviceDescription>>),
    Read(u32, Answer<Reading>),
    Processes(u32, Answer<Vec<DeviceProcess>>),
    ReadAll(Answer<DeviceStates>),
    Notices(Answer<Vec<DeviceNotice>>),
    SetComputeMode(DeviceUuid, ComputeMode, Answer<()>),
}

/// Starts the thread, which opens the library when it is first asked.
///
/// # Errors
/// [`DeviceError::NoAnswer`] if the system gives us no thread.
pub(super) fn start(settings: &NvidiaSettings) -> Result<Worker<Question>, DeviceError> {
    let library = settings.library.clone().unwrap_or_else(|| PathBuf::from(LIBRARY));
    let own = settings.clone();
    Worker::start("nvml", library, settings.deadline, move |asked| work(&own, asked))
}

fn work(settings: &NvidiaSettings, asked: &Receiver<Question>) {
    let mut memory = Memory::new(settings);
    while let Ok(question) = asked.recv() {
        match open(settings.library.as_deref()) {
            Ok(nvml) => serve(&nvml, &mut memory, question, asked),
            Err(error) => refuse(question, error, &mut memory),
        }
    }
}

/// Answers until the driver goes away, or nobody can ask any more.
fn serve(nvml: &Nvml, memory: &mut Memory, first: Question, asked: &Receiver<Question>) {
    let mut session = Session::new(nvml, memory);
    let mut next = Some(first);
    while let Some(question) = next {
        // What comes too late is of no use, but for notices: each is told once.
        match question {
            Question::Devices(answer) => drop(answer.give(session.devices())),
            Question::Read(index, answer) => drop(answer.give(session.read(index))),
            Question::Processes(index, answer) => drop(answer.give(session.processes(index))),
            Question::ReadAll(answer) => drop(answer.give(session.read_all())),
            Question::SetComputeMode(device, mode, answer) => {
                drop(answer.give(session.set_compute_mode(&device, mode)));
            }
            Question::Notices(answer) => {
                if let Err(Ok(untold)) = answer.give(Ok(session.notices())) {
                    session.keep(untold);
                }
            }
        }
        next = if session.is_closed() { None } else { asked.recv().ok() };
    }
}

fn refuse(question: Question, error: DeviceError, memory: &mut Memory) {
    match question {
        Question::Devices(answer) => drop(answer.give(Err(error))),
        Question::Read(_, answer) => drop(answer.give(Err(error))),
        Question::Processes(_, answer) => drop(answer.give(Err(error))),
        Question::ReadAll(answer) => drop(answer.give(Err(error))),
        Question::SetComputeMode(_, _, answer) => drop(answer.give(Err(error))),
        // What was told before the driver went away.
        Question::Notices(answer) => {
            if let Err(Ok(untold)) = answer.give(Ok(memory.take_notices())) {
                memory.keep(untold);
            }
        }
    }
}
