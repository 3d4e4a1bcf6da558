//! The Prometheus text format, version 0.0.4: strict, so that a page that was cut off or is something else is an error and
//! never half a reading. Knows no metric and no vendor.
//!
//! Own, because the crates for it take labels apart at every comma, also within a quoted value, and pass over lines that
//! they do not understand (prometheus-parse 0.2, prometheus-scrape 0.1), or are under the LGPL (openmetrics-parser).
//!
//! Source: prometheus.io, "Exposition formats", "Text format details".

use std::borrow::Cow;

/// One line of a page that holds a value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sample<'a> {
    /// The metric's name.
    pub(super) name: &'a str,
    labels: Vec<(&'a str, Cow<'a, str>)>,
    /// Any number, also NaN.
    pub(super) value: f64,
    /// Milliseconds since the epoch, where the exporter says when it measured.
    pub(super) stamp_millis: Option<i64>,
}

impl Sample<'_> {
    /// What a label says; an empty label is none.
    pub(super) fn label(&self, name: &str) -> Option<&str> {
        let found = self.labels.iter().find(|(label, _)| *label == name);
        found.map(|(_, value)| value.as_ref()).filter(|value| !value.is_empty())
    }
}

/// What is wrong with a page.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotAPage {
    /// A line that is neither empty nor comment nor sample.
    #[error("line {number} of its answer is no sample: {reason}")]
    Line {
        /// Counted from 1.
        number: usize,
        /// What was expected.
        reason: &'static str,
    },
    /// The last line has no end.
    #[error("its answer was cut off in line {number}")]
    CutOff {
        /// Counted from 1.
        number: usize,
    },
}

/// All samples of a page in their order.
///
/// # Errors
/// [`NotAPage`] at the first line that is not whole or not of the format.
pub(super) fn samples(page: &str) -> Result<Vec<Sample<'_>>, NotAPage> {
    if !page.is_empty() && !page.ends_with('\n') {
        return Err(NotAPage::CutOff { number: page.lines().count() });
    }
    let numbered = page.lines().map(str::trim).enumerate();
    let said = numbered.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    said.map(|(index, line)| sample(line).map_err(|reason| NotAPage::Line { number: index + 1, reason }))
        .collect()
}

fn sample(line: &str) -> Result<Sample<'_>, &'static str> {
    let (name, rest) = word(line, ":").ok_or("a metric's name was expected")?;
    let (labels, rest) = match rest.trim_start().strip_prefix('{') {
        Some(inside) => labels(inside)?,
        None => (Vec::new(), rest),
    };
    let mut numbers = rest.split_whitespace();
    let value =
        numbers.next().and_then(|text| text.parse().ok()).ok_or("a number was expected as its value")?;
    let stamp =
        numbers.next().map(|text| text.parse().map_err(|_| "a whole number was expected as its time"));
    if numbers.next().is_some() {
        return Err("it goes on after its time");
    }
    Ok(Sample { name, labels, value, stamp_millis: stamp.transpose()? })
}

/// The name at the start of `text`, and what follows it.
fn word<'a>(text: &'a str, also: &str) -> Option<(&'a str, &'a str)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || also.contains(c);
    let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
    let starts_well = text.starts_with(|c: char| is_part(c) && !c.is_ascii_digit());
    starts_well.then(|| text.split_at(end))
}

type Labels<'a> = Vec<(&'a str, Cow<'a, str>)>;

