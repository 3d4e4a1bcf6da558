//! What a batch script says of co-location itself, read as sbatch reads it: `#SBATCH` lines up to the first command.

use super::campaign::Subject;
use pillion_core::CapStep;
use pillion_core::option::{self, ColocateOption, ColocateRequest};

/// Why a script cannot be characterized.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidScript {
    /// sbatch would refuse it.
    #[error("it does not begin with '#!', so sbatch would refuse it")]
    NoInterpreter,
    /// A value of its own that is not allowed.
    #[error("line {line}: {why}")]
    Option {
        /// Of the script, from 1.
        line: usize,
        why: String,
    },
}

/// The words of each `#SBATCH` line, with its number from 1, up to the first command.
///
/// # Errors
/// [`InvalidScript::NoInterpreter`].
pub fn directives(text: &str) -> Result<impl Iterator<Item = (usize, Vec<&str>)>, InvalidScript> {
    if !text.starts_with("#!") {
        return Err(InvalidScript::NoInterpreter);
    }
    let is_before_commands =
        |line: &str| line.starts_with("#SBATCH") || line.trim().is_empty() || line.starts_with('#');
    let lines = text.lines().enumerate().take_while(move |(_, line)| is_before_commands(line));
    Ok(lines.filter_map(|(index, line)| {
        let directive = line.strip_prefix("#SBATCH")?;
        let words = directive.split_whitespace().take_while(|word| !word.starts_with('#'));
        Some((index + 1, words.collect()))
    }))
}

/// Options with their values, which stand behind a `=`, in the next word, or right behind a letter.
pub(crate) fn options(words: &[&str]) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for word in words {
        let word = word.trim_matches(['"', '\'']);
        if word.starts_with("--") {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            found.push((name.to_owned(), value.trim_matches(['"', '\'']).to_owned()));
        } else if word.starts_with('-') && word.is_char_boundary(2) && word.len() >= 2 {
            let (name, value) = word.split_at(2);
            found.push((name.to_owned(), value.trim_start_matches('=').to_owned()));
        } else if let Some((_, value)) = found.last_mut().filter(|(_, value)| value.is_empty()) {
            word.clone_into(value);
        }
    }
    found
}

/// What its user comments the job with, in the script or by an option of the command line, which counts; with its blanks.
pub(crate) fn comment(subject: &Subject) -> Option<String> {
    let own = subject.options.iter().rev().find_map(|option| value_of("--comment", option));
    own.or_else(|| {
        let lines = directives(&subject.text).ok()?.map(|(line, _)| line).collect::<Vec<_>>();
        let text: Vec<&str> = subject.text.lines().collect();
        lines.iter().rev().find_map(|line| value_of("--comment", text.get(line - 1)?))
    })
}

/// What stands behind the option in a line: up to the end of its quotes, else of its word.
fn value_of(option: &str, line: &str) -> Option<String> {
    let at = line.find(option)?;
    let rest = line[at + option.len()..].strip_prefix(['=', ' ', '\t'])?.trim_start();
    let is_typed = at == 0;
    let value = match rest.chars().next() {
        Some(quote @ ('"' | '\'')) => rest[1..].split(quote).next()?,
        // A word of a command line is one, whatever is in it.
        Some(_) if is_typed => rest,
        Some(_) => rest.split_whitespace().next()?,
        None => return None,
    };
    Some(value.to_owned())
}

/// The settings of the script's own `--colocate`; the last one counts.
///
/// # Errors
/// [`InvalidScript`] says where and why.
pub fn settings(text: &str) -> Result<ColocateRequest, InvalidScript> {
    let mut request = ColocateRequest::default();
    for (line, words) in directives(text)? {
        for word in words {
            let value = match word.strip_prefix("--colocate") {
                Some("") => None,
                Some(rest) => match rest.strip_prefix('=') {
                    Some(value) => Some(value.trim_matches(['"', '\''])),
                    None => continue,
                },
                None => continue,
            };
            request = read(value).map_err(|why| InvalidScript::Option { line, why })?;
        }
    }
    Ok(request)
}

/// What one `--colocate` says; an error is a sentence.
fn read(value: Option<&str>) -> Result<ColocateRequest, String> {
    match option::parse(value).map_err(|error| error.to_string())? {
        ColocateOption::Yes(ColocateRequest { cap: Some(_), .. }) => {
            Err("take cap= out: it is not the script that sets it here".to_owned())
        }
        ColocateOption::Yes(settings) => Ok(settings),
        ColocateOption::No => Err("take --colocate=no out: it keeps Pillion away".to_owned()),
    }
}

/// The value of `--colocate` for a run under this cap.
pub fn value(settings: &ColocateRequest, cap: CapStep) -> String {
    ColocateRequest { cap: Some(cap), ..settings.clone() }.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_user_comments_is_known_with_its_blanks() {
        let of = |lines: &str, options: &[&str]| {
            comment(&Subject {
                script: "/x.sh".to_owned(),
                text: format!("#!/bin/sh\n{lines}\ntrain\n#SBATCH --comment=late\n"),
                arguments: Vec::new(),
                options: options.iter().map(|option| (*option).to_owned()).collect(),
            })
        };
        for (lines, told) in [
            ("", None),
            ("#SBATCH -J x", None),
            ("#SBATCH -J x --comment=grant-7 -t 5", Some("grant-7")),
            ("#SBATCH --comment \"grant 7, own\" -t 5", Some("grant 7, own")),
            ("#SBATCH --comment='a b'\n#SBATCH --comment=c # d", Some("c")),
        ] {
            assert_eq!(of(lines, &[]).as_deref(), told, "{lines}");
        }
        assert_eq!(of("#SBATCH --comment=c", &["-t5", "--comment=d e"]).as_deref(), Some("d e"));
    }

    #[test]
    fn the_settings_of_a_script_stay_and_the_cap_joins_them() {
        let with = |lines: &str| settings(&format!("#!/bin/bash\n{lines}\ntrain\n#SBATCH --colocate=no\n"));
        let run = |lines: &str| value(&with(lines).unwrap(), CapStep::from_tenths(3).unwrap());
        assert_eq!(run(""), "cap=0.3");
        assert_eq!(run("#SBATCH --colocate"), "cap=0.3");
        assert_eq!(run("# a comment\n\n#SBATCH -J x --colocate=profile=bert # why"), "profile=bert,cap=0.3");
        assert_eq!(
            run("#SBATCH --colocate=memory=8G,max-slowdown=1.2"),
            "max-slowdown=1.2,memory=8388608K,cap=0.3"
        );
        assert_eq!(
            run("#SBATCH --colocate=profile=a\n#SBATCH --colocate=\"profile=b\""),
            "profile=b,cap=0.3"
        );
        assert_eq!(run("#SBATCH --colocated=no"), "cap=0.3", "not our option");
    }

    #[test]
    fn what_cannot_be_characterized_says_where_and_why() {
        let why = |text: &str| settings(text).unwrap_err().to_string();
        assert_eq!(why("train\n"), "it does not begin with '#!', so sbatch would refuse it");
        assert_eq!(
            why("#!/bin/sh\n#SBATCH --colocate=cap=0.3\n"),
            "line 2: take cap= out: it is not the script that sets it here"
        );
        assert!(
            why("#!/bin/sh\n#SBATCH -J a\n#SBATCH --colocate=no\n")
                .starts_with("line 3: take --colocate=no out")
        );
        assert!(
            why("#!/bin/sh\n#SBATCH --colocate=maybe\n").starts_with("line 2: --colocate: unknown setting")
        );
    }
}
