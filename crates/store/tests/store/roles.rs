//! A database whose tables belong to one role, and a scheduler that connects as another: it does all that the suite asks of a store, and
//! nothing else.

use crate::conformance::{CASES, PAGES};
use crate::support::{Workplace, owner, start};
use pillion_store::postgres::{ConnectError, MIGRATOR, PgStore};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use std::sync::Arc;

const ROLES: &str = include_str!("../../../../deploy/postgres/roles.sql");

async fn run(connection: &mut PgConnection, statement: String) {
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(connection).await.expect("as a superuser");
}

/// A fresh database of the owner's, and its URL as a superuser and as the scheduler's role.
async fn database(superuser: &str, name: &str) -> (String, String) {
    let mut connection = PgConnection::connect(superuser).await.expect("the server");
    run(&mut connection, format!("create database {name} owner pillion_owner")).await;
    let url = superuser.replace("/postgres?", &format!("/{name}?"));
    let (_, rest) = url.split_once('@').expect("user and password");
    (url.clone(), format!("postgres://pillion_scheduler:word@{rest}"))
}

/// A store on a fresh database, as the scheduler's role has it.
async fn fresh(superuser: &str, name: &str) -> PgStore {
    let (url, own) = database(superuser, name).await;
    PgStore::migrate(&url, "pillion_owner", "pillion_scheduler").await.expect("migrated");
    PgStore::connect(&own).await.expect("a store")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_schedulers_role_can_do_what_it_has_to_and_nothing_else() {
    let Ok(owner) = owner() else { return };
    let workplace = Workplace::new();
    let server = start(&workplace.path.join("postgres"), owner).await;
    let mut superuser = PgConnection::connect(server.url()).await.expect("the server");
    for _ in 0..2 {
        run(&mut superuser, ROLES.to_owned()).await;
    }
    run(&mut superuser, "alter role pillion_scheduler password 'word'".to_owned()).await;
    for (number, (name, case)) in CASES.iter().enumerate() {
        println!("case {name}");
        case(Arc::new(fresh(server.url(), &format!("case_{number}")).await)).await;
    }
    for (number, (name, case)) in PAGES.iter().enumerate() {
        println!("case {name}");
        case(Arc::new(fresh(server.url(), &format!("page_{number}")).await)).await;
    }
    let (url, own) = database(server.url(), "limits").await;
    let error = PgStore::connect(&own).await.expect_err("there is nothing yet");
    assert!(matches!(error, ConnectError::NotOwner(_)) && error.needs_somebody(), "{error}");
    assert!(error.to_string().contains("run 'pillion-scheduler migrate'"), "{error}");
    for _ in 0..2 {
        PgStore::migrate(&url, "pillion_owner", "pillion_scheduler").await.expect("migrated, and again");
    }
    let store = PgStore::connect(&own).await.expect("a store");
    store.learnt().await.expect("an export asks for no more");
    assert!(store.try_lead().await.expect("asked").is_some());
    for refused in [
        "create table mine (a integer)",
        "create schema mine",
        "drop table job",
        "truncate job",
        "alter table job add column mine integer",
        "create index mine on job (uid)",
        "insert into _sqlx_migrations select version + 1, description, now(), true, checksum, 0 from _sqlx_migrations limit 1",
        "delete from _sqlx_migrations",
        "update _sqlx_migrations set success = false",
        "create role mine",
        "create database mine",
        "set role pillion_owner",
        "select rolpassword from pg_authid",
        "copy job to '/tmp/pillion-copy'",
        "copy job to program 'true'",
    ] {
        let error = sqlx::raw_sql(refused).execute(store.pool()).await.expect_err(refused);
        let code = error.as_database_error().and_then(|error| error.code().map(std::borrow::Cow::into_owned));
        assert_eq!(code.as_deref(), Some("42501"), "{refused}: {error}");
    }
    // Of an earlier release, as the upgrade finds it; and of a later one.
    let last = MIGRATOR.iter().map(|migration| migration.version).max().expect("migrations");
    let mut as_superuser = PgConnection::connect(&url).await.expect("the database");
    run(
        &mut as_superuser,
        format!("update _sqlx_migrations set version = 29990101000000 where version = {last}"),
    )
    .await;
    let error = PgStore::connect(&own).await.expect_err("newer");
    assert!(matches!(error, ConnectError::NewerSchema { found: 29_990_101_000_000, .. }), "{error}");
    run(&mut as_superuser, "delete from _sqlx_migrations where version = 29990101000000".to_owned()).await;
    let error = PgStore::connect(&own).await.expect_err("older");
    assert!(matches!(error, ConnectError::NotOwner(_)), "{error}");
    let error =
        PgStore::migrate(&url, "pillion_owner", "no_such_role").await.expect_err("a role that is none");
    assert!(!error.to_string().is_empty());
    server.stop().await;
}
