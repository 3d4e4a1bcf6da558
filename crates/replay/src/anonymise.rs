//! A file of sacct without people and names, which can be given away and still be replayed: each name becomes a hash with a key
//! that is drawn for the file and kept nowhere, so that equal names stay equal within it and mean nothing outside.

use crate::read::{Field, Header, Line, NoHeader, ReadError, next_line};
use pillion_core::workload::without_numbers;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::io::{BufRead, Write};

/// Names by a key that nobody keeps.
pub struct Pseudonyms {
    key: [u8; 32],
}

/// What a name is of, so that a user and an account of one name become two.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// A user.
    User,
    /// An account.
    Account,
    /// A partition.
    Partition,
    /// A job's name.
    Job,
    /// A command line.
    Line,
    /// A node.
    Node,
}

impl Kind {
    const fn letter(self) -> char {
        match self {
            Self::User => 'u',
            Self::Account => 'a',
            Self::Partition => 'p',
            Self::Job => 'j',
            Self::Line => 'l',
            Self::Node => 'n',
        }
    }
}

impl Pseudonyms {
    /// With this key, which has to come from chance.
    pub const fn new(key: [u8; 32]) -> Self {
        Self { key }
    }

    /// What stands for a name; nothing for nothing.
    pub fn of(&self, kind: Kind, name: &[u8]) -> String {
        if name.is_empty() {
            return String::new();
        }
        // Twice, with the key before each: what a longer text would add to the first hash is of no use.
        let letter = [kind.letter() as u8];
        let inner = Sha256::new().chain_update(self.key).chain_update(letter).chain_update(name).finalize();
        let outer = Sha256::new().chain_update(self.key).chain_update(inner).finalize();
        // A letter for each four bits: digits would be passed over where workloads are told apart.
        let letters =
            outer[..8].iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|bits| char::from(b'a' + bits));
        std::iter::once(kind.letter()).chain(letters).collect()
    }
}

/// Writes a file of sacct anew; gives how many rows were left out, for they cannot be read.
///
/// # Errors
/// [`ReadError::Header`] for what is no file of sacct, [`ReadError::Io`] where either file fails.
pub fn accounting(mut from: impl BufRead, mut to: impl Write, names: &Pseudonyms) -> Result<u64, ReadError> {
    let mut line = Vec::new();
    if next_line(&mut from, &mut line)? != Line::Whole {
        return Err(NoHeader::NotThere.into());
    }
    let header = Header::read(std::str::from_utf8(&line).map_err(|_| NoHeader::NotThere)?)?;
    let written: Vec<Field> = Field::ALL.into_iter().filter(|field| header.has(*field)).collect();
    let titles: Vec<&str> = written.iter().map(|field| field.name()).collect();
    writeln!(to, "{}", titles.join("|"))?;
    let mut left_out = 0;
    loop {
        match next_line(&mut from, &mut line)? {
            Line::End => break,
            Line::TooLong => left_out += 1,
            Line::Whole if line.is_empty() => {}
            Line::Whole => match anonymous(&header, &line, &written, names) {
                Some(row) => writeln!(to, "{row}")?,
                None => left_out += 1,
            },
        }
    }
    to.flush()?;
    Ok(left_out)
}

fn anonymous(header: &Header, line: &[u8], written: &[Field], names: &Pseudonyms) -> Option<String> {
    let line = std::str::from_utf8(line).ok()?;
    let row = crate::read::Row::split(header, line).ok()?;
    row.id().ok()?;
    let cells: Vec<String> = written.iter().map(|field| cell(&row, *field, names)).collect();
    Some(cells.join("|"))
}

