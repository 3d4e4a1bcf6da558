//! The store, and the transactions on it: named, counted, bounded in time, and run again where Postgres asks for it. The one
//! place that retries inside a call; everything slower is left to the next tick.

use super::unreadable;
use crate::StoreError;
use pillion_metrics::Durations;
use sqlx::{PgConnection, PgPool, Postgres, Transaction};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tracing::debug;

/// How often a transaction is run before the conflict is given to the caller.
const ATTEMPTS_MAX: u32 = 10;
/// How long one attempt may take before the database counts as not responding.
const ATTEMPT_DURATION_MAX: Duration = Duration::from_secs(10);
/// The wait before the second attempt; it doubles up to the seventh.
const BACKOFF: Duration = Duration::from_millis(2);

/// What a transaction may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Reads of one moment; never conflicts.
    Read,
    /// As `Read`, and no big table is read from end to end: what is cheapest in a young database would grow slower
    /// with every job that ever ran. Plans are made for the filters at hand: one for any filter has to read everything.
    Browse,
    /// Serializable: it reads what it decides on, and is tried again where another came between.
    Write,
}

impl Access {
    const fn begin(self) -> &'static str {
        match self {
            Self::Read | Self::Browse => "begin isolation level repeatable read read only",
            Self::Write => "begin isolation level serializable",
        }
    }
}

/// Why the body of a transaction stopped.
#[derive(Debug)]
pub(super) enum TxError {
    /// Postgres said no, or does not respond.
    Sql(sqlx::Error),
    /// We say no: rolled back, and not tried again.
    Store(StoreError),
}

impl From<sqlx::Error> for TxError {
    fn from(error: sqlx::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<StoreError> for TxError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl TxError {
    fn named(self, action: &'static str) -> StoreError {
        match self {
            Self::Sql(error) if is_refusal(&error) => StoreError::Refused { action, source: Box::new(error) },
            Self::Sql(error) => StoreError::Database { action, source: Box::new(error) },
            Self::Store(error) => error,
        }
    }
    /// Serialization failures and deadlocks: the same transaction may succeed right away.
    fn is_conflict(&self) -> bool {
        let Self::Sql(sqlx::Error::Database(error)) = self else { return false };
        matches!(error.code().as_deref(), Some("40001" | "40P01"))
    }
}

/// Data exceptions and violated constraints (classes 22 and 23): the same values would be refused again.
fn is_refusal(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(error) = error else { return false };
    error.code().is_some_and(|code| code.starts_with("22") || code.starts_with("23"))
}

/// The statement ran longer than it may.
fn is_cancelled(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(error) if error.code().as_deref() == Some("57014"))
}

/// An open transaction. `'a` is the lifetime of what its body borrows: it lets one closure serve every attempt.
pub(super) struct Tx<'a> {
    inner: Transaction<'static, Postgres>,
    borrows: PhantomData<&'a ()>,
}

impl Tx<'_> {
    /// What queries run on.
    pub(super) fn connection(&mut self) -> &mut PgConnection {
        &mut self.inner
    }
}

/// What the body of a transaction returns.
pub(super) type TxFuture<'t, T> = Pin<Box<dyn Future<Output = Result<T, TxError>> + Send + 't>>;

/// How often the transactions of one name were committed, run again and given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TransactionCounts {
    pub committed: u64,
    /// Run again after a conflict.
    pub retried: u64,
    /// Rolled back, by us or by Postgres.
    pub failed: u64,
}

/// How the transactions of one kind of access went.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CallFigures {
    /// How long those took that were committed, repetitions included.
    pub durations: Durations,
    /// Those that Postgres did not do.
    pub errors: u64,
}

/// How the database answers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StoreFigures {
    /// Whether the last call was answered.
    pub is_up: bool,
    /// Transactions that read.
    pub reads: CallFigures,
    /// Transactions that write.
    pub writes: CallFigures,
    /// Rows of each table that could not be read back.
    pub unreadable: BTreeMap<&'static str, u64>,
}

#[derive(Debug, Default)]
struct Counters {
    by_name: Mutex<BTreeMap<&'static str, TransactionCounts>>,
    figures: Mutex<StoreFigures>,
}

impl Counters {
    fn add(&self, action: &'static str, count: impl FnOnce(&mut TransactionCounts)) {
        count(self.by_name.lock().unwrap_or_else(PoisonError::into_inner).entry(action).or_default());
    }

