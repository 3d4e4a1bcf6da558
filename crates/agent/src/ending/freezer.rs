//! A job's control group, held still and let go. Nothing here decides; who is held and for how long: the parent.
//!
//! Who lets it go, whatever happens: this agent; a guard beside each group (a shell that waits for the end of a pipe from us, or
//! for its time), which no agent that is killed or stopped keeps from acting; the agent's unit when it stops
//! (`pillion-agent let-go`), and the next agent, by the list on disk.

use crate::disk;
use crate::procfs::JobPlace;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tracing::warn;

/// How long a group may take until all of it stands still: a process in a driver's call stops when that returns.
const FREEZING: Duration = Duration::from_millis(500);
/// From one look to the next meanwhile.
const LOOK: Duration = Duration::from_millis(5);
/// What the guard waits beyond the time that a group may be held: it acts only where we do not.
const GUARD_MARGIN: Duration = Duration::from_secs(2);
/// `$1` seconds, or until we let go of its standard input; then it writes `$2` into `$3`, which may have gone.
const GUARD: &str = r#"timeout "$1" cat >/dev/null; echo "$2" 2>/dev/null >"$3"; exit 0"#;

/// The control group of a job, where processes are held.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "version", content = "directory")]
pub(super) enum Group {
    /// Of the `freezer` controller.
    V1(PathBuf),
    V2(PathBuf),
}

impl Group {
    /// The group that holds all of a job's processes, where the kernel shows control groups at `cgroups`.
    pub(super) fn of(places: &[JobPlace], cgroups: &Path) -> Option<Self> {
        let has = |place: &&JobPlace| place.controllers.split(',').any(|controller| controller == "freezer");
        let v1 = places.iter().find(has);
        let v2 = || places.iter().find(|place| place.controllers.is_empty());
        v1.map(|place| Self::V1(cgroups.join("freezer").join(&place.directory)))
            .or_else(|| v2().map(|place| Self::V2(cgroups.join(&place.directory))))
    }

    /// What is written where: to hold it, and to let it go.
    fn words(&self) -> (PathBuf, [&'static str; 2]) {
        match self {
            Self::V1(directory) => (directory.join("freezer.state"), ["FROZEN", "THAWED"]),
            Self::V2(directory) => (directory.join("cgroup.freeze"), ["1", "0"]),
        }
    }

    fn is_still(&self) -> bool {
        let (path, line) = match self {
            Self::V1(directory) => (directory.join("freezer.state"), "FROZEN"),
            Self::V2(directory) => (directory.join("cgroup.events"), "frozen 1"),
        };
        std::fs::read_to_string(path).is_ok_and(|text| text.lines().any(|it| it == line))
    }

    /// Lets it go; one that has gone is as good.
    fn thaw(&self) -> io::Result<()> {
        let (file, [_, thawed]) = self.words();
        match write_existing(&file, thawed) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }
}

/// Never makes a file: beside a group that has gone there is none.
fn write_existing(file: &Path, text: &str) -> io::Result<()> {
    use std::io::Write as _;
    std::fs::OpenOptions::new().write(true).truncate(true).open(file)?.write_all(text.as_bytes())
}

/// Lets go what the list on disk names. Returns how many groups that were.
pub fn let_go(list: &Path) -> usize {
    let held: BTreeSet<Group> = disk::read_or_default(list);
    for group in &held {
        if let Err(error) = group.thaw() {
            warn!(?group, %error, "a job's control group cannot be let go");
        }
    }
    if !held.is_empty() {
        let _ = std::fs::remove_file(list);
    }
    held.len()
}

/// Why a start is not held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotHeld {
    /// A sentence.
    pub why: String,
    /// Others may be held here all the same.
    pub is_of_it_alone: bool,
}

impl NotHeld {
    /// So it would be with everybody on this node.
    pub(super) const fn here(why: String) -> Self {
        Self { why, is_of_it_alone: false }
    }

    /// So it is with this one, now.
    pub(crate) const fn alone(why: String) -> Self {
        Self { why, is_of_it_alone: true }
    }
}

/// Holds groups.
#[derive(Debug)]
pub(super) struct Freezer {
    /// Which are held, for whoever comes after us.
    list: PathBuf,
    held: BTreeSet<Group>,
    /// Guards that end by themselves, and are to be waited for.
    leaving: Vec<Child>,
}

/// A group that stands still, until it is given back to [`Freezer::thaw`] or we die.
#[derive(Debug)]
pub(super) struct Frozen {
    group: Group,
    guard: Child,
}

