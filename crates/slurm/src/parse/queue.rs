//! Reads the answers of `squeue`, each while it comes: the text of a long queue is tens of megabytes, of which no more than a
//! piece and a record are kept. What a record says is `squeue`'s.

use super::squeue::{Parts, fences, job_id, number_u32, parse_record, parts};
use crate::types::{Job, JobsScan};
use memchr::memmem::Finder;
use pillion_core::SlurmJobId;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

/// Jobs of one answer, each with the digest of its record.
type Known = HashMap<SlurmJobId, (u64, Arc<Job>)>;

/// Reads one answer after the other, and keeps the jobs of the last one: of a long queue nearly all stand in the next answer as
/// they did, and are neither read nor kept a second time.
#[derive(Debug, Default)]
pub struct Reader {
    /// Its keys are made at random, so that nobody can write a comment that passes for another.
    hasher: RandomState,
    known: Arc<Known>,
}

/// One answer, as far as it has come.
#[derive(Debug)]
pub struct Answer {
    /// Between the id, the fields and the comment of a record.
    fence: String,
    /// Ends a record.
    end: Finder<'static>,
    hasher: RandomState,
    before: Arc<Known>,
    known: Known,
    scan: JobsScan,
    /// The beginning of a record whose end has not come.
    rest: Vec<u8>,
}

impl Reader {
    /// Begins to read what `squeue -r -h -O` prints with `super::squeue::format_option` of the same `nonce`, under
    /// `SLURM_TIME_FORMAT=%s`.
    ///
    /// Without `-r` squeue merges the waiting tasks of an array into one line, whatever GRES, begin time or comment they have
    /// of their own; with it, the array's throttle does not show (`scontrol::array_throttle` has it).
    pub fn answer(&self, nonce: &str) -> Answer {
        let (fence, end) = fences(nonce);
        Answer {
            fence,
            end: Finder::new(&format!("{end}\n")).into_owned(),
            hasher: self.hasher.clone(),
            before: Arc::clone(&self.known),
            known: HashMap::with_capacity(self.known.len()),
            scan: JobsScan::default(),
            rest: Vec::new(),
        }
    }

    /// The answer has come whole. One that broke off is not brought here, and then the answer before stays the last one.
    pub fn finish(&mut self, answer: Answer) -> JobsScan {
        let Answer { known, mut scan, rest, .. } = answer;
        self.known = Arc::new(known);
        if !rest.trim_ascii().is_empty() {
            scan.dropped_line_count += 1;
        }
        drop_duplicates(&mut scan);
        scan
    }

    /// A job of the last answer, of which more is known by now than its record says.
    pub(crate) fn keep(&mut self, job: &Arc<Job>) {
        if let Some((_, known)) = Arc::make_mut(&mut self.known).get_mut(&job.id) {
            *known = Arc::clone(job);
        }
    }
}

impl Answer {
    /// What came next, cut wherever it may be.
    pub fn push(&mut self, piece: &[u8]) {
        // What was looked through before is not looked through again: a comment may be as long as its writer likes.
        let end_length = self.end.needle().len();
        let mut searched = self.rest.len().saturating_sub(end_length - 1);
        self.rest.extend_from_slice(piece);
        let rest = std::mem::take(&mut self.rest);
        let mut begin = 0;
        while let Some(at) = self.end.find(&rest[searched..]) {
            let end = searched + at;
            self.record(&String::from_utf8_lossy(&rest[begin..end]));
            begin = end + end_length;
            searched = begin;
        }
        self.rest = rest;
        self.rest.drain(..begin);
    }

    fn record(&mut self, record: &str) {
        let read = parts(record, &self.fence).and_then(|parts| {
            let digest = self.hasher.hash_one(parts);
            let job = self.again(parts, digest).or_else(|| parse_record(parts).map(Arc::new))?;
            Some((digest, job))
        });
        match read {
            Some((digest, job)) => {
                self.known.insert(job.id, (digest, Arc::clone(&job)));
                self.scan.jobs.push(job);
            }
            None => self.scan.dropped_line_count += 1,
        }
    }

    /// The job of that record, if it was the same in the answer before.
    fn again(&self, (name, middle, _): Parts<'_>, digest: u64) -> Option<Arc<Job>> {
        let (inner_id, _) = middle.split_once(';')?;
        let (before, job) = self.before.get(&job_id(name, number_u32(inner_id)?)?)?;
        (*before == digest).then(|| Arc::clone(job))
    }
}

/// Reads a single answer that is there as a whole.
pub fn parse(text: &str, nonce: &str) -> JobsScan {
    let mut reader = Reader::default();
    let mut answer = reader.answer(nonce);
    answer.push(text.as_bytes());
    reader.finish(answer)
}

/// Two records of one job: neither is believed.
fn drop_duplicates(scan: &mut JobsScan) {
    let mut seen = HashSet::with_capacity(scan.jobs.len());
    let twice: BTreeSet<SlurmJobId> =
        scan.jobs.iter().map(|job| job.id).filter(|id| !seen.insert(*id)).collect();
    if !twice.is_empty() {
        let before = scan.jobs.len();
        scan.jobs.retain(|job| !twice.contains(&job.id));
        scan.dropped_line_count += (before - scan.jobs.len()) as u64;
    }
}
