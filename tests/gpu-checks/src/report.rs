//! The report: Markdown, without anything that names the machine. Pure.

use std::fmt::Write as _;

/// Markdown and how many values in it are not as they should be; or a sentence: why there is none.
pub type Measured = Result<(String, usize), String>;

/// What came of a section.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// It was done; its text, and how many of its values are not as they should be.
    Done {
        /// Markdown.
        text: String,
        /// Values apart.
        apart: usize,
    },
    /// It could not be done; one sentence.
    Impossible(String),
}

/// A part of the report.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    /// Its heading.
    pub title: &'static str,
    /// What came of it.
    pub outcome: Outcome,
}

impl Section {
    /// What a section gave, or why it gave nothing.
    pub fn of(title: &'static str, result: Measured) -> Self {
        let outcome = match result {
            Ok((text, apart)) => Outcome::Done { text, apart },
            Err(reason) => Outcome::Impossible(reason),
        };
        Self { title, outcome }
    }
}

/// The whole report. `facts`: what it was made on.
pub fn render(facts: &[(&str, String)], sections: &[Section]) -> String {
    let mut text = "# Measured on a GPU\n\n".to_owned();
    text +=
        &table(&["what", "value"], facts.iter().map(|(what, value)| vec![(*what).to_owned(), value.clone()]));
    for Section { title, outcome } in sections {
        // Writing to a string cannot fail.
        let _ = match outcome {
            Outcome::Done { text: body, .. } => write!(text, "\n## {title}\n\n{}\n", body.trim_end()),
            Outcome::Impossible(reason) => write!(text, "\n## {title}\n\nNot measured: {reason}.\n"),
        };
    }
    text
}

/// How many values are not as they should be.
pub fn apart(sections: &[Section]) -> usize {
    let of = |section: &Section| match section.outcome {
        Outcome::Done { apart, .. } => apart,
        Outcome::Impossible(_) => 0,
    };
    sections.iter().map(of).sum()
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

    #[test]
    fn a_report_says_what_was_done_and_why_not() {
        let sections = [
            Section::of("Speeds", Ok(("ratios\n\n".into(), 2))),
            Section::of("Kills", Err("there is no control program".into())),
        ];
        let text = render(&[("driver", "580.95".into())], &sections);
        let expected = "# Measured on a GPU\n\n| what | value |\n| --- | --- |\n| driver | 580.95 |\n\
                        \n## Speeds\n\nratios\n\
                        \n## Kills\n\nNot measured: there is no control program.\n";
        assert_eq!(text, expected);
        assert_eq!(apart(&sections), 2);
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
