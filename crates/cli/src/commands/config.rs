//! `pillion config`: what is wrong in the configuration file, and what is in force. Exit status 65 where a program would not
//! start with the file.

use super::slurm_conf::diff_of;
use crate::args::{ConfigAction, ConfigArgs, Global};
use crate::error::CliError;
use crate::exit::{self, ExitStatus};
use crate::format::clean;
use crate::output::{Answer, Block, Output, Table, json};
use pillion_config::{CONFIG_PATH, Mistake, Origin, Part, Setting, Step, migrate, mistakes, parts, show};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The variable that names the scheduler's address for the command line.
const SCHEDULER_VARIABLE: &str = "PILLION_SCHEDULER";

/// Runs the command.
///
/// # Errors
/// [`CliError::File`] where the file cannot be read, [`CliError::Data`] where nothing in it can be shown.
pub fn run(args: &ConfigArgs, global: &Global, output: &Output) -> Result<ExitStatus, CliError> {
    match &args.action {
        ConfigAction::Check { file } => {
            let path = place(file.as_ref(), global);
            let (answer, is_right) = check(&path, &read(&path)?, &host_name());
            output.print(&answer)?;
            Ok(if is_right { exit::OK } else { exit::DATA })
        }
        ConfigAction::Show { file } => {
            let path = place(file.as_ref(), global);
            let variable = std::env::var(SCHEDULER_VARIABLE).ok();
            output.print(&in_force(&path, &read(&path)?, &host_name(), variable.as_deref())?)?;
            Ok(exit::OK)
        }
        ConfigAction::Migrate { file } => {
            let path = place(file.as_ref(), global);
            output.print(&migration(&path, &read(&path)?)?)?;
            Ok(exit::OK)
        }
        ConfigAction::Example => {
            output.print(&example())?;
            Ok(exit::OK)
        }
    }
}

fn place(file: Option<&PathBuf>, global: &Global) -> PathBuf {
    file.or(global.config.as_ref()).cloned().unwrap_or_else(|| CONFIG_PATH.into())
}

fn read(path: &Path) -> Result<String, CliError> {
    std::fs::read_to_string(path).map_err(CliError::file("read", path))
}

/// The machine's name up to its first dot: what the agent takes where the file names no node.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().split('.').next().unwrap_or_default().to_owned()
}

#[derive(Serialize)]
struct Checked {
    file: String,
    programs: Vec<&'static str>,
    mistakes: Vec<MistakeRow>,
}

#[derive(Serialize)]
struct MistakeRow {
    program: &'static str,
    line: usize,
    key: String,
    sentence: String,
}

/// What each program says to a text, and whether all of them would start.
pub fn check(path: &Path, text: &str, host_name: &str) -> (Answer, bool) {
    // What is no TOML is told by the first of them.
    let readers = parts(text).unwrap_or_else(|_| vec![Part::Scheduler]);
    let mut rows = Vec::new();
    for part in &readers {
        rows.extend(mistakes(*part, text, host_name).into_iter().map(|mistake| MistakeRow {
            program: part.program(),
            line: mistake.line,
            key: mistake.key,
            sentence: clean(&mistake.sentence),
        }));
    }
    let file = path.display();
    let mut table = Table::new(&["FILE", ">LINE", "KEY", "PROGRAM", "MISTAKE"]);
    let mut blocks = Vec::new();
    for MistakeRow { program, line, key, sentence } in &rows {
        blocks.push(Block::Line(format!("{file}, line {line}: {sentence}")));
        table.push(vec![
            file.to_string(),
            line.to_string(),
            key.clone(),
            (*program).to_owned(),
            sentence.clone(),
        ]);
    }
    for part in &readers {
        let count = rows.iter().filter(|row| row.program == part.program()).count();
        blocks.push(Block::Line(match count {
            0 => format!("{file}: {} can start with it", part.program()),
            1 => format!("{file}: {} does not start with it: 1 mistake", part.program()),
            count => format!("{file}: {} does not start with it: {count} mistakes", part.program()),
        }));
    }
    let is_right = rows.is_empty();
    let programs = readers.iter().map(|part| part.program()).collect();
    let body = Checked { file: file.to_string(), programs, mistakes: rows };
    (Answer { blocks, parsable: table, json: json::render(&body) }, is_right)
}

#[derive(Serialize)]
struct Shown {
    file: String,
    settings: Vec<SettingRow>,
}

