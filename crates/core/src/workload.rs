//! What counts as one workload where nobody says so: keys that are made of what Slurm knows of a job. For a batch job that of its
//! script, which `deploy/slurm/pillion.lua` makes of a managed job, so that what was learnt of a job before is known of it in the
//! pool; where there is no script, that of its name and the command line by which it was submitted.
//!
//! ```text
//! alice/1f0c9a..        its script, as the pool's own
//! alice/line-77ab01..   its submit line, without the numbers in it
//! alice/4x-1f0c9a..     its script, on four devices: another work than on one
//! alice/session-5e01..  what she does in interactive jobs of one name: something else each time
//! ```

use crate::ids::WorkloadKey;
use crate::name::digest_of;

/// Of a longer script the two ends and the length stand for the whole.
const SCRIPT_LENGTH_MAX: usize = 64 * 1024;

/// The workload of a batch job: of its user, its name and its script without `#SBATCH` lines and white space. What
/// `workload_digest` in `deploy/slurm/pillion.lua` makes of it too; a test holds the two together.
pub fn of_script(user: &str, job_name: &str, script: &[u8]) -> WorkloadKey {
    let mut text = format!("script:{job_name}:").into_bytes();
    text.extend(script_text(script));
    WorkloadKey::new(format!("{user}/{}", digest_of(&text)))
}

/// What of a script tells works apart: all but `#SBATCH` lines and white space.
pub fn script_text(script: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(script.len().min(SCRIPT_LENGTH_MAX));
    let mut whole = Vec::with_capacity(script.len().min(SCRIPT_LENGTH_MAX) + 1);
    whole.push(b'\n');
    if script.len() > SCRIPT_LENGTH_MAX {
        let half = SCRIPT_LENGTH_MAX / 2;
        whole.extend_from_slice(&script[..half]);
        whole.extend_from_slice(&script[script.len() - half..]);
        whole.extend_from_slice(script.len().to_string().as_bytes());
    } else {
        whole.extend_from_slice(script);
    }
    // What stands after a line's end and begins so is Slurm's; the first line has one before it too.
    for line in whole.split(|byte| *byte == b'\n').skip(1).filter(|line| !line.starts_with(b"#SBATCH")) {
        text.extend(line.iter().filter(|byte| !is_blank(**byte)));
    }
    text
}

/// The workload of a job without a script: of its user, its name and its submit line without numbers (`train.sh --seed 17` and
/// `--seed 18` are one).
pub fn of_submit_line(user: &str, job_name: &str, submit_line: &str) -> WorkloadKey {
    let mut text = b"line:".to_vec();
    text.extend_from_slice(job_name.as_bytes());
    // A byte that is in no text keeps the parts apart.
    text.push(0xff);
    text.extend(without_numbers(submit_line));
    WorkloadKey::new(format!("{user}/line-{}", digest_of(&text)))
}

/// The same work on several devices at once, of each of which it uses something else than of one. With one, the same.
pub fn on_several(key: &WorkloadKey, device_count: usize) -> WorkloadKey {
    match key.as_str().split_once('/') {
        Some((user, digest)) if device_count > 1 => {
            WorkloadKey::new(format!("{user}/{device_count}x-{digest}"))
        }
        _ => key.clone(),
    }
}

/// The work on one device of a key of [`on_several`], and on how many devices it is.
pub fn on_one(key: &WorkloadKey) -> (WorkloadKey, u32) {
    let several = key.as_str().split_once('/').and_then(|(user, rest)| {
        let (count, digest) = rest.split_once("x-")?;
        let count = count.parse().ok().filter(|count| *count > 1)?;
        Some((WorkloadKey::new(format!("{user}/{digest}")), count))
    });
    several.unwrap_or_else(|| (key.clone(), 1))
}

/// What keys of interactive jobs have before their digest.
const SESSION_PREFIX: &str = "session-";

/// What a user does in interactive jobs: no work of which one run tells what the next will be like.
pub fn of_session(user: &str, digest: &str) -> WorkloadKey {
    WorkloadKey::new(format!("{user}/{SESSION_PREFIX}{digest}"))
}

