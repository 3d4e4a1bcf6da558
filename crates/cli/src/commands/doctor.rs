//! `pillion doctor`: what is missing or wrong in the set-up, and how to mend it. Exit status 1 where a check failed.

use crate::args::{DoctorArgs, Global};
use crate::client::Target;
use crate::doctor::{Finding, Status, examine, gather};
use crate::error::CliError;
use crate::exit::{self, ExitStatus};
use crate::output::{Answer, Block, Output, Table, json};
use pillion_core::Clock;
use serde::Serialize;

/// Looks, and prints.
///
/// # Errors
/// [`CliError`] for a configuration that cannot be read. Whatever else is wrong is a finding.
pub async fn run(
    args: &DoctorArgs,
    global: &Global,
    clock: &dyn Clock,
    output: &Output,
) -> Result<ExitStatus, CliError> {
    let plugin_dir = args.plugin_dir.as_deref();
    let facts =
        gather::gather(global.config.as_deref(), &Target::of(global), plugin_dir, clock.now()).await?;
    let findings = examine(&facts);
    output.print(&show(&findings, args.quiet))?;
    let is_ill = findings.iter().any(|finding| finding.status == Status::Fail);
    Ok(if is_ill { exit::PROBLEM } else { exit::OK })
}

#[derive(Serialize)]
struct Examined<'a> {
    fail_count: usize,
    warn_count: usize,
    checks: Vec<&'a Finding>,
}

/// Findings as an answer. `quiet`: only what is not well.
pub fn show(findings: &[Finding], quiet: bool) -> Answer {
    let (fail_count, warn_count) = (count(findings, Status::Fail), count(findings, Status::Warn));
    let shown: Vec<&Finding> =
        findings.iter().filter(|finding| !quiet || finding.status >= Status::Warn).collect();
    let mut table = Table::new(&["CHECK", "STATUS", "FOUND", "MEND"]);
    let mut blocks = Vec::new();
    for finding in &shown {
        let Finding { check, status, found, mend } = finding;
        blocks.push(Block::Line(format!("{:<5}{check:<20}{found}", status.as_str())));
        if let Some(mend) = mend {
            blocks.push(Block::Line(format!("{:<25}mend: {mend}", "")));
        }
        let mend = mend.clone().unwrap_or_default();
        table.push(vec![(*check).to_owned(), status.as_str().to_ascii_lowercase(), found.clone(), mend]);
    }
    let skipped = count(findings, Status::Skip);
    blocks.push(Block::Line(format!(
        "{} findings: {fail_count} failed, {warn_count} warnings, {skipped} not looked at",
        findings.len()
    )));
    Answer {
        blocks,
        parsable: table,
        json: json::render(&Examined { fail_count, warn_count, checks: shown }),
    }
}

fn count(findings: &[Finding], status: Status) -> usize {
    findings.iter().filter(|finding| finding.status == status).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Check;
    use crate::output::Format;

    fn findings() -> Vec<Finding> {
        let check = Check("heartbeat");
        vec![
            check.ok("2 s old"),
            check.skip("not seen"),
            check.warn("late", "look"),
            check.fail("gone", "start it"),
        ]
    }

    #[test]
    fn every_format_says_what_is_wrong_and_how_to_mend_it() {
        let text = |format, quiet| Output::new(format, true).render(&show(&findings(), quiet));
        insta::assert_snapshot!(text(Format::Table, false), @r"
        ok   heartbeat           2 s old
        skip heartbeat           not seen
        warn heartbeat           late
                                 mend: look
        FAIL heartbeat           gone
                                 mend: start it
        4 findings: 1 failed, 1 warnings, 1 not looked at
        ");
        insta::assert_snapshot!(text(Format::Parsable, true), @r"
        CHECK|STATUS|FOUND|MEND
        heartbeat|warn|late|look
        heartbeat|fail|gone|start it
        ");
        insta::assert_snapshot!(text(Format::Json, true), @r#"
        {
          "version": 1,
          "fail_count": 1,
          "warn_count": 1,
          "checks": [
            {
              "check": "heartbeat",
              "status": "warn",
              "found": "late",
              "mend": "look"
            },
            {
              "check": "heartbeat",
              "status": "fail",
              "found": "gone",
              "mend": "start it"
            }
          ]
        }
        "#);
    }
}
