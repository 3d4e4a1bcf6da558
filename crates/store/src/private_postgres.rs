//! A Postgres of the scheduler's own, for demo, tests and small sites: made and started in its state directory from the
//! programs on the machine, reachable through a Unix socket there and nowhere else. Nothing is ever downloaded
//! (docs/decisions/0002-private-postgres.md). Knows nothing of what is stored.
//!
//! ```text
//! <directory>/lock              held while a scheduler uses it; ends with the scheduler, however it ends
//!             password          of the only role, made at random
//!             data/             the cluster; made as data.new and renamed, so that half a cluster is never used
//!             .s.PGSQL.5432     the socket
//! ```
//!
//! The server outlives a killed scheduler. The next one stops it cleanly and starts it again, so there is one way up.

mod error;
mod programs;

pub use error::PrivatePostgresError;
pub use programs::Owner;

use error::DIRECTORY_LENGTH_MAX;
use indicatif::{ProgressBar, ProgressFinish};
use programs::{Programs, run_program};
use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tracing::{info, warn};

/// The role that owns the cluster.
const ROLE: &str = "pillion";
/// Only names the socket: the server listens on no network.
const PORT: u16 = 5432;
/// How long processes of a server that died may take to follow it.
const ORPHAN_DURATION_MAX: Duration = Duration::from_secs(10);
const ORPHAN_POLL_PERIOD: Duration = Duration::from_millis(50);
/// How often a terminal is drawn while it starts.
const PROGRESS_PERIOD: Duration = Duration::from_millis(100);

/// A running server. [`PrivatePostgres::stop`] ends it; without that it goes on running, and the next start takes over.
pub struct PrivatePostgres {
    programs: Programs,
    data: PathBuf,
    url: String,
    owner: Option<Owner>,
    /// Held as long as we live.
    _lock: File,
}

impl std::fmt::Debug for PrivatePostgres {
    /// Without the URL, which holds the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PrivatePostgres").field("data", &self.data).finish_non_exhaustive()
    }
}

/// Shows on a terminal that something is done, until it is dropped; nothing in a pipe or a log: indicatif looks by itself.
fn progress() -> ProgressBar {
    let bar = ProgressBar::new_spinner().with_finish(ProgressFinish::AndClear);
    bar.enable_steady_tick(PROGRESS_PERIOD);
    bar
}

impl PrivatePostgres {
    /// Starts a server in `directory`, made where it does not exist; what an earlier one stored there is still there.
    ///
    /// `binaries`: where `initdb`, `pg_ctl` and `postgres` are; absent = looked for.
    ///
    /// # Errors
    /// [`PrivatePostgresError`], each with what to do.
    pub async fn start(directory: &Path, binaries: Option<&Path>) -> Result<Self, PrivatePostgresError> {
        if rustix::process::geteuid().is_root() {
            return Err(PrivatePostgresError::Root);
        }
        Self::start_for(directory, binaries, None).await
    }

    /// Like [`Self::start`], with the server run by another user: for root, whom Postgres refuses.
    ///
    /// # Errors
    /// [`PrivatePostgresError`].
    pub async fn start_as(
        directory: &Path,
        binaries: Option<&Path>,
        owner: Owner,
    ) -> Result<Self, PrivatePostgresError> {
        Self::start_for(directory, binaries, Some(owner)).await
    }

    async fn start_for(
        directory: &Path,
        binaries: Option<&Path>,
        owner: Option<Owner>,
    ) -> Result<Self, PrivatePostgresError> {
        let directory = own_directory(directory, owner)?;
        let lock = lock(&directory)?;
        let data = directory.join("data");
        let programs = programs::find(binaries, &data).await?;
        let password = password(&directory.join("password"), owner)?;
        let progress = progress();
        if !data.exists() {
            progress.set_message("making the private database, once: some seconds");
            initialize(&programs, &directory, owner).await?;
        }
        progress.set_message("starting the private Postgres");
        clear_the_way(&programs, &data, owner).await?;
        configure(&directory, &data)?;
        start_server(&programs, &data, owner).await?;
        drop(progress);
        let url = url(&directory, &password);
        info!(data = %data.display(), programs = %programs.directory().display(), "the private Postgres runs");
        Ok(Self { programs, data, url, owner, _lock: lock })
    }

