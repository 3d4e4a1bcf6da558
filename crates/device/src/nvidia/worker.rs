//! The thread that owns the library. NVML waits in the kernel for a device that hangs, as long as that takes; whoever asks
//! waits here, and no longer than a deadline.

use super::open::{LIBRARY, open};
use super::session::{Memory, Session};
use super::{NvidiaSettings, compute_mode};
use crate::mps::ComputeMode;
use crate::{DeviceError, DeviceStates};
use nvml_wrapper::Nvml;
use pillion_core::DeviceUuid;
use pillion_core::device::{DeviceDescription, DeviceNotice, DeviceProcess, Reading};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Where one answer goes.
#[derive(Debug)]
pub(super) struct Answer<T> {
    to: SyncSender<Result<T, DeviceError>>,
    /// While this lives, the thread is at work on the question.
    work: Arc<()>,
}

impl<T> Answer<T> {
    /// Hands an answer over, or back if whoever asked has given up.
    fn give(self, answer: Result<T, DeviceError>) -> Result<(), Result<T, DeviceError>> {
        drop(self.work);
        self.to.send(answer).map_err(|unsent| unsent.0)
    }
}

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

/// The thread, from outside.
#[derive(Debug)]
pub(super) struct Worker {
    library: PathBuf,
    deadline: Duration,
    /// `None` only while it is dropped.
    questions: Option<Sender<Question>>,
    thread: Option<JoinHandle<()>>,
    work: Arc<()>,
}

impl Worker {
    /// Starts the thread, which opens the library when it is first asked.
    ///
    /// # Errors
    /// [`DeviceError::NoAnswer`] if the system gives us no thread.
    pub(super) fn start(settings: &NvidiaSettings) -> Result<Self, DeviceError> {
        let library = settings.library.clone().unwrap_or_else(|| PathBuf::from(LIBRARY));
        let (questions, asked) = channel();
        let own = settings.clone();
        let thread = std::thread::Builder::new()
            .name("nvml".to_owned())
            .spawn(move || work(&own, &asked))
            .map_err(|source| DeviceError::NoAnswer { path: library.clone(), source })?;
        let deadline = settings.deadline;
        Ok(Self { library, deadline, questions: Some(questions), thread: Some(thread), work: Arc::new(()) })
    }

    /// Whether it can be asked at all; a thread that failed cannot.
    pub(super) fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Asks, and waits for the answer until the deadline. While the thread hangs with an earlier question it is not asked
    /// another one.
    ///
    /// # Errors
    /// [`DeviceError::NoAnswer`], or the answer's own.
    pub(super) fn ask<T>(&self, question: impl FnOnce(Answer<T>) -> Question) -> Result<T, DeviceError> {
        if self.is_busy() {
            return Err(self.no_answer(io::ErrorKind::WouldBlock, "it still works on an earlier question"));
        }
        let (to, answer) = sync_channel(1);
        let question = question(Answer { to, work: Arc::clone(&self.work) });
        if let Some(questions) = &self.questions {
            // A thread that failed drops the question, and with it the answer's other end.
            let _ = questions.send(question);
        }
        answer.recv_timeout(self.deadline).unwrap_or_else(|error| {
            Err(match error {
                RecvTimeoutError::Timeout => self.no_answer(io::ErrorKind::TimedOut, "it takes too long"),
                RecvTimeoutError::Disconnected => {
                    self.no_answer(io::ErrorKind::BrokenPipe, "its thread failed")
                }
            })
        })
    }

    fn is_busy(&self) -> bool {
        Arc::strong_count(&self.work) > 1
    }

    fn no_answer(&self, kind: io::ErrorKind, reason: &str) -> DeviceError {
        DeviceError::NoAnswer { path: self.library.clone(), source: io::Error::new(kind, reason) }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.questions = None;
        // One that hangs ends when the driver lets go of it; nobody can make it.
        if let Some(thread) = self.thread.take().filter(|_| !self.is_busy()) {
            let _ = thread.join();
        }
    }
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
                drop(answer.give(compute_mode::set(nvml, &device, mode)));
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
