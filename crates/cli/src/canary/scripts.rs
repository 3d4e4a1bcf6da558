//! The site's scripts: what they are called, and whether sbatch takes them here. What they say is read; nothing is run.

use super::plan::Script;
use crate::characterize::campaign::Subject;
use crate::characterize::script::{self, InvalidScript};
use crate::characterize::{self, unusable};
use crate::error::CliError;
use pillion_core::option::{ColocateRequest, is_profile_name};
use pillion_core::{CapStep, SlowdownRatio};
use std::path::{Path, PathBuf};

/// Why a script is none for a canary.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error(transparent)]
    Script(#[from] InvalidScript),
    #[error(
        "it has no time limit; write one, such as #SBATCH --time=30, or give all of them one: --sbatch=--time=30"
    )]
    NoTimeLimit,
    #[error("take {0} out: each run is one job, which begins when the canary says")]
    Option(String),
    #[error(
        "its name cannot be a workload's; rename it to 1 to 64 letters, digits, dots, underscores or dashes"
    )]
    Name,
}

/// Reads them all.
///
/// # Errors
/// One sentence about the first that cannot be used.
pub fn read(paths: &[PathBuf], options: &[String]) -> Result<Vec<Script>, CliError> {
    let mut scripts: Vec<Script> = Vec::new();
    for path in paths {
        let subject = characterize::read(path, &[], options)?;
        check(&subject).map_err(|unfit| unusable(path, &unfit.to_string()))?;
        let name = name(path).map_err(|unfit| unusable(path, &unfit.to_string()))?;
        if let Some(other) = scripts.iter().find(|other| other.name == name) {
            let other = &other.subject.script;
            let why = format!("{} and {other} are both named {name}; rename one", path.display());
            return Err(CliError::Usage(why));
        }
        scripts.push(Script { name, subject });
    }
    Ok(scripts)
}

/// `solver` of `bench/solver.sh`.
fn name(path: &Path) -> Result<String, Unfit> {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).filter(|stem| is_profile_name(stem));
    stem.map(str::to_owned).ok_or(Unfit::Name)
}

/// Whether it has a time limit, and nothing that makes another thing of it than one job that may begin.
fn check(subject: &Subject) -> Result<(), Unfit> {
    script::settings(&subject.text)?;
    let lines = script::directives(&subject.text)?.map(|(_, words)| words);
    let own = subject.options.iter().map(|option| option.split_whitespace().collect());
    let mut has_limit = false;
    for (option, _) in lines.chain(own).flat_map(|words: Vec<&str>| script::options(&words)) {
        match option.as_str() {
            "--time" | "-t" => has_limit = true,
            "--array" | "-a" | "--begin" | "-b" | "--dependency" | "-d" | "--hold" | "-H" => {
                return Err(Unfit::Option(option));
            }
            _ => {}
        }
    }
    if has_limit { Ok(()) } else { Err(Unfit::NoTimeLimit) }
}

/// The value of `--colocate` for a run: alone, or beside another with that promise.
///
/// # Errors
/// What the script says itself that cannot stand.
pub fn colocate(script: &Script, promise: Option<SlowdownRatio>) -> Result<String, InvalidScript> {
    let own = script::settings(&script.subject.text)?;
    let cap = if promise.is_some() { None } else { Some(CapStep::WHOLE) };
    let settings =
        ColocateRequest { profile_name: Some(script.name.clone()), slowdown_ratio_max: promise, cap, ..own };
    Ok(settings.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(lines: &str, options: &[&str]) -> Subject {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let text = format!("#!/bin/sh\n{lines}\ntrain\n#SBATCH --array=1-9\n");
        Subject { script: "/x/solver.sh".to_owned(), text, arguments: Vec::new(), options }
    }

    #[test]
    fn a_script_has_a_time_limit_and_is_one_job_that_may_begin() {
        assert_eq!(check(&subject("#SBATCH -t 10 --gres=gpu:1", &[])), Ok(()));
        assert_eq!(check(&subject("#SBATCH --time=10", &[])), Ok(()));
        assert_eq!(check(&subject("", &["--time=10"])), Ok(()));
        assert_eq!(check(&subject("#SBATCH --gres=gpu:1 # -t 10", &[])), Err(Unfit::NoTimeLimit));
        for option in ["--array=1-4", "-a 1-4", "--begin=now+1hour", "--dependency=singleton", "-H"] {
            let why = check(&subject(&format!("#SBATCH -t 10 {option}"), &[])).unwrap_err().to_string();
            assert!(
                why.starts_with(&format!(
                    "take {} out",
                    &option[..option.find(['=', ' ']).unwrap_or(option.len())]
                )),
                "{why}"
            );
        }
        let own = check(&subject("#SBATCH -t 10 --colocate=cap=0.3", &[])).unwrap_err().to_string();
        assert!(own.starts_with("line 2: take cap= out"), "{own}");
    }

    #[test]
    fn a_workload_is_named_after_its_script() {
        assert_eq!(name(Path::new("bench/solver.2.sh")), Ok("solver.2".to_owned()));
        assert_eq!(name(Path::new("a b.sh")), Err(Unfit::Name));
        let subject = subject("#SBATCH -t 1 --colocate=profile=mine,max-slowdown=1.2,memory=4G", &[]);
        let script = Script { name: "solver".to_owned(), subject };
        assert_eq!(colocate(&script, None).unwrap(), "profile=solver,memory=4194304K,cap=1");
        let promise = SlowdownRatio::try_promise(10.0).ok();
        assert_eq!(colocate(&script, promise).unwrap(), "max-slowdown=10,profile=solver,memory=4194304K");
    }

    #[test]
    fn two_of_one_name_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["a", "b"].map(|part| {
            let place = folder.path().join(part);
            std::fs::create_dir(&place).unwrap();
            std::fs::write(place.join("x.sh"), "#!/bin/sh\n#SBATCH -t 1\n").unwrap();
            place.join("x.sh")
        });
        assert_eq!(read(&paths[..1], &[]).unwrap().len(), 1);
        let why = read(&paths, &[]).unwrap_err().to_string();
        assert!(why.contains("are both named x; rename one"), "{why}");
    }
}
