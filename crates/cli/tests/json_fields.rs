//! What scripts read stays: every field that docs/json.md names is still answered, under its name and with its type.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Fields of each command's answer, and the types that each was seen with. `jobs[].job_id` is a field of the elements of a
/// list; `null` is not a type, for most fields may be unknown.
type Fields = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

const HEADING: &str = "## `pillion ";

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md")
}

/// The first word of a snapshot's name: the answers of one command belong together.
fn command(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?.strip_prefix("commands__")?.strip_suffix("_json.snap")?;
    name.split('_').next().map(str::to_owned)
}

/// The JSON below the heading of a snapshot.
fn body(snapshot: &str) -> Value {
    let (_, text) = snapshot.split_once("\n---\n").expect("a snapshot has a heading");
    serde_json::from_str(text).expect("the commands' tests see to that")
}

fn collect(value: &Value, path: &str, fields: &mut BTreeMap<String, BTreeSet<String>>) {
    let word = match value {
        Value::Null => None,
        Value::Bool(_) => Some("boolean"),
        Value::Number(_) => Some("number"),
        Value::String(_) => Some("string"),
        Value::Array(_) => Some("list"),
        Value::Object(_) => Some("object"),
    };
    if !path.is_empty() {
        fields.entry(path.to_owned()).or_default().extend(word.map(str::to_owned));
    }
    match value {
        Value::Array(elements) => {
            for element in elements {
                collect(element, &format!("{path}[]"), fields);
            }
        }
        Value::Object(members) => {
            let dot = if path.is_empty() { "" } else { "." };
            for (name, member) in members {
                collect(member, &format!("{path}{dot}{name}"), fields);
            }
        }
        _ => {}
    }
}

/// What the commands answer, as their snapshots hold it.
fn answered() -> Fields {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots");
    let mut fields = Fields::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if let Some(command) = command(&path) {
            collect(&body(&std::fs::read_to_string(&path).unwrap()), "", fields.entry(command).or_default());
        }
    }
    fields
}

/// What the page promises.
fn promised(page: &str) -> Fields {
    let mut fields = Fields::new();
    let mut command = None;
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix(HEADING) {
            command = rest.split(' ').next().map(str::to_owned);
        } else if let (Some(command), Some(rest)) = (&command, line.strip_prefix("* `")) {
            let (path, types) = rest.split_once('`').expect("a field stands between backticks");
            let types = types.trim().split(" or ").filter(|word| *word != "null").map(str::to_owned);
            fields.entry(command.clone()).or_default().insert(path.to_owned(), types.collect());
        }
    }
    fields
}

fn rendered(fields: &Fields) -> String {
    let mut text = "# JSON answers\n\nEvery `--json` answer is one object with `\"version\": 1`. While that number stays, fields are only added: \
                    none of those below goes, changes its name or its type. `[]` stands for each element of a list; any field may be \
                    `null` where the value is not known. Times are Unix seconds. Written by a test \
                    (`PILLION_BLESS=1 cargo test -p pillion-cli --test json_fields`), which fails where a field of this page is not answered \
                    any more.\n"
        .to_owned();
    for (command, fields) in fields {
        let _ = write!(text, "\n{HEADING}{command} --json`\n\n");
        for (path, types) in fields {
            let types: Vec<&str> = types.iter().map(String::as_str).collect();
            let types = if types.is_empty() { "null".to_owned() } else { types.join(" or ") };
            let _ = writeln!(text, "* `{path}` {types}");
        }
    }
    text
}

/// What of `promised` is missing in `answered`, a sentence each.
fn broken(promised: &Fields, answered: &Fields) -> Vec<String> {
    let mut broken = Vec::new();
    for (command, fields) in promised {
        for (path, types) in fields {
            match answered.get(command).and_then(|fields| fields.get(path)) {
                None => broken.push(format!("pillion {command} --json has no {path} any more")),
                Some(now) if !now.is_empty() && !types.is_subset(now) => {
                    broken.push(format!("{path} of pillion {command} --json was {types:?} and is {now:?}"));
                }
                Some(_) => {}
            }
        }
    }
    broken
}

#[test]
fn no_field_that_was_promised_goes_and_every_field_is_written_down() {
    let (answered, old) = (answered(), std::fs::read_to_string(page()).unwrap_or_default());
    // Not even a blessing takes a field back.
    assert_eq!(broken(&promised(&old), &answered), Vec::<String>::new());
    let new = rendered(&answered);
    if std::env::var_os("PILLION_BLESS").is_some() {
        std::fs::write(page(), new).unwrap();
    } else {
        assert!(
            old == new,
            "docs/json.md is old; PILLION_BLESS=1 cargo test -p pillion-cli --test json_fields adds fields"
        );
    }
}

#[test]
fn a_field_that_goes_or_changes_its_type_is_named() {
    let fields = |value: Value| {
        let mut fields = BTreeMap::new();
        collect(&value, "", &mut fields);
        Fields::from([("queue".to_owned(), fields)])
    };
    let promised = promised(&rendered(&fields(serde_json::json!({ "jobs": [{ "id": "7", "wait": 1.5 }] }))));
    let more = fields(serde_json::json!({ "jobs": [{ "id": "7", "wait": null, "new": true }] }));
    assert_eq!(
        broken(&promised, &more),
        Vec::<String>::new(),
        "more fields, and unknown values, harm nobody"
    );
    let renamed = fields(serde_json::json!({ "jobs": [{ "id": 7, "waits": 1.5 }] }));
    let said = broken(&promised, &renamed);
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].contains("jobs[].id") && said[1].contains("jobs[].wait any more"), "{said:?}");
}
