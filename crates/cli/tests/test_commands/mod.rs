//! What docs/support.md says that a command tries is tried by it: each `tests/run PART NAME` and `tests/gpu PART` names a part that
//! the script has, and a test that is there. Nothing is run.

use super::{checkout, spans, split, texts};
use std::collections::BTreeSet;
use std::path::Path;

/// Scripts that run tests; what they have stands in their usage.
const SCRIPTS: [&str; 2] = ["tests/run", "tests/gpu"];
/// Parts that take names of tests, with the folder of those.
const NAMED: [(&str, &str); 3] =
    [("slurm", "tests/e2e"), ("hardware", "tests/hardware"), ("install", "tests/install")];

/// The parts that a script says it has: `usage: tests/run [unit|slurm]` and `tests/run install`.
fn parts(script: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(checkout().join(script)).unwrap();
    let lines = text.lines().map(|line| line.trim_start().trim_start_matches("usage: "));
    let firsts = lines.filter_map(|line| line.strip_prefix(script)?.strip_prefix(' ')?.split(' ').next());
    firsts.flat_map(|first| first.trim_matches(['[', ']']).split('|')).map(str::to_owned).collect()
}

/// The tests below a folder as a filter is held against them: `fence::a_release_is_refused`.
fn tests_below(folder: &Path, module: &str, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        let is_module = !["main", "mod"].contains(&stem.as_str());
        let module = if is_module { format!("{module}{stem}::") } else { module.to_owned() };
        if path.is_dir() {
            tests_below(&path, &module, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            found.extend(tests_of(&text).into_iter().map(|test| format!("{module}{test}")));
        }
    }
}

/// Functions that stand behind `#[test]`, whatever else stands between.
fn tests_of(text: &str) -> Vec<&str> {
    let (mut tests, mut is_test) = (Vec::new(), false);
    for line in text.lines().map(str::trim) {
        is_test |= line == "#[test]" || line.starts_with("#[tokio::test");
        if let Some(rest) = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ") {
            if is_test {
                tests.extend(rest.split('(').next());
            }
            is_test = false;
        }
    }
    tests
}

/// A script with the part and the names that it is called with; `None` where the code is another command.
fn asked(code: &str) -> Option<(&'static str, Vec<&str>)> {
    let mut words = code.split_whitespace();
    let first = words.next()?;
    let script = SCRIPTS.into_iter().find(|script| *script == first)?;
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        if word.starts_with("--") {
            // Its value.
            words.next();
        } else {
            kept.push(word);
        }
    }
    Some((script, kept))
}

#[test]
fn every_command_by_which_something_is_said_to_be_tested_is_there_with_its_tests() {
    let outside = split(&texts()["docs/support.md"]).1;
    let mut count = 0;
    for code in spans(&outside).0 {
        let Some((script, words)) = asked(code) else { continue };
        count += 1;
        let Some((part, names)) = words.split_first() else { continue };
        assert!(parts(script).contains(*part), "docs/support.md: '{code}': {script} has no part {part}");
        let folder = NAMED.iter().find(|(named, _)| script == "tests/run" && named == part);
        let mut tests = Vec::new();
        if let Some((_, folder)) = folder {
            tests_below(&checkout().join(folder), "", &mut tests);
        }
        for name in names {
            let is_there = tests.iter().any(|test| test.contains(name));
            assert!(is_there, "docs/support.md: '{code}': no test is called {name}");
        }
    }
    assert!(count > 15, "only {count} commands were found");
}

#[test]
fn commands_and_tests_are_read_as_they_are_written() {
    assert!(
        parts("tests/run").is_superset(&["unit", "slurm", "newest", "install"].map(str::to_owned).into())
    );
    assert!(parts("tests/gpu").contains("mig") && !parts("tests/gpu").contains("install"));
    assert_eq!(
        asked("tests/run slurm --suite sid containers::"),
        Some(("tests/run", vec!["slurm", "containers::"]))
    );
    assert_eq!((asked("tests/gpu"), asked("tests/run-else slurm")), (Some(("tests/gpu", vec![])), None));
    let text =
        "#[test]\n#[ignore = \"alone\"]\nfn one() {\nfn none() {\n#[tokio::test]\nasync fn other() {\n";
    assert_eq!(tests_of(text), ["one", "other"]);
}