#[derive(Serialize)]
struct SettingRow {
    key: String,
    value: String,
    origin: String,
}

/// Every setting that the file's programs have, and the environment's word on where the command line asks.
fn in_force(
    path: &Path,
    text: &str,
    host_name: &str,
    scheduler_variable: Option<&str>,
) -> Result<Answer, CliError> {
    let mut rows = Vec::new();
    for part in parts(text).map_err(|found| wrong(path, &found))? {
        let settings = show(part, text, host_name).map_err(|found| wrong(path, &found))?;
        rows.extend(settings.into_iter().map(|setting| row(path, setting)));
    }
    if let Some(value) = scheduler_variable {
        let origin = "environment".to_owned();
        rows.push(SettingRow { key: SCHEDULER_VARIABLE.to_owned(), value: clean(value), origin });
    }
    let mut table = Table::new(&["KEY", "VALUE", "FROM"]);
    for SettingRow { key, value, origin } in &rows {
        table.push(vec![key.clone(), value.clone(), origin.clone()]);
    }
    let body = Shown { file: path.display().to_string(), settings: rows };
    Ok(Answer::table(table, json::render(&body)))
}

fn wrong(path: &Path, found: &[Mistake]) -> CliError {
    let lines: Vec<String> = found.iter().map(|mistake| clean(&mistake.to_string())).collect();
    CliError::Data(format!("{}, {}; see 'pillion config check'", path.display(), lines.join("; ")))
}

/// A setting as it is shown: passwords are not.
fn row(path: &Path, setting: Setting) -> SettingRow {
    let Setting { key, value, origin } = setting;
    let value = if key == "database.url" { without_password(&value) } else { value };
    let origin = match origin {
        Origin::Default => "default".to_owned(),
        Origin::File(line) => format!("{}, line {line}", path.display()),
    };
    SettingRow { key, value, origin }
}

/// `postgres://user:***@host/database` for an address with a password.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    // A password may hold an '@' itself: the last one before the host's path counts.
    let Some((login, host)) = rest.rsplit_once('@') else { return url.to_owned() };
    match login.split_once(':') {
        Some((user, _)) => format!("{scheme}://{user}:***@{host}"),
        None => url.to_owned(),
    }
}

#[derive(Serialize)]
struct Migrated {
    file: String,
    steps: Vec<StepRow>,
    diff: String,
}

#[derive(Serialize)]
struct StepRow {
    line: usize,
    key: String,
    sentence: String,
}

/// What a file of an earlier release has to become; people read why, and take the rest to patch.
fn migration(path: &Path, text: &str) -> Result<Answer, CliError> {
    let migrated = migrate(text).map_err(|found| wrong(path, &found))?;
    let file = path.display().to_string();
    let diff =
        if migrated.text == text { String::new() } else { diff_of(path, Some(text), Some(&migrated.text)) };
    let mut table = Table::new(&["FILE", ">LINE", "KEY", "STEP"]);
    let mut blocks = Vec::new();
    if migrated.steps.is_empty() {
        blocks.push(Block::Line(format!("{file}: nothing in it is of an earlier release")));
    }
    for Step { line, key, sentence } in &migrated.steps {
        blocks.push(Block::Verbatim(format!("# line {line}: {sentence}")));
        table.push(vec![file.clone(), line.to_string(), key.clone(), sentence.clone()]);
    }
    blocks.extend(diff.lines().map(|line| Block::Verbatim(line.to_owned())));
    let row = |Step { line, key, sentence }| StepRow { line, key, sentence };
    let body = Migrated { file, steps: migrated.steps.into_iter().map(row).collect(), diff };
    Ok(Answer { blocks, parsable: table, json: json::render(&body) })
}

#[derive(Serialize)]
struct Example {
    text: String,
}

