//! Reports on disk until the scheduler has them. Knows neither what they say nor how they travel.
//!
//! Kept in `redb`, an embedded store in plain Rust without dependencies or threads: what is appended is durable when
//! `append` returns, a killed process loses nothing, and a sequence is never given twice (a report under an old sequence
//! would be taken for one that the scheduler has already). Queues made of plain files were smaller, but are either no
//! longer cared for or cannot drop from the middle, which is what keeping summaries and dropping samples takes.
//!
//! After an error of its disk `redb` refuses everything for good. So the store is given up then, and opened again when it is used next:
//! once a use, and under the same name.
//!
//! The journal is bounded: when it is full the oldest samples go, then the oldest launches; summaries are never dropped.

use pillion_core::report::{Report, ReportBody};
use pillion_proto::v1 as wire;
use prost::Message as _;
use redb::{
    Database, DatabaseError, ReadTransaction, ReadableDatabase as _, ReadableTable as _,
    ReadableTableMetadata as _, TableDefinition, WriteTransaction,
};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use tracing::{error, info, warn};

type Reports = TableDefinition<'static, u64, &'static [u8]>;

const SAMPLES: Reports = TableDefinition::new("samples");
const LAUNCHES: Reports = TableDefinition::new("launches");
const SUMMARIES: Reports = TableDefinition::new("summaries");
/// All kinds, in the order in which they are dropped.
const KINDS: [Reports; 3] = [SAMPLES, LAUNCHES, SUMMARIES];
/// How many kinds may be dropped.
const DROPPED_KINDS: usize = 2;
const TEXTS: TableDefinition<&str, &str> = TableDefinition::new("texts");
const NUMBERS: TableDefinition<&str, u64> = TableDefinition::new("numbers");
const JOURNAL_ID: &str = "journal_id";
const NEXT_SEQUENCE: &str = "next_sequence";
const DROPPED_COUNT: &str = "dropped_count";

/// The store reads its pages from here; the journal is written at its end and read there, so little is enough.
const CACHE_BYTES: usize = 1 << 20;

/// What the disk or the store said.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("the report journal {} failed", path.display())]
    Store {
        path: PathBuf,
        #[source]
        source: Box<redb::Error>,
    },
    /// The file beside it.
    #[error("the report journal {} cannot be set aside", path.display())]
    Aside {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// What is changed by writing.
#[derive(Debug, Clone, Copy, Default)]
struct Tail {
    next_sequence: u64,
    dropped_count: u64,
    kept_bytes: u64,
}

/// Opens the store, or makes it.
type Opener = Box<dyn Fn() -> Result<Database, DatabaseError> + Send + Sync>;

pub struct Journal {
    path: PathBuf,
    opener: Opener,
    /// `None`: given up, and not open again yet.
    database: RwLock<Option<Database>>,
    id: String,
    bytes_max: u64,
    tail: Mutex<Tail>,
    /// The tail as it was written last, for whoever must not wait for the disk.
    written: Mutex<Tail>,
    acknowledged: AtomicU64,
    lost_count: AtomicU64,
}

/// How full a journal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JournalFigures {
    /// What is kept.
    pub kept_bytes: u64,
    /// What may be.
    pub bytes_max: u64,
    /// Reports that have not arrived; `None` until the scheduler has said what it has.
    pub waiting_count: Option<u64>,
    /// Reports dropped for lack of room.
    pub dropped_count: u64,
    /// Reports that could not be written since it was opened.
    pub lost_count: u64,
}

impl Journal {
    /// Opens the journal in `directory`; one that is damaged is set aside and a new one begun. `new_id` names a new one.
    ///
    /// # Errors
    /// If there can be none.
    pub fn open(directory: &Path, bytes_max: u64, new_id: impl Fn() -> String) -> Result<Self, JournalError> {
        let path = directory.join("reports.redb");
        match Self::open_at(&path, bytes_max, &new_id) {
            Err(JournalError::Store { source, .. }) if is_damage(&source) => {
                set_aside(&path, &source)?;
                Self::open_at(&path, bytes_max, &new_id)
            }
            other => other,
        }
    }