impl Freezer {
    /// Lets go what an agent before held.
    pub(super) fn new(list: PathBuf) -> Self {
        let count = let_go(&list);
        if count > 0 {
            warn!(count, "an agent before us held jobs; they go on");
        }
        Self { list, held: BTreeSet::new(), leaving: Vec::new() }
    }

    /// Holds a group for so long at most: when this returns all of it stands still, or none of it.
    ///
    /// # Errors
    /// Why it is not held.
    pub(super) fn freeze(&mut self, group: &Group, longest: Duration) -> Result<Frozen, NotHeld> {
        self.reap();
        // Whoever lets it go knows of it before it is held.
        self.held.insert(group.clone());
        let frozen = self.try_freeze(group, longest);
        if frozen.is_err() {
            self.forget(group);
        }
        frozen
    }

    fn try_freeze(&mut self, group: &Group, longest: Duration) -> Result<Frozen, NotHeld> {
        self.write_list().map_err(|error| NotHeld::here(format!("it cannot be written down: {error}")))?;
        let guard = guard(group, longest + GUARD_MARGIN)
            .map_err(|error| NotHeld::here(format!("no guard: {error}")))?;
        let frozen = Frozen { group: group.clone(), guard };
        let (file, [still, _]) = group.words();
        let not_held = match write_existing(&file, still) {
            Ok(()) if stands_still(group) => return Ok(frozen),
            Ok(()) => NotHeld::alone("its processes do not stand still in time".to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound && is_gone(group) => {
                NotHeld::alone("its control group has gone".to_owned())
            }
            Err(error) => NotHeld::here(format!("{}: {error}", file.display())),
        };
        self.release(frozen);
        Err(not_held)
    }

    /// Lets a group go.
    pub(super) fn thaw(&mut self, frozen: Frozen) {
        let group = frozen.group.clone();
        self.release(frozen);
        self.forget(&group);
    }

    fn release(&mut self, Frozen { group, mut guard }: Frozen) {
        match group.thaw() {
            // A guard that lived on would write once more, perhaps when the group is held again.
            Ok(()) => drop(guard.kill()),
            Err(error) => warn!(?group, %error, "a job's control group cannot be let go; its guard tries"),
        }
        drop(guard.stdin.take());
        self.leaving.push(guard);
    }

    fn forget(&mut self, group: &Group) {
        self.held.remove(group);
        if let Err(error) = self.write_list() {
            warn!(path = %self.list.display(), %error, "held groups cannot be written down");
        }
    }

    fn write_list(&self) -> io::Result<()> {
        disk::replace(&self.list, &self.held, false)
    }

    /// Waits for guards that have ended.
    pub(super) fn reap(&mut self) {
        self.leaving.retain_mut(|guard| matches!(guard.try_wait(), Ok(None)));
    }
}

/// Whether the job has ended, as against a kernel that shows no such file.
fn is_gone(group: &Group) -> bool {
    let (Group::V1(directory) | Group::V2(directory)) = group;
    !directory.exists()
}

fn stands_still(group: &Group) -> bool {
    let looks = FREEZING.as_millis() / LOOK.as_millis();
    (0..looks).any(|_| {
        let is_still = group.is_still();
        if !is_still {
            std::thread::sleep(LOOK);
        }
        is_still
    })
}

fn guard(group: &Group, longest: Duration) -> io::Result<Child> {
    let (file, [_, thawed]) = group.words();
    #[expect(
        clippy::disallowed_methods,
        reason = "it acts where this process cannot any more; no Slurm involved"
    )]
    let mut command = Command::new("/bin/sh");
    command.args(["-c", GUARD, "pillion-hold", &longest.as_secs().to_string(), thawed]).arg(file);
    command.env_clear().env("PATH", "/usr/bin:/bin").current_dir("/");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A group as the kernel shows it to whoever looks, with nobody in it.
    fn make(directory: &Path) {
        std::fs::create_dir_all(directory).unwrap();
        std::fs::write(directory.join("cgroup.freeze"), "0").unwrap();
        std::fs::write(directory.join("cgroup.events"), "populated 1\nfrozen 1\n").unwrap();
        std::fs::write(directory.join("freezer.state"), "THAWED\n").unwrap();
    }

    fn text(directory: &Path, name: &str) -> String {
        std::fs::read_to_string(directory.join(name)).unwrap().trim().to_owned()
    }

    fn until(what: &str, mut holds: impl FnMut() -> bool) {
        for _ in 0..2000 {
            if holds() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("it does not come: {what}");
    }

    const LONG: Duration = Duration::from_mins(1);

    #[test]
    fn a_group_is_the_jobs_where_processes_can_be_held() {
        let place = |controllers: &str| JobPlace {
            controllers: controllers.to_owned(),
            directory: PathBuf::from("slurm/uid_1/job_7"),
        };
        let of = |controllers: &[&str]| {
            let places: Vec<JobPlace> = controllers.iter().map(|it| place(it)).collect();
            Group::of(&places, Path::new("/cg"))
        };
        let (v1, v2) = ("/cg/freezer/slurm/uid_1/job_7", "/cg/slurm/uid_1/job_7");
        assert_eq!(of(&["memory", "freezer"]), Some(Group::V1(v1.into())));
        assert_eq!(of(&[""]), Some(Group::V2(v2.into())));
        assert_eq!((of(&["memory"]), of(&[])), (None, None));
    }

    #[test]
    fn a_group_is_held_and_let_go_in_both_versions() {
        let directory = tempfile::tempdir().unwrap();
        let (job, list) = (directory.path().join("job_7"), directory.path().join("held.json"));
        make(&job);
        let mut freezer = Freezer::new(list.clone());
        for (group, file, still, thawed) in [
            (Group::V1(job.clone()), "freezer.state", "FROZEN", "THAWED"),
            (Group::V2(job.clone()), "cgroup.freeze", "1", "0"),
        ] {
            let frozen = freezer.freeze(&group, LONG).unwrap();
            assert_eq!(text(&job, file), still);
            assert_eq!(disk::read_or_default::<BTreeSet<Group>>(&list), BTreeSet::from([group]));
            freezer.thaw(frozen);
            assert_eq!(text(&job, file), thawed);
            assert_eq!(disk::read_or_default::<BTreeSet<Group>>(&list), BTreeSet::new());
        }
        until("the guards end", || {
            freezer.reap();
            freezer.leaving.is_empty()
        });
    }

    #[test]
    fn who_does_not_stand_still_and_who_has_gone_is_not_held() {
        let directory = tempfile::tempdir().unwrap();
        let job = directory.path().join("job_7");
        make(&job);
        std::fs::write(job.join("cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
        let mut freezer = Freezer::new(directory.path().join("held.json"));
        let refused = freezer.freeze(&Group::V2(job.clone()), LONG).unwrap_err();
        assert_eq!(refused, NotHeld::alone("its processes do not stand still in time".to_owned()));
        assert_eq!(text(&job, "cgroup.freeze"), "0");
        let gone = directory.path().join("job_8");
        assert!(freezer.freeze(&Group::V2(gone.clone()), LONG).unwrap_err().is_of_it_alone);
        assert!(!gone.exists() && freezer.held.is_empty());
        let mut nowhere = Freezer::new(PathBuf::from("/proc/nowhere/held.json"));
        let unwritten = nowhere.freeze(&Group::V2(job.clone()), LONG).unwrap_err();
        assert!(unwritten.why.contains("written down") && !unwritten.is_of_it_alone, "{unwritten:?}");
        assert_eq!(text(&job, "cgroup.freeze"), "0", "nobody after us would know of it");
        std::fs::remove_file(job.join("cgroup.freeze")).unwrap();
        let without = freezer.freeze(&Group::V2(job.clone()), LONG).unwrap_err();
        assert!(!without.is_of_it_alone, "a kernel that holds nobody: {without:?}");
    }

    #[test]
    fn an_agent_that_dies_lets_go() {
        let directory = tempfile::tempdir().unwrap();
        let (job, list) = (directory.path().join("job_7"), directory.path().join("held.json"));
        make(&job);
        let frozen = Freezer::new(list.clone()).freeze(&Group::V2(job.clone()), LONG).unwrap();
        // As the kernel does with the pipes of one that is killed.
        drop(frozen);
        until("its guard", || text(&job, "cgroup.freeze") == "0");
        // Without any guard, the unit or the next agent.
        std::fs::write(job.join("cgroup.freeze"), "1").unwrap();
        assert_eq!(let_go(&list), 1);
        assert_eq!((text(&job, "cgroup.freeze"), let_go(&list)), ("0".to_owned(), 0));
    }

    #[test]
    fn an_agent_that_is_stopped_keeps_nobody_longer_than_its_guard() {
        let directory = tempfile::tempdir().unwrap();
        let job = directory.path().join("job_7");
        make(&job);
        let mut freezer = Freezer::new(directory.path().join("held.json"));
        let frozen = freezer.freeze(&Group::V2(job.clone()), Duration::ZERO).unwrap();
        assert_eq!(text(&job, "cgroup.freeze"), "1");
        until("its time", || text(&job, "cgroup.freeze") == "0");
        freezer.thaw(frozen);
    }
}
