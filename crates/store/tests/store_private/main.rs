//! The private Postgres through everything that can happen to it: killed schedulers, killed servers, half-made clusters, power cuts,
//! foreign pids, a second scheduler, root.

mod power_cut;
#[path = "../support/postgres.rs"]
mod support;

use pillion_store::postgres::PgStore;
use pillion_store::prelude::*;
use pillion_store::private_postgres::{PrivatePostgres, PrivatePostgresError};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::{Workplace, owner, start};

/// Tells the child below where to run its server.
const DIRECTORY: &str = "PILLION_TEST_PRIVATE_POSTGRES";

async fn record_event(url: &str, kind: &str) {
    let store = PgStore::connect(url).await.expect("a store");
    let at = pillion_core::UnixTime::from_epoch(1);
    let event =
        pillion_store::Event { at, kind: kind.into(), job_id: None, node: None, detail: String::new() };
    store.record_event(&event).await.expect("recorded");
    store.close().await;
}

async fn event_count(url: &str, kind: &str) -> u64 {
    let store = PgStore::connect(url).await.expect("a store");
    let count = store.event_count(&kind.into()).await.expect("counted");
    store.close().await;
    count
}

fn postmaster_pid(directory: &Path) -> Option<u32> {
    let text = std::fs::read_to_string(directory.join("data/postmaster.pid")).ok()?;
    text.lines().next()?.trim().parse().ok()
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).expect("a pid")).expect("not 0");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
}

/// Plays the scheduler that is killed: starts a server, stores something, says so, and waits for its end.
#[tokio::test]
#[ignore = "run by the test below, in a process of its own"]
async fn child_with_a_server() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let server = start(&PathBuf::from(directory), owner().expect("checked by the parent")).await;
    record_event(server.url(), "kept").await;
    println!("\nstored");
    std::future::pending::<()>().await;
}

#[expect(clippy::disallowed_methods, reason = "the process that is killed")]
fn kill_a_scheduler_that_runs_a_server(directory: &Path) {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--ignored", "--exact", "child_with_a_server", "--nocapture"])
        .env(DIRECTORY, directory)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let stored = lines.map_while(Result::ok).any(|line| line == "stored");
    assert!(stored, "the child stored nothing");
    child.kill().expect("killed");
    child.wait().expect("gone");
}

#[tokio::test]
async fn data_survive_a_killed_scheduler_and_its_server_is_taken_over() {
    let Ok(owner) = owner() else { return };
    let workplace = Workplace::new();
    let directory = workplace.path.join("state with a space, a comma and a 'quote'");
    kill_a_scheduler_that_runs_a_server(&directory);
    let left = postmaster_pid(&directory).expect("the server runs on without its scheduler");

    let server = start(&directory, owner).await;
    assert_eq!(event_count(server.url(), "kept").await, 1);
    assert_ne!(postmaster_pid(&directory), Some(left), "one server at a time");
    server.stop().await;
    assert_eq!(postmaster_pid(&directory), None, "it stops with the scheduler");
}

#[tokio::test]
async fn data_survive_a_killed_server() {
    let Ok(owner) = owner() else { return };
    let workplace = Workplace::new();
    let directory = workplace.path.join("postgres");
    let server = start(&directory, owner).await;
    record_event(server.url(), "kept").await;
    let in_use = match owner {
        Some(owner) => PrivatePostgres::start_as(&directory, None, owner).await,
        None => PrivatePostgres::start(&directory, None).await,
    };
    let error = in_use.expect_err("one scheduler a directory");
    assert!(matches!(error, PrivatePostgresError::InUse(_)), "{error}");
    kill(postmaster_pid(&directory).expect("it runs"));
    drop(server);

    let server = start(&directory, owner).await;
    assert_eq!(event_count(server.url(), "kept").await, 1);
    server.stop().await;

    // After a reboot the number of the old server may be anybody's, here ours.
    std::fs::write(directory.join("data/postmaster.pid"), format!("{}\n", std::process::id()))
        .expect("a stale file");
    let server = start(&directory, owner).await;
    assert_eq!(event_count(server.url(), "kept").await, 1);
    server.stop().await;

    // The programs' version has gone.
    std::fs::write(directory.join("data/PG_VERSION"), "12\n").expect("an older cluster");
    let error = match owner {
        Some(owner) => PrivatePostgres::start_as(&directory, None, owner).await,
        None => PrivatePostgres::start(&directory, None).await,
    };
    let error = error.expect_err("nobody reads these data");
    assert!(error.to_string().contains("were made by PostgreSQL 12, and "), "{error}");
}

