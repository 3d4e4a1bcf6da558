//! The end of the standard error of starts, read after their end: does it speak of device memory? Only the class of the
//! words leaves this module, never the user's text.
//!
//! The file is opened while the task runs, through `/proc/PID/fd/2`: it is the one that the kernel says the task writes to,
//! whatever its name is now. Which file that is lies in the user's hands, so it is only looked at first, through a descriptor
//! that reads nothing, and then that very file is opened: a regular file of the job's own user, which the task may write.
//! Nothing else is ever opened, be it a pipe, a device or a file of somebody else. A file system that hangs must not hang the
//! devices' thread: files are touched by a thread of their own, which is waited for a moment only.

use crate::procfs::{ProcFs, ProcessId};
use pillion_core::fault::StderrWords;
use pillion_core::{JobStart, UserId};
use regex::Regex;
use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, open};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// How much of the end is looked at.
const TAIL_BYTES_MAX: u64 = 8192;
/// Descriptors that are kept for all starts, and for one.
const FILES_MAX: usize = 64;
const FILES_OF_START_MAX: usize = 4;
/// Orders to open that may wait; what comes on top is left out. Each start is closed once, whatever waits.
const OPENS_MAX: usize = 256;
/// How long the end of a start waits for its words.
const READ_TIMEOUT: Duration = Duration::from_millis(500);
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
    fn open(&mut self, start: JobStart, owner: UserId, process: ProcessId) -> Option<()> {
        let (count, tails) = (self.of.values().map(Vec::len).sum::<usize>(), self.of.get(&start));
        if count >= FILES_MAX || tails.is_some_and(|tails| tails.len() >= FILES_OF_START_MAX) {
            return None;
        }
        self.proc.program(process.pid).filter(|name| name != BEFORE_TASK)?;
        // A descriptor that only names the file: it takes no driver's open, and makes us nobody's reader.
        let named = open(self.proc.stderr_path(process.pid), OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        let named = named.ok()?;
        let what = fstat(&named).ok().filter(|what| is_regular(what) && what.st_uid == owner.0)?;
        if tails.is_some_and(|tails| {
            tails.iter().any(|tail| (tail.device, tail.inode) == (what.st_dev, what.st_ino))
        }) {
            return None;
        }
        self.proc.stderr_flags(process.pid).filter(|flags| may_write(*flags))?;
        if !self.proc.is_alive(process) {
            return None;
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = open(format!("/proc/self/fd/{}", named.as_raw_fd()), flags, Mode::empty()).ok()?;
        let (device, inode, size_before_bytes) = (what.st_dev, what.st_ino, size_bytes(&what));
        let tail = Tail { file, device, inode, size_before_bytes };
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

/// Whether a descriptor that was opened with these flags can be written. One that only names its file cannot, and takes no
/// right to that file.
fn may_write(flags: u32) -> bool {
    let flags = OFlags::from_bits_retain(flags);
    let access = flags & OFlags::RWMODE;
    !flags.contains(OFlags::PATH) && (access == OFlags::WRONLY || access == OFlags::RDWR)
}

fn size_bytes(what: &Stat) -> u64 {
    u64::try_from(what.st_size).unwrap_or(0)
}

enum Order {
    Open(JobStart, UserId, ProcessId),
    Close(JobStart, SyncSender<Option<StderrWords>>),
}

/// What is asked of the thread: it ends when nobody can ask any more.
fn serve(mut files: Files, orders: &Receiver<Order>, opens: &AtomicUsize) {
    while let Ok(order) = orders.recv() {
        match order {
            Order::Open(start, owner, process) => {
                opens.fetch_sub(1, Ordering::Relaxed);
                files.open(start, owner, process);
            }
            // Who asked may have lost patience.
            Order::Close(start, answer) => drop(answer.try_send(files.close(start))),
        }
    }
}

/// How others reach this module. Its thread ends when this is dropped.
#[derive(Debug)]
pub struct StderrTails {
    orders: Sender<Order>,
    /// Orders to open that wait.
    opens: Arc<AtomicUsize>,
    /// An answer that did not come in time: until it does, no other is waited for.
    late: Option<Receiver<Option<StderrWords>>>,
}

impl StderrTails {
    /// Starts the thread. Without one every answer is `None`.
    pub fn new(proc: ProcFs) -> Self {
        let (tails, inbox) = Self::without_thread();
        let opens = Arc::clone(&tails.opens);
        let files = Files { proc, of: BTreeMap::new() };
        if let Err(error) =
            std::thread::Builder::new().name("stderr".to_owned()).spawn(move || serve(files, &inbox, &opens))
        {
            tracing::warn!(%error, "the standard error of jobs cannot be looked at");
        }
        tails
    }

    /// The door, and what comes out of it on the inside.
    fn without_thread() -> (Self, Receiver<Order>) {
        let (orders, inbox) = channel();
        (Self { orders, opens: Arc::default(), late: None }, inbox)
    }

    /// Opens the standard error of a task of this start, unless it is open already or no regular file of `owner`, whose
    /// job it is. Does not wait.
    pub fn open(&self, start: JobStart, owner: UserId, process: ProcessId) {
        // Only this door adds, and nobody else holds it: what was counted can only have become less.
        if self.opens.load(Ordering::Relaxed) < OPENS_MAX {
            self.opens.fetch_add(1, Ordering::Relaxed);
            let _ = self.orders.send(Order::Open(start, owner, process));
        }
    }

    /// What the standard error of a start that is over says; `None` = it could not be read in time.
    pub fn close(&mut self, start: JobStart) -> Option<StderrWords> {
        let (answer, answered) = sync_channel(1);
        self.orders.send(Order::Close(start, answer)).ok()?;
        if self.late.as_ref().is_some_and(|late| late.try_recv() == Err(TryRecvError::Empty)) {
            return None;
        }
        self.late = None;
        answered.recv_timeout(READ_TIMEOUT).unwrap_or_else(|_| {
            self.late = Some(answered);
            None
        })
    }
}

#[cfg(test)]
mod tests;
