//! What the code cites is there: each document and heading that a comment, a script or a message names is in the checkout,
//! so that whoever reads the code can read the reason too.

use super::{anchors, checkout, exists};
use std::path::{Path, PathBuf};

/// How files end that are read by people who change the code.
const CODE: [&str; 8] = ["rs", "lua", "toml", "sh", "proto", "sql", "yml", "example"];
/// Folders that hold what somebody else wrote or what a build left.
const PASSED_OVER: [&str; 5] = [".git", ".sqlx", "target", "fixtures", "snapshots"];
/// Where the checkout is found by whoever has only an address: what alerts link to.
const FORGE: &str = "https://github.com/pillion/pillion/blob/main/";
/// Documents of other projects.
const FOREIGN: [&str; 2] = ["SYSMAN.md", "xpumd/receiver/intelxpu/sysman/documentation.md"];

fn is_code(path: &Path) -> bool {
    match path.extension() {
        Some(extension) => CODE.iter().any(|known| extension == *known),
        // Scripts have no ending; what they are stands in their first line.
        None => std::fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"#!")),
    }
}

fn code_below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap();
        if path.is_dir() {
            if !PASSED_OVER.iter().any(|passed| name == *passed) {
                code_below(&path, found);
            }
        } else if is_code(&path) {
            found.push(path);
        }
    }
}

/// Every text of code with its path.
fn code() -> Vec<(PathBuf, String)> {
    let (root, mut found) = (checkout(), Vec::new());
    code_below(&root, &mut found);
    // Those two hold words that look like citations.
    found.retain(|path| {
        !path.ends_with("cli/tests/documents.rs") && !path.ends_with("cli/tests/citations/mod.rs")
    });
    found.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}

/// The words of a line of code, without what stands around them there.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| c.is_whitespace() || "\"'`()[]<>,;{}\\".contains(c))
        .map(|word| word.trim_end_matches(['.', ':']).trim_start_matches(['.', '/']))
}

/// A document that a word names, and the heading in it.
fn citation(word: &str) -> Option<(&str, &str)> {
    let word = word.strip_prefix(FORGE).unwrap_or(word);
    let (path, heading) = word.split_once('#').unwrap_or((word, ""));
    let is_document = path.rsplit_once('.').is_some_and(|(name, ending)| !name.is_empty() && ending == "md");
    (is_document || path.starts_with("docs/")).then_some((path, heading))
}

/// Where a document lies that a file names: beneath the checkout, or beneath a folder that the file is in.
fn found(root: &Path, file: &Path, path: &str) -> Option<PathBuf> {
    file.ancestors()
        .skip(1)
        .take_while(|folder| folder.starts_with(root))
        .find_map(|folder| exists(folder, path).then(|| folder.join(path)))
}

#[test]
fn every_document_that_code_cites_is_there() {
    let (root, mut asked) = (checkout(), 0);
    for (file, text) in code() {
        let named = file.strip_prefix(&root).unwrap().display();
        let cited = text.lines().flat_map(words).filter_map(citation);
        for (path, heading) in cited.filter(|(path, _)| !FOREIGN.contains(path)) {
            let found = found(&root, &file, path);
            assert!(found.is_some(), "{named} cites {path}, which is not in the checkout");
            if !heading.is_empty() {
                let known = anchors(&std::fs::read_to_string(found.unwrap()).unwrap());
                assert!(
                    known.contains(heading),
                    "{named} cites {path}#{heading}; its headings are {known:?}"
                );
            }
            asked += 1;
        }
    }
    assert!(asked > 60, "only {asked} citations were found");
}

/// `STYLE R9`: a rule of a paper that only its writers have. A model of a maker (`NVIDIA A30`) is none.
fn is_rule_of_a_paper(name: &str, number: &str) -> bool {
    let number = number.trim_end_matches(|c: char| c.is_ascii_punctuation());
    let is_name = name.len() > 3 && name != "NVIDIA" && name.bytes().all(|byte| byte.is_ascii_uppercase());
    let digits = number.strip_prefix(|c: char| c.is_ascii_uppercase()).unwrap_or_default();
    is_name && !digits.is_empty() && digits.len() < 3 && digits.bytes().all(|byte| byte.is_ascii_digit())
}

#[test]
fn no_code_cites_a_paper_by_the_number_of_a_rule() {
    for (file, text) in code() {
        for line in text.lines() {
            let all: Vec<&str> = words(line).collect();
            let cited = all.windows(2).find(|pair| is_rule_of_a_paper(pair[0], pair[1]));
            assert!(cited.is_none(), "{} cites {cited:?}; say why, or name a document", file.display());
        }
    }
}

#[test]
fn citations_are_told_from_other_words() {
    let found = |line| words(line).filter_map(citation).collect::<Vec<_>>();
    assert_eq!(found("// as is (docs/a.md#b-c), and"), [("docs/a.md", "b-c")]);
    let on_the_forge = format!("url: {FORGE}docs/a.md#b");
    assert_eq!(found(&on_the_forge), [("docs/a.md", "b")]);
    assert_eq!(
        found("\"../../README.md\" x.mdx docs/decisions/0003."),
        [("README.md", ""), ("docs/decisions/0003", "")]
    );
    assert!(is_rule_of_a_paper("STYLE", "R12).") && is_rule_of_a_paper("DESIGN", "D6"));
    assert!(!is_rule_of_a_paper("GPU", "A100") && !is_rule_of_a_paper("Max", "R1"));
}
