//! deploy/ansible as it is, played by ansible-core on the machines: check mode, twice, a mistake, and out again.

use crate::quickstart::edit_slurm_conf;
use crate::site::{SLURM_CONF, Site, given};
use crate::{CONFIG, DEVICES, SCHEDULER, files_of_setup, of_setup, state_of};
use pillion_tests::daemons::checkout;
use pillion_tests::machine::Machine;
use pillion_tests::process::Program;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const ABSENT: &str = r#"{"pillion_state": "absent"}"#;
const SUBMIT: &str = r#"{"pillion_role": "submit"}"#;
const GONE: &str = r#"{"pillion_state": "absent", "pillion_remove_packages": true}"#;

/// What a play did to a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Recap {
    changed_count: u32,
    failed_count: u32,
}

const NOTHING: Recap = Recap { changed_count: 0, failed_count: 0 };

struct Play<'a> {
    site: &'a Site,
    folder: tempfile::TempDir,
}

impl<'a> Play<'a> {
    fn new(site: &'a Site) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let host = |name: &str, more: Value| {
            let mut variables = json!({
                "ansible_become": false,
                "ansible_connection": "machine",
                "ansible_python_interpreter": "/usr/bin/python3",
                "machine_process": site.machine(name).process_one(),
                "pillion_apt_line": "deb [trusted=yes] file:///srv/pillion ./",
            });
            let more = more.as_object().unwrap().clone();
            variables.as_object_mut().unwrap().extend(more);
            (name.to_owned(), variables)
        };
        let hosts: serde_json::Map<String, Value> = [
            host("controller", json!({"pillion_role": "controller", "pillion_nodes": "n1"})),
            host("n1", json!({"pillion_role": "node", "pillion_backend": "simulated"})),
            host("n2", json!({"pillion_role": "other"})),
        ]
        .into_iter()
        .collect();
        let inventory = json!({"pillion": {"hosts": hosts}}).to_string();
        std::fs::write(folder.path().join("inventory.json"), inventory).unwrap();
        Self { site, folder }
    }

    /// Plays it on these hosts; what it did to each, and what it said.
    fn plays(&self, hosts: &str, variables: &str, options: &[&str]) -> (BTreeMap<String, Recap>, String) {
        let (role, own) = (checkout().join("deploy/ansible"), checkout().join("tests/install/ansible"));
        let played = Program::new(given("PILLION_ANSIBLE").join("bin/python"))
            .args(["-m", "ansible", "playbook", "--inventory"])
            .arg(self.folder.path().join("inventory.json"))
            .args(["--limit", hosts, "--extra-vars", variables])
            .args(options.iter().copied())
            .arg(role.join("site.yml"))
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("LC_ALL", "C.UTF-8")
            .env("HOME", self.folder.path())
            .env("ANSIBLE_HOME", self.folder.path())
            .env("ANSIBLE_LOCAL_TEMP", self.folder.path())
            .env("ANSIBLE_CONNECTION_PLUGINS", own)
            .env("ANSIBLE_PIPELINING", "1")
            .env("ANSIBLE_NOCOLOR", "1")
            // Or the checkout would hold what Python makes of the connection.
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&played.stdout).into_owned();
        let warned = String::from_utf8_lossy(&played.stderr).into_owned();
        let recaps = said.split_once("PLAY RECAP").map(|(_, after)| after).unwrap_or_default();
        let recaps = recaps.lines().filter_map(recap).collect::<BTreeMap<_, _>>();
        assert!(!recaps.is_empty(), "{said}\n{warned}\n{}", self.site.logs());
        (recaps, said)
    }

    /// Plays it where nothing may fail.
    fn goes_well(&self, hosts: &str, variables: &str, options: &[&str]) -> BTreeMap<String, Recap> {
        let (recaps, said) = self.plays(hosts, variables, options);
        let is_well = recaps.values().all(|recap| recap.failed_count == 0);
        assert!(is_well, "{said}\n{}", self.site.logs());
        recaps
    }

    fn changes_nothing(&self, hosts: &str, variables: &str, options: &[&str]) {
        let (recaps, said) = self.plays(hosts, variables, options);
        assert!(recaps.values().all(|recap| *recap == NOTHING), "{said}");
    }
}

/// `n1 : ok=3 changed=0 unreachable=0 failed=0 ..`
fn recap(line: &str) -> Option<(String, Recap)> {
    let (host, counts) = line.split_once(':')?;
    let count = |name: &str| {
        let value = counts.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        value.and_then(|value| value.parse::<u32>().ok())
    };
    let failed_count = count("failed")? + count("unreachable")?;
    Some((host.trim().to_owned(), Recap { changed_count: count("changed")?, failed_count }))
}

/// Slurm's files and ours, what of ours is enabled, and which packages are there.
fn picture(machine: &Machine) -> String {
    of_setup(machine) + &machine.types("dpkg-query -W 'pillion*' 2>&1 || true").unwrap()
}

fn pictures(site: &Site) -> Vec<String> {
    site.machines().map(picture).collect()
}

