//! What kind of workload something is: versions of one script, and sizes of one training, are told from each other by a
//! number somewhere in their name. What is known of one of a family is what is expected of another, before it was seen.
//!
//! It is read from the name alone, which the user gave and which may be shown: never from a script, an argument or a file.
//! A family is one user's, so that nobody's names say anything of another's jobs.

use crate::ids::WorkloadKey;
use crate::name::WorkloadName;

/// Endings of scripts, which tell nothing.
const ENDINGS: [&str; 6] = [".sh", ".bash", ".py", ".slurm", ".sbatch", ".job"];
/// What Slurm calls a job that nobody named: it is no kind.
const NAMELESS: [&str; 4] = ["wrap", "sbatch", "bash", "interactive"];
/// Words before a number that only say that it is a version.
const VERSIONS: [&str; 5] = ["v", "ver", "version", "rev", "run"];
/// A word of so many hexadecimal digits, some of them numbers, is a commit or a digest.
const DIGEST_LENGTH_MIN: usize = 7;

/// The family of a workload that is called so: its user, and the words of its name without numbers. `None` where no word is
/// left that says anything, or where the key names no user.
pub fn family_of(workload: &WorkloadKey, name: &WorkloadName) -> Option<String> {
    let (user, _) = workload.as_str().split_once('/').filter(|(user, _)| !user.is_empty())?;
    let name = name.as_str().to_lowercase();
    let name = ENDINGS.iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(&name);
    let words: Vec<String> =
        name.split(|letter: char| !letter.is_alphanumeric()).filter_map(word_without_numbers).collect();
    let words = words.join("-");
    (!words.is_empty() && !NAMELESS.contains(&&*words)).then(|| format!("{user}/{words}"))
}

/// A word of a name without its numbers; `None` where nothing is left, or only what says that it is a version.
fn word_without_numbers(word: &str) -> Option<String> {
    let has_number = word.contains(char::is_numeric);
    let is_digest =
        has_number && word.len() >= DIGEST_LENGTH_MIN && word.chars().all(|c| c.is_ascii_hexdigit());
    let letters: String = word.chars().filter(|letter| !letter.is_numeric()).collect();
    let is_version = VERSIONS.contains(&&*letters) && (has_number || letters == "v");
    (!letters.is_empty() && !is_digest && !is_version).then_some(letters)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(name: &str) -> Option<String> {
        family_of(&WorkloadKey::new("alice/0123456789abcdef"), &WorkloadName::safe(name)?)
    }

    #[test]
    fn versions_and_sizes_of_one_script_are_of_one_family() {
        for name in
            ["resnet-v2", "resnet50_v3.sh", "ResNet-152", "2026-11-03-resnet-run7.py", "resnet_1f3c9d2e4b"]
        {
            assert_eq!(family(name).as_deref(), Some("alice/resnet"), "{name}");
        }
        assert_eq!(family("resnet50-b32").as_deref(), Some("alice/resnet-b"));
        assert_eq!(family("train.resnet").as_deref(), Some("alice/train-resnet"));
    }

    #[test]
    fn a_word_that_only_looks_like_a_version_or_a_digest_is_kept() {
        assert_eq!(family("run-facade").as_deref(), Some("alice/run-facade"));
        assert_eq!(family("effaced").as_deref(), Some("alice/effaced"));
        assert_eq!(family("gpt2-dev").as_deref(), Some("alice/gpt-dev"));
    }

    #[test]
    fn what_says_nothing_is_no_family() {
        for name in ["wrap", "sbatch", "interactive", "12345", "v2", "run3.sh", "2024-01-01"] {
            assert_eq!(family(name), None, "{name}");
        }
        let nobody = WorkloadKey::new("resnet");
        assert_eq!(family_of(&nobody, &WorkloadName::safe("resnet").unwrap()), None);
    }

    #[test]
    fn two_users_are_of_two_families() {
        let bob =
            family_of(&WorkloadKey::new("bob/0123456789abcdef"), &WorkloadName::safe("resnet").unwrap());
        assert_ne!(bob, family("resnet"));
    }
}
