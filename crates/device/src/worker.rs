//! A thread that owns a vendor's library. A driver waits in the kernel for a device that hangs, as long as that takes;
//! whoever asks waits here, and no longer than a deadline. Knows nothing of what is asked.

use crate::DeviceError;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::time::Instant;

/// Where one answer goes.
#[derive(Debug)]
pub(crate) struct Answer<T> {
    to: SyncSender<Result<T, DeviceError>>,
    /// While this lives, the thread is at work on the question.
    work: Arc<()>,
}

impl<T> Answer<T> {
    /// Hands an answer over, or back if whoever asked has given up.
    pub(crate) fn give(self, answer: Result<T, DeviceError>) -> Result<(), Result<T, DeviceError>> {
        drop(self.work);
        self.to.send(answer).map_err(|unsent| unsent.0)
    }
}

/// An answer that is on its way.
#[derive(Debug)]
pub(crate) struct Pending<T> {
    answer: Receiver<Result<T, DeviceError>>,
    until: Instant,
    library: PathBuf,
}

impl<T> Pending<T> {
    /// Waits until the deadline of the question.
    ///
    /// # Errors
    /// [`DeviceError::NoAnswer`], or the answer's own.
    pub(crate) fn wait(self) -> Result<T, DeviceError> {
        let left = self.until.saturating_duration_since(Instant::now());
        self.answer.recv_timeout(left).unwrap_or_else(|error| {
            let (kind, reason) = match error {
                RecvTimeoutError::Timeout => (io::ErrorKind::TimedOut, "it takes too long"),
                RecvTimeoutError::Disconnected => (io::ErrorKind::BrokenPipe, "its thread failed"),
            };
            Err(no_answer(self.library, kind, reason))
        })
    }
}

fn no_answer(library: PathBuf, kind: io::ErrorKind, reason: &str) -> DeviceError {
    DeviceError::NoAnswer { path: library, source: io::Error::new(kind, reason) }
}

/// The thread, from outside. `Q`: what it is asked, with the [`Answer`] in it.
#[derive(Debug)]
pub(crate) struct Worker<Q> {
    library: PathBuf,
    deadline: Duration,
    /// `None` only while it is dropped.
    questions: Option<Sender<Q>>,
    thread: Option<JoinHandle<()>>,
    work: Arc<()>,
}

impl<Q: Send + 'static> Worker<Q> {
    /// Starts a thread that runs `work` on what it is asked, until nobody can ask any more. `library` is named in errors.
    ///
    /// # Errors
    /// [`DeviceError::NoAnswer`] if the system gives us no thread.
    pub(crate) fn start(
        name: &str,
        library: PathBuf,
        deadline: Duration,
        work: impl FnOnce(&Receiver<Q>) + Send + 'static,
    ) -> Result<Self, DeviceError> {
        let (questions, asked) = channel();
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || work(&asked))
            .map_err(|source| DeviceError::NoAnswer { path: library.clone(), source })?;
        Ok(Self { library, deadline, questions: Some(questions), thread: Some(thread), work: Arc::new(()) })
    }

    /// Asks, and waits for the answer until the deadline.
    ///
    /// # Errors
    /// As [`Worker::begin`] and [`Pending::wait`].
    pub(crate) fn ask<T>(&self, question: impl FnOnce(Answer<T>) -> Q) -> Result<T, DeviceError> {
        self.begin(question)?.wait()
    }

    /// Asks, and leaves the waiting to the caller: several threads can be asked at once. While the thread hangs with an
    /// earlier question it is not asked another one.
    ///
    /// # Errors
    /// [`DeviceError::NoAnswer`].
    pub(crate) fn begin<T>(&self, question: impl FnOnce(Answer<T>) -> Q) -> Result<Pending<T>, DeviceError> {
        if self.is_busy() {
            let reason = "it still works on an earlier question";
            return Err(no_answer(self.library.clone(), io::ErrorKind::WouldBlock, reason));
        }
        let (to, answer) = sync_channel(1);
        let question = question(Answer { to, work: Arc::clone(&self.work) });
        if let Some(questions) = &self.questions {
            // A thread that failed drops the question, and with it the answer's other end.
            let _ = questions.send(question);
        }
        Ok(Pending { answer, until: Instant::now() + self.deadline, library: self.library.clone() })
    }
}

