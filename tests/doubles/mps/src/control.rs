//! The control program as a client of its daemon: a command a line on standard input. And the few words between the two.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// The daemon's socket in its pipe directory.
pub const SOCKET: &str = "control";
/// Before an answer that is none.
const REFUSED: &str = "!";

/// Says each line of standard input to the daemon, and prints what it answers. Returns the exit code.
pub fn converse(pipe_directory: &Path) -> u8 {
    let mut code = 0;
    for line in io::stdin().lock().lines() {
        let line = line.unwrap_or_default();
        match ask(pipe_directory, &line) {
            Err(_) => {
                eprintln!("Cannot find MPS control daemon process");
                return 1;
            }
            Ok(answer) => match answer.strip_prefix(REFUSED) {
                Some(reason) => {
                    eprintln!("{reason}");
                    code = 1;
                }
                None => print!("{answer}"),
            },
        }
    }
    code
}

fn ask(pipe_directory: &Path, line: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(pipe_directory.join(SOCKET))?;
    stream.write_all(format!("{line}\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// The daemon's side: the command that somebody wrote.
///
/// # Errors
/// Whatever the socket says.
pub fn hear(stream: &UnixStream) -> io::Result<String> {
    stream.set_read_timeout(Some(std::time::Duration::from_secs(1)))?;
    let mut line = String::new();
    BufReader::new(stream).take(4096).read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}

/// The daemon's side: what it answers.
pub fn answer(mut stream: &UnixStream, answer: &Result<String, String>) {
    let text = match answer {
        Ok(text) => text.clone(),
        Err(reason) => format!("{REFUSED}{reason}"),
    };
    // Whoever asked has gone: nobody minds.
    let _ = stream.write_all(text.as_bytes());
}
