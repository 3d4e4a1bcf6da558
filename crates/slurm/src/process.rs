//! Runs one program and waits for it, no longer than a deadline. The only place of the project that starts a process
//! of Slurm's; `command` says which. And the word that marks where one answer of it ends.

use crate::types::SlurmError;
use std::ffi::OsString;
use std::hash::{BuildHasher as _, Hasher as _};
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};

/// What is read of a pipe at once.
const PIECE_BYTES: usize = 64 << 10;

/// How to run Slurm's programs.
#[derive(Debug, Clone)]
pub(crate) struct Runner {
    pub(crate) binary_directory: Option<PathBuf>,
    pub(crate) conf: Option<PathBuf>,
    pub(crate) timeout: Duration,
}

impl Runner {
    /// Runs `program` and returns what it printed.
    ///
    /// The environment is a new one: a caller's `SQUEUE_FORMAT` or `SLURM_CLUSTERS` changes what these programs print.
    /// Times go in and out in UTC, so that no daylight saving can shift or repeat an hour.
    pub(crate) async fn run(
        &self,
        program: &'static str,
        arguments: &[String],
    ) -> Result<String, SlurmError> {
        let mut printed = Vec::new();
        self.run_pieces(program, arguments, |piece| printed.extend_from_slice(piece)).await?;
        Ok(text(printed))
    }

    /// The same, where what it prints is taken piece by piece while it comes; on an error what was taken means nothing.
    pub(crate) async fn run_pieces(
        &self,
        program: &'static str,
        arguments: &[String],
        take: impl FnMut(&[u8]) + Send,
    ) -> Result<(), SlurmError> {
        let (status, said) = self.converse(program, arguments, None, take).await?;
        // `scontrol show` ends with 0 where it could not reach the controller: no nodes is not what it means. And squeue does where
        // it does not know a field: it leaves the field empty.
        if status.success() && !said.lines().any(|line| passes(line) || is_misunderstood(line)) {
            return Ok(());
        }
        Err(failure(program, status.code().unwrap_or(-1), &said))
    }

    /// Runs `program` on these lines, each a command of its own, and returns how many of them were refused.
    pub(crate) async fn run_lines(&self, program: &'static str, lines: &[String]) -> Result<u64, SlurmError> {
        // What it prints besides is of no use.
        let (status, said) = self.converse(program, &[], Some(lines.join("\n") + "\nquit\n"), |_| ()).await?;
        match status.code() {
            Some(0) if said.trim().is_empty() => Ok(0),
            // One line for each that was refused, beside what the module says of it.
            Some(0 | 1) if !said.lines().any(passes) && !said.trim().is_empty() => {
                let refused = said.lines().filter(|line| !line.starts_with("scontrol: error:")).count();
                Ok(u64::try_from(refused).unwrap_or(u64::MAX))
            }
            status => Err(failure(program, status.unwrap_or(-1), &said)),
        }
    }

    /// Runs `program` with these options on these lines, each a question of its own, and returns all that it printed; one that it
    /// cannot answer keeps none of the others.
    pub(crate) async fn ask_lines(
        &self,
        program: &'static str,
        options: &[&str],
        lines: &[String],
    ) -> Result<String, SlurmError> {
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        let mut printed = Vec::new();
        let input = Some(lines.join("\n") + "\nquit\n");
        let (status, said) =
            self.converse(program, &options, input, |piece| printed.extend_from_slice(piece)).await?;
        if said.lines().any(|line| passes(line) || is_misunderstood(line)) {
            return Err(failure(program, status.code().unwrap_or(-1), &said));
        }
        Ok(text(printed))
    }