    /// A transaction is over; `failed`: whether Postgres did not do it. One that we ourselves rolled back was answered.
    fn over(&self, access: Access, duration: Duration, failed: Option<bool>) {
        let mut figures = self.figures.lock().unwrap_or_else(PoisonError::into_inner);
        let by_postgres = failed == Some(true);
        figures.is_up = !by_postgres;
        let calls = match access {
            Access::Read | Access::Browse => &mut figures.reads,
            Access::Write => &mut figures.writes,
        };
        match failed {
            None => calls.durations.add(duration),
            Some(by_postgres) => calls.errors += u64::from(by_postgres),
        }
    }
}

/// The store in Postgres. While the database does not respond each call fails within seconds with a transient error;
/// connections come back by themselves.
#[derive(Debug)]
pub struct PgStore {
    pub(super) pool: PgPool,
    counters: Counters,
}

impl PgStore {
    pub(super) fn on(pool: PgPool) -> Self {
        Self { pool, counters: Counters::default() }
    }

    /// Counts of transactions by name, since this store was connected.
    pub fn transaction_counts(&self) -> BTreeMap<&'static str, TransactionCounts> {
        self.counters.by_name.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How the database answers, since this store was connected. Asks it nothing.
    pub fn figures(&self) -> StoreFigures {
        let figures = self.counters.figures.lock().unwrap_or_else(PoisonError::into_inner).clone();
        StoreFigures { unreadable: unreadable::counts(), ..figures }
    }

    /// Runs `body` in a transaction called `action`, again where Postgres found a conflict.
    pub(super) async fn run_tx<'a, T, F>(
        &self,
        action: &'static str,
        access: Access,
        body: F,
    ) -> Result<T, StoreError>
    where
        T: Send,
        F: for<'t> Fn(&'t mut Tx<'a>) -> TxFuture<'t, T> + Send + Sync,
    {
        self.run_tx_within(ATTEMPT_DURATION_MAX, action, access, body).await
    }

    /// As [`Self::run_tx`], for what takes longer than a call of a reconciler may.
    pub(super) async fn run_tx_within<'a, T, F>(
        &self,
        duration_max: Duration,
        action: &'static str,
        access: Access,
        body: F,
    ) -> Result<T, StoreError>
    where
        T: Send,
        F: for<'t> Fn(&'t mut Tx<'a>) -> TxFuture<'t, T> + Send + Sync,
    {
        let (mut attempt, begun) = (1, Instant::now());
        loop {
            let timed = tokio::time::timeout(duration_max, self.run_once(access, &body)).await;
            match timed.unwrap_or(Err(TxError::Sql(sqlx::Error::PoolTimedOut))) {
                Ok(value) => {
                    self.counters.add(action, |counts| counts.committed += 1);
                    self.counters.over(access, begun.elapsed(), None);
                    return Ok(value);
                }
                Err(error) if error.is_conflict() && attempt < ATTEMPTS_MAX => {
                    debug!(action, attempt, "transaction conflict");
                    self.counters.add(action, |counts| counts.retried += 1);
                    tokio::time::sleep(BACKOFF * (1 << attempt.min(6))).await;
                    attempt += 1;
                }
                Err(error) => {
                    self.counters.add(action, |counts| counts.failed += 1);
                    // A value that it does not take, or a question that took too long, is an answer.
                    let by_postgres = match &error {
                        TxError::Sql(error) => {
                            let is_slow = access == Access::Browse && is_cancelled(error);
                            !is_refusal(error) && !is_slow
                        }
                        TxError::Store(_) => false,
                    };
                    self.counters.over(access, begun.elapsed(), Some(by_postgres));
                    return Err(error.named(action));
                }
            }
        }
    }

    /// Runs `body` in one transaction after the other, until it finds nothing more to do; what it did in all.
    pub(super) async fn run_until_none<'a, F>(&self, action: &'static str, body: F) -> Result<u64, StoreError>
    where
        F: for<'t> Fn(&'t mut Tx<'a>) -> TxFuture<'t, u64> + Send + Sync,
    {
        let mut done = 0;
        loop {
            match self.run_tx(action, Access::Write, &body).await? {
                0 => return Ok(done),
                some => done += some,
            }
        }
    }

    async fn run_once<'a, T, F>(&self, access: Access, body: &F) -> Result<T, TxError>
    where
        F: for<'t> Fn(&'t mut Tx<'a>) -> TxFuture<'t, T> + Send + Sync,
    {
        let mut tx = Tx { inner: self.pool.begin_with(access.begin()).await?, borrows: PhantomData };
        if access == Access::Browse {
            sqlx::raw_sql("set local enable_seqscan = off; set local plan_cache_mode = force_custom_plan")
                .execute(tx.connection())
                .await?;
        }
        let value = body(&mut tx).await?;
        tx.inner.commit().await?;
        Ok(value)
    }
}
