//! pillion.toml(5): the same words as the example, as a manual page.

use crate::example::facts;
use crate::schema::{Section, agent_sections, scheduler_sections};
use roff::{Inline, Roff, bold, roman};

/// The page, in roff.
pub fn manual() -> String {
    let mut page = Roff::new();
    let version = concat!("pillion ", env!("CARGO_PKG_VERSION"));
    page.control("TH", ["pillion.toml", "5", "", version, "Pillion"]);
    page.control("SH", ["NAME"]);
    page.text([roman("pillion.toml - the configuration of Pillion's programs")]);
    page.control("SH", ["DESCRIPTION"]);
    page.text([roman(
        "/etc/pillion/pillion.toml is read at start. pillion-scheduler(8) reads all but [agent]; pillion-agent(8) reads [agent] \
         only; pillion(1) looks where Slurm and the pool are. A key that is not known, or a value out of range, keeps the \
         program that reads it from starting (exit status 64): 'pillion config check' says what is wrong, 'pillion config show' \
         what is in force, and 'pillion config example' prints a whole file.",
    )]);
    for section in scheduler_sections().iter().chain(&agent_sections()) {
        describe(&mut page, section);
    }
    page.control("SH", ["SEE ALSO"]);
    page.text([
        bold("pillion"),
        roman("(1), "),
        bold("pillion-scheduler"),
        roman("(8), "),
        bold("pillion-agent"),
        roman("(8)"),
    ]);
    page.to_roff()
}

fn describe(page: &mut Roff, section: &Section) {
    let name = if section.name.is_empty() { "AT THE TOP".to_owned() } else { section.header() };
    page.control("SH", [name.as_str()]);
    for key in &section.keys {
        page.control("TP", []);
        page.text([bold(key.name.as_str())]);
        page.text([roman(key.docs.as_str()), Inline::LineBreak, roman(facts(key))]);
    }
}
