//! What people call a workload. Its key ends in a digest that says nothing to anybody; what is told instead is the name that
//! its user gave it: that of `profile=`, or else of the job. Both are written by users, so a name is made safe where it is
//! read, once, and is safe everywhere after that: on a terminal, in a page, in a line of a log.

use crate::ids::WorkloadKey;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The most characters of a name: the longest `profile=` stands whole.
pub const NAME_LENGTH_MAX: usize = 64;
/// How many letters of a digest tell two workloads of one name apart, unless they begin alike.
const DIGEST_LETTERS: usize = 4;
/// What stands between a name and those letters; in no name.
const DIGEST_SIGN: char = '~';
/// How long a digest is.
const DIGEST_LENGTH: usize = 16;

/// A name that can be printed anywhere: letters and digits of scripts that run from left to right, and `._-+:=@,#%`. What
/// else a user wrote stands as `_`, and what is too long ends in `…`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkloadName(String);

impl WorkloadName {
    /// The safe name in a user's text; `None` where no letter or digit is left, or it could be taken for a digest.
    pub fn safe(text: &str) -> Option<Self> {
        let mut name = String::new();
        let mut length = 0;
        for written in text.chars() {
            let letter = if is_allowed(written) { written } else { '_' };
            // One for a row of them: an escape sequence is not worth its length.
            if letter != written && name.ends_with('_') {
                continue;
            }
            if length == NAME_LENGTH_MAX {
                name.pop();
                name.push('…');
                break;
            }
            name.push(letter);
            length += 1;
        }
        (name.chars().any(char::is_alphanumeric) && !is_digest(&name)).then_some(Self(name))
    }

    /// The text, safe to print.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WorkloadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_allowed(letter: char) -> bool {
    match letter {
        '.' | '_' | '-' | '+' | ':' | '=' | '@' | ',' | '#' | '%' | '…' => true,
        // Letters that are drawn as nothing.
        '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' => false,
        // Letters that run from right to left turn the rest of a line around.
        _ if runs_from_right_to_left(letter) => false,
        _ => letter.is_alphanumeric(),
    }
}

fn runs_from_right_to_left(letter: char) -> bool {
    matches!(letter, '\u{590}'..='\u{8ff}' | '\u{fb1d}'..='\u{fdff}' | '\u{fe70}'..='\u{feff}')
        || matches!(letter, '\u{10800}'..='\u{10fff}' | '\u{1e800}'..='\u{1efff}')
}

fn is_digest(text: &str) -> bool {
    text.len() == DIGEST_LENGTH && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Where a name was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NameSource {
    /// The name of a job that runs it.
    Job,
    /// `profile=`: what its user calls it, in place of whatever its jobs are called.
    Profile,
}

crate::word::spelt_as_serialized!(NameSource => "source of a name");

/// The name of a workload, as far as its key can be told by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownName {
    /// What people know the workload by.
    pub name: WorkloadName,
    /// Whether another workload of the same user has it too.
    pub is_shared: bool,
}

/// How each of these workloads is told to people: `alice/bert`; `alice/bert~aa71` where alice has two of that name.
pub fn texts(known: &BTreeMap<WorkloadKey, KnownName>) -> BTreeMap<WorkloadKey, String> {
    known.iter().map(|(key, one)| (key.clone(), text(known, key, one))).collect()
}

/// One of them, with as many letters of its digest as no other has in common with it.
fn text(known: &BTreeMap<WorkloadKey, KnownName>, key: &WorkloadKey, one: &KnownName) -> String {
    let (user, digest) = parts(key);
    let alike =
        known.iter().filter(|(other, it)| *other != key && it.name == one.name && parts(other).0 == user);
    let common = alike.map(|(other, _)| common_length(digest, parts(other).1)).max();
    let letters = common.map_or(DIGEST_LETTERS, |common| DIGEST_LETTERS.max(common + 1));
    if one.is_shared || common.is_some() {
        let digest: String = digest.chars().take(letters).collect();
        format!("{user}/{}{DIGEST_SIGN}{digest}", one.name)
    } else {
        format!("{user}/{}", one.name)
    }
}

fn parts(key: &WorkloadKey) -> (&str, &str) {
    key.as_str().split_once('/').unwrap_or(("", key.as_str()))
}

fn common_length(one: &str, other: &str) -> usize {
    one.chars().zip(other.chars()).take_while(|(a, b)| a == b).count()
}

/// A text by which somebody asks for a workload, where that is no key: `bert`, `alice/bert`, `alice/bert~aa71`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskedName {
    /// Whose, where it is said.
    pub user: Option<String>,
    /// What people know the workload by.
    pub name: WorkloadName,
    /// What the digest begins with.
    pub digest_letters: String,
}

impl AskedName {
    /// `None`: a key, or a text that no name can be.
    pub fn parse(text: &str) -> Option<Self> {
        let (user, rest) = match text.split_once('/') {
            Some((user, rest)) => (Some(user.to_owned()), rest),
            None => (None, text),
        };
        let (asked, letters) = rest.rsplit_once(DIGEST_SIGN).unwrap_or((rest, ""));
        let name = WorkloadName::safe(asked).filter(|name| name.as_str() == asked)?;
        Some(Self { user, name, digest_letters: letters.to_owned() })
    }

    /// Whether it may mean this workload, which has that name.
    pub fn may_mean(&self, key: &WorkloadKey) -> bool {
        let (user, digest) = parts(key);
        self.user.as_ref().is_none_or(|asked| asked == user) && digest.starts_with(&self.digest_letters)
    }
}

