//! As much of HTTP as an exporter needs: one question a connection.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// More of a question is not read.
const QUESTION_BYTES_MAX: u64 = 16 * 1024;

/// Answers one question: the page, and only at `/metrics`.
///
/// # Errors
/// Whatever the socket says.
pub(crate) fn answer(mut stream: &TcpStream, page: &str) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut question = BufReader::new(stream).take(QUESTION_BYTES_MAX);
    let mut first = String::new();
    question.read_line(&mut first)?;
    let mut line = String::new();
    while question.read_line(&mut line)? > 2 {
        line.clear();
    }
    let mut words = first.split_whitespace();
    let (status, body) = match (words.next(), words.next()) {
        (Some("GET"), Some("/metrics")) => ("200 OK", page),
        (Some("GET"), _) => ("404 Not Found", ""),
        _ => ("405 Method Not Allowed", ""),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}
