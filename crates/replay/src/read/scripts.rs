//! Stored batch scripts, as `sacct --batch-script` prints them or one a file. Of each its digest alone is kept, made of what
//! `pillion.lua` makes its own of (`core::workload`). So the workloads of a replay are those that the pool will know. Foreign: a script may hold anything, a line that looks
//! like the next script's head among it; its user then fools his own jobs' workloads.

use super::{Line, ReadError, next_line};
use pillion_core::workload::script_text;
use rustc_hash::FxHashMap;
use sha2::{Digest as _, Sha256};
use std::io::BufRead;

/// As sacct writes it, before a job's number and a line of dashes.
const HEAD: &str = "Batch Script for ";
/// What sacct writes where it has no script.
const NONE: &[u8] = b"NONE";

/// Which job, as people see its number: `17`, or task 4 of an array, `17_4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct ScriptId {
    job: u32,
    task: Option<u32>,
}

impl ScriptId {
    fn read(text: &str) -> Option<Self> {
        let (job, task) = text.split_once('_').map_or((text, None), |(job, task)| (job, Some(task)));
        let number = |text: &str| {
            let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            is_digits.then(|| text.parse().ok())?
        };
        Some(Self { job: number(job)?, task: task.map(|task| number(task).ok_or(())).transpose().ok()? })
    }
}

/// What was read, by job.
#[derive(Debug, Clone, Default)]
pub struct Scripts {
    of_job: FxHashMap<ScriptId, u128>,
    /// Scripts that were dropped: longer than any is, or of no job.
    pub dropped: u64,
}

impl Scripts {
    /// No script is larger: Slurm's own `max_script_size` is 4 MiB unless a site sets more.
    pub const BYTES_MAX: usize = 16 << 20;

    /// Reads what `sacct --batch-script` printed.
    ///
    /// # Errors
    /// [`ReadError::Scripts`] where it holds no script at all, [`ReadError::Io`].
    pub fn read(mut from: impl BufRead) -> Result<Self, ReadError> {
        let mut reader = Reader::default();
        let mut line = Vec::new();
        loop {
            match next_line(&mut from, &mut line)? {
                Line::End => break,
                Line::TooLong => reader.is_too_long = true,
                Line::Whole => reader.take(&line),
            }
        }
        reader.finish();
        if reader.scripts.of_job.is_empty() { Err(ReadError::Scripts) } else { Ok(reader.scripts) }
    }

    /// Adds the script of a job, by its number as people see it. What names no job or is too long is dropped and counted.
    pub fn add(&mut self, job: &str, script: &[u8]) {
        match ScriptId::read(job).filter(|_| script.len() <= Self::BYTES_MAX) {
            Some(id) => {
                self.of_job.insert(id, digest(script));
            }
            None => self.dropped += 1,
        }
    }

    /// Of how many jobs there is one.
    pub fn len(&self) -> usize {
        self.of_job.len()
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.of_job.is_empty()
    }

    /// The digest of a job's script, by its number as people see it.
    pub(super) fn digest_of(&self, job: &str) -> Option<u128> {
        if self.is_empty() { None } else { self.of_job.get(&ScriptId::read(job)?).copied() }
    }
}

/// Puts lines together to scripts.
#[derive(Default)]
struct Reader {
    scripts: Scripts,
    /// Whose script the lines are of.
    job: Option<String>,
    script: Vec<u8>,
    is_too_long: bool,
    /// A line that is the next script's head if dashes follow.
    head: Option<String>,
}

impl Reader {
    fn take(&mut self, line: &[u8]) {
        if let Some(head) = self.head.take() {
            if line.len() >= 80 && line.iter().all(|byte| *byte == b'-') {
                self.finish();
                self.job = head.strip_prefix(HEAD).map(str::to_owned);
                return;
            }
            self.add(head.as_bytes());
        }
        match std::str::from_utf8(line) {
            Ok(text) if text.starts_with(HEAD) => self.head = Some(text.to_owned()),
            _ => self.add(line),
        }
    }