    fn open_at(path: &Path, bytes_max: u64, new_id: &impl Fn() -> String) -> Result<Self, JournalError> {
        let file = path.to_owned();
        let opener =
            Box::new(move || Database::builder().set_cache_size(CACHE_BYTES).create(&file)) as Opener;
        Self::over(opener, path, bytes_max, new_id)
    }

    /// The journal in the store that is opened so.
    fn over(
        opener: Opener,
        path: &Path,
        bytes_max: u64,
        new_id: &impl Fn() -> String,
    ) -> Result<Self, JournalError> {
        let (database, id, tail) = opened(&opener, new_id).map_err(|error| of_store(path, error))?;
        let (path, database) = (path.to_owned(), RwLock::new(Some(database)));
        let (tail, written) = (Mutex::new(tail), Mutex::new(tail));
        let (acknowledged, lost_count) = <(AtomicU64, AtomicU64)>::default();
        Ok(Self { path, opener, database, id, bytes_max, tail, written, acknowledged, lost_count })
    }

    /// The name of this journal.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The last sequence given.
    pub fn last_sequence(&self) -> u64 {
        self.tail().next_sequence - 1
    }

    /// How many reports were dropped because the journal was full.
    pub fn dropped_count(&self) -> u64 {
        self.tail().dropped_count
    }

    /// How full it is, without waiting for the disk.
    pub fn figures(&self) -> JournalFigures {
        let Tail { next_sequence, dropped_count, kept_bytes } =
            *self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let acknowledged = Some(self.acknowledged.load(Ordering::Relaxed)).filter(|sequence| *sequence > 0);
        JournalFigures {
            kept_bytes,
            bytes_max: self.bytes_max,
            waiting_count: acknowledged.map(|sequence| (next_sequence - 1).saturating_sub(sequence)),
            dropped_count,
            lost_count: self.lost_count.load(Ordering::Relaxed),
        }
    }

    /// Everything up to `sequence` has arrived; it goes with the next append.
    pub fn acknowledge(&self, sequence: u64) {
        self.acknowledged.fetch_max(sequence, Ordering::Relaxed);
    }

    /// Adds reports, durable on return, and gives the last sequence.
    ///
    /// # Errors
    /// [`JournalError::Store`]; then none of them was added.
    pub fn append(&self, bodies: Vec<ReportBody>) -> Result<u64, JournalError> {
        let (mut tail, count) = (self.tail(), bodies.len() as u64);
        let dropped_before = tail.dropped_count;
        self.add(bodies, &mut tail).inspect_err(|_| {
            self.lost_count.fetch_add(count, Ordering::Relaxed);
        })?;
        *self.written.lock().unwrap_or_else(PoisonError::into_inner) = *tail;
        let dropped_count = tail.dropped_count - dropped_before;
        if dropped_count > 0 {
            warn!(dropped_count, "the report journal is full; its oldest samples were dropped");
        }
        Ok(tail.next_sequence - 1)
    }

    fn add(&self, bodies: Vec<ReportBody>, tail: &mut Tail) -> Result<(), JournalError> {
        self.open_again(tail)?;
        let mut changed = *tail;
        self.write(bodies, &mut changed).map_err(|error| self.failed(error))?;
        *tail = changed;
        Ok(())
    }

