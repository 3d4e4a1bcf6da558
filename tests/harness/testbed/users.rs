//! The users of a testbed, as text of `/etc/passwd` and `/etc/group`: those of the system, and a few people.

use super::{USERS, home_of};
use crate::process::Identity;
use std::fmt::Write as _;

/// The first user id that is tried for our people.
const UID_FIRST: u32 = 60_001;

/// The system's `/etc/passwd` and `/etc/group` with our people in them; people of the same names are replaced.
///
/// Slurm brings `slurm`, `MariaDB` brings `mysql`; where one is missing it is not made up.
pub(super) fn with_people(passwd: &str, group: &str) -> (String, String) {
    let mut passwd = without_people(passwd);
    let mut group = without_people(group);
    let taken: Vec<u32> = [&passwd, &group].iter().flat_map(|text| text.lines().filter_map(number)).collect();
    let free = (UID_FIRST..).filter(|id| !taken.contains(id));
    for (user, id) in USERS.iter().zip(free) {
        let _ = writeln!(passwd, "{user}:*:{id}:{id}::{}:/bin/bash", home_of(user));
        let _ = writeln!(group, "{user}:x:{id}:");
    }
    (passwd, group)
}

/// A user's ids.
pub(super) fn find(passwd: &str, user: &str) -> Option<Identity> {
    let line = passwd.lines().find(|line| line.split(':').next() == Some(user))?;
    let mut fields = line.split(':').skip(2);
    Some(Identity { uid: fields.next()?.parse().ok()?, gid: fields.next()?.parse().ok()? })
}

fn without_people(text: &str) -> String {
    let kept = text.lines().filter(|line| !line.split(':').next().is_some_and(|name| USERS.contains(&name)));
    kept.flat_map(|line| [line, "\n"]).collect()
}

fn number(line: &str) -> Option<u32> {
    line.split(':').nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_get_free_ids_and_replace_their_namesakes() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\nalice:x:1000:1000::/home/alice:/bin/sh\nx:x:60001:60001::/:/bin/sh\n";
        let (passwd, group) = with_people(passwd, "root:x:0:\n");
        assert_eq!(find(&passwd, "alice"), Some(Identity { uid: 60_002, gid: 60_002 }));
        assert_eq!(find(&passwd, "bob"), Some(Identity { uid: 60_003, gid: 60_003 }));
        assert_eq!(find(&passwd, "root"), Some(Identity { uid: 0, gid: 0 }));
        assert_eq!(passwd.matches("\nalice:").count(), 1);
        assert!(group.contains("alice:x:60002:\n") && group.starts_with("root:x:0:\n"));
        assert_eq!(find(&passwd, "nobody"), None);
    }
}
