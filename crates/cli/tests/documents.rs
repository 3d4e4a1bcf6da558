//! What the texts name is there: files of the checkout, systemd units, settings, pages and headings. Nothing is started;
//! that the guides' commands do what they say is `tests/e2e/guides.rs`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

mod citations;
mod test_commands;

use pillion_config::{mistakes, parts};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Folders of the checkout that a reader is sent to.
const FOLDERS: [&str; 9] =
    [".ci/", ".github/", "crates/", "deploy/", "docs/", "migrations/", "proto/", "slurm-spank/", "tests/"];
/// Texts in the folder of the checkout itself.
const ROOT_TEXTS: [&str; 3] = ["README.md", "CONTRIBUTING.md", "SECURITY.md"];
/// How units of systemd end.
const SUFFIXES: [&str; 5] = [".service", ".timer", ".socket", ".mount", ".path"];
/// Texts that tell how it was, with files that may be gone.
const HISTORY: [&str; 2] = ["docs/CHANGELOG.md", "docs/decisions/"];

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn pages_below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages_below(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

/// Every text, by its path in the checkout.
fn texts() -> BTreeMap<String, String> {
    let root = checkout();
    let mut found: Vec<PathBuf> = ROOT_TEXTS.iter().map(|name| root.join(name)).collect();
    pages_below(&root.join("docs"), &mut found);
    pages_below(&root.join("deploy"), &mut found);
    let named = found.into_iter().map(|path| {
        let name = path.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
        (name, std::fs::read_to_string(path).unwrap())
    });
    let texts: BTreeMap<String, String> = named.collect();
    assert!(texts.len() > 15, "only {:?} were found", texts.keys());
    texts
}

/// One fenced block.
#[derive(Debug, PartialEq)]
struct Block {
    language: String,
    text: String,
}

/// A text in its fenced blocks and what is outside of them.
fn split(text: &str) -> (Vec<Block>, String) {
    let (mut blocks, mut outside) = (Vec::new(), String::new());
    let mut open: Option<Block> = None;
    for line in text.lines() {
        match (line.trim_start().strip_prefix("```"), open.take()) {
            (Some(language), None) => {
                open = Some(Block { language: language.trim().to_owned(), text: String::new() });
            }
            (Some(_), Some(block)) => blocks.push(block),
            (None, Some(mut block)) => {
                block.text.push_str(line);
                block.text.push('\n');
                open = Some(block);
            }
            (None, None) => {
                outside.push_str(line);
                outside.push('\n');
            }
        }
    }
    assert!(open.is_none(), "a block is not closed");
    (blocks, outside)
}

/// What stands between back quotes, and the text without it.
fn spans(outside: &str) -> (Vec<&str>, String) {
    let parts: Vec<&str> = outside.split('`').collect();
    let pick = |rest: usize| parts.iter().skip(rest).step_by(2).copied();
    (pick(1).collect(), pick(0).collect::<Vec<_>>().join(" "))
}

/// `a{b,c}e` is `abe` and `ace`.
fn expand(word: &str) -> Vec<String> {
    let braces = word.find('{').and_then(|open| Some((open, open + word[open..].find('}')?)));
    let Some((open, close)) = braces else { return vec![word.to_owned()] };
    let choices = word[open + 1..close].split(',');
    choices.flat_map(|choice| expand(&format!("{}{choice}{}", &word[..open], &word[close + 1..]))).collect()
}

/// Whether a path of the checkout, with `*` in its last part perhaps, names a file or a folder.
fn exists(root: &Path, path: &str) -> bool {
    let path = root.join(path.trim_end_matches('/'));
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let Some((start, end)) = name.split_once('*') else { return path.exists() };
    let entries = std::fs::read_dir(path.parent().unwrap()).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).any(|found| {
        found.len() >= start.len() + end.len() && found.starts_with(start) && found.ends_with(end)
    })
}

/// The words of a line of code.
fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| c.is_whitespace() || "'\"();|<>=".contains(c))
        .map(|word| word.trim_start_matches("./").trim_end_matches([',', '.', ':']))
}