    fn add(&mut self, line: &[u8]) {
        if self.script.len() + line.len() >= Scripts::BYTES_MAX {
            self.is_too_long = true;
        } else if self.job.is_some() {
            self.script.extend_from_slice(line);
            self.script.push(b'\n');
        }
    }

    fn finish(&mut self) {
        let script = std::mem::take(&mut self.script);
        let is_too_long = std::mem::take(&mut self.is_too_long);
        let Some(job) = self.job.take() else { return };
        if is_too_long {
            self.scripts.dropped += 1;
        } else if script.trim_ascii() != NONE {
            self.scripts.add(&job, &script);
        }
    }
}

/// The first 128 bits of a digest of what `pillion.lua` takes of a script.
fn digest(script: &[u8]) -> u128 {
    // sacct adds a line's end.
    let bytes: [u8; 32] = Sha256::digest(script_text(script.trim_ascii_end())).into();
    u128::from_be_bytes(bytes[..16].try_into().expect("16 of 32"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Scripts {
        Scripts::read(text.as_bytes()).unwrap()
    }

    #[test]
    fn what_a_script_does_tells_it_apart_as_in_lua() {
        // The cases of slurm-spank/tests/lua/submit.lua.
        let plain = digest(b"#!/bin/sh\npython train.py\n");
        assert_eq!(digest(b"#!/bin/sh\n#SBATCH -t 5\n\n  python train.py   \n"), plain);
        assert_eq!(digest(b"#!/bin/sh\r\npython train.py"), plain);
        assert_eq!(digest(b"#!/bin/sh\npython train.py\n\n"), plain, "sacct adds a line's end");
        assert_ne!(digest(b"#!/bin/sh\npython train2.py\n"), plain);
        assert_ne!(
            digest(b"#!/bin/sh\n #SBATCH -t 5\npython train.py"),
            plain,
            "what is indented is a comment"
        );
        let long = |middle: u8| [vec![b'a'; 40_000], vec![middle; 40_000], vec![b'c'; 40_000]].concat();
        assert_eq!(digest(&long(b'x')), digest(&long(b'y')), "of a long one the ends");
        assert_ne!(digest(&[long(b'x'), vec![b'c']].concat()), digest(&long(b'x')), "and its length");
    }

    #[test]
    fn scripts_are_read_as_sacct_prints_them() {
        let dashes = "-".repeat(80);
        let text = format!(
            "Batch Script for 17\n{dashes}\n#!/bin/sh\npython a.py\n\nBatch Script for 18_4\n{dashes}\n#!/bin/sh\nBatch Script for 99\npython a.py\n\
             \nBatch Script for 19\n{dashes}\nNONE\n\nBatch Script for x\n{dashes}\nfoo\n\nBatch Script for 20\n{dashes}\n#!/bin/sh\n#SBATCH -t 1\npython a.py\n"
        );
        let scripts = read(&text);
        assert_eq!((scripts.len(), scripts.dropped), (3, 1));
        assert_eq!(scripts.digest_of("17"), scripts.digest_of("20"));
        assert!(scripts.digest_of("18_4").is_some() && scripts.digest_of("18_4") != scripts.digest_of("17"));
        for none in ["18", "19", "99", "17_", "_4", "", "17.batch"] {
            assert_eq!(scripts.digest_of(none), None, "{none}");
        }
    }

    #[test]
    fn what_is_no_file_of_scripts_is_refused_and_what_is_too_long_is_dropped() {
        let said = Scripts::read("hello\n".as_bytes()).unwrap_err().to_string();
        assert!(said.contains("no script"), "{said}");
        let mut scripts = Scripts::default();
        scripts.add("5", &vec![b'x'; Scripts::BYTES_MAX + 1]);
        scripts.add("five", b"x");
        assert_eq!((scripts.len(), scripts.dropped), (0, 2));
        let dashes = "-".repeat(80);
        let line = "y".repeat(super::super::ROW_BYTES_MAX + 10);
        let text = format!("Batch Script for 1\n{dashes}\n{line}\n\nBatch Script for 2\n{dashes}\nz\n");
        let scripts = read(&text);
        assert_eq!((scripts.len(), scripts.dropped, scripts.digest_of("1")), (1, 1, None));
    }
}
