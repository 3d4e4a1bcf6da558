//! The secret of `auth.method = "key"`: which keys are in force, and codes made with them. Pure but for [`read`].
//!
//! ```text
//! # pillion-auth-key 1                     one key a line, the newest first
//! 64 hexadecimal digits
//! 64 hexadecimal digits until=1795086400   of before the last rotation: taken until then
//! ```

use crate::error::AuthError;
use pillion_core::UnixTime;
use ring::hmac;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

/// How long the key before the newest is still taken: the time in which a new file reaches every node.
pub const KEY_OVERLAP: Duration = Duration::from_hours(24);
/// The length of a key.
const KEY_BYTES: usize = 32;
/// A file that is longer is none of ours.
const FILE_BYTES_MAX: u64 = 16 << 10;
const HEAD: &str = "# pillion-auth-key 1";

/// The keys that are in force.
#[derive(Clone)]
pub struct Keys(Vec<hmac::Key>);

/// A key's bytes, and until when it is taken.
type Line = ([u8; KEY_BYTES], Option<u64>);

fn line(text: &str) -> Option<Line> {
    let mut words = text.split_whitespace();
    let bytes = bytes(words.next()?)?.try_into().ok()?;
    let until = match words.next() {
        Some(word) => Some(word.strip_prefix("until=")?.parse().ok()?),
        None => None,
    };
    words.next().is_none().then_some((bytes, until))
}

fn lines(text: &str) -> Option<Vec<Line>> {
    let kept = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    kept.map(line).collect()
}

impl Keys {
    /// The keys of a file's text that are taken now, the newest first; `None`: it is no such file, or none is left.
    pub fn parse(text: &str, now: UnixTime) -> Option<Self> {
        let lines = lines(text)?.into_iter();
        let taken = lines.filter(|(_, until)| until.is_none_or(|until| now.epoch() < until));
        let keys: Vec<hmac::Key> =
            taken.map(|(bytes, _)| hmac::Key::new(hmac::HMAC_SHA256, &bytes)).collect();
        (!keys.is_empty()).then_some(Self(keys))
    }

    /// The code of a text by the newest key.
    pub fn code(&self, payload: &str) -> String {
        self.0.first().map_or_else(String::new, |key| hex(hmac::sign(key, payload.as_bytes()).as_ref()))
    }