    /// Where the one that runs in `directory`, for another process, is reached; holds the password.
    ///
    /// # Errors
    /// [`PrivatePostgresError::File`] where its password cannot be read.
    pub fn url_of_running(directory: &Path) -> Result<String, PrivatePostgresError> {
        let path = directory.join("password");
        let password = fs::read_to_string(&path).map_err(file_error(&path))?;
        let directory = directory.canonicalize().map_err(file_error(directory))?;
        Ok(url(&directory, password.trim()))
    }

    /// Where it is reached; holds the password.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Starts the server again where it has died or was stopped. Returns whether it had. Data that are gone are not made
    /// anew: that would be another database.
    ///
    /// # Errors
    /// [`PrivatePostgresError`] where it does not start; the next call tries again.
    pub async fn keep_running(&self) -> Result<bool, PrivatePostgresError> {
        let pid = first_line_number(&self.data.join("postmaster.pid"));
        if pid.is_some_and(|pid| works_in(pid, &self.data)) {
            return Ok(false);
        }
        clear_the_way(&self.programs, &self.data, self.owner).await?;
        start_server(&self.programs, &self.data, self.owner).await?;
        Ok(true)
    }

    /// Stops the server after what is in flight; open connections are closed.
    pub async fn stop(self) {
        if let Err(error) = stop(&self.programs, &self.data, self.owner).await {
            warn!(error = %pillion_core::report(&error), "the private Postgres did not stop");
        }
    }
}

async fn start_server(
    programs: &Programs,
    data: &Path,
    owner: Option<Owner>,
) -> Result<(), PrivatePostgresError> {
    let log = data.join("server.log");
    let started = run_program(programs, "pg_ctl", owner, |command| {
        command.arg("-D").arg(data).arg("-l").arg(&log).args(["-w", "-t", "60", "start"]);
    });
    started.await.map(drop).map_err(|error| {
        // pg_ctl only says that the log knows more.
        let text = fs::read_to_string(&log).unwrap_or_default();
        let fatal = text.lines().rev().find_map(|line| line.split_once("FATAL:"));
        match fatal {
            None => error,
            Some((_, reason)) => PrivatePostgresError::Program {
                program: "postgres",
                output: format!("{} ({})", reason.trim(), log.display()),
            },
        }
    })
}

async fn stop(programs: &Programs, data: &Path, owner: Option<Owner>) -> Result<(), PrivatePostgresError> {
    run_program(programs, "pg_ctl", owner, |command| {
        command.arg("-D").arg(data).args(["-m", "fast", "-w", "-t", "60", "stop"]);
    })
    .await
    .map(drop)
}

fn file_error(path: &Path) -> impl FnOnce(io::Error) -> PrivatePostgresError {
    let path = path.to_owned();
    move |source| PrivatePostgresError::File { path, source }
}

fn own_directory(directory: &Path, owner: Option<Owner>) -> Result<PathBuf, PrivatePostgresError> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(file_error(directory))?;
    let directory = directory.canonicalize().map_err(file_error(directory))?;
    if directory.as_os_str().len() > DIRECTORY_LENGTH_MAX {
        return Err(PrivatePostgresError::PathTooLong(directory));
    }
    give(&directory, owner)?;
    Ok(directory)
}

fn give(path: &Path, owner: Option<Owner>) -> Result<(), PrivatePostgresError> {
    let Some(owner) = owner else { return Ok(()) };
    chown(path, Some(owner.uid), Some(owner.gid)).map_err(file_error(path))
}