fn example() -> Answer {
    let text = pillion_config::example();
    let blocks = text.lines().map(|line| Block::Verbatim(line.to_owned())).collect();
    let mut table = Table::new(&["LINE"]);
    for line in text.lines() {
        table.push(vec![line.to_owned()]);
    }
    Answer { blocks, parsable: table, json: json::render(&Example { text }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Format;

    const PATH: &str = "/etc/pillion/pillion.toml";

    #[test]
    fn each_mistake_is_one_line_with_its_place() {
        let text = "mode = \"on\"\n[pool]\npartition = [\"a\"]\n[agent]\nbackend = \"amd\"\n";
        let (answer, is_right) = check(Path::new(PATH), text, "n1");
        assert!(!is_right);
        insta::assert_snapshot!(Output::new(Format::Table, true).render(&answer), @r#"
        /etc/pillion/pillion.toml, line 1: mode = "on" is not allowed; write "off", "shadow" or "active"
        /etc/pillion/pillion.toml, line 3: there is no setting pool.partition; did you mean pool.partitions?
        /etc/pillion/pillion.toml, line 5: agent.backend = "amd" is not allowed; write "simulated", "nvidia" or "intel"
        /etc/pillion/pillion.toml: pillion-scheduler does not start with it: 2 mistakes
        /etc/pillion/pillion.toml: pillion-agent does not start with it: 1 mistake
        "#);
        insta::assert_snapshot!(Output::new(Format::Parsable, true).render(&answer), @r#"
        FILE|LINE|KEY|PROGRAM|MISTAKE
        /etc/pillion/pillion.toml|1|mode|pillion-scheduler|mode = "on" is not allowed; write "off", "shadow" or "active"
        /etc/pillion/pillion.toml|3|pool.partition|pillion-scheduler|there is no setting pool.partition; did you mean pool.partitions?
        /etc/pillion/pillion.toml|5|agent.backend|pillion-agent|agent.backend = "amd" is not allowed; write "simulated", "nvidia" or "intel"
        "#);
    }

    #[test]
    fn a_file_of_an_earlier_release_is_shown_as_it_has_to_be() {
        let text = "[pool]\npartitions = [\"a\"]\n[listen]\ntcp_is_operator = true\n";
        let answer = migration(Path::new(PATH), text).expect("TOML");
        insta::assert_snapshot!(Output::new(Format::Table, true).render(&answer), @r#"
        # line 4: there is no setting listen.tcp_is_operator any more: whoever comes over TCP proves who he is (auth.method), and operators are those of listen.operator_uids; remove it ('pillion config migrate' shows how)
        --- a/etc/pillion/pillion.toml
        +++ b/etc/pillion/pillion.toml
        @@ -1,4 +1,3 @@
         [pool]
         partitions = ["a"]
         [listen]
        -tcp_is_operator = true
        "#);
        let answer = migration(Path::new(PATH), &pillion_config::example()).expect("TOML");
        let said = Output::new(Format::Table, true).render(&answer);
        assert_eq!(said, "/etc/pillion/pillion.toml: nothing in it is of an earlier release\n");
        assert!(migration(Path::new(PATH), "[pool\n").is_err());
    }

    #[test]
    fn a_file_that_serves_says_whom_it_serves() {
        let (answer, is_right) = check(Path::new(PATH), &pillion_config::example(), "n1");
        assert!(is_right);
        insta::assert_snapshot!(Output::new(Format::Table, true).render(&answer), @r"
        /etc/pillion/pillion.toml: pillion-scheduler can start with it
        /etc/pillion/pillion.toml: pillion-agent can start with it
        ");
        let (answer, is_right) = check(Path::new(PATH), "[pool\n", "n1");
        assert!(!is_right);
        let text = Output::new(Format::Table, true).render(&answer);
        assert!(text.starts_with("/etc/pillion/pillion.toml, line 1: this is no TOML: "), "{text}");
    }

    #[test]
    fn what_is_in_force_names_its_place_and_no_password() {
        let text =
            "[pool]\npartitions = [\"a\"]\n[database]\nurl = \"postgres://pillion:s:e@cret@db/pillion\"\n";
        let answer = in_force(Path::new(PATH), text, "n1", Some("http://c:6820")).expect("it is valid");
        let shown = Output::new(Format::Parsable, false).render(&answer);
        for line in [
            "pool.partitions|[\"a\"]|/etc/pillion/pillion.toml, line 2",
            "database.url|\"postgres://pillion:***@db/pillion\"|/etc/pillion/pillion.toml, line 4",
            "bound_seconds|600|default",
            "PILLION_SCHEDULER|http://c:6820|environment",
        ] {
            assert!(shown.lines().any(|found| found == line), "{line} is not in\n{shown}");
        }
        assert!(!shown.contains("cret") && !shown.contains("agent."));
        let error = in_force(Path::new(PATH), "mode = 1", "n1", None).expect_err("1 is no mode");
        assert!(error.to_string().starts_with("/etc/pillion/pillion.toml, line 1: mode = 1 is not allowed"));
    }
}