/// Whether `name` is the `profile=` that this key was made of: nobody can put a name on a workload that it is not of.
pub fn is_profile_of(name: &str, key: &WorkloadKey) -> bool {
    parts(key).1 == digest(&format!("profile:{name}"))
}

/// The digest of `M.digest` in `deploy/slurm/pillion.lua`; a test holds the two together.
pub fn digest(text: &str) -> String {
    digest_of(text.as_bytes())
}

/// The same of bytes that need be no text.
pub(crate) fn digest_of(text: &[u8]) -> String {
    const PRIMES: [u64; 2] = [4_294_967_291, 4_294_967_279];
    let (mut first, mut second) = (1_u64, 2_u64);
    for word in text.chunks(8) {
        let mut bytes = [0_u8; 8];
        bytes[..word.len()].copy_from_slice(word);
        let both = u64::from_le_bytes(bytes);
        let (low, high) = (both & 0xffff_ffff, both >> 32);
        first = ((first * 1_000_003 + low) % PRIMES[0] * 999_983 + high) % PRIMES[0];
        second = ((second * 999_979 + low) % PRIMES[1] * 1_000_033 + high) % PRIMES[1];
    }
    let length = text.len() as u64;
    first = (first * 1_000_003 + length) % PRIMES[0];
    second = (second * 999_979 + length) % PRIMES[1];
    format!("{first:08x}{second:08x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn safe(text: &str) -> String {
        WorkloadName::safe(text).map(|name| name.to_string()).unwrap_or_default()
    }

    #[test]
    fn what_people_write_stays_as_it_is() {
        for name in ["bert", "my-bert", "train.sh", "lr=0.1,bs:32", "entraînement", "学習", "a__b"] {
            assert_eq!(safe(name), name);
        }
        assert_eq!(safe(&"a".repeat(NAME_LENGTH_MAX)), "a".repeat(NAME_LENGTH_MAX));
    }

    #[test]
    fn what_forges_a_line_hides_or_turns_text_around_is_replaced() {
        for (hostile, expected) in [
            ("a\n33;RUNNING", "a_33_RUNNING"),
            ("\u{1b}[31mred\u{1b}[0m", "_31mred_0m"),
            ("a\u{202e}txt.exe", "a_txt.exe"),
            ("\u{5d0}\u{5d1}bert", "_bert"),
            ("<script>", "_script_"),
            ("a/b~c", "a_b_c"),
            ("a\u{200b}b\u{3164}", "a_b_"),
            ("n\u{fffd}me", "n_me"),
        ] {
            assert_eq!(safe(hostile), expected, "{hostile:?}");
        }
        let long = safe(&"x".repeat(4096));
        assert_eq!((long.chars().count(), long.chars().last()), (NAME_LENGTH_MAX, Some('…')));
        for none in ["", "\n\n", "---", "\u{202e}", "aa710d1a65607725"] {
            assert_eq!(WorkloadName::safe(none), None, "{none:?}");
        }
    }

    fn known(rows: &[(&str, &str, bool)]) -> BTreeMap<WorkloadKey, KnownName> {
        let row = |(key, name, is_shared): &(&str, &str, bool)| {
            let name = WorkloadName::safe(name).expect("a name");
            (WorkloadKey::new(*key), KnownName { name, is_shared: *is_shared })
        };
        rows.iter().map(row).collect()
    }

    #[test]
    fn a_digest_shows_only_where_a_user_has_two_of_a_name_and_only_as_far_as_it_must() {
        let told = |rows: &[(&str, &str, bool)]| texts(&known(rows)).into_values().collect::<Vec<_>>();
        assert_eq!(
            told(&[("alice/aa710d1a65607725", "bert", false), ("bob/aa710d1a65607725", "bert", false)]),
            ["alice/bert", "bob/bert"]
        );
        assert_eq!(told(&[("alice/aa710d1a65607725", "bert", true)]), ["alice/bert~aa71"]);
        assert_eq!(
            told(&[("alice/aa710d1a65607725", "bert", true), ("alice/aa71fd1a65607725", "bert", true)]),
            ["alice/bert~aa710", "alice/bert~aa71f"]
        );
    }

    #[test]
    fn what_is_told_can_be_asked_for() {
        let key = WorkloadKey::new("alice/aa710d1a65607725");
        for text in ["bert", "alice/bert", "alice/bert~aa71", "bert~aa"] {
            let asked = AskedName::parse(text).expect("a name");
            assert_eq!(asked.name.as_str(), "bert");
            assert!(asked.may_mean(&key), "{text}");
        }
        for text in ["bob/bert", "alice/bert~ab"] {
            assert!(!AskedName::parse(text).expect("a name").may_mean(&key), "{text}");
        }
        for text in ["alice/aa710d1a65607725", "", "a b", "alice/"] {
            assert_eq!(AskedName::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_profile_names_only_the_workload_that_it_made() {
        let key = WorkloadKey::new(format!("alice/{}", digest("profile:bert")));
        assert!(is_profile_of("bert", &key));
        assert!(!is_profile_of("gpt", &key));
    }

    proptest::proptest! {
        #[test]
        fn a_safe_name_is_short_clean_and_safe_again(text in "\\PC{0,80}|(?s).{0,80}") {
            if let Some(name) = WorkloadName::safe(&text) {
                proptest::prop_assert!(name.as_str().chars().count() <= NAME_LENGTH_MAX);
                proptest::prop_assert!(name.as_str().chars().all(is_allowed));
                proptest::prop_assert_eq!(WorkloadName::safe(name.as_str()), Some(name));
            }
        }
    }
}
