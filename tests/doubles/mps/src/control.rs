//! The control program as a client of its daemon: a command a line on standard input. And the few words between the two.

use pillion_core::UserId;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// The daemon's socket in its pipe directory.
pub const SOCKET: &str = "control";
/// Before the status with which the daemon ends, which is the last that it says.
const ENDED: char = '\0';

/// Says each line of standard input to the daemon, and prints what it answers. Returns the exit code: 0 whatever the daemon
/// answered; after `quit` the daemon's own (the real one's is at times 0 where its daemon ends with a failure).
pub fn converse(pipe_directory: &Path) -> u8 {
    let mut lines = io::stdin().lock().lines().peekable();
    // It is looked for also where nothing is said to it.
    if lines.peek().is_none() && UnixStream::connect(pipe_directory.join(SOCKET)).is_err() {
        return not_found();
    }
    for line in lines {
        let Ok(answer) = ask(pipe_directory, &line.unwrap_or_default()) else { return not_found() };
        let (text, status) = answer.split_once(ENDED).unwrap_or((&answer, ""));
        print!("{text}");
        if let Ok(status) = status.parse() {
            return status;
        }
    }
    0
}

fn not_found() -> u8 {
    eprintln!("Cannot find MPS control daemon process");
    1
}

fn ask(pipe_directory: &Path, line: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(pipe_directory.join(SOCKET))?;
    stream.write_all(format!("{line}\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// The daemon's side: the command that somebody wrote, and who. `None`: nothing was said.
///
/// # Errors
/// Whatever the socket says.
pub fn hear(stream: &UnixStream) -> io::Result<Option<(String, UserId)>> {
    stream.set_read_timeout(Some(std::time::Duration::from_secs(1)))?;
    let who = rustix::net::sockopt::socket_peercred(stream)?;
    let mut line = String::new();
    let length = BufReader::new(stream).take(4096).read_line(&mut line)?;
    Ok((length > 0).then(|| (line.trim_end().to_owned(), UserId(who.uid.as_raw()))))
}

/// The daemon's side: what it answers.
pub fn answer(mut stream: &UnixStream, answer: &str) {
    // Whoever asked has gone: nobody minds.
    let _ = stream.write_all(answer.as_bytes());
}

/// The daemon's side: what it says at its end.
pub fn part(stream: &UnixStream, status: u8) {
    answer(stream, &format!("{ENDED}{status}"));
}
