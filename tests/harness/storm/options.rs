//! The words after `tests/run storm`.

use std::path::PathBuf;

/// What `--help` prints.
pub const USAGE: &str = include_str!("usage.txt");

/// How a storm is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Jobs and array tasks.
    pub starts: u32,
    /// Over how long they are submitted.
    pub minutes: u32,
    /// What everything is drawn from.
    pub seed: u64,
    /// Whether things are broken.
    pub faults: bool,
    /// Where the long answers go; absent: a folder of the testbed, gone with it.
    pub output: Option<PathBuf>,
    /// No storm: what is kept of one in this file is judged again.
    pub judge: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self { starts: 300, minutes: 6, seed: 1, faults: true, output: None, judge: None }
    }
}

/// Reads the words; `Ok(None)`: the usage is wanted.
///
/// # Errors
/// One sentence that says what is wrong.
pub fn parse(words: &[String]) -> Result<Option<Options>, String> {
    let mut options = Options::default();
    for word in words {
        if word == "--help" || word == "-h" {
            return Ok(None);
        }
        let (name, value) = word.split_once('=').ok_or_else(|| {
            format!("'{word}' is not understood; write for example --starts=1000 --minutes=20 --seed=7 --faults=no")
        })?;
        match name {
            "--starts" => options.starts = number(name, value, 1, 100_000)?,
            "--minutes" => options.minutes = number(name, value, 1, 1440)?,
            "--seed" => {
                options.seed =
                    value.parse().map_err(|_| format!("--seed takes a whole number, not '{value}'"))?;
            }
            "--faults" => {
                options.faults = match value {
                    "yes" => true,
                    "no" => false,
                    _ => return Err(format!("--faults takes yes or no, not '{value}'")),
                }
            }
            "--output" if !value.is_empty() => options.output = Some(value.into()),
            "--output" => return Err("--output takes a folder".to_owned()),
            "--judge" if !value.is_empty() => options.judge = Some(value.into()),
            "--judge" => return Err("--judge takes a file".to_owned()),
            _ => {
                return Err(format!(
                    "there is no option '{name}'; there are --starts, --minutes, --seed, --faults, --output and --judge"
                ));
            }
        }
    }
    Ok(Some(options))
}

fn number(name: &str, value: &str, least: u32, most: u32) -> Result<u32, String> {
    let read = value.parse().ok().filter(|read| (least..=most).contains(read));
    read.ok_or_else(|| format!("{name} takes a whole number from {least} to {most}, not '{value}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &str) -> Result<Option<Options>, String> {
        parse(&words.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_read() {
        assert_eq!(parsed("").unwrap(), Some(Options::default()));
        let all = parsed("--starts=1000 --minutes=20 --seed=7 --faults=no --output=/x").unwrap().unwrap();
        let (output, judge) = (Some("/x".into()), None);
        assert_eq!(all, Options { starts: 1000, minutes: 20, seed: 7, faults: false, output, judge });
        assert_eq!(parsed("--judge=/x/facts.json").unwrap().unwrap().judge, Some("/x/facts.json".into()));
        assert_eq!(parsed("--seed=3 --help").unwrap(), None);
    }

    #[test]
    fn a_bad_option_gives_one_sentence() {
        for words in [
            "--starts=0",
            "--starts=many",
            "--minutes=1441",
            "--seed=-1",
            "--faults=some",
            "--output=",
            "--judge=",
            "storm",
            "--x=1",
        ] {
            let said = parsed(words).unwrap_err();
            assert!(!said.contains('\n') && said.len() < 120, "{words}: {said}");
        }
    }
}
