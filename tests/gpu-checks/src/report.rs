//! The report: Markdown, without anything that names the machine. Pure.

use std::fmt::Write as _;

/// What a section found.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Findings {
    /// Markdown.
    pub text: String,
    /// How many values in it are not as they should be.
    pub apart: usize,
    /// What of it could not be looked at, and why; a sentence each.
    pub skipped: Vec<String>,
}

impl From<(String, usize)> for Findings {
    fn from((text, apart): (String, usize)) -> Self {
        Self { text, apart, skipped: Vec::new() }
    }
}

/// What a section found; or a sentence: what failed.
pub type Measured = Result<Findings, String>;

/// What came of a section.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// It was done.
    Done(Findings),
    /// It was not begun, for what it needs is not here; one sentence.
    Skipped(String),
    /// It should have worked, and did not; one sentence.
    Failed(String),
}

/// A part of the report.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    /// Its heading.
    pub title: String,
    /// What came of it.
    pub outcome: Outcome,
}

impl Section {
    /// Does a section, if it is `possible`.
    pub fn of(title: &str, possible: Result<(), String>, section: impl FnOnce() -> Measured) -> Self {
        let outcome = match possible.map(|()| section()) {
            Ok(Ok(findings)) => Outcome::Done(findings),
            Ok(Err(reason)) => Outcome::Failed(reason),
            Err(reason) => Outcome::Skipped(reason),
        };
        Self { title: title.to_owned(), outcome }
    }

    /// Its part of the report.
    pub fn render(&self) -> String {
        let mut text = format!("\n## {}\n\n", self.title);
        match &self.outcome {
            Outcome::Done(findings) => {
                text += findings.text.trim_end();
                text.push('\n');
                for reason in &findings.skipped {
                    // Writing to a string cannot fail.
                    let _ = write!(text, "\nSkipped: {reason}.\n");
                }
            }
            Outcome::Skipped(reason) => {
                let _ = writeln!(text, "Skipped: {reason}.");
            }
            Outcome::Failed(reason) => {
                let _ = writeln!(text, "FAILED: {reason}.");
            }
        }
        text
    }
}

/// What all sections come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// All that was measured is as it should be.
    Well,
    /// So many values are not as they should be, and so many sections failed.
    Apart(usize, usize),
    /// No section was done.
    Nothing,
}

/// Judges a run. A section that failed is no success, nor is a run in which nothing was measured.
pub fn verdict(sections: &[Section]) -> Verdict {
    let (mut done, mut apart, mut failed) = (0, 0, 0);
    for section in sections {
        match &section.outcome {
            Outcome::Done(findings) => {
                done += 1;
                apart += findings.apart;
            }
            Outcome::Skipped(_) => {}
            Outcome::Failed(_) => failed += 1,
        }
    }
    match (done, apart, failed) {
        (0, ..) => Verdict::Nothing,
        (_, 0, 0) => Verdict::Well,
        _ => Verdict::Apart(apart, failed),
    }
}

/// All that was not looked at, with its reason.
pub fn skipped(sections: &[Section]) -> Vec<String> {
    let of = |section: &Section| {
        let reasons = match &section.outcome {
            Outcome::Done(findings) => findings.skipped.clone(),
            Outcome::Skipped(reason) => vec![reason.clone()],
            Outcome::Failed(_) => Vec::new(),
        };
        reasons.into_iter().map(|reason| format!("{}: {reason}", section.title)).collect::<Vec<_>>()
    };
    sections.iter().flat_map(of).collect()
}

/// The whole report. `facts`: what it was made on.
pub fn render(facts: &[(&str, String)], sections: &[Section]) -> String {
    let mut text = "# Measured on a GPU\n\n".to_owned();
    text +=
        &table(&["what", "value"], facts.iter().map(|(what, value)| vec![(*what).to_owned(), value.clone()]));
    text.extend(sections.iter().map(Section::render));
    text
}

/// A Markdown table.
pub fn table(heading: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let heading: Vec<String> = heading.iter().map(|cell| (*cell).to_owned()).collect();
    let mut text = line(&heading) + &line(&vec!["---".to_owned(); heading.len()]);
    for row in rows {
        let row: Vec<String> =
            row.iter().map(|cell| cell.trim().replace('|', "/").replace('\n', " ")).collect();
        text += &line(&row);
    }
    text
}

