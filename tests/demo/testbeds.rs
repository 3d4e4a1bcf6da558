//! Two testbeds side by side on one machine, each with a cluster's processes under the same path: whatever is ended in the one,
//! the other does not notice, and from the machine nobody takes either for his own.

use pillion_tests::cluster::sweep::processes_of;
use pillion_tests::process::{Daemon, Program};
use pillion_tests::wait::{Look, wait_for};
use std::path::{Path, PathBuf};
use std::time::Duration;

const CLUSTER: &str = "/run/testbed/c1";
/// One process that stands in the cluster's folder and one that has it in its environment, as daemons do. Not in the command
/// itself: outside it would be that of the outer process.
const COMMAND: &str = "c=/run/testbed/c$((0 + 1)); mkdir -p $c; (cd $c && exec env -i sleep 600) & \
    SLURM_CONF=$c/conf/slurm.conf sleep 600; exec sleep 600";
const COUNT: &str = "grep -lszE '^SLURM_CONF=/run/testbed/c1/' /proc/[0-9]*/environ | wc -l; \
    readlink /proc/[0-9]*/cwd | grep -c ^/run/testbed/c1";
const SOON: Duration = Duration::from_secs(30);

struct Testbed {
    pid_file: PathBuf,
    outer: Daemon,
}

fn testbed(words: &[&str]) -> Program {
    Program::new(env!("CARGO_BIN_EXE_pillion-testbed")).inherit_environment().args(words.iter().copied())
}

impl Testbed {
    fn start(folder: &Path, name: &str) -> Self {
        let pid_file = folder.join(name);
        let file = pid_file.display().to_string();
        let enter = testbed(&["enter", "--pid-file", &file, "--with-parent", "--", "bash", "-c", COMMAND]);
        let outer = enter.daemon(name, &folder.join(format!("{name}.log"))).unwrap();
        let started = Self { pid_file, outer };
        wait_for(&format!("processes of {name}"), SOON, || {
            let seen = started.join(&["bash", "-c", COUNT]).output()?;
            let seen = String::from_utf8_lossy(&seen.stdout).into_owned();
            Ok(if seen == "1\n1\n" { Look::Ready(()) } else { Look::NotYet(seen) })
        })
        .unwrap();
        started
    }

    fn join(&self, words: &[&str]) -> Program {
        let file = self.pid_file.display().to_string();
        testbed(&["join", "--pid-file", &file, "--"]).args(words.iter().copied())
    }

    /// How many processes name the cluster, and how many stand in its folder.
    fn counts(&self) -> String {
        let printed = self.join(&["bash", "-c", COUNT]).output().unwrap();
        String::from_utf8_lossy(&printed.stdout).into_owned()
    }
}

#[test]
fn two_testbeds_side_by_side_leave_each_other_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut one = Testbed::start(folder.path(), "one");
    let mut two = Testbed::start(folder.path(), "two");
    // The machine sees the processes of both, and has no cluster.
    assert_eq!(processes_of(Path::new(CLUSTER)), []);
    let on_the_machine = testbed(&["sweep", CLUSTER]).env("PILLION_TESTBED", "1").output().unwrap();
    assert!(!on_the_machine.status.success(), "a variable alone makes no testbed");
    assert_eq!((one.counts(), two.counts()), ("1\n1\n".to_owned(), "1\n1\n".to_owned()));

    one.join(&["pillion-testbed", "sweep", CLUSTER]).stdout().unwrap();
    assert_eq!((one.counts(), two.counts()), ("0\n0\n".to_owned(), "1\n1\n".to_owned()));

    let mut third = Testbed::start(folder.path(), "third");
    let file = two.pid_file.display().to_string();
    testbed(&["down", "--pid-file", &file]).stdout().unwrap();
    assert_eq!(third.counts(), "1\n1\n", "the end of two is not the end of the third");
    assert!(two.outer.ended().is_some() && third.outer.ended().is_none() && one.outer.ended().is_none());
}