    /// Runs a program: `take` gets what it prints, the answer is how it ended and what it said beside that.
    async fn converse(
        &self,
        program: &'static str,
        arguments: &[String],
        input: Option<String>,
        take: impl FnMut(&[u8]) + Send,
    ) -> Result<(ExitStatus, String), SlurmError> {
        let path =
            self.binary_directory.as_ref().map_or_else(|| PathBuf::from(program), |dir| dir.join(program));
        let mut command = Command::new(path);
        command.args(arguments).env_clear().envs(self.environment()).kill_on_drop(true);
        let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|source| spawn_error(program, source))?;
        let stdin = child.stdin.take().zip(input);
        // Written beside the reading: a program that answers while it reads would fill its pipe and stop.
        let written = async {
            if let Some((mut stdin, input)) = stdin {
                // One that ends early says why on its own.
                let _ = stdin.write_all(input.as_bytes()).await;
            }
        };
        // A deadline that passes drops the child, which kills it.
        let both = async { tokio::join!(written, listen(child, take)).1 };
        tokio::time::timeout(self.timeout, both)
            .await
            .map_err(|_| SlurmError::Timeout {
                program: program.to_owned(),
                seconds: self.timeout.as_secs(),
            })?
            .map_err(|source| spawn_error(program, source))
    }

    fn environment(&self) -> Vec<(&'static str, OsString)> {
        let mut environment: Vec<(&'static str, OsString)> =
            vec![("LC_ALL", "C".into()), ("TZ", "UTC0".into()), ("SLURM_TIME_FORMAT", "%s".into())];
        environment.extend(std::env::var_os("PATH").map(|path| ("PATH", path)));
        let conf = self.conf.clone().map(OsString::from).or_else(|| std::env::var_os("SLURM_CONF"));
        environment.extend(conf.map(|conf| ("SLURM_CONF", conf)));
        environment
    }
}

/// Hears a program out: both pipes at once, or one that is full would stop it.
async fn listen(mut child: Child, take: impl FnMut(&[u8])) -> std::io::Result<(ExitStatus, String)> {
    let pipes = (child.stdout.take(), child.stderr.take());
    let ((), said) = tokio::try_join!(read_pieces(pipes.0, take), read_whole(pipes.1))?;
    Ok((child.wait().await?, said))
}

async fn read_pieces(pipe: Option<ChildStdout>, mut take: impl FnMut(&[u8])) -> std::io::Result<()> {
    let Some(mut pipe) = pipe else { return Ok(()) };
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match pipe.read(&mut piece).await? {
            0 => return Ok(()),
            length => take(&piece[..length]),
        }
    }
}

async fn read_whole(pipe: Option<ChildStderr>) -> std::io::Result<String> {
    let mut said = Vec::new();
    if let Some(mut pipe) = pipe {
        pipe.read_to_end(&mut said).await?;
    }
    Ok(String::from_utf8_lossy(&said).into_owned())
}

/// What was printed, without a second copy of it where it can be had: a long queue is tens of megabytes.
fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// What Slurm says where the same call may work a moment later.
const PASSING: [&str; 9] = [
    "Unable to contact slurm controller",
    "Socket timed out",
    "Connection refused",
    "Connection timed out",
    "Resource temporarily unavailable",
    // What `scontrol update` of 24.11 says after nine seconds without a controller.
    "Unexpected message received",
    "Zero Bytes were transmitted",
    "standby mode",
    "Transport endpoint is not connected",
];

/// What Slurm's programs say where they do not know what they are asked for (`src/{squeue,sinfo}/{opts,sort}.c`,
/// `src/sacct/options.c`, `src/scontrol/*.c` of 23.11.7 to 26.05.3, and getopt). Most of them end with 0 then.
const MISUNDERSTOOD: [&str; 9] = [
    "format specification",
    "Invalid sort specification",
    "Invalid field requested",
    "Invalid option",
    "invalid option",
    "nrecognized option",
    "invalid keyword",
    "invalid entity",
    // `too many arguments for keyword`, and the like.
    "for keyword",
];

/// What `pillion.lua` begins a refusal of an update of ours with; the number of its rules follows.
const FENCE: &str = "pillion: fence ";

/// Letters and digits that nobody could have written into a comment before this call. From the standard library's own
/// source of hash keys: it decides nothing, so the simulation needs no say in it.
pub(crate) fn nonce() -> String {
    let mut hasher = std::hash::RandomState::new().build_hasher();
    hasher.write_u8(0);
    format!("{:016x}", hasher.finish())
}

fn passes(line: &str) -> bool {
    PASSING.iter().any(|words| line.contains(words))
}

fn is_misunderstood(line: &str) -> bool {
    MISUNDERSTOOD.iter().any(|words| line.contains(words))
}