#[test]
fn every_file_that_a_text_names_is_there() {
    let (root, mut asked) = (checkout(), 0);
    for (name, text) in texts() {
        let (blocks, outside) = split(&text);
        let is_history = HISTORY.iter().any(|history| name.starts_with(history));
        let code: Vec<&str> = blocks.iter().map(|block| block.text.as_str()).collect();
        let code = if is_history { Vec::new() } else { [code, spans(&outside).0].concat() };
        for word in code.into_iter().flat_map(words) {
            if !FOLDERS.iter().any(|folder| word.starts_with(folder)) || word.contains("..") {
                continue;
            }
            for path in expand(word) {
                assert!(exists(&root, &path), "{name} names {path}, which is not there");
                asked += 1;
            }
        }
    }
    assert!(asked > 30, "only {asked} files were found");
}

/// As the forges make them of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The anchors of a text; a heading that comes again gets a number.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeMap::<String, usize>::new();
    let headings = split(text).1;
    let headings = headings.lines().filter(|line| line.starts_with('#'));
    let mut all = BTreeSet::new();
    for heading in headings {
        let anchor = anchor(heading.trim_start_matches('#'));
        let seen = found.entry(anchor.clone()).or_default();
        all.insert(if *seen == 0 { anchor } else { format!("{anchor}-{seen}") });
        *seen += 1;
    }
    all
}

/// What stands in the round brackets of links and pictures.
fn links(outside: &str) -> Vec<String> {
    let text = spans(outside).1;
    let after = text.match_indices("](").map(|(at, _)| &text[at + 2..]);
    after.filter_map(|rest| Some(rest[..rest.find(')')?].to_owned())).collect()
}

#[test]
fn every_link_leads_somewhere() {
    let (root, texts, mut asked) = (checkout(), texts(), 0);
    for (name, text) in &texts {
        for link in links(&split(text).1).iter().filter(|link| !link.contains("://")) {
            let (path, fragment) = link.split_once('#').unwrap_or((link, ""));
            let target =
                if path.is_empty() { root.join(name) } else { root.join(name).parent().unwrap().join(path) };
            let target = target.canonicalize();
            assert!(target.is_ok(), "{name} links to {link}, which is not there");
            let target = target.unwrap();
            assert!(target.starts_with(&root), "{name} links to {link}, which is not in the checkout");
            if !fragment.is_empty() {
                let known = anchors(&std::fs::read_to_string(target).unwrap());
                assert!(known.contains(fragment), "{name} links to {link}; its headings are {known:?}");
            }
            asked += 1;
        }
    }
    assert!(asked > 40, "only {asked} links were found");
}

/// The units of ours that a piece of code names: by their whole name, or as systemctl and journalctl take them.
fn units(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in code.lines() {
        let is_asked = |word: &&str| *word == "systemctl" || *word == "journalctl";
        let after = words(line).skip_while(|word| !is_asked(word)).filter(|word| word.starts_with("pillion"));
        let whole = words(line).filter(|word| {
            let is_plain = word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
            let is_unit = SUFFIXES.iter().any(|suffix| word.ends_with(suffix));
            (word.starts_with("pillion") || word.starts_with("run-pillion")) && is_plain && is_unit
        });
        for word in whole.chain(after) {
            found.push(if word.contains('.') { word.to_owned() } else { format!("{word}.service") });
        }
    }
    found
}

#[test]
fn every_unit_that_a_text_names_is_shipped() {
    let (folder, mut asked) = (checkout().join("deploy/systemd"), BTreeSet::new());
    for (name, text) in texts() {
        let (blocks, outside) = split(&text);
        let code: Vec<&str> = blocks.iter().map(|block| block.text.as_str()).collect();
        for unit in [code, spans(&outside).0].concat().into_iter().flat_map(units) {
            assert!(
                folder.join(&unit).exists(),
                "{name} names the unit {unit}, which is not in deploy/systemd"
            );
            asked.insert(unit);
        }
    }
    let shipped = shipped_units().len();
    assert!(asked.len() + 1 >= shipped, "of {shipped} units only {asked:?} are named");
}

/// Units, and not what makes parts of them when systemd starts.
fn shipped_units() -> Vec<PathBuf> {
    let files = std::fs::read_dir(checkout().join("deploy/systemd")).unwrap();
    let all = files.map(|file| file.unwrap().path());
    all.filter(|path| path.extension().is_some()).collect()
}

