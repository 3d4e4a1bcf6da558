//! Hostlists: `n[1-3,07-09],x,rack[1-2]n[1-4]` as names, one by one.
//!
//! Pure, and bounded: what a list would make (so many names, so long, so much text) is reckoned before any of it is made, and
//! refused where it is beyond [`NODES_MAX`], [`NAME_BYTES_MAX`] or [`TEXT_BYTES_MAX`], whatever the list claims. A short list
//! tells of much: `n[1-65536]` and a long word behind it.

use pillion_core::NodeName;
use pillion_core::text::shown;
use std::fmt::Write as _;

/// The most names that one hostlist may expand to.
pub const NODES_MAX: usize = 65_536;
/// The longest name: no host has a longer one (RFC 1123).
pub const NAME_BYTES_MAX: usize = 255;
/// The most text that the names may be together, each reckoned as the longest of its entry.
pub const TEXT_BYTES_MAX: usize = 4 << 20;

/// A hostlist that cannot be expanded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidNodeSet {
    /// Brackets that do not match, an empty range, a character no node name has.
    #[error("'{0}' is not a hostlist; write n1, n[1-3,7] or n1,n2")]
    Syntax(String),
    /// More than [`NODES_MAX`] names.
    #[error("the hostlist names more than {NODES_MAX} nodes")]
    TooLong,
    /// A name of more than [`NAME_BYTES_MAX`] bytes.
    #[error("the hostlist has a name of more than {NAME_BYTES_MAX} letters")]
    NameTooLong,
    /// Names of more than [`TEXT_BYTES_MAX`] bytes together.
    #[error("the names of the hostlist are more than {} MiB of text", TEXT_BYTES_MAX >> 20)]
    TooMuchText,
}

/// Expands a hostlist, in its own order. Slurm's words for "none" (`(null)`, `None`, `N/A`, nothing) give no names.
///
/// # Errors
/// [`InvalidNodeSet`] where the text is no hostlist, or a list too long.
pub fn expand(text: &str) -> Result<Vec<NodeName>, InvalidNodeSet> {
    if matches!(text, "" | "(null)" | "None" | "N/A" | "None assigned") {
        return Ok(Vec::new());
    }
    let mut names = Vec::new();
    let mut left = Budget { names: NODES_MAX, bytes: TEXT_BYTES_MAX };
    for entry in split_outside_brackets(text) {
        let parts = parse_entry(entry, &mut left).map_err(|error| match error {
            InvalidNodeSet::Syntax(_) => InvalidNodeSet::Syntax(shorten(text)),
            other => other,
        })?;
        push_names(&parts, &mut String::new(), &mut names);
    }
    Ok(names)
}

/// What may still be made.
struct Budget {
    names: usize,
    bytes: usize,
}

fn shorten(text: &str) -> String {
    shown(text, 80)
}

/// The entries of a hostlist: `n[1-3,7],x` has two.
pub fn split_outside_brackets(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    text.split(move |character| {
        match character {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        character == ',' && depth <= 0
    })
}

/// A piece of an entry.
enum Part<'a> {
    Literal(&'a str),
    /// What stands in brackets: each number takes what stands before it once more.
    Ranges(Vec<Range>),
}

/// `07-09`: the width is that of the first number.
struct Range {
    first: u64,
    last: u64,
    width: usize,
}

impl Range {
    /// How many letters its longest number has.
    fn bytes_max(&self) -> usize {
        let digits = self.last.checked_ilog10().map_or(1, |log| log as usize + 1);
        digits.max(self.width)
    }
}

/// One entry: literal text and brackets in turn. Takes what it would make out of what is left, and makes nothing yet.
fn parse_entry<'a>(entry: &'a str, left: &mut Budget) -> Result<Vec<Part<'a>>, InvalidNodeSet> {
    let (mut parts, mut count, mut bytes) = (Vec::new(), 1_usize, 0_usize);
    let mut rest = entry;
    while !rest.is_empty() {
        let (literal, bracket) = match rest.split_once('[') {
            None => (rest, None),
            Some((literal, after)) => {
                let closed = after.split_once(']');
                (literal, Some(closed.ok_or_else(|| syntax(entry))?))
            }
        };
        if !literal.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)) {
            return Err(syntax(entry));
        }
        bytes = name_bytes(bytes, literal.len())?;
        parts.push(Part::Literal(literal));
        let Some((ranges, after)) = bracket else { break };
        let (ranges, number_count) = parse_ranges(ranges, left.names)?;
        bytes = name_bytes(bytes, ranges.iter().map(Range::bytes_max).max().unwrap_or(0))?;
        count = count.saturating_mul(number_count);
        if count > left.names {
            return Err(InvalidNodeSet::TooLong);
        }
        parts.push(Part::Ranges(ranges));
        rest = after;
    }
    if bytes == 0 {
        return Err(syntax(entry));
    }
    left.names = left.names.checked_sub(count).ok_or(InvalidNodeSet::TooLong)?;
    left.bytes = left.bytes.checked_sub(count.saturating_mul(bytes)).ok_or(InvalidNodeSet::TooMuchText)?;
    Ok(parts)
}

fn name_bytes(so_far: usize, more: usize) -> Result<usize, InvalidNodeSet> {
    let bytes = so_far.saturating_add(more);
    if bytes > NAME_BYTES_MAX { Err(InvalidNodeSet::NameTooLong) } else { Ok(bytes) }
}

