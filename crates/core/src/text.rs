//! Text from outside (agents, drivers, users), in one line that no terminal, log or reader takes for more than its letters.

use std::fmt::{Display, Write as _};

/// What stands where a text was cut.
const CUT: char = '…';

/// How much of a foreign word stands in what is said of it.
const QUOTED_CHARS_MAX: usize = 64;

/// A foreign word as it stands in the sentence that refuses it: in one short line, whatever it was.
pub fn quoted(text: &str) -> String {
    shown(text, QUOTED_CHARS_MAX)
}

/// The text in one line of at most so many characters: what a terminal or a log would obey is written out (`\n`, `\u{1b}`).
pub fn shown(text: &str, chars_max: usize) -> String {
    let mut line = String::new();
    for (count, letter) in text.chars().enumerate() {
        if count == chars_max {
            line.push(CUT);
            break;
        }
        if is_obeyed(letter) {
            let _ = write!(line, "{}", letter.escape_default());
        } else {
            line.push(letter);
        }
    }
    line
}

/// The first of these, and how many more there are: `a, b and 3 more`; `None` where there are none.
pub fn named<T: Display>(all: impl IntoIterator<Item = T>, named_max: usize) -> Option<String> {
    let mut all = all.into_iter();
    let mut text = all.next()?.to_string();
    for one in all.by_ref().take(named_max.saturating_sub(1)) {
        let _ = write!(text, ", {one}");
    }
    let more_count = all.count();
    if more_count > 0 {
        let _ = write!(text, " and {more_count} more");
    }
    Some(text)
}

/// Whether every letter of it is one that an identifier of Slurm or of a device has, and there are not too many.
pub fn is_identifier(text: &str, chars_max: usize) -> bool {
    !text.is_empty()
        && text.len() <= chars_max
        && text.chars().all(|letter| letter.is_ascii_alphanumeric() || "._-:+/".contains(letter))
}

/// Control characters, ends of lines, and what turns the direction of a line around.
fn is_obeyed(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_written_out() {
        assert_eq!(shown("n1\n2026 ERROR all is lost\x1b[2J", 80), "n1\\n2026 ERROR all is lost\\u{1b}[2J");
        assert_eq!(shown("a\u{202e}b\u{9b}c\u{2028}", 80), "a\\u{202e}b\\u{9b}c\\u{2028}");
        assert_eq!(shown("näher", 80), "näher");
    }

    #[test]
    fn what_is_too_long_is_cut() {
        assert_eq!(shown("abcdef", 3), "abc…");
        assert_eq!(shown("abc", 3), "abc");
        assert!(shown(&"\n".repeat(1_000_000), 10).len() < 40);
    }

    #[test]
    fn of_many_the_first_are_named_and_the_others_counted() {
        let of = |count: u32| named(1..=count, 3);
        assert_eq!(of(0), None);
        assert_eq!(of(1).as_deref(), Some("1"));
        assert_eq!(of(3).as_deref(), Some("1, 2, 3"));
        assert_eq!(of(5).as_deref(), Some("1, 2, 3 and 2 more"));
    }

    #[test]
    fn an_identifier_is_one_word() {
        for text in ["n1", "gpu-7.cluster_2", "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"] {
            assert!(is_identifier(text, 64), "{text}");
        }
        for text in ["", "n1\n", "n 1", "n\x1b", "nö", "n1\"", "<n1>"] {
            assert!(!is_identifier(text, 64), "{text}");
        }
        assert!(!is_identifier("abc", 2));
    }
}
