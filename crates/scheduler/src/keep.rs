//! What an admin does to the database by `pillion-scheduler` itself, beside the one that runs: `export` and `import` what was learnt,
//! and `migrate` a database whose schema belongs to another role (docs/decisions/0038-export-and-roles.md). Knows files, and no SQL.

use crate::run::open_store;
use anyhow::{Context as _, bail};
use pillion_config::Scheduler;
use pillion_core::{Clock as _, SystemClock};
use pillion_store::archive::Archive;
use pillion_store::postgres::PgStore;
use pillion_store::private_postgres::{PrivatePostgres, PrivatePostgresError};
use std::fs::File;
use std::io::{BufReader, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

const IN_USE: &str =
    "nothing was imported: a scheduler uses this database; stop it first (jobs start alone meanwhile)";

/// Writes what was learnt into a file, whole or not at all, and says what it is. A scheduler may run meanwhile.
///
/// # Errors
/// What kept it from that.
pub(crate) async fn export(config: &Scheduler, file: &Path) -> anyhow::Result<String> {
    let (store, postgres) = match open_store(config).await {
        Ok((store, postgres, _)) => (store, postgres),
        // Its private Postgres runs, for a scheduler that does: that is asked.
        Err(error) if is_in_use(&error) => {
            let url = PrivatePostgres::url_of_running(&config.state_directory.join("postgres"))?;
            (PgStore::connect(&url).await.context("cannot open the private database")?, None)
        }
        Err(error) => return Err(error),
    };
    let learnt = store.learnt().await;
    store.close().await;
    if let Some(postgres) = postgres {
        postgres.stop().await;
    }
    let learnt = learnt.context("cannot read what was learnt")?;
    replace(file, &learnt).with_context(|| format!("cannot write {}", file.display()))?;
    let Archive { profiles, names, observations } = &learnt;
    Ok(format!(
        "{}: {} profiles, {} names of workloads, {} observations",
        file.display(),
        profiles.len(),
        names.len(),
        observations.len()
    ))
}

fn is_in_use(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref::<PrivatePostgresError>(), Some(PrivatePostgresError::InUse(_)))
}

/// Aside and renamed: never half a file, and what stood there stays until the new one is whole. For its owner alone: it names users.
fn replace(file: &Path, learnt: &Archive) -> std::io::Result<()> {
    let mut name = file.file_name().ok_or(std::io::ErrorKind::InvalidInput)?.to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let aside: PathBuf = file.with_file_name(name);
    let written = File::options().write(true).create_new(true).mode(0o600).open(&aside).and_then(|made| {
        let mut to = BufWriter::new(made);
        learnt.write(&mut to, SystemClock.now())?;
        to.flush()?;
        to.get_ref().sync_all()?;
        std::fs::rename(&aside, file)
    });
    if written.is_err() {
        let _ = std::fs::remove_file(&aside);
    }
    written
}

/// Takes in what a file holds, all of it or nothing, and says what of it was new. No scheduler may run.
///
/// # Errors
/// What kept it from that; nothing was taken in then.
pub(crate) async fn import(config: &Scheduler, file: &Path) -> anyhow::Result<String> {
    let opened = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
    // Before anything is started or connected to.
    let archive =
        Archive::read(BufReader::new(opened)).with_context(|| format!("cannot import {}", file.display()))?;
    let opened = open_store(config).await;
    if opened.as_ref().is_err_and(is_in_use) {
        bail!(IN_USE);
    }
    let (store, postgres, _) = opened?;
    let taken = store.take_in(&archive).await;
    store.close().await;
    if let Some(postgres) = postgres {
        postgres.stop().await;
    }
    let Some(taken) = taken.context("nothing was imported")? else {
        bail!(IN_USE);
    };
    Ok(format!(
        "taken in: {} of {} profiles, {} of {} names of workloads, {} of {} observations; of the others as much or more is known here",
        taken.profiles,
        archive.profiles.len(),
        taken.names,
        archive.names.len(),
        taken.observations,
        archive.observations.len(),
    ))
}

/// Brings the schema of a database up to date as the role that owns it, and lets the scheduler's role do what it has to. Says how it is.
///
/// # Errors
/// What kept it from that.
pub(crate) async fn migrate(database: &str, owner: &str, role: &str) -> anyhow::Result<String> {
    PgStore::migrate(database, owner, role).await.context("cannot migrate")?;
    Ok(format!("the schema is up to date, and {role} may read and write its tables, and nothing else"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("learnt.jsonl");
        std::fs::write(&file, "before").unwrap();
        replace(&file, &Archive::default()).unwrap();
        assert!(std::fs::read_to_string(&file).unwrap().starts_with("{\"pillion_export\":1,"));
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(replace(&folder.path().join("no/such/folder"), &Archive::default()).is_err());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[tokio::test]
    async fn a_file_that_is_none_is_refused_before_anything_is_touched() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        let config = Scheduler { state_directory: folder.path().join("state"), ..Scheduler::default() };
        for (text, why) in [
            ("", "does not begin as an export"),
            ("{\"pillion_export\":2}\n", "format 2, and this program reads formats up to 1"),
            ("{\"pillion_export\":1}\n", "it is not whole"),
        ] {
            std::fs::write(&file, text).unwrap();
            let error = format!("{:#}", import(&config, &file).await.unwrap_err());
            assert!(error.contains(why) && error.lines().count() == 1, "{error}");
        }
        assert!(!config.state_directory.exists());
    }
}
