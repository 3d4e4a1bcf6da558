//! From a URL to a store that can be used: waits for the server, brings the schema up to date, opens the pool.

use super::rights;
use super::tx::PgStore;
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgSslMode};
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, PgPool};
use std::str::FromStr as _;
use std::time::Duration;
use tracing::{info, warn};

/// The migrations, embedded. A database that has one that is not among them was in the hands of a later release, and is refused.
pub static MIGRATOR: Migrator = sqlx::migrate!("../../migrations");

/// The most connections that one scheduler opens.
const CONNECTIONS_MAX: u32 = 8;
/// How long a call waits for a connection before the database counts as not responding.
const ACQUIRE_DURATION_MAX: Duration = Duration::from_secs(3);
/// The wait between two attempts to reach a database at the start.
const RETRY_PERIOD: Duration = Duration::from_millis(500);
/// How long a server may not respond at the start; whoever started us then sees why, and starts us again.
const CONNECT_TIMEOUT: Duration = Duration::from_mins(1);
/// A statement of ours takes milliseconds; the server gives up on one that hangs.
const STATEMENT_TIMEOUT: &str = "8s";
/// The server ends a connection whose transaction has stood still for ten seconds, or whose host is not there any more: one of a scheduler
/// that is frozen, or whose host lost its power, would keep its locks from whoever leads next.
const LET_GO_OF_THE_SILENT: [(&str, &str); 5] = [
    ("idle_in_transaction_session_timeout", "10s"),
    ("tcp_keepalives_idle", "5"),
    ("tcp_keepalives_interval", "2"),
    ("tcp_keepalives_count", "3"),
    ("tcp_user_timeout", "10s"),
];

/// Why there is no store.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The URL cannot be read.
    #[error("database.url is not a Postgres URL; write postgres://user:password@host:5432/database")]
    Url(#[source] sqlx::Error),
    /// The server answers, and refuses us.
    #[error("the database refuses us; check user, password and database name in database.url")]
    Refused(#[source] sqlx::Error),
    /// It speaks no TLS, or shows a certificate that does not verify.
    #[error(
        "the database on another machine cannot be verified; give the server a certificate with the host's name in database.url, of \
         an authority that this machine trusts (sslrootcert=FILE at the end of the URL)"
    )]
    Unverified(#[source] sqlx::Error),
    /// No server answered in time.
    #[error("the database did not answer within {} seconds", waited.as_secs())]
    NotResponding {
        /// How long we tried.
        waited: Duration,
        /// The last answer.
        source: sqlx::Error,
    },
    /// A later release has been at work there.
    #[error(
        "the database's schema is newer than this program: it has migration {found}, and this program knows those up to {known}; \
         install the release again that made it, or a later one, or restore the copy of the database from before that upgrade \
         (docs/upgrade.md)"
    )]
    NewerSchema {
        /// The first migration that the database has and this program does not: a date and a time.
        found: i64,
        /// The last one that this program has.
        known: i64,
    },
    /// The schema is of an earlier release, and belongs to somebody else.
    #[error(
        "the database's schema is older than this program, and the role of database.url may not change it; run 'pillion-scheduler \
         migrate' as the role that owns it (docs/admin-guide.md)"
    )]
    NotOwner(#[source] MigrateError),
    /// The role that owns the schema, or is to use it, is not as it has to be.
    #[error("the rights of {role} cannot be set")]
    Rights {
        /// The scheduler's role.
        role: String,
        source: sqlx::Error,
    },
    /// The schema cannot be brought up to date.
    #[error("the database's schema cannot be brought up to date")]
    Migrate(#[source] MigrateError),
}

impl ConnectError {
    /// Whether the answer stays the same until somebody changes something.
    pub fn needs_somebody(&self) -> bool {
        match self {
            Self::NotResponding { .. }
            | Self::Migrate(MigrateError::Execute(_) | MigrateError::ExecuteMigration(..)) => false,
            Self::Url(_)
            | Self::Refused(_)
            | Self::Unverified(_)
            | Self::NewerSchema { .. }
            | Self::NotOwner(_)
            | Self::Rights { .. }
            | Self::Migrate(_) => true,
        }
    }

    fn newer(found: i64) -> Self {
        let known = MIGRATOR.iter().map(|migration| migration.version).max().unwrap_or_default();
        Self::NewerSchema { found, known }
    }

    fn migrating(error: MigrateError) -> Self {
        match error {
            MigrateError::VersionMissing(found) => Self::newer(found),
            MigrateError::Execute(ref source) | MigrateError::ExecuteMigration(ref source, _)
                if lacks_rights(source) =>
            {
                Self::NotOwner(error)
            }
            error => Self::Migrate(error),
        }
    }
}

/// Whether a role may not do it: `insufficient_privilege` (PostgreSQL, appendix A).
fn lacks_rights(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(error) if error.code().is_some_and(|code| code == "42501"))
}

