//! The end of the standard error of starts, read after their end: does it speak of device memory? Only the class of the
//! words leaves this room, never the user's text.
//!
//! The file is opened while the task runs, through `/proc/PID/fd/2`: it is the one that the kernel says the task writes to,
//! whatever its name is now. Only a regular file is opened, never a pipe, a socket or a terminal. A file system that hangs
//! must not hang the devices' thread: files are touched by a thread of their own, which is waited for a moment only.

use crate::procfs::{ProcFs, ProcessId};
use pillion_core::JobStart;
use pillion_core::fault::StderrWords;
use regex::Regex;
use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, open, stat};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::LazyLock;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

/// How much of the end is looked at.
const TAIL_BYTES_MAX: u64 = 8192;
/// Descriptors that are kept for all starts, and for one.
const FILES_MAX: usize = 64;
const FILES_OF_START_MAX: usize = 4;
/// Orders that may wait; what comes on top is left out.
const ORDERS_MAX: usize = 256;
/// How long the end of a start waits for its words.
const READ_PATIENCE: Duration = Duration::from_millis(500);
/// What a task is before it becomes the user's program: its standard error is not the user's yet.
const BEFORE_TASK: &str = "slurmstepd";

/// What device libraries and frameworks print. Nothing else prints these.
static SURE_WORDS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"CUDA out of memory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|HIP out of memory",
        r"|torch(?:\.cuda)?\.OutOfMemoryError|RESOURCE_EXHAUSTED: (?:Out of memory|OOM)",
        r"|(?:UR_RESULT|PI)_ERROR_OUT_OF_(?:DEVICE_MEMORY|RESOURCES)|ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY",
    ))
});
/// What others print as well.
static VAGUE_WORDS: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i:out of memory)|OutOfMemoryError|RESOURCE_EXHAUSTED"));
/// What speaks of the host's memory.
static HOST_WORDS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i:oom[-_ ]kill)|Killed process|Cannot allocate memory|bad_alloc|OUT_OF_HOST_MEMORY|java\.lang\.OutOf",
    )
});

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a constant pattern that the tests compile")
}

/// The class of what a text says.
pub fn classify(text: &str) -> StderrWords {
    if SURE_WORDS.is_match(text) {
        StderrWords::Sure
    } else if !HOST_WORDS.is_match(text) && VAGUE_WORDS.is_match(text) {
        StderrWords::Vague
    } else {
        StderrWords::Silent
    }
}

/// One file, and how long it was when it was opened: what stood there before is of somebody else.
#[derive(Debug)]
struct Tail {
    file: OwnedFd,
    device: u64,
    inode: u64,
    size_before_bytes: u64,
}

/// The files of all starts.
#[derive(Debug)]
struct Files {
    proc: ProcFs,
    of: BTreeMap<JobStart, Vec<Tail>>,
}

impl Files {
    fn open(&mut self, start: JobStart, process: ProcessId) -> Option<()> {
        let (count, tails) = (self.of.values().map(Vec::len).sum::<usize>(), self.of.get(&start));
        if count >= FILES_MAX || tails.is_some_and(|tails| tails.len() >= FILES_OF_START_MAX) {
            return None;
        }
        let path = self.proc.stderr_path(process.pid);
        let is_task = self.proc.program(process.pid).is_some_and(|name| name != BEFORE_TASK);
        // Looked at before it is opened: to open a pipe would make us its reader.
        let what = stat(&path).ok().filter(|what| is_task && is_regular(what))?;
        let is_known = |tail: &Tail| (tail.device, tail.inode) == (what.st_dev, what.st_ino);
        if tails.is_some_and(|tails| tails.iter().any(is_known)) {
            return None;
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = open(&path, flags, Mode::empty()).ok()?;
        let opened = fstat(&file).ok().filter(is_regular)?;
        if !self.proc.is_alive(process) {
            return None;
        }
        let size_before_bytes = size_bytes(&opened);
        let tail = Tail { file, device: opened.st_dev, inode: opened.st_ino, size_before_bytes };
        self.of.entry(start).or_default().push(tail);
        Some(())
    }

    /// Reads and closes the files of a start that is over; `None` = none could be read.
    fn close(&mut self, start: JobStart) -> Option<StderrWords> {
        let tails = self.of.remove(&start)?;
        tails.iter().filter_map(Tail::read).map(|text| classify(&text)).max()
    }
}

impl Tail {
    fn read(&self) -> Option<String> {
        let size = size_bytes(&fstat(&self.file).ok()?);
        // Shorter than it was: it was begun anew.
        let begin = if size < self.size_before_bytes { 0 } else { self.size_before_bytes };
        let mut from = begin.max(size.saturating_sub(TAIL_BYTES_MAX));
        let mut bytes = Vec::new();
        while from < size && (bytes.len() as u64) < TAIL_BYTES_MAX {
            let mut part = [0_u8; 4096];
            let count = rustix::io::pread(&self.file, &mut part, from).ok()?;
            if count == 0 {
                break;
            }
            bytes.extend_from_slice(&part[..count]);
            from += count as u64;
        }
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}

fn is_regular(what: &Stat) -> bool {
    FileType::from_raw_mode(what.st_mode) == FileType::RegularFile
}

fn size_bytes(what: &Stat) -> u64 {
    u64::try_from(what.st_size).unwrap_or(0)
}

enum Order {
    Open(JobStart, ProcessId),
    Close(JobStart, SyncSender<Option<StderrWords>>),
}

/// The room's door. Its thread ends when this is dropped.
#[derive(Debug)]
pub struct StderrTails {
    orders: SyncSender<Order>,
    /// An answer that did not come in time: until it does, nothing is asked.
    late: Option<Receiver<Option<StderrWords>>>,
}

impl StderrTails {
    /// Starts the thread. Without one every answer is `None`.
    pub fn new(proc: ProcFs) -> Self {
        let (orders, inbox) = sync_channel(ORDERS_MAX);
        let serve = move || {
            let mut files = Files { proc, of: BTreeMap::new() };
            while let Ok(order) = inbox.recv() {
                match order {
                    Order::Open(start, process) => drop(files.open(start, process)),
                    // Who asked may have lost patience.
                    Order::Close(start, answer) => drop(answer.try_send(files.close(start))),
                }
            }
        };
        if let Err(error) = std::thread::Builder::new().name("stderr".to_owned()).spawn(serve) {
            tracing::warn!(%error, "the standard error of jobs cannot be looked at");
        }
        Self { orders, late: None }
    }

    /// Opens the standard error of a task of this start, unless it is open already or no regular file. Does not wait.
    pub fn open(&self, start: JobStart, process: ProcessId) {
        let _ = self.orders.try_send(Order::Open(start, process));
    }

    /// What the standard error of a start that is over says; `None` = it could not be read in time.
    pub fn close(&mut self, start: JobStart) -> Option<StderrWords> {
        let (answer, answered) = sync_channel(1);
        self.orders.try_send(Order::Close(start, answer)).ok()?;
        if self.late.as_ref().is_some_and(|late| late.try_recv() == Err(TryRecvError::Empty)) {
            return None;
        }
        self.late = None;
        answered.recv_timeout(READ_PATIENCE).unwrap_or_else(|_| {
            self.late = Some(answered);
            None
        })
    }
}

#[cfg(test)]
mod tests;
