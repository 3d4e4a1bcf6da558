//! The manual pages and shell completions that are committed are those of the command line as it is. With `PILLION_BLESS=1`
//! they are written anew.

use clap::CommandFactory as _;
use clap_complete::Shell;
use pillion_cli::Args;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// The files of a folder by name; pages of other programs (section 8) are theirs to check.
fn files(folder: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("it can be listed").path();
        let name = path.file_name().expect("a file has a name").to_string_lossy().into_owned();
        if !name.ends_with(".8") {
            found.insert(name, std::fs::read_to_string(path).expect("it is text"));
        }
    }
    found
}

/// Holds what was made against what is committed.
fn hold(folder: &str, made: &BTreeMap<String, String>) {
    let folder = docs().join(folder);
    if std::env::var_os("PILLION_BLESS").is_some() {
        std::fs::create_dir_all(&folder).expect("docs can be written");
        for name in files(&folder).keys() {
            std::fs::remove_file(folder.join(name)).expect("docs can be written");
        }
        for (name, text) in made {
            std::fs::write(folder.join(name), text).expect("docs can be written");
        }
    }
    let committed = files(&folder);
    let names = |files: &BTreeMap<String, String>| files.keys().cloned().collect::<Vec<_>>();
    let how = "PILLION_BLESS=1 cargo test -p pillion-cli --test manual writes it anew";
    assert_eq!(names(&committed), names(made), "{how}");
    for (name, text) in made {
        assert!(committed[name] == *text, "{}/{name} is old; {how}", folder.display());
    }
}

#[test]
fn the_manual_pages_are_current() {
    let folder = tempfile::tempdir().unwrap();
    clap_mangen::generate_to(Args::command(), folder.path()).unwrap();
    let mut made = files(folder.path());
    made.insert("pillion.toml.5".to_owned(), pillion_config::manual());
    assert!(made.contains_key("pillion.1") && made.contains_key("pillion-doctor.1"));
    hold("man", &made);
}

#[test]
fn the_completions_are_current() {
    let made = |shell: Shell, name: &str| {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut Args::command(), "pillion", &mut text);
        (name.to_owned(), String::from_utf8(text).unwrap())
    };
    let made = [(Shell::Bash, "pillion"), (Shell::Zsh, "_pillion"), (Shell::Fish, "pillion.fish")]
        .map(|(shell, name)| made(shell, name));
    hold("completion", &made.into());
}