fn lock(directory: &Path) -> Result<File, PrivatePostgresError> {
    let path = directory.join("lock");
    let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(&path);
    let file = file.map_err(file_error(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(PrivatePostgresError::InUse(directory.to_owned())),
        Err(TryLockError::Error(source)) => Err(PrivatePostgresError::File { path, source }),
    }
}

/// The password, made when it is first needed. Written aside and renamed: never half a password.
fn password(path: &Path, owner: Option<Owner>) -> Result<String, PrivatePostgresError> {
    match fs::read_to_string(path) {
        Ok(password) => return Ok(password.trim().to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(source) => return Err(PrivatePostgresError::File { path: path.to_owned(), source }),
    }
    let random = Path::new("/dev/urandom");
    let mut bytes = [0_u8; 16];
    File::open(random).and_then(|mut file| file.read_exact(&mut bytes)).map_err(file_error(random))?;
    let password = bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    let aside = path.with_extension("new");
    let file = File::options().create(true).truncate(true).write(true).mode(0o600).open(&aside);
    file.and_then(|mut file| file.write_all(password.as_bytes()).and_then(|()| file.sync_all()))
        .map_err(file_error(&aside))?;
    give(&aside, owner)?;
    fs::rename(&aside, path).map_err(file_error(path))?;
    Ok(password)
}

async fn initialize(
    programs: &Programs,
    directory: &Path,
    owner: Option<Owner>,
) -> Result<(), PrivatePostgresError> {
    let half_made = directory.join("data.new");
    if half_made.exists() {
        fs::remove_dir_all(&half_made).map_err(file_error(&half_made))?;
    }
    run_program(programs, "initdb", owner, |command| {
        command.arg("-D").arg(&half_made).arg(format!("--pwfile={}", directory.join("password").display()));
        command.arg(format!("--username={ROLE}")).args([
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--no-locale",
            // A page that a disk gave back wrong is an error and not an answer.
            "--data-checksums",
        ]);
    })
    .await?;
    let conf = half_made.join("postgresql.conf");
    let appended = File::options().append(true).open(&conf);
    appended
        .and_then(|mut file| file.write_all(b"\ninclude = 'pillion.conf'\n"))
        .map_err(file_error(&conf))?;
    let data = directory.join("data");
    fs::rename(&half_made, &data).map_err(file_error(&data))
}

/// Written at each start: the directory may have been moved.
fn configure(directory: &Path, data: &Path) -> Result<(), PrivatePostgresError> {
    let socket_directory = directory.display().to_string().replace('\'', "''").replace('"', "\"\"");
    let text = format!(
        "# Written by pillion-scheduler at each start; settings of your own belong into postgresql.auto.conf.\n\
         listen_addresses = ''\n\
         port = {PORT}\n\
         unix_socket_directories = '\"{socket_directory}\"'\n\
         unix_socket_permissions = 0700\n\
         max_connections = 32\n\
         # What was said to be stored is on the disk, whatever happens after that.\n\
         fsync = on\n\
         synchronous_commit = on\n\
         full_page_writes = on\n\
         # A disk that is full of its log is one on which it does not start again: Postgres' own limit is a gigabyte.\n\
         max_wal_size = 256MB\n\
         wal_compression = on\n\
         log_checkpoints = off\n"
    );
    let path = data.join("pillion.conf");
    fs::write(&path, text).map_err(file_error(&path))?;
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).map_err(file_error(&path))
}

/// Ends what an earlier scheduler left running, and takes away a pid file that would keep the server from starting.
async fn clear_the_way(
    programs: &Programs,
    data: &Path,
    owner: Option<Owner>,
) -> Result<(), PrivatePostgresError> {
    let pid_file = data.join("postmaster.pid");
    let socket_lock = data.with_file_name(format!(".s.PGSQL.{PORT}.lock"));
    let Some(pid) = first_line_number(&pid_file) else { return Ok(()) };
    if works_in(pid, data) {
        info!(pid, "stopping the private Postgres that an earlier scheduler left running");
        return stop(programs, data, owner).await;
    }
    // The server died. Its processes notice within moments; until then nobody may touch the data.
    let mut waited = Duration::ZERO;
    while processes().any(|pid| works_in(pid, data)) {
        if waited >= ORPHAN_DURATION_MAX {
            return Err(PrivatePostgresError::Orphans(data.to_owned()));
        }
        tokio::time::sleep(ORPHAN_POLL_PERIOD).await;
        waited += ORPHAN_POLL_PERIOD;
    }
    // Postgres believes these files where their pid is alive, even if another program got that number after a reboot.
    for path in [&pid_file, &socket_lock] {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(file_error(path)(error)),
            _ => {}
        }
    }
    Ok(())
}

fn first_line_number(path: &Path) -> Option<u32> {
    fs::read_to_string(path).ok()?.lines().next()?.trim().parse().ok()
}

/// Every process of a Postgres server stands in its data directory.
fn works_in(pid: u32, data: &Path) -> bool {
    fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|directory| directory == data)
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn url(directory: &Path, password: &str) -> String {
    use std::os::unix::ffi::OsStrExt as _;
    let host = directory
        .as_os_str()
        .as_bytes()
        .iter()
        .fold(String::new(), |text, byte| format!("{text}%{byte:02X}"));
    format!("postgres://{ROLE}:{password}@localhost:{PORT}/postgres?host={host}")
}