/// Whether it is a key of [`of_session`].
pub fn is_session(key: &WorkloadKey) -> bool {
    key.as_str().split_once('/').is_some_and(|(_, rest)| rest.starts_with(SESSION_PREFIX))
}

/// The same work whatever the number of devices: what [`on_several`] was made of.
pub fn on_any(key: &WorkloadKey) -> WorkloadKey {
    on_one(key).0
}

/// Each run of digits as one `0`, each run of white space as one blank.
pub fn without_numbers(line: &str) -> Vec<u8> {
    let mut text = Vec::with_capacity(line.len());
    for byte in line.trim().bytes() {
        let byte = match byte {
            b'0'..=b'9' => b'0',
            _ if byte.is_ascii_whitespace() => b' ',
            other => other,
        };
        if !(matches!(byte, b'0' | b' ') && text.last() == Some(&byte)) {
            text.push(byte);
        }
    }
    text
}

/// What C calls white space, and so lua.
const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_one_work_however_it_is_submitted() {
        let key = |name: &str, script: &str| of_script("alice", name, script.as_bytes());
        let plain = key("train", "#!/bin/sh\npython train.py\n");
        assert_eq!(key("train", "#!/bin/sh\n#SBATCH -t 5\n\n  python train.py   \n"), plain);
        assert_eq!(key("train", "#SBATCH --gres=gpu:1\n#!/bin/sh\r\npython train.py"), plain);
        assert_ne!(key("train", "#!/bin/sh\npython train2.py\n"), plain);
        assert_ne!(key("other", "#!/bin/sh\npython train.py\n"), plain);
        assert_ne!(of_script("bob", "train", b"#!/bin/sh\npython train.py\n"), plain);
        assert_eq!(plain.as_str().len(), "alice/".len() + 16);
    }

    #[test]
    fn numbers_tell_no_submit_lines_apart_and_everything_else_does() {
        let first = of_submit_line("alice", "train", "srun  train.sh --seed 17");
        assert_eq!(of_submit_line("alice", "train", "srun train.sh --seed 4 "), first);
        let others = [
            of_submit_line("bob", "train", "srun train.sh --seed 4"),
            of_submit_line("alice", "train2", "srun train.sh --seed 4"),
            of_submit_line("alice", "train", "srun train.sh --lr 0.1"),
            of_submit_line("alicet", "rain", "srun train.sh --seed 4"),
        ];
        assert!(others.iter().all(|other| *other != first));
        assert!(first.as_str().starts_with("alice/line-"), "{first}");
    }

    #[test]
    fn what_is_done_in_a_session_is_told_from_any_work() {
        let session = of_session("alice", "1f0c9a0000000000");
        assert_eq!(session.as_str(), "alice/session-1f0c9a0000000000");
        let line = of_submit_line("session-x", "session-", "srun x");
        for other in [line, WorkloadKey::new("session-a/1f"), WorkloadKey::new("alice/1f0c9a0000000000")] {
            assert!(is_session(&session) && !is_session(&other), "{other}");
        }
        assert_eq!(on_one(&session), (session, 1));
    }

    #[test]
    fn on_several_devices_it_is_another_work_and_on_one_it_is_not() {
        let key = WorkloadKey::new("alice/1f0c9a0000000000");
        assert_eq!(on_several(&key, 1), key);
        assert_eq!(on_several(&key, 4).as_str(), "alice/4x-1f0c9a0000000000");
        assert_eq!((on_one(&on_several(&key, 4)), on_one(&key)), ((key.clone(), 4), (key.clone(), 1)));
        let line = of_submit_line("bob", "max-x", "srun x");
        assert_eq!(on_one(&line), (line, 1));
        assert_eq!(on_any(&on_several(&key, 16)), key);
        for other in ["alice/1f0c9a0000000000", "alice/x-1f", "alice/line-77ab01", "alice/ax-1", "odd"] {
            assert_eq!(on_any(&WorkloadKey::new(other)).as_str(), other);
        }
    }
}
