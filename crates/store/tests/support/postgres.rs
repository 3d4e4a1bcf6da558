//! A Postgres for tests: one private server a test process, a fresh database for whoever asks. The server and its files go
//! when the process ends, however it ends.

use pillion_store::postgres::PgStore;
use pillion_store::private_postgres::{Owner, PrivatePostgres};
use sqlx::{Connection as _, PgConnection};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::sync::OnceCell;

/// The test cannot run here.
#[derive(Debug)]
pub(crate) struct Skip;

/// Whom Postgres runs as here: nobody special, or the user `postgres` where we are root.
///
/// # Errors
/// [`Skip`], after a line that says so (`pillion_test_kit::skipped`): root has nobody to run it as, and the test is to be skipped.
pub(crate) fn owner() -> Result<Option<Owner>, Skip> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let passwd = std::fs::read_to_string("/etc/passwd").expect("/etc/passwd");
    let entry = passwd.lines().find_map(|line| line.strip_prefix("postgres:"));
    let Some(entry) = entry else {
        pillion_test_kit::skipped("it runs as root, and there is no user postgres to run a server as");
        return Err(Skip);
    };
    let mut numbers = entry.split(':').skip(1).take(2).map(|number| number.parse().expect("a number"));
    Ok(Some(Owner { uid: numbers.next().expect("uid"), gid: numbers.next().expect("gid") }))
}

/// Starts a server in `directory`.
pub(crate) async fn start(directory: &Path, owner: Option<Owner>) -> PrivatePostgres {
    match owner {
        Some(owner) => PrivatePostgres::start_as(directory, None, owner).await,
        None => PrivatePostgres::start(directory, None).await,
    }
    .expect("a private Postgres")
}

/// A directory that is removed, with the server that runs in it, when this process is gone.
pub(crate) struct Workplace {
    pub(crate) path: PathBuf,
    _watcher: Child,
}

impl Workplace {
    #[expect(
        clippy::disallowed_methods,
        reason = "outlives this process to clean up behind it; no Slurm involved"
    )]
    pub(crate) fn new() -> Self {
        let path = tempfile::Builder::new().prefix("pillion-pg.").tempdir().expect("a directory").keep();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, mode).expect("open to the server's user");
        // The pipe ends with us, also where we are killed. The first process of the server is named in its pid file.
        let script = r#"cat
            for file in "$0"/*/data/postmaster.pid; do
                # Numbers of processes are used again: it is ours only where it works there.
                pid=$([ -f "$file" ] && head -n 1 "$file") || continue
                [ "$(readlink "/proc/$pid/cwd")" = "${file%/*}" ] && kill -QUIT "$pid" || continue
                for try in $(seq 100); do [ -f "$file" ] && sleep 0.05; done
            done
            rm -rf "$0""#;
        let watcher = Command::new("sh")
            .args(["-c", script])
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh");
        Self { path, _watcher: watcher }
    }
}

struct Shared {
    server: PrivatePostgres,
    _workplace: Workplace,
}

static SHARED: OnceCell<Option<Shared>> = OnceCell::const_new();
static DATABASES: AtomicU32 = AtomicU32::new(0);

/// A store on a database of its own; `None` where the test is to be skipped (see [`owner`]).
#[allow(dead_code, reason = "not every test file that shares this one needs it")]
pub(crate) async fn fresh_store() -> Option<PgStore> {
    let shared = SHARED.get_or_init(|| async {
        let owner = owner().ok()?;
        let workplace = Workplace::new();
        let server = start(&workplace.path.join("postgres"), owner).await;
        Some(Shared { server, _workplace: workplace })
    });
    let server = &shared.await.as_ref()?.server;
    let name = format!("test_{}", DATABASES.fetch_add(1, Ordering::SeqCst));
    let mut connection = PgConnection::connect(server.url()).await.expect("the shared server");
    let create = sqlx::AssertSqlSafe(format!("create database {name}"));
    sqlx::query(create).execute(&mut connection).await.expect("a fresh database");
    let url = server.url().replace("/postgres?", &format!("/{name}?"));
    Some(PgStore::connect(&url).await.expect("a store"))
}