    /// Which of the keys a code was made with, as the only one that is in force; `None`: with none of them.
    pub fn made_with(&self, payload: &str, code: &str) -> Option<Self> {
        let code = bytes(code)?;
        let key = self.0.iter().find(|key| hmac::verify(key, payload.as_bytes(), &code).is_ok())?;
        Some(Self(vec![key.clone()]))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Two digits a byte and nothing else: a number may have a sign, and these may not.
fn bytes(digits: &str) -> Option<Vec<u8>> {
    if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let pairs = (0..digits.len()).step_by(2).map(|place| digits.get(place..place + 2));
    pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
}

/// A key that nobody knows; `None`: the system gives no random numbers.
pub fn new_key() -> Option<[u8; KEY_BYTES]> {
    let mut bytes = [0; KEY_BYTES];
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bytes).ok()?;
    Some(bytes)
}

/// The text of a file with a new key in front of the newest of `before`, which is taken for [`KEY_OVERLAP`] more. `None`: `before`
/// is no such file.
pub fn new_key_file(new: &[u8; KEY_BYTES], before: Option<&str>, now: UnixTime) -> Option<String> {
    let mut text = format!("{HEAD}\n{}\n", hex(new));
    if let Some(before) = before
        && let Some((old, until)) = lines(before)?.first()
    {
        let end = (now + KEY_OVERLAP).epoch();
        let _ = writeln!(text, "{} until={}", hex(old), until.map_or(end, |until| until.min(end)));
    }
    Some(text)
}

/// The keys of a file that are in force now.
///
/// # Errors
/// [`AuthError::Unavailable`]: a missing key is no answer about anybody.
pub(crate) fn read(path: &Path, now: UnixTime) -> Result<Keys, AuthError> {
    use rustix::fs::{Mode, OFlags};
    use std::io::Read as _;
    let shown = path.display();
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => std::fs::File::from(file),
        Err(rustix::io::Errno::NOENT) => {
            let why = format!(
                "there is no key {shown}; make one with 'pillion keygen' on the controller and copy it to every node, or run \
                 munged (auth.method)"
            );
            return Err(AuthError::Unavailable(why));
        }
        Err(error) => return Err(unusable(path, error)),
    };
    let metadata = file.metadata().map_err(|error| unusable(path, error))?;
    let mode = std::os::unix::fs::MetadataExt::mode(&metadata);
    if !metadata.is_file() || mode & 0o027 != 0 {
        let why = "others may read or write it; give it mode 0600, or 0640 and a group of the program alone";
        return Err(unusable(path, why));
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(|error| unusable(path, error))?;
    let keys = Keys::parse(&text, now);
    keys.ok_or_else(|| unusable(path, "no key in it is in force; make one with 'pillion keygen'"))
}

fn unusable(path: &Path, why: impl std::fmt::Display) -> AuthError {
    AuthError::Unavailable(format!("the key {} cannot be used: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: [u8; KEY_BYTES] = [7; KEY_BYTES];
    const NEW: [u8; KEY_BYTES] = [9; KEY_BYTES];
    const PAYLOAD: &str = "pillion1 agent n1 00";

    fn at(epoch: u64) -> UnixTime {
        UnixTime::from_epoch(epoch)
    }

    fn file(new: &[u8; KEY_BYTES], before: Option<&str>, now: u64) -> String {
        new_key_file(new, before, at(now)).expect("it is a key file")
    }

    #[test]
    fn codes_are_hmac_sha256() {
        let keys = Keys(vec![hmac::Key::new(hmac::HMAC_SHA256, b"Jefe")]);
        // RFC 4231, test case 2.
        assert_eq!(
            keys.code("what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }

    #[test]
    fn for_a_day_after_a_rotation_the_old_key_is_taken_beside_the_new_one() {
        let old = file(&OLD, None, 1000);
        let rotated = file(&NEW, Some(&old), 5000);
        let by_old = Keys::parse(&old, at(1000)).unwrap().code(PAYLOAD);
        let day = KEY_OVERLAP.as_secs();
        for (now, is_taken) in [(5000, true), (5000 + day - 1, true), (5000 + day, false)] {
            let keys = Keys::parse(&rotated, at(now)).unwrap();
            assert_eq!(keys.made_with(PAYLOAD, &by_old).is_some(), is_taken, "at {now}");
            assert!(keys.made_with(PAYLOAD, &keys.code(PAYLOAD)).is_some());
        }
        let scheduler = Keys::parse(&rotated, at(5001)).unwrap();
        let matched = scheduler.made_with(PAYLOAD, &by_old).unwrap();
        let agent = Keys::parse(&old, at(5001)).unwrap();
        assert!(
            agent.made_with("answer", &matched.code("answer")).is_some(),
            "it is answered with the key that it has"
        );
        assert!(agent.made_with("answer", &scheduler.code("answer")).is_none());
    }

    #[test]
    fn two_rotations_do_not_lengthen_the_life_of_the_first_key() {
        let second = file(&NEW, Some(&file(&OLD, None, 0)), 1000);
        let third = file(&[3; KEY_BYTES], Some(&second), 2000);
        assert!(!third.contains(&hex(&OLD)) && third.contains(&hex(&NEW)));
    }

    #[test]
    fn a_code_of_another_text_or_key_is_refused_and_so_is_no_code() {
        let keys = Keys::parse(&file(&NEW, None, 0), at(1)).unwrap();
        let stranger = Keys::parse(&file(&OLD, None, 0), at(1)).unwrap();
        for code in [
            keys.code("pillion1 agent n2 00"),
            stranger.code(PAYLOAD),
            String::new(),
            "zz".into(),
            "é".into(),
        ] {
            assert!(keys.made_with(PAYLOAD, &code).is_none(), "{code}");
        }
    }

    #[test]
    fn what_is_no_key_file_gives_no_key() {
        let good = hex(&NEW);
        for wrong in [
            "",
            "# only words",
            "abc",
            &format!("+7{}", &good[2..]),
            &format!("{good} until=soon"),
            &format!("{good} for ever"),
            &format!("{good}\nxyz"),
        ] {
            assert!(Keys::parse(wrong, at(1)).is_none(), "{wrong}");
            assert!(
                wrong.is_empty()
                    || wrong.starts_with('#')
                    || new_key_file(&OLD, Some(wrong), at(1)).is_none()
            );
        }
    }

    fn check_unusable(path: &Path, sentence: &str) {
        match read(path, at(1)) {
            Err(AuthError::Unavailable(why)) => assert!(why.contains(sentence), "{why}"),
            other => panic!("{}", other.is_ok()),
        }
    }

    #[test]
    fn a_key_that_others_may_read_is_not_used_and_a_missing_one_is_unavailable() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("auth.key");
        check_unusable(&path, "make one with 'pillion keygen'");
        std::fs::write(&path, file(&NEW, None, 0)).unwrap();
        for (mode, is_used) in
            [(0o600, true), (0o640, true), (0o400, true), (0o644, false), (0o660, false), (0o604, false)]
        {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            if is_used {
                assert!(read(&path, at(1)).is_ok(), "{mode:o}");
            } else {
                check_unusable(&path, "others may read or write it");
            }
        }
    }
}