/// From three hosts that have never heard of it to two devices that the scheduler knows; what setup found on each host.
fn bring(site: &Site, play: &Play<'_>) -> Vec<String> {
    let bare = pictures(site);
    play.goes_well("all", "{}", &["--check", "--diff"]);
    assert_eq!(pictures(site), bare, "check mode changes nothing");
    play.goes_well("all", "{}", &["--tags", "packages"]);
    // Before the pool's partition is made setup says what is first, and does nothing.
    let before = of_setup(&site.controller);
    let (recaps, said) = play.plays("controller", "{}", &[]);
    assert_eq!(recaps["controller"], Recap { changed_count: 0, failed_count: 1 }, "{said}");
    assert!(said.contains("take n1 out of it"), "{said}");
    assert_eq!(of_setup(&site.controller), before);

    edit_slurm_conf(&site.controller);
    let mut found = vec![files_of_setup(&site.controller)];
    let would = play.goes_well("controller", "{}", &["--check"]);
    assert!(would["controller"].changed_count > 0, "check mode says that something would change");
    assert_eq!(files_of_setup(&site.controller), found[0], "check mode changes nothing");
    play.goes_well("controller", "{}", &[]);
    site.bring_slurm_files(&["slurm.conf", "gres.conf"]);
    found.extend(site.nodes.iter().map(files_of_setup));
    site.machine("n1").writes("/etc/pillion/devices.toml", DEVICES).unwrap();
    site.machine("n1").types("systemctl enable --now pillion-simulated-device").unwrap();
    play.goes_well("n1", "{}", &[]);
    play.goes_well("n2", SUBMIT, &[]);
    site.restarts_slurm();
    site.wait_for_agent();
    found
}

/// A configuration of one's own: a mistake is refused before it is written, and a change restarts our service once.
fn configure(site: &Site, play: &Play<'_>) {
    let controller = &site.controller;
    let before = (of_setup(controller), state_of(controller, SCHEDULER, "MainPID"));
    let text = controller.types(&format!("cat {CONFIG}")).unwrap();
    let wrong = json!({"pillion_config": text.replace("mode = \"off\"", "mode = \"of\"")}).to_string();
    let (recaps, said) = play.plays("controller", &wrong, &[]);
    assert_eq!(recaps["controller"].failed_count, 1, "{said}");
    assert_eq!((of_setup(controller), state_of(controller, SCHEDULER, "MainPID")), before, "{said}");
    let right = json!({"pillion_config": format!("# Ours.\n{text}")}).to_string();
    let recaps = play.goes_well("controller", &right, &[]);
    assert_eq!(recaps["controller"].changed_count, 2, "the file and the restart");
    assert_ne!(state_of(controller, SCHEDULER, "MainPID"), before.1);
    let rights = controller.types(&format!("stat -c '%a %U %G' {CONFIG}")).unwrap();
    assert_eq!(rights.trim(), "640 root slurm", "as setup made it");
    play.changes_nothing("controller", &right, &[]);
}

/// Who has changed a file since keeps it, and the packages with it.
fn refuse(site: &Site, play: &Play<'_>) {
    let made = picture(&site.controller);
    site.controller.types(&format!("cp -a {SLURM_CONF} /root/ && echo '# by hand' >>{SLURM_CONF}")).unwrap();
    let (recaps, said) = play.plays("controller", GONE, &[]);
    assert_eq!(recaps["controller"], Recap { changed_count: 0, failed_count: 1 }, "{said}");
    assert!(said.contains("was changed by somebody else since setup"), "{said}");
    site.controller.types(&format!("cp -a /root/slurm.conf {SLURM_CONF}")).unwrap();
    assert_eq!(picture(&site.controller), made, "{said}");
}

#[test]
fn the_ansible_role_brings_it_changes_nothing_twice_and_takes_it_out() {
    let site = Site::new();
    let play = Play::new(&site);
    let found = bring(&site, &play);
    play.changes_nothing("all", "{}", &["--check"]);
    play.changes_nothing("all", "{}", &[]);
    play.changes_nothing("n2", SUBMIT, &[]);
    configure(&site, &play);
    refuse(&site, &play);

    let there = pictures(&site);
    play.goes_well("all", ABSENT, &["--check"]);
    assert_eq!(pictures(&site), there, "check mode changes nothing");
    play.goes_well("n2", r#"{"pillion_role": "submit", "pillion_state": "absent"}"#, &[]);
    play.goes_well("all", GONE, &[]);
    play.changes_nothing("all", GONE, &[]);
    for (machine, found) in site.machines().zip(found) {
        let left = machine.types("dpkg-query -W -f '${db:Status-Status}\\n' 'pillion-slurm'").unwrap();
        assert_ne!(left.trim(), "installed", "{}", machine.name());
        // Our configuration was edited on the controller, and stays there.
        machine.types(&format!("if head -n 1 {CONFIG} | grep -q '# Ours'; then rm {CONFIG}; fi")).unwrap();
        assert_eq!(files_of_setup(machine), found, "{}", machine.name());
    }
}
