//! Finds PostgreSQL's server programs and runs them; knows nothing of what they are run for.

use super::error::PrivatePostgresError;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// What a directory must hold to be used.
const NAMES: [&str; 3] = ["initdb", "pg_ctl", "postgres"];
/// Where distributions keep one directory a version.
const VERSIONED: [(&str, &str); 2] = [("/usr/lib/postgresql", ""), ("/usr", "pgsql-")];
/// `initdb` writes 40 MB to the disk; recovery after a crash may take a while.
const PROGRAM_DURATION_MAX: Duration = Duration::from_mins(2);

/// Whom the server runs as, where that is not ourselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    pub uid: u32,
    pub gid: u32,
}

/// The programs of one installed version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Programs(PathBuf);

impl Programs {
    pub(super) fn directory(&self) -> &Path {
        &self.0
    }
}

/// The configured programs, or the newest of those found; where `data` exist, the newest that can read them.
pub(super) async fn find(configured: Option<&Path>, data: &Path) -> Result<Programs, PrivatePostgresError> {
    let candidates = match configured {
        Some(directory) => vec![directory.to_owned()],
        None => candidates().await,
    };
    let found: Vec<Programs> =
        candidates.iter().filter(|directory| is_complete(directory)).cloned().map(Programs).collect();
    if found.is_empty() {
        let searched: Vec<String> =
            candidates.iter().map(|directory| directory.display().to_string()).collect();
        let searched =
            if searched.is_empty() { "/usr/lib/postgresql and PATH".to_owned() } else { searched.join(", ") };
        return Err(PrivatePostgresError::NoPrograms { searched });
    }
    let Some(wanted) = data_version(data) else {
        return Ok(found[0].clone());
    };
    let mut versions = Vec::new();
    for programs in found {
        let version = version(&programs).await?;
        if version == wanted {
            return Ok(programs);
        }
        versions.push(version.to_string());
    }
    let (directory, found) = (data.to_owned(), versions.join(", "));
    Err(PrivatePostgresError::OtherVersion { directory, data: wanted, found })
}

/// `pg_config` first, then the distributions' directories, the highest version first, then `PATH`.
async fn candidates() -> Vec<PathBuf> {
    let mut directories = Vec::new();
    if let Ok(output) = Command::new("pg_config").arg("--bindir").stdin(Stdio::null()).output().await {
        let text = String::from_utf8_lossy(&output.stdout);
        directories.extend(Some(PathBuf::from(text.trim())).filter(|path| path.is_absolute()));
    }
    let mut versioned: Vec<(u32, PathBuf)> =
        VERSIONED.iter().flat_map(|(parent, prefix)| versions_in(parent, prefix)).collect();
    versioned.sort_by(|a, b| b.cmp(a));
    directories.extend(versioned.into_iter().map(|(_, directory)| directory));
    directories.extend(
        std::env::var_os("PATH").iter().flat_map(std::env::split_paths).filter(|path| is_complete(path)),
    );
    directories
}

fn versions_in(parent: &str, prefix: &str) -> Vec<(u32, PathBuf)> {
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect()
}

fn is_complete(directory: &Path) -> bool {
    NAMES.iter().all(|name| directory.join(name).is_file())
}

fn data_version(data: &Path) -> Option<u32> {
    std::fs::read_to_string(data.join("PG_VERSION")).ok()?.trim().parse().ok()
}

async fn version(programs: &Programs) -> Result<u32, PrivatePostgresError> {
    let output = run_program(programs, "postgres", None, |command| {
        command.arg("--version");
    })
    .await?;
    major_version(&output).ok_or(PrivatePostgresError::Program { program: "postgres", output })
}

/// From `postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)`.
fn major_version(output: &str) -> Option<u32> {
    let number = output.split_once("(PostgreSQL)")?.1.trim_start();
    number.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Runs a program to its end and returns what it wrote; the last line of that is the reason where it fails.
pub(super) async fn run_program(
    programs: &Programs,
    program: &'static str,
    owner: Option<Owner>,
    arguments: impl FnOnce(&mut Command),
) -> Result<String, PrivatePostgresError> {
    let failed = |output: String| PrivatePostgresError::Program { program, output };
    let mut command = Command::new(programs.0.join(program));
    arguments(&mut command);
    // PGPORT, PGDATA, PGOPTIONS and the like are meant for other servers.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PG")) {
        command.env_remove(name);
    }
    if let Some(owner) = owner {
        command.uid(owner.uid).gid(owner.gid);
    }
    command.env("LC_ALL", "C").current_dir("/").stdin(Stdio::null()).kill_on_drop(true);
    let output = match tokio::time::timeout(PROGRAM_DURATION_MAX, command.output()).await {
        Ok(output) => output.map_err(|error| failed(error.to_string()))?,
        Err(_) => return Err(failed(format!("no end within {} seconds", PROGRAM_DURATION_MAX.as_secs()))),
    };
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        return Ok(text);
    }
    let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
    Err(failed(last.map_or_else(|| output.status.to_string(), str::to_owned)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_postgres_says() {
        assert_eq!(major_version("postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)\n"), Some(15));
        assert_eq!(major_version("postgres (PostgreSQL) 18beta1"), Some(18));
        assert_eq!(major_version("bash: postgres: command not found"), None);
    }

    #[tokio::test]
    async fn a_directory_without_the_programs_is_named() {
        let error =
            find(Some(Path::new("/nowhere")), Path::new("/nowhere")).await.expect_err("there is none");
        assert!(error.to_string().starts_with("found no PostgreSQL server programs in /nowhere;"), "{error}");
    }
}