impl PgStore {
    /// Connects to `url` as [`Self::connect_within`] does, with a timeout of a minute.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::connect_within(url, CONNECT_TIMEOUT).await
    }

    /// Connects to `url`, waiting up to `timeout` for the server, and applies the migrations that it lacks.
    ///
    /// Several schedulers may do so at once: Postgres lets one migrate at a time. Where the schema is newer than this program
    /// nothing is applied; who has connected before goes on.
    ///
    /// # Errors
    /// [`ConnectError`], where waiting longer would not help or `timeout` is over.
    pub async fn connect_within(url: &str, timeout: Duration) -> Result<Self, ConnectError> {
        let options = safe(PgConnectOptions::from_str(url).map_err(ConnectError::Url)?);
        let options = options.application_name("pillion-scheduler").disable_statement_logging();
        let mut first = reach(&options, timeout).await?;
        bring_up_to_date(&mut first).await?;
        // Only politeness: the server notices by itself.
        let _ = first.close().await;
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS_MAX)
            .acquire_timeout(ACQUIRE_DURATION_MAX)
            .connect_lazy_with(
                options.options([("statement_timeout", STATEMENT_TIMEOUT)]).options(LET_GO_OF_THE_SILENT),
            );
        Ok(Self::on(pool))
    }

    /// Brings the schema of a database up to date as the role `owner`, and lets `role` read and write its tables, and nothing else.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn migrate(url: &str, owner: &str, role: &str) -> Result<(), ConnectError> {
        let options = safe(PgConnectOptions::from_str(url).map_err(ConnectError::Url)?);
        let options = options.application_name("pillion-scheduler migrate").disable_statement_logging();
        let mut connection = reach(&options.options([("role", owner)]), CONNECT_TIMEOUT).await?;
        bring_up_to_date(&mut connection).await?;
        rights::grant(&mut connection, role)
            .await
            .map_err(|source| ConnectError::Rights { role: role.to_owned(), source })
    }

    /// A store whose server listens in this folder, or will: it is asked nothing before the first call, and its schema is as it is.
    pub fn behind_socket(folder: &std::path::Path) -> Self {
        let options = PgConnectOptions::new_without_pgpass().socket(folder).port(5432);
        Self::on(PgPoolOptions::new().connect_lazy_with(options))
    }

    /// The pool, for statements that are not the store's own.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Closes every connection, after what is in flight.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

/// Applies the migrations that a database lacks. Where it lacks none, nothing is asked for that a role without rights on the schema may not do.
async fn bring_up_to_date(connection: &mut PgConnection) -> Result<(), ConnectError> {
    let applied = applied(connection).await;
    if let Some((found, _)) = applied.iter().find(|(version, _)| !MIGRATOR.version_exists(*version)) {
        return Err(ConnectError::newer(*found));
    }
    let is_there =
        |version: i64, checksum: &[u8]| applied.iter().any(|(own, of)| *own == version && of == checksum);
    if MIGRATOR.iter().all(|migration| is_there(migration.version, &migration.checksum)) {
        return Ok(());
    }
    // Not `run`: its bounds keep this future from being sent to another thread.
    MIGRATOR.run_direct(None, connection, false).await.map_err(ConnectError::migrating)
}

/// The migrations that a database has, with the digests of their texts. None where there is no such table, or it may not be read: then
/// the server says why when they are applied.
async fn applied(connection: &mut PgConnection) -> Vec<(i64, Vec<u8>)> {
    let rows =
        sqlx::query_as("select version, checksum from _sqlx_migrations where success order by version");
    rows.fetch_all(connection).await.unwrap_or_default()
}

/// Beyond this machine only with the server's certificate verified, whatever the URL or the environment says.
fn safe(options: PgConnectOptions) -> PgConnectOptions {
    let is_here = options.get_socket().is_some()
        || options.get_host().starts_with('/')
        || pillion_config::is_loopback_host(options.get_host());
    if is_here { options } else { options.ssl_mode(PgSslMode::VerifyFull) }
}

async fn reach(options: &PgConnectOptions, timeout: Duration) -> Result<PgConnection, ConnectError> {
    let deadline = tokio::time::Instant::now() + timeout;
    let mut has_failed = false;
    loop {
        let attempt = tokio::time::timeout(ACQUIRE_DURATION_MAX, options.connect()).await;
        let source = match attempt.unwrap_or(Err(sqlx::Error::PoolTimedOut)) {
            Ok(connection) if has_failed => {
                info!("the database answers");
                return Ok(connection);
            }
            Ok(connection) => return Ok(connection),
            Err(error) if is_unverified(&error) => return Err(ConnectError::Unverified(error)),
            Err(error) if is_refusal(&error) => return Err(ConnectError::Refused(error)),
            Err(error) => error,
        };
        if tokio::time::Instant::now() + RETRY_PERIOD > deadline {
            return Err(ConnectError::NotResponding { waited: timeout, source });
        }
        if !has_failed {
            warn!(error = %pillion_core::report(&source), "the database is unavailable; waiting for it");
        }
        has_failed = true;
        tokio::time::sleep(RETRY_PERIOD).await;
    }
}

/// Whether TLS did not come about: rustls says so of a certificate as of data that are no good.
fn is_unverified(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Tls(_) => true,
        sqlx::Error::Io(error) => error.kind() == std::io::ErrorKind::InvalidData,
        _ => false,
    }
}

/// An answer that does not change by waiting: wrong password, no such role or database.
fn is_refusal(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(error) => {
            error.code().is_some_and(|code| code.starts_with("28") || code.starts_with("3D"))
        }
        sqlx::Error::Configuration(_) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_this_machine_the_servers_certificate_is_verified_whatever_is_asked_for() {
        let mode = |url: &str| safe(PgConnectOptions::from_str(url).unwrap()).get_ssl_mode();
        for url in [
            "postgres://u@db.example.org/pillion",
            "postgres://u@db.example.org/pillion?sslmode=disable",
            "postgres://u@10.0.0.5/pillion?sslmode=require",
            "postgres://u@localhost/pillion?host=db.example.org&sslmode=prefer",
        ] {
            assert!(matches!(mode(url), PgSslMode::VerifyFull), "{url}: {:?}", mode(url));
        }
        for url in
            ["postgres://u@localhost/pillion?sslmode=disable", "postgres://u@127.0.0.1/x?sslmode=disable"]
        {
            assert!(matches!(mode(url), PgSslMode::Disable), "{url}");
        }
        let socket = "postgres://u@localhost/pillion?host=/run/postgresql&sslmode=disable";
        assert!(matches!(mode(socket), PgSslMode::Disable));
    }
}