/// What a unit of ours says of itself: `man:pillion-agent(8)`.
fn documentation(unit: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(unit).unwrap();
    let values = text.lines().filter_map(|line| line.strip_prefix("Documentation="));
    values.flat_map(str::split_whitespace).map(str::to_owned).collect()
}

/// Units that come with packages alone.
const PACKAGED: [&str; 2] = ["pillion-spank-follow.", "pillion-simulated-device."];

#[test]
fn every_page_that_a_unit_names_is_installed_where_the_unit_is() {
    let guide = &texts()["docs/admin-guide.md"];
    let (blocks, _) = split(guide);
    let programs = |first: &str| &blocks.iter().find(|block| block.text.starts_with(first)).unwrap().text;
    let controller = programs("install -m 755 target/release/{pillion,");
    let node = programs("install -m 755 target/release/pillion-agent");
    for path in shipped_units() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let installed = if name == "pillion-agent.service" { node } else { controller };
        if PACKAGED.iter().any(|stem| name.starts_with(stem)) {
            continue;
        }
        let pages = documentation(&path);
        assert!(!pages.is_empty(), "{name} names no page");
        for page in pages {
            let (stem, section) = page
                .strip_prefix("man:")
                .and_then(|rest| rest.strip_suffix(')')?.split_once('('))
                .unwrap_or_else(|| panic!("{name}: {page} is no manual page"));
            let file = format!("docs/man/{stem}.{section}");
            assert!(checkout().join(&file).exists(), "{name}: {page} does not exist");
            let is_installed = installed.lines().any(|line| {
                let names_it =
                    line.ends_with(&format!(" {file}")) || line.ends_with(&format!(" docs/man/*.{section}"));
                line.contains(&format!("/man{section} ")) && names_it
            });
            assert!(is_installed, "{name}: the admin guide does not install {file} beside it");
        }
    }
}

#[test]
fn every_setting_that_a_text_shows_is_accepted() {
    let mut asked = 0;
    for (name, text) in texts() {
        for block in split(&text).0.into_iter().filter(|block| block.language == "toml") {
            // That of pillion-simulated-device, which is another program's file.
            if block.text.contains("[machine]") {
                continue;
            }
            for part in parts(&block.text).unwrap() {
                // A block is a part of a file: what it leaves out stands elsewhere.
                let mut wrong = mistakes(part, &block.text, "n1");
                wrong.retain(|mistake| !mistake.sentence.contains(" is missing"));
                assert!(
                    wrong.is_empty(),
                    "{name} shows\n{}\nin which {} finds {wrong:?}",
                    block.text,
                    part.program()
                );
                asked += 1;
            }
        }
    }
    assert!(asked >= 3, "only {asked} were found");
}

#[test]
fn the_admin_guide_names_each_check_of_doctor() {
    let texts = texts();
    let outside = split(&texts["docs/admin-guide.md"]).1;
    let guide: BTreeSet<&str> = spans(&outside).0.into_iter().collect();
    let rows = texts["docs/doctor.md"].lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let missing: BTreeSet<&str> = rows.filter(|check| !guide.contains(check)).collect();
    assert!(missing.is_empty(), "docs/admin-guide.md does not say what fails without {missing:?}");
}

#[test]
fn texts_are_read_as_they_are_written() {
    let text = "# A: `b`, *c*\n\n## D\n## D\n```sh\n# no heading\nsystemctl enable --now pillion-x y.timer\n```\nsee [d](x.md#d-1) `[e](f)`\n";
    let (blocks, outside) = split(text);
    assert_eq!(blocks[0].language, "sh");
    assert_eq!(links(&outside), ["x.md#d-1"]);
    assert_eq!(anchors(text), ["a-b-c", "d", "d-1"].map(str::to_owned).into());
    assert_eq!(units(&blocks[0].text), ["pillion-x.service"]);
    assert_eq!(expand("a/{b.c,d}-{e,f}"), ["a/b.c-e", "a/b.c-f", "a/d-e", "a/d-f"]);
    assert!(exists(&checkout(), "docs/man/*.5") && !exists(&checkout(), "docs/man/*.4"));
}
