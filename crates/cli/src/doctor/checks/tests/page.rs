//! docs/doctor.md, made from the table of broken set-ups.

use std::fmt::Write as _;

use super::{all_broken, examine, is_hit, sound};

/// What the page says of each broken set-up: the lines that doctor prints.
fn page() -> String {
    let mut text = "# What `pillion doctor` finds\n\nEach broken set-up that the tests make, the line that doctor prints for it, and \
                    the mend. Written by the tests\n(`PILLION_BLESS=1 cargo test -p pillion-cli --lib doctor`); names and numbers \
                    are examples.\n\n| check | status | found | mend |\n|---|---|---|---|\n"
        .to_owned();
    for (check, status, found, mend, breaks) in all_broken() {
        let mut facts = sound();
        breaks(&mut facts);
        let findings = examine(&facts);
        let hit = findings.iter().find(|it| is_hit(it, check, *status, found, mend)).expect("tested beside");
        let cell = |text: &str| text.replace('|', "\\|");
        let mend = hit.mend.as_deref().unwrap_or_default();
        let (status, found) = (status.as_str(), cell(&hit.found));
        let _ = writeln!(text, "| `{check}` | {status} | {found} | {} |", cell(mend));
    }
    text
}

#[test]
fn the_page_of_doctors_findings_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/doctor.md");
    if std::env::var_os("PILLION_BLESS").is_some() {
        std::fs::write(path, page()).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap_or_default(), page(), "docs/doctor.md is old");
    assert!(all_broken().count() >= 60);
}