fn spawn_error(program: &str, source: std::io::Error) -> SlurmError {
    SlurmError::Spawn { program: program.to_owned(), source }
}

/// The beginning of a line, without what a terminal or a log would take for more than letters.
fn clean(line: &str) -> String {
    line.chars().filter(|character| !character.is_control()).take(300).collect()
}

fn failure(program: &str, status: i32, said: &str) -> SlurmError {
    if let Some(line) = said.lines().find(|line| passes(line)) {
        return SlurmError::Unavailable { program: program.to_owned(), detail: clean(line) };
    }
    if let Some((_, reason)) = said.lines().find_map(|line| line.split_once(FENCE)) {
        let reason = reason
            .trim_start_matches(|character: char| character.is_ascii_digit() || " :".contains(character));
        return SlurmError::Fenced { reason: clean(reason.trim_end_matches(')')) };
    }
    // A failed scontrol repeats what a site's own job_submit module says of an update, which may be any words.
    if (status == 0 || program != "scontrol")
        && let Some(line) = said.lines().find(|line| is_misunderstood(line))
    {
        return SlurmError::Misunderstood { program: program.to_owned(), detail: clean(line) };
    }
    let detail = clean(said.lines().find(|line| !line.trim().is_empty()).unwrap_or_default());
    SlurmError::Failed { program: program.to_owned(), status, detail }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::os::unix::fs::PermissionsExt;

    fn runner(directory: &std::path::Path, timeout: Duration) -> Runner {
        Runner { binary_directory: Some(directory.to_owned()), conf: Some("/x/slurm.conf".into()), timeout }
    }

    fn script(text: &str) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("squeue");
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        directory
    }

    #[tokio::test]
    async fn the_environment_is_a_new_one() {
        let directory = script("env");
        let printed = runner(directory.path(), Duration::from_secs(20)).run("squeue", &[]).await.unwrap();
        let mut names: Vec<_> =
            printed.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
        names.retain(|name| !matches!(*name, "PWD" | "_" | "SHLVL" | "OLDPWD"));
        names.sort_unstable();
        assert_eq!(names, ["LC_ALL", "PATH", "SLURM_CONF", "SLURM_TIME_FORMAT", "TZ"]);
    }

    #[tokio::test]
    async fn a_program_that_hangs_is_killed() {
        let directory = script("echo $$ > \"$0.pid\"; exec sleep 1000");
        let result = runner(directory.path(), Duration::from_millis(500)).run("squeue", &[]).await;
        assert!(matches!(result, Err(SlurmError::Timeout { .. })), "{result:?}");
        let pid = std::fs::read_to_string(directory.path().join("squeue.pid")).unwrap();
        let stat = PathBuf::from(format!("/proc/{}/stat", pid.trim()));
        tokio::time::timeout(Duration::from_secs(20), async {
            // Gone, or dead and not yet reaped.
            while std::fs::read_to_string(&stat).is_ok_and(|text| !text.contains(") Z ")) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await
        .unwrap();
    }

    #[tokio::test]
    async fn errors_tell_what_slurm_said() {
        let directory =
            script("printf '\\n\\033[1mInvalid job id specified for job 999\\nmore\\n' >&2; exit 1");
        let error = runner(directory.path(), Duration::from_secs(20)).run("squeue", &[]).await.unwrap_err();
        assert_eq!(error.to_string(), "squeue failed with status 1: [1mInvalid job id specified for job 999");
        assert!(!error.is_transient());
        let missing = runner(directory.path(), Duration::from_secs(20)).run("sinfo", &[]).await.unwrap_err();
        assert!(matches!(missing, SlurmError::Spawn { .. }));
    }

    #[tokio::test]
    async fn success_without_a_controller_is_none() {
        let said = "slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)";
        let directory = script(&format!("echo '{said}' >&2"));
        let result = runner(directory.path(), Duration::from_secs(20)).run("squeue", &[]).await;
        assert!(matches!(result, Err(SlurmError::Unavailable { .. })), "{result:?}");
    }

    #[tokio::test]
    async fn a_question_that_is_not_understood_has_no_answer() {
        for said in [
            // squeue 23.11.
            "squeue: error: Invalid job format specification: ExcNodes",
            "squeue: error: Invalid job format specification: x",
            "Invalid node format specification: x",
            "sacct: error: Invalid field requested: \"SubmitLine\"",
            "squeue: error: Unrecognized option: 3",
            "squeue: unrecognized option '--only-job-state'",
            "scontrol: invalid option -- 'q'",
            "invalid entity:hostname for keyword:show ",
            "too many arguments for keyword:ping",
        ] {
            let quoted = said.replace('\'', "'\\''");
            let directory = script(&format!("cat >/dev/null; echo '1;;2'; echo '{quoted}' >&2"));
            let runner = runner(directory.path(), Duration::from_secs(20));
            let lines = ["show job 4".to_owned()];
            for answer in [runner.run("squeue", &[]).await, runner.ask_lines("squeue", &[], &lines).await] {
                assert!(matches!(answer, Err(SlurmError::Misunderstood { .. })), "{said}: {answer:?}");
            }
        }
        // A site's own module may say anything of an update: then it is the update that was refused.
        let refused = failure("scontrol", 1, "Invalid option\nUnspecified error for job 4");
        assert!(matches!(refused, SlurmError::Failed { .. }), "{refused:?}");
        // Warnings about slurm.conf, which every program prints, keep no answer back.
        let warns =
            script("echo '1;n1;2'; echo 'squeue: error: Ignoring obsolete MpiParams=ports option.' >&2");
        let warns = runner(warns.path(), Duration::from_secs(20));
        assert_eq!(warns.run("squeue", &[]).await.unwrap(), "1;n1;2\n");
    }

    #[test]
    fn the_fence_is_known_by_its_words() {
        for said in [
            "scontrol: error: pillion: fence 1: the job is held\nUnspecified error for job 1",
            "2_1-3: Unspecified error (pillion: fence 1: the job is held)",
        ] {
            let SlurmError::Fenced { reason } = failure("scontrol", 1, said) else { panic!("{said}") };
            assert_eq!(reason, "the job is held");
        }
    }

    #[tokio::test]
    async fn of_many_lines_those_are_counted_that_were_refused() {
        let refused = "scontrol: error: pillion: fence 1: the job is held\nUnspecified error for job 4";
        let also = "2_2: Unspecified error (pillion: fence 1: the job has a lease)";
        let directory = script(&format!("cat >\"$0.in\"; printf '{refused}\\n{also}\\n' >&2; exit 1"));
        let lines = ["update JobId=4 StartTime=now".to_owned(), "update JobId=2_2 StartTime=now".to_owned()];
        let runner = runner(directory.path(), Duration::from_secs(20));
        assert_eq!(runner.run_lines("squeue", &lines).await.unwrap(), 2);
        let read = std::fs::read_to_string(directory.path().join("squeue.in")).unwrap();
        assert_eq!(read, "update JobId=4 StartTime=now\nupdate JobId=2_2 StartTime=now\nquit\n");
        let unreachable =
            script("cat >/dev/null; echo 'Unable to contact slurm controller (connect failure)' >&2");
        let runner = self::runner(unreachable.path(), Duration::from_secs(20));
        assert!(runner.run_lines("squeue", &lines).await.unwrap_err().is_transient());
    }

    #[test]
    fn an_absent_controller_is_transient() {
        let said = "slurm_update error: Unable to contact slurm controller (connect failure)";
        assert!(failure("scontrol", 1, said).is_transient());
        assert!(failure("scontrol", 1, "Unexpected message received for job 176_3").is_transient());
        assert!(failure("scontrol", 1, "Resource temporarily unavailable for job 3").is_transient());
        assert!(!failure("scontrol", 1, "Job is no longer pending execution for job 3").is_transient());
    }

    #[test]
    fn a_nonce_is_fresh_each_time() {
        let nonces: BTreeSet<String> = (0..100).map(|_| nonce()).collect();
        assert_eq!(nonces.len(), 100);
        assert!(nonces.iter().all(|nonce| nonce.len() == 16 && nonce.bytes().all(|b| b.is_ascii_hexdigit())));
    }
}