/// Takes out of `text` what names the machine: `names` (hosts, directories, each a whole word or path), the digits of GPU
/// UUIDs, of which the shape stays, and the directories of every absolute path.
pub fn without_names(text: &str, names: &[String]) -> String {
    let mut text = masked_uuids(text);
    for name in names.iter().filter(|name| name.len() > 1) {
        text = text.replace(name.as_str(), "..");
    }
    let mut clean = String::with_capacity(text.len());
    for part in text.split_inclusive(|it: char| it.is_whitespace() || "'\"`=|,()".contains(it)) {
        let end =
            part.len() - part.chars().next_back().filter(|it| is_separator(*it)).map_or(0, char::len_utf8);
        let (word, separator) = part.split_at(end);
        match word.rsplit_once('/') {
            Some((_, last)) if word.starts_with('/') && !last.is_empty() => clean += last,
            _ => clean += word,
        }
        clean += separator;
    }
    clean
}

fn is_separator(it: char) -> bool {
    it.is_whitespace() || "'\"`=|,()".contains(it)
}

fn masked_uuids(text: &str) -> String {
    let mut parts = text.split("GPU-");
    let mut masked = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let length = part.chars().take_while(|it| it.is_ascii_hexdigit() || *it == '-').count();
        masked += "GPU-";
        masked.extend(part[..length].chars().map(|it| if it == '-' { '-' } else { 'x' }));
        masked += &part[length..];
    }
    masked
}

/// A name for the report's file: the date and the model.
pub fn file_name(date: &str, model: &str) -> String {
    let mut name = String::new();
    for it in format!("{date}-{model}").chars() {
        if it.is_ascii_alphanumeric() {
            name.push(it.to_ascii_lowercase());
        } else if !name.ends_with('-') {
            name.push('-');
        }
    }
    name.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(text: &str, apart: usize) -> Section {
        Section::of("Speeds", Ok(()), || Ok((text.to_owned(), apart).into()))
    }

    fn failed() -> Section {
        Section::of("Readings", Ok(()), || Err("CUDA does not work".into()))
    }

    fn skipped_one() -> Section {
        Section::of("Kills", Err("there is no control program".into()), || unreachable!("not begun"))
    }

    #[test]
    fn a_report_says_what_was_done_and_why_not() {
        let mut sections = [done("ratios\n\n", 2), skipped_one(), failed()];
        if let Outcome::Done(findings) = &mut sections[0].outcome {
            findings.skipped.push("there is no GPM".to_owned());
        }
        let text = render(&[("driver", "580.95".into())], &sections);
        let expected = "# Measured on a GPU\n\n| what | value |\n| --- | --- |\n| driver | 580.95 |\n\
                        \n## Speeds\n\nratios\n\nSkipped: there is no GPM.\n\
                        \n## Kills\n\nSkipped: there is no control program.\n\
                        \n## Readings\n\nFAILED: CUDA does not work.\n";
        assert_eq!(text, expected);
        let expected = ["Speeds: there is no GPM", "Kills: there is no control program"];
        assert_eq!(skipped(&sections), expected);
    }

    #[test]
    fn nothing_measured_is_no_success() {
        assert_eq!(verdict(&[failed(), skipped_one()]), Verdict::Nothing);
        assert_eq!(verdict(&[]), Verdict::Nothing);
        assert_eq!(verdict(&[done("", 0), skipped_one()]), Verdict::Well);
        assert_eq!(verdict(&[done("", 0), failed()]), Verdict::Apart(0, 1));
        assert_eq!(verdict(&[done("", 2), done("", 1), skipped_one()]), Verdict::Apart(3, 0));
    }

    #[test]
    fn cells_cannot_break_a_table() {
        let text = table(&["a", "b"], [vec!["x | y".into(), "two\nlines\n".into()]]);
        assert_eq!(text, "| a | b |\n| --- | --- |\n| x / y | two lines |\n");
    }

    #[test]
    fn nothing_names_the_machine() {
        let text = "9741 0 6472 GPU-cb1213a3-d6a4-be7f 4026531836 /home/kim/target/client --at=/tmp/x/pipe\n\
                    node17 says '/usr/bin/nvidia-smi' 10/12 and/or GPU-0a/Dx4AAA, a /";
        let expected = "9741 0 6472 GPU-xxxxxxxx-xxxx-xxxx 4026531836 client --at=pipe\n\
                        .. says 'nvidia-smi' 10/12 and/or GPU-xx/Dx4AAA, a /";
        assert_eq!(without_names(text, &["node17".into(), String::new()]), expected);
    }

    #[test]
    fn a_file_is_named_by_date_and_model() {
        assert_eq!(file_name("2026-11-22", "NVIDIA H100 80GB HBM3"), "2026-11-22-nvidia-h100-80gb-hbm3");
        assert_eq!(file_name("2026-11-22", "A100-SXM4 (40GB)"), "2026-11-22-a100-sxm4-40gb");
    }
}