fn cell(row: &crate::read::Row<'_>, field: Field, names: &Pseudonyms) -> String {
    let text = row.text(field);
    match field {
        Field::User => names.of(Kind::User, text.as_bytes()),
        Field::Account => names.of(Kind::Account, text.as_bytes()),
        Field::Partition => names.of(Kind::Partition, text.as_bytes()),
        Field::JobName => names.of(Kind::Job, text.as_bytes()),
        Field::SubmitLine => names.of(Kind::Line, &without_numbers(text)),
        Field::NodeList => names.of(Kind::Node, row.first_node().as_bytes()),
        // Its names of nodes go; what it says of GPUs stays, packed anew.
        Field::AdminComment => crate::read::repacked(text).unwrap_or_default(),
        // Whoever cancelled it stands behind the word.
        Field::State => plain(text.split(' ').next().unwrap_or_default()),
        Field::JobIdRaw
        | Field::JobId
        | Field::Submit
        | Field::Eligible
        | Field::Start
        | Field::End
        | Field::TimelimitRaw
        | Field::Priority
        | Field::NNodes
        | Field::AllocTres
        | Field::ReqTres
        | Field::TresUsageInMax
        | Field::TresUsageInAve
        | Field::TresUsageInTot => plain(text),
    }
}

/// What is kept consists of numbers and Slurm's own words: any other letter is written as `_`.
fn plain(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "=,/:.-+_".contains(letter);
    text.chars().map(|letter| if is_plain(letter) { letter } else { '_' }).collect()
}

/// Writes nodes anew, with the names that stand for theirs in the accounting.
pub fn nodes(shapes: &[crate::site::NodeShape], names: &Pseudonyms) -> String {
    let mut text = String::new();
    for shape in shapes {
        let partitions: Vec<String> =
            shape.partitions.iter().map(|name| names.of(Kind::Partition, name.as_bytes())).collect();
        let gpu_type = if shape.gpu_type.is_empty() { String::new() } else { format!(":{}", shape.gpu_type) };
        let _ = writeln!(
            text,
            "NodeName={} CPUTot={} RealMemory={} Gres=gpu{gpu_type}:{} Partitions={}",
            names.of(Kind::Node, shape.name.as_bytes()),
            shape.cpus,
            shape.memory_mib,
            shape.gpus,
            partitions.join(",")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::{Besides, read};

    const FILE: &str = "JobIDRaw|User|Account|Partition|JobName|State|Submit|Start|End|NodeList|AllocTRES|SubmitLine|Comment\n\
        7|alice|ml|gpu|secret-1|CANCELLED by alice|10|20|60|n[1-2]|cpu=1,gres/gpu:a100=1|sbatch s.sh --seed 1|x\n\
        8|alice|ml|gpu|secret-1|COMPLETED|10|20|60|n1|cpu=1,gres/gpu:a100=1|sbatch s.sh --seed 22|x\n\
        broken\n9|bob|bob|gpu|secret-1|COMPLETED|10|20|60|n1|cpu=1,gres/gpu:a100=1|sbatch s.sh --seed 1|x\n";

    #[test]
    fn nobody_is_named_and_who_is_equal_stays_so() {
        let mut text = Vec::new();
        let left_out = accounting(FILE.as_bytes(), &mut text, &Pseudonyms::new([7; 32])).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(left_out, 1);
        for word in ["alice", "bob", "ml|", "secret", "s.sh", "|n1|", "Comment"] {
            assert!(!text.contains(word), "{word}: {text}");
        }
        let (before, _) = read(FILE.as_bytes(), &Besides::default()).unwrap();
        let (after, tally) = read(text.as_bytes(), &Besides::default()).unwrap();
        assert!(tally.dropped.is_empty(), "{tally:?}");
        let shape = |read: &crate::Accounting| -> Vec<(u32, u32, u32, u64, u32)> {
            read.jobs
                .iter()
                .map(|job| (job.user, job.account, job.workload, job.seconds(), job.node))
                .collect()
        };
        assert_eq!(shape(&before), shape(&after));
        let mut other = Vec::new();
        accounting(FILE.as_bytes(), &mut other, &Pseudonyms::new([8; 32])).unwrap();
        assert_ne!(text.as_bytes(), other, "another key, other names");
    }

    #[test]
    fn a_user_and_an_account_of_one_name_are_two() {
        let names = Pseudonyms::new([1; 32]);
        assert_ne!(names.of(Kind::User, b"bob")[1..], names.of(Kind::Account, b"bob")[1..]);
        assert_eq!(names.of(Kind::User, b""), "");
    }
}