/// A server that was killed runs for a moment longer.
async fn started_again(server: &PrivatePostgres) {
    let again = async {
        while !server.keep_running().await.expect("started") {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_mins(1), again).await.expect("noticed");
}

#[tokio::test]
async fn a_server_that_died_is_started_again_with_its_data_and_never_without() {
    let Ok(owner) = owner() else { return };
    let workplace = Workplace::new();
    let directory = workplace.path.join("postgres");
    let server = start(&directory, owner).await;
    record_event(server.url(), "kept").await;
    assert!(!server.keep_running().await.expect("looked"), "it runs");
    kill(postmaster_pid(&directory).expect("it runs"));
    started_again(&server).await;
    assert_eq!(event_count(server.url(), "kept").await, 1);

    kill(postmaster_pid(&directory).expect("it runs"));
    let (data, away) = (directory.join("data"), directory.join("away"));
    std::fs::rename(&data, &away).expect("moved");
    server.keep_running().await.expect_err("no data, no database");
    assert!(!data.exists(), "no empty database is made in its place");
    std::fs::rename(&away, &data).expect("moved back");
    started_again(&server).await;
    assert_eq!(event_count(server.url(), "kept").await, 1);
    server.stop().await;
}

#[tokio::test]
async fn a_cluster_that_was_half_made_is_made_again() {
    let Ok(owner) = owner() else { return };
    let workplace = Workplace::new();
    let directory = workplace.path.join("postgres");
    let half_made = directory.join("data.new");
    std::fs::create_dir_all(&half_made).expect("a directory");
    std::fs::write(half_made.join("PG_VERSION"), "1").expect("a half-made cluster");
    let server = start(&directory, owner).await;
    record_event(server.url(), "kept").await;
    assert_eq!(event_count(server.url(), "kept").await, 1);
    let listening = sqlx::query_scalar::<_, String>("show listen_addresses");
    let mut connection =
        <sqlx::PgConnection as sqlx::Connection>::connect(server.url()).await.expect("connected");
    assert_eq!(listening.fetch_one(&mut connection).await.expect("shown"), "", "on no network");
    let without = server.url().replace(
        server.url().split(':').nth(2).and_then(|rest| rest.split('@').next()).expect("password"),
        "guess",
    );
    let error =
        <sqlx::PgConnection as sqlx::Connection>::connect(&without).await.expect_err("a wrong password");
    assert!(error.to_string().contains("password"), "{error}");
    assert!(!format!("{server:?}").contains("postgres://"), "the password is not for logs");
    server.stop().await;
}

#[tokio::test]
async fn what_cannot_work_is_refused_in_one_sentence() {
    let directory = tempfile::tempdir().expect("a directory");
    let long = directory.path().join("x".repeat(100));
    if rustix::process::geteuid().is_root() {
        let error = PrivatePostgres::start(directory.path(), None).await.expect_err("root");
        let sentence =
            "a private Postgres cannot run as root; run the scheduler as SlurmUser, or set database.url";
        assert_eq!(error.to_string(), sentence);
    }
    let Ok(owner) = owner() else { return };
    let refused = async |path: &Path, binaries: Option<&Path>| {
        let result = match owner {
            Some(owner) => PrivatePostgres::start_as(path, binaries, owner).await,
            None => PrivatePostgres::start(path, binaries).await,
        };
        result.expect_err("cannot work").to_string()
    };
    let error = refused(&long, None).await;
    assert!(error.contains("is too long for a Unix socket"), "{error}");
    let error = refused(directory.path(), Some(Path::new("/nowhere"))).await;
    assert!(error.starts_with("found no PostgreSQL server programs in /nowhere; install"), "{error}");
}
