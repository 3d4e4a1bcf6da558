//! Hostlists: `n[1-3,07-09],x,rack[1-2]n[1-4]` as names, one by one.
//!
//! Pure, and bounded: a list that would make more than [`NODES_MAX`] names is refused, whatever its text claims.

use pillion_core::NodeName;

/// The most names that one hostlist may expand to.
pub const NODES_MAX: usize = 65_536;

/// A hostlist that cannot be expanded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidNodeSet {
    /// Brackets that do not match, an empty range, a character no node name has.
    #[error("'{0}' is not a hostlist; write n1, n[1-3,7] or n1,n2")]
    Syntax(String),
    /// More than [`NODES_MAX`] names.
    #[error("the hostlist names more than {NODES_MAX} nodes")]
    TooLong,
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
    for entry in split_outside_brackets(text) {
        let budget = NODES_MAX - names.len();
        names.extend(expand_entry(entry, budget).map_err(|error| match error {
            InvalidNodeSet::Syntax(_) => InvalidNodeSet::Syntax(shorten(text)),
            InvalidNodeSet::TooLong => InvalidNodeSet::TooLong,
        })?);
    }
    Ok(names.into_iter().map(NodeName).collect())
}

fn shorten(text: &str) -> String {
    text.chars().take(80).collect()
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

/// One entry: literal text and brackets in turn. Each bracket multiplies what stands before it.
fn expand_entry(entry: &str, budget: usize) -> Result<Vec<String>, InvalidNodeSet> {
    let mut names = vec![String::new()];
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
        for name in &mut names {
            name.push_str(literal);
        }
        let Some((ranges, after)) = bracket else { break };
        let numbers = expand_ranges(ranges, budget)?;
        if names.len().saturating_mul(numbers.len()) > budget {
            return Err(InvalidNodeSet::TooLong);
        }
        names = names
            .iter()
            .flat_map(|name| numbers.iter().map(move |number| format!("{name}{number}")))
            .collect();
        rest = after;
    }
    if names.iter().any(String::is_empty) { Err(syntax(entry)) } else { Ok(names) }
}

fn syntax(entry: &str) -> InvalidNodeSet {
    InvalidNodeSet::Syntax(entry.to_owned())
}

/// `1-3,07-09`: the width of a range is that of its first number.
fn expand_ranges(ranges: &str, budget: usize) -> Result<Vec<String>, InvalidNodeSet> {
    let mut numbers = Vec::new();
    for range in ranges.split(',') {
        let (first_text, last_text) = range.split_once('-').unwrap_or((range, range));
        let bounds = number(first_text).zip(number(last_text)).filter(|(first, last)| first <= last);
        let (first, last) = bounds.ok_or_else(|| InvalidNodeSet::Syntax(ranges.to_owned()))?;
        let left = budget.saturating_sub(numbers.len());
        if usize::try_from(last - first).map_or(true, |count| count >= left) {
            return Err(InvalidNodeSet::TooLong);
        }
        let width = first_text.len();
        numbers.extend((first..=last).map(|value| format!("{value:0width$}")));
    }
    Ok(numbers)
}

/// Digits and nothing else (`parse` alone would take `+3`).
pub(crate) fn number(text: &str) -> Option<u64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        expand(text).unwrap().into_iter().map(|name| name.0).collect()
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

    proptest::proptest! {
        #[test]
        fn never_panics(text in "[n\\[\\],0-9\\-a\\PC]{0,60}") {
            let _ = expand(&text);
        }
    }
}
