//! One question to the agent over its Unix socket, blocking, with one deadline for connecting, writing and reading
//! together. Whatever sits at the other end (nobody, a full backlog, one that drips bytes, sends a megabyte, answers
//! garbage or never), the caller has its result when the deadline has passed.
//!
//! Connecting and asking are two steps, because they are done in two hooks: the agent answers root only, and the kernel
//! tells it who *connected*; what is to be asked is known only later, when the process is its user's already.
//!
//! It runs in a forked child of slurmstepd that is about to become the task: no thread, no signal handler.

use crate::ffi::unix;
use pillion_core::handoff::{HANDOFF_LENGTH_MAX, HandoffReply, HandoffRequest};
use std::fmt;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long to wait between two attempts at a socket whose backlog is full.
const BACKLOG_PAUSE: Duration = Duration::from_millis(5);

/// Why there is no answer.
#[derive(Debug)]
pub enum NoAnswer {
    /// Nobody listens on the socket, or there is none.
    Unreachable(io::Error),
    /// The listener is not root (nor the user that we run as).
    Untrusted(u32),
    /// The deadline has passed.
    Late(Duration),
    /// The connection broke, or ended before a whole line.
    Broken(io::Error),
    /// More than [`HANDOFF_LENGTH_MAX`] bytes.
    TooLong,
    /// Not a reply.
    Garbage(serde_json::Error),
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(error) => write!(f, "the agent cannot be reached: {error}"),
            Self::Untrusted(uid) => {
                write!(f, "the agent's socket belongs to a process of uid {uid}, not of root")
            }
            Self::Late(deadline) => write!(f, "the agent did not answer within {} ms", deadline.as_millis()),
            Self::Broken(error) => write!(f, "the agent did not answer whole: {error}"),
            Self::TooLong => write!(f, "the agent's answer is longer than {HANDOFF_LENGTH_MAX} bytes"),
            Self::Garbage(error) => write!(f, "the agent's answer cannot be read: {error}"),
        }
    }
}

impl std::error::Error for NoAnswer {}

/// What is left of the time for the whole conversation.
#[derive(Debug, Clone, Copy)]
struct Deadline {
    allowed: Duration,
    at: Instant,
}

#[expect(
    clippy::disallowed_methods,
    reason = "a deadline on a real socket is real time; nothing is decided by it"
)]
impl Deadline {
    /// `left` of `allowed`, counted from now.
    fn after(left: Duration, allowed: Duration) -> Self {
        Self { allowed, at: Instant::now() + left }
    }

    /// What is left.
    fn left(self) -> Result<Duration, NoAnswer> {
        let left = self.at.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(NoAnswer::Late(self.allowed)) } else { Ok(left) }
    }
}

/// A connection to the agent that has not asked yet. Dropping it hangs up.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    allowed: Duration,
    left: Duration,
}

impl Connection {
    /// Connects to the agent at `socket`; connecting and asking together may take `allowed`.
    ///
    /// # Errors
    /// [`NoAnswer`], as for [`Connection::ask`].
    pub fn open(socket: &Path, allowed: Duration) -> Result<Self, NoAnswer> {
        let deadline = Deadline::after(allowed, allowed);
        let stream = connect(socket, deadline)?;
        Ok(Self { stream, allowed, left: deadline.left()? })
    }

    /// Asks, within what is left of the time allowed; what Slurm did between the two steps does not count.
    ///
    /// # Errors
    /// [`NoAnswer`]; the task then starts as if nothing had been decided.
    pub fn ask(mut self, request: &HandoffRequest) -> Result<HandoffReply, NoAnswer> {
        let deadline = self.say(request)?;
        let reply = read_line(&mut self.stream, deadline)?;
        serde_json::from_slice(&reply).map_err(NoAnswer::Garbage)
    }

    /// Says that a task begins, and hangs up: what the agent makes of it nobody waits for.
    ///
    /// # Errors
    /// [`NoAnswer`]; the agent then does not know of the task.
    pub fn tell(self, request: &HandoffRequest) -> Result<(), NoAnswer> {
        self.say(request).map(drop)
    }

    fn say(&self, request: &HandoffRequest) -> Result<Deadline, NoAnswer> {
        let deadline = Deadline::after(self.left, self.allowed);
        let mut line = serde_json::to_vec(request).map_err(NoAnswer::Garbage)?;
        line.push(b'\n');
        write_all(&self.stream, &line, deadline)?;
        Ok(deadline)
    }
}

fn connect(socket: &Path, deadline: Deadline) -> Result<UnixStream, NoAnswer> {
    let stream = loop {
        match unix::connect_nonblocking(socket) {
            Ok(stream) => break stream,
            // A full backlog: the agent is there, and busy.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                std::thread::sleep(BACKLOG_PAUSE.min(deadline.left()?));
            }
            Err(error) => return Err(NoAnswer::Unreachable(error)),
        }
    };
    let peer = unix::peer_uid(stream.as_fd()).map_err(NoAnswer::Broken)?;
    if peer == 0 || peer == unix::effective_uid() { Ok(stream) } else { Err(NoAnswer::Untrusted(peer)) }
}

fn write_all(stream: &UnixStream, mut bytes: &[u8], deadline: Deadline) -> Result<(), NoAnswer> {
    while !bytes.is_empty() {
        match unix::send_quietly(stream.as_fd(), bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if is_passing(&error) => {
                unix::wait_writable(stream.as_fd(), deadline.left()?).map_err(NoAnswer::Broken)?;
            }
            Err(error) => return Err(NoAnswer::Broken(error)),
        }
    }
    Ok(())
}

/// Reads up to the first newline, or to the end of the stream.
fn read_line(stream: &mut UnixStream, deadline: Deadline) -> Result<Vec<u8>, NoAnswer> {
    let mut line = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        // Before each read, so that a peer that drips or floods cannot keep us beyond it.
        let left = deadline.left()?;
        match stream.read(&mut chunk) {
            Ok(0) => return Err(NoAnswer::Broken(ErrorKind::UnexpectedEof.into())),
            Ok(count) => {
                if let Some(end) = chunk[..count].iter().position(|byte| *byte == b'\n') {
                    line.extend_from_slice(&chunk[..end]);
                    return Ok(line);
                }
                line.extend_from_slice(&chunk[..count]);
                if line.len() > HANDOFF_LENGTH_MAX {
                    return Err(NoAnswer::TooLong);
                }
            }
            Err(error) if is_passing(&error) => {
                unix::wait_readable(stream.as_fd(), left).map_err(NoAnswer::Broken)?;
            }
            Err(error) => return Err(NoAnswer::Broken(error)),
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