/// Every name that begins so and goes on with these parts, of which there are few: a name has no more letters.
fn push_names(parts: &[Part<'_>], begun: &mut String, names: &mut Vec<NodeName>) {
    let length = begun.len();
    match parts.split_first() {
        None => names.push(NodeName::new(begun.as_str())),
        Some((Part::Literal(literal), rest)) => {
            begun.push_str(literal);
            push_names(rest, begun, names);
        }
        Some((Part::Ranges(ranges), rest)) => {
            for &Range { first, last, width } in ranges {
                for value in first..=last {
                    begun.truncate(length);
                    // Into a string always.
                    let _ = write!(begun, "{value:0width$}");
                    push_names(rest, begun, names);
                }
            }
        }
    }
    begun.truncate(length);
}

fn syntax(entry: &str) -> InvalidNodeSet {
    InvalidNodeSet::Syntax(entry.to_owned())
}

/// `1-3,07-09`, and how many numbers that is: `count_max` at most.
fn parse_ranges(text: &str, count_max: usize) -> Result<(Vec<Range>, usize), InvalidNodeSet> {
    let (mut ranges, mut left) = (Vec::new(), count_max);
    for range in text.split(',') {
        let (first_text, last_text) = range.split_once('-').unwrap_or((range, range));
        let bounds = number(first_text).zip(number(last_text)).filter(|(first, last)| first <= last);
        let (first, last) = bounds.ok_or_else(|| syntax(text))?;
        let count = usize::try_from(last - first).unwrap_or(usize::MAX).saturating_add(1);
        left = left.checked_sub(count).ok_or(InvalidNodeSet::TooLong)?;
        ranges.push(Range { first, last, width: first_text.len() });
    }
    Ok((ranges, count_max - left))
}

/// Digits and nothing else (`parse` alone would take `+3`).
pub(crate) fn number(text: &str) -> Option<u64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        expand(text).unwrap().into_iter().map(|name| name.to_string()).collect()
    }

    #[test]
    fn expands_as_scontrol_show_hostnames_does() {
        // `scontrol show hostnames` of 24.11.5 printed exactly these.
        assert_eq!(
            names("n[1-3,07-09],x,r[1-2]n[3-4]"),
            ["n1", "n2", "n3", "n07", "n08", "n09", "x", "r1n3", "r1n4", "r2n3", "r2n4"]
        );
        assert_eq!(names("n[9-11]"), ["n9", "n10", "n11"]);
        assert_eq!(names("gpu-a.b_c"), ["gpu-a.b_c"]);
    }

    #[test]
    fn none_has_many_spellings() {
        for text in ["", "(null)", "None", "N/A"] {
            assert_eq!(names(text), Vec::<String>::new());
        }
    }

    #[test]
    fn what_is_no_hostlist_is_refused() {
        for text in
            ["n[1-", "n[]", "n[3-1]", "n[a-b]", "n 1", "n1,,n2", "n]", "n[1,-2]", "n;1", "n\n1", "[+1]"]
        {
            assert!(matches!(expand(text), Err(InvalidNodeSet::Syntax(_))), "{text:?}: {:?}", expand(text));
        }
    }

    #[test]
    fn a_huge_list_is_refused_before_it_is_made() {
        for text in
            ["n[0-99999999999]", "n[1-300][1-300]", "n[1-60000],m[1-60000]", "n[0-18446744073709551615]"]
        {
            assert_eq!(expand(text), Err(InvalidNodeSet::TooLong), "{text}");
        }
    }

    /// As it was tried: 240 kB of text that would have been 15.7 GB of names, and a width that would have been 3.9 GB.
    #[test]
    fn a_short_list_of_much_text_is_refused_before_it_is_made() {
        let (word, zeros) = ("a".repeat(240_000), "0".repeat(60_000));
        for text in [
            format!("[1-65536]{word}"),
            format!("{word}[1-65536]"),
            format!("[{zeros}1-65536]"),
            format!("[{}]", "0".repeat(70_000)),
            format!("n{}", "[1]".repeat(255)),
        ] {
            assert_eq!(expand(&text), Err(InvalidNodeSet::NameTooLong), "{}", shorten(&text));
        }
        let word = "a".repeat(60);
        assert_eq!(expand(&format!("{word}[1-65536]")), Err(InvalidNodeSet::TooMuchText));
        assert_eq!(expand(&format!("{word}[1-40000],{word}[1-40000]")), Err(InvalidNodeSet::TooLong));
        assert_eq!(
            expand(&format!("{word}[1-65535]")).map(|names| names.len()),
            Err(InvalidNodeSet::TooMuchText)
        );
        assert_eq!(expand(&format!("{}[1-65536]", "a".repeat(59))).map(|names| names.len()), Ok(NODES_MAX));
    }

    /// Names without brackets count too: the budget once went below nothing, and what came after them had none.
    #[test]
    fn a_list_of_plain_names_has_the_same_bound() {
        let many = "a,".repeat(NODES_MAX);
        assert_eq!(names(many.trim_end_matches(',')).len(), NODES_MAX);
        for last in ["b", "n[0-99999999999]", "b,n[0-99999999999]"] {
            assert_eq!(expand(&format!("{many}{last}")), Err(InvalidNodeSet::TooLong), "{last}");
        }
    }

    proptest::proptest! {
        #[test]
        fn never_panics(text in "[n\\[\\],0-9\\-a\\PC]{0,60}") {
            let _ = expand(&text);
        }
    }
}