/// The labels after an opening brace, and what follows the closing one.
fn labels(mut text: &str) -> Result<(Labels<'_>, &str), &'static str> {
    let mut found = Vec::new();
    loop {
        text = text.trim_start();
        if let Some(rest) = text.strip_prefix('}') {
            return Ok((found, rest));
        }
        let (name, rest) = word(text, "").ok_or("a label's name was expected")?;
        let rest = rest.trim_start().strip_prefix('=').ok_or("'=' was expected after a label's name")?;
        let rest = rest.trim_start().strip_prefix('"').ok_or("a label's value was expected in quotes")?;
        let (value, rest) = quoted(rest)?;
        found.push((name, value));
        let rest = rest.trim_start();
        text = match rest.strip_prefix(',') {
            Some(rest) => rest,
            None if rest.starts_with('}') => rest,
            None => return Err("',' or '}' was expected after a label's value"),
        };
    }
}

/// A value after its opening quote, and what follows the closing one. Escapes are `\\`, `\"` and `\n`.
fn quoted(text: &str) -> Result<(Cow<'_, str>, &str), &'static str> {
    const OPEN: &str = "a label's value has no end";
    let end = text.find(['"', '\\']).ok_or(OPEN)?;
    if text[end..].starts_with('"') {
        return Ok((Cow::Borrowed(&text[..end]), &text[end + 1..]));
    }
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Ok((Cow::Owned(value), &text[at + 1..])),
            '\\' => value.push(match characters.next().ok_or(OPEN)?.1 {
                'n' => '\n',
                plain @ ('\\' | '"') => plain,
                _ => return Err("a label's value has an escape that is none"),
            }),
            plain => value.push(plain),
        }
    }
    Err(OPEN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Name, labels, value and time of a sample.
    type Plain = (String, Vec<(String, String)>, f64, Option<i64>);

    fn one(line: &str) -> Result<Plain, NotAPage> {
        let page = format!("{line}\n");
        let mut found = samples(&page)?;
        assert_eq!(found.len(), 1, "{line}");
        let Sample { name, labels, value, stamp_millis } = found.remove(0);
        let labels = labels.into_iter().map(|(name, value)| (name.to_owned(), value.into_owned())).collect();
        Ok((name.to_owned(), labels, value, stamp_millis))
    }

    fn labelled(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn samples_of_every_shape_are_read() {
        assert_eq!(one("up 1"), Ok(("up".into(), vec![], 1.0, None)));
        assert_eq!(
            one("a:b_c{} -2.5e3 1395066363000"),
            Ok(("a:b_c".into(), vec![], -2500.0, Some(1_395_066_363_000)))
        );
        assert_eq!(
            one(r#"x { a = "1" , b="2", } +Inf"#),
            Ok(("x".into(), labelled(&[("a", "1"), ("b", "2")]), f64::INFINITY, None))
        );
        assert!(one("x NaN").unwrap().2.is_nan());
    }

    #[test]
    fn commas_braces_and_escapes_within_quotes_are_plain_text() {
        let line = r#"x{err_msg="a, b=\"c\" {d}",path="C:\\x\n"} 0"#;
        assert_eq!(one(line).unwrap().1, labelled(&[("err_msg", "a, b=\"c\" {d}"), ("path", "C:\\x\n")]));
    }

    #[test]
    fn comments_and_empty_lines_say_nothing() {
        let page = "# HELP up Is it.\n# TYPE up gauge\n\n   \nup 1\r\n# EOF\n";
        assert_eq!(samples(page).unwrap().len(), 1);
        assert_eq!(samples("").unwrap(), vec![]);
    }

    #[test]
    fn a_label_that_is_empty_is_none() {
        let found = samples("x{a=\"\",b=\"1\"} 0\n").unwrap();
        assert_eq!((found[0].label("a"), found[0].label("b"), found[0].label("c")), (None, Some("1"), None));
    }

    #[test]
    fn what_is_no_sample_is_refused_with_its_line() {
        for line in [
            "<html>",
            "9up 1",
            "up",
            "up one",
            "up 1 1.5",
            "up 1 2 3",
            "up{a=1} 1",
            "up{a=\"1} 1",
            "up{a=\"1\\",
            "up{a=\"1\\t\"} 1",
            "up{a=\"1\"b=\"2\"} 1",
            "up{a=\"1\"",
            "up{a \"1\"} 1",
        ] {
            let page = format!("ok 1\n{line}\n");
            assert!(matches!(samples(&page), Err(NotAPage::Line { number: 2, .. })), "{line}");
        }
    }

    #[test]
    fn a_page_that_is_cut_off_is_no_page() {
        assert_eq!(samples("a 1\nb 12"), Err(NotAPage::CutOff { number: 2 }));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(value in ".{0,20}", number in -1e12..1e12_f64) {
            let written = value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
            // A line ends at a newline only, so a carriage return within a value stays in it.
            let read = one(&format!("x{{a=\"{written}\"}} {number}")).unwrap();
            prop_assert_eq!(read.1, labelled(&[("a", &value)]));
            prop_assert_eq!(read.2.to_bits(), number.to_bits());
        }

        #[test]
        fn no_page_makes_it_panic(page in "\\PC{0,60}\n?", broken in "[a{}\"=,\\\\ 1\n]{0,30}") {
            let _ = samples(&page);
            let _ = samples(&broken);
        }
    }
}