    fn write(&self, bodies: Vec<ReportBody>, tail: &mut Tail) -> Result<(), redb::Error> {
        let database = self.database();
        let transaction = database.as_ref().ok_or(redb::Error::DatabaseClosed)?.begin_write()?;
        tail.kept_bytes -= forget_until(&transaction, self.acknowledged.load(Ordering::Relaxed))?;
        for body in bodies {
            let kind = kind_of(&body);
            let report = wire::Report::from(Report { sequence: tail.next_sequence, body });
            let bytes = report.encode_to_vec();
            // A report that the scheduler must refuse would stand in the way of all that come after it.
            if let Err(error) = Report::try_from(report) {
                error!(error = %pillion_core::report(&error), "a report makes no sense and is left out");
                continue;
            }
            transaction.open_table(kind)?.insert(tail.next_sequence, bytes.as_slice())?;
            tail.kept_bytes += bytes.len() as u64;
            tail.next_sequence += 1;
        }
        for kind in &KINDS[..DROPPED_KINDS] {
            let mut table = transaction.open_table(*kind)?;
            while tail.kept_bytes > self.bytes_max
                && let Some((_, bytes)) = table.pop_first()?
            {
                tail.kept_bytes -= bytes.value().len() as u64;
                tail.dropped_count += 1;
            }
        }
        {
            let mut numbers = transaction.open_table(NUMBERS)?;
            numbers.insert(NEXT_SEQUENCE, tail.next_sequence)?;
            numbers.insert(DROPPED_COUNT, tail.dropped_count)?;
        }
        Ok(transaction.commit()?)
    }

    /// The reports after `sequence`, oldest first, at most `count_max`.
    ///
    /// # Errors
    /// [`JournalError::Store`].
    pub fn read_after(&self, sequence: u64, count_max: usize) -> Result<Vec<wire::Report>, JournalError> {
        if self.database().is_none() {
            self.open_again(&mut self.tail())?;
        }
        let found = self.bytes_after(sequence, count_max).map_err(|error| self.failed(error))?;
        Ok(found
            .into_iter()
            .filter_map(|(sequence, bytes)| match wire::Report::decode(bytes.as_slice()) {
                Ok(report) => Some(report),
                Err(error) => {
                    warn!(sequence, %error, "a report in the journal cannot be read; left out");
                    None
                }
            })
            .collect())
    }

    /// As [`Self::read_after`], encoded and by sequence: each kind of report has a table of its own.
    fn bytes_after(&self, sequence: u64, count_max: usize) -> Result<Vec<(u64, Vec<u8>)>, redb::Error> {
        let database = self.database();
        let transaction = database.as_ref().ok_or(redb::Error::DatabaseClosed)?.begin_read()?;
        let mut found = Vec::new();
        for kind in KINDS {
            found.extend(some_after(&transaction, kind, sequence, count_max)?);
        }
        found.sort_unstable_by_key(|(sequence, _)| *sequence);
        found.truncate(count_max);
        Ok(found)
    }

    /// Opens the store where it was given up. What its disk has forgotten of the end counts all the same: no sequence is given twice.
    fn open_again(&self, tail: &mut Tail) -> Result<(), JournalError> {
        if self.database().is_some() {
            return Ok(());
        }
        let mut database = self.database.write().unwrap_or_else(PoisonError::into_inner);
        let (opened, _, found) = match opened(&self.opener, &|| self.id.clone()) {
            Ok(opened) => opened,
            Err(error) => {
                if is_damage(&error) {
                    // The next one to come makes a new one.
                    set_aside(&self.path, &error)?;
                }
                return Err(of_store(&self.path, error));
            }
        };
        *database = Some(opened);
        *tail = Tail {
            next_sequence: found.next_sequence.max(tail.next_sequence),
            dropped_count: found.dropped_count.max(tail.dropped_count),
            kept_bytes: found.kept_bytes,
        };
        info!(path = %self.path.display(), "the report journal is open again");
        Ok(())
    }

    /// What the store said; one that says nothing else from now on is given up.
    fn failed(&self, error: redb::Error) -> JournalError {
        if is_final(&error) {
            *self.database.write().unwrap_or_else(PoisonError::into_inner) = None;
        }
        of_store(&self.path, error)
    }