impl<Q> Worker<Q> {
    /// Whether it can be asked at all; a thread that failed cannot.
    pub(crate) fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Whether it works on a question still, or hangs with it.
    pub(crate) fn is_busy(&self) -> bool {
        Arc::strong_count(&self.work) > 1
    }
}

impl<Q> Drop for Worker<Q> {
    fn drop(&mut self) {
        self.questions = None;
        // One that hangs ends when the driver lets go of it; nobody can make it.
        if let Some(thread) = self.thread.take().filter(|_| !self.is_busy()) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A question that is answered with its number, as soon as the other end lets it.
    type Question = (u32, Receiver<()>, Answer<u32>);

    fn worker(deadline: Duration) -> Worker<Question> {
        let work = |asked: &Receiver<Question>| {
            while let Ok((number, gate, answer)) = asked.recv() {
                let _ = gate.recv();
                assert_ne!(number, 13, "the thread fails");
                let _ = answer.give(Ok(number));
            }
        };
        Worker::start("test", "/lib/driver.so".into(), deadline, work).unwrap()
    }

    /// Asks with an open gate, until it is not busy any more.
    fn ask(worker: &Worker<Question>, number: u32) -> Result<u32, DeviceError> {
        worker.ask(|answer| (number, channel().1, answer))
    }

    #[test]
    fn a_thread_that_hangs_is_left_alone_and_comes_back() {
        let worker = worker(Duration::from_millis(20));
        let (gate, closed) = channel();
        let late = worker.ask(|answer| (1, closed, answer)).unwrap_err();
        assert!(pillion_core::report(&late).contains("it takes too long"), "{}", pillion_core::report(&late));
        assert!(late.to_string().contains("/lib/driver.so") && late.is_transient(), "{late}");
        let busy = ask(&worker, 2).unwrap_err();
        assert!(
            pillion_core::report(&busy).contains("an earlier question"),
            "{}",
            pillion_core::report(&busy)
        );
        drop(gate);
        while worker.is_busy() {
            std::thread::yield_now();
        }
        let mut answer = ask(&worker, 3);
        while matches!(&answer, Err(error) if error.is_transient()) {
            answer = ask(&worker, 3);
        }
        assert_eq!(answer.unwrap(), 3);
    }

    #[test]
    fn a_thread_that_fails_says_so() {
        let worker = worker(Duration::from_mins(1));
        let failed = ask(&worker, 13).unwrap_err();
        assert!(
            pillion_core::report(&failed).contains("its thread failed"),
            "{}",
            pillion_core::report(&failed)
        );
        while worker.is_alive() {
            std::thread::yield_now();
        }
        assert!(ask(&worker, 1).is_err());
    }

    #[test]
    fn several_threads_are_asked_at_once() {
        let workers = [worker(Duration::from_mins(1)), worker(Duration::from_mins(1))];
        let (gates, closed): (Vec<_>, Vec<_>) = (0..2).map(|_| channel()).unzip();
        let asked: Vec<Pending<u32>> = workers
            .iter()
            .zip(closed)
            .zip(0..)
            .map(|((worker, gate), number)| worker.begin(|answer| (number, gate, answer)).unwrap())
            .collect();
        // The second may answer only after both were asked, and before the first.
        for gate in gates.into_iter().rev() {
            drop(gate);
        }
        let answers: Vec<u32> = asked.into_iter().map(|pending| pending.wait().unwrap()).collect();
        assert_eq!(answers, [0, 1]);
    }
}