    fn database(&self) -> RwLockReadGuard<'_, Option<Database>> {
        self.database.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn of_store(path: &Path, error: redb::Error) -> JournalError {
    JournalError::Store { path: path.to_owned(), source: Box::new(error) }
}

/// Takes a damaged file out of the way.
fn set_aside(path: &Path, error: &redb::Error) -> Result<(), JournalError> {
    let aside = path.with_extension("damaged");
    error!(aside = %aside.display(), error = %pillion_core::report(error), "the report journal is damaged; set aside");
    std::fs::rename(path, aside).map_err(|source| JournalError::Aside { path: path.to_owned(), source })
}

/// Whether the store answers nothing else until it is opened again.
fn is_final(error: &redb::Error) -> bool {
    use redb::Error;
    is_damage(error) || matches!(error, Error::Io(_) | Error::PreviousIo | Error::DatabaseClosed)
}

/// Whether the file is no journal any more, as against a disk that is full or a file that another process holds.
fn is_damage(error: &redb::Error) -> bool {
    use redb::Error;
    match error {
        Error::Corrupted(_)
        | Error::UpgradeRequired(_)
        | Error::TableTypeMismatch { .. }
        | Error::RepairAborted => true,
        Error::Io(error) => error.kind() == io::ErrorKind::InvalidData,
        _ => false,
    }
}

/// The store, its name, and where it ends.
fn opened(opener: &Opener, new_id: &impl Fn() -> String) -> Result<(Database, String, Tail), redb::Error> {
    let database = opener()?;
    let (id, tail) = begin(&database, new_id)?;
    Ok((database, id, tail))
}

/// Makes what is missing and reads where the journal ends.
fn begin(database: &Database, new_id: &impl Fn() -> String) -> Result<(String, Tail), redb::Error> {
    let transaction = database.begin_write()?;
    let mut tail = Tail { next_sequence: 1, ..Tail::default() };
    let id = {
        let mut texts = transaction.open_table(TEXTS)?;
        let known = texts.get(JOURNAL_ID)?.map(|id| id.value().to_owned());
        let id = known.unwrap_or_else(new_id);
        texts.insert(JOURNAL_ID, id.as_str())?;
        let numbers = transaction.open_table(NUMBERS)?;
        if let Some(next) = numbers.get(NEXT_SEQUENCE)? {
            tail.next_sequence = next.value();
        }
        if let Some(dropped) = numbers.get(DROPPED_COUNT)? {
            tail.dropped_count = dropped.value();
        }
        for kind in KINDS {
            let table = transaction.open_table(kind)?;
            if table.is_empty()? {
                continue;
            }
            for entry in table.iter()? {
                tail.kept_bytes += entry?.1.value().len() as u64;
            }
        }
        id
    };
    transaction.commit()?;
    Ok((id, tail))
}

/// Removes everything up to `sequence` and gives its bytes.
fn forget_until(transaction: &WriteTransaction, sequence: u64) -> Result<u64, redb::Error> {
    let mut forgotten_bytes = 0;
    for kind in KINDS {
        let mut table = transaction.open_table(kind)?;
        for entry in table.extract_from_if(..=sequence, |_, _| true)? {
            forgotten_bytes += entry?.1.value().len() as u64;
        }
    }
    Ok(forgotten_bytes)
}

fn some_after(
    transaction: &ReadTransaction,
    kind: Reports,
    sequence: u64,
    count_max: usize,
) -> Result<Vec<(u64, Vec<u8>)>, redb::Error> {
    let table = transaction.open_table(kind)?;
    let entries = table.range(sequence.saturating_add(1)..)?.take(count_max);
    let mut found = Vec::new();
    for entry in entries {
        let (sequence, bytes) = entry?;
        found.push((sequence.value(), bytes.value().to_owned()));
    }
    Ok(found)
}

fn kind_of(body: &ReportBody) -> Reports {
    match body {
        ReportBody::Samples(_) => SAMPLES,
        ReportBody::Launch(_) => LAUNCHES,
        ReportBody::JobSummary(_) | ReportBody::ObservedRun(_) => SUMMARIES,
    }
}

#[cfg(test)]
mod power_cut;
#[cfg(test)]
mod tests;
