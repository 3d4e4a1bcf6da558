//! Upgrades of a Slurm, played with plugins that are real: ours, stamped, stands in for one of Slurm's, which is told by the same
//! symbol.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

use pillion_config::slurm_files::plugin_version;
use pillion_slurm_spank::stamp::stamp;
use pillion_slurm_spank::version::SlurmVersion;
use pillion_spank_follow::{Places, follow};
use std::fs;
use std::path::{Path, PathBuf};

struct Machine {
    folder: tempfile::TempDir,
    places: Places,
}

impl Machine {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let copies = folder.path().join("pillion");
        fs::create_dir(&copies).unwrap();
        let built = copies.join("libpillion_slurm_spank.so");
        fs::copy(plugin(), &built).unwrap();
        let slurms = vec![folder.path().join("usr"), folder.path().join("opt")];
        let releases = vec![folder.path().join("site")];
        Self { places: Places { built, copies, slurms, releases }, folder }
    }

    /// What a package of that Slurm leaves in a folder; without a version, nothing.
    fn installs(&self, folder: &str, version: Option<&str>) {
        let folder = self.folder.path().join(folder);
        let _ = fs::remove_dir_all(&folder);
        let Some(version) = version.map(|it| SlurmVersion::parse(it).unwrap()) else { return };
        fs::create_dir_all(&folder).unwrap();
        let mut bytes = fs::read(&self.places.built).unwrap();
        stamp(&mut bytes, version).unwrap();
        fs::write(folder.join("select_cons_tres.so"), bytes).unwrap();
    }

    fn follows(&self) -> Vec<String> {
        follow(&self.places).unwrap()
    }

    fn copies(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.places.copies).unwrap().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names.retain(|name| name.starts_with("pillion"));
        names
    }

    /// Of which Slurm the plugin is that plugstack.conf names.
    fn linked(&self) -> Result<(u32, u32), String> {
        plugin_version(&self.places.copies.join("pillion.so"))
    }
}

/// Beside this test, where cargo built it.
fn plugin() -> PathBuf {
    let this = std::env::current_exe().unwrap();
    this.parent().map(Path::to_owned).unwrap().join("libpillion_slurm_spank.so")
}

#[test]
fn the_plugin_follows_slurm_through_upgrades() {
    let machine = Machine::new();
    assert_eq!(machine.follows(), Vec::<String>::new(), "there is no Slurm yet");
    machine.installs("usr", Some("24.11"));
    assert_eq!(machine.follows(), ["stamped for Slurm 24.11", "pillion.so is the one of Slurm 24.11"]);
    assert_eq!(machine.linked(), Ok((24, 11)));
    assert_eq!(machine.follows(), Vec::<String>::new(), "nothing has changed");

    machine.installs("usr", Some("25.05"));
    machine.follows();
    assert_eq!(machine.linked(), Ok((25, 5)));
    assert_eq!(machine.copies(), ["pillion-24.11.so", "pillion-25.05.so", "pillion.so"]);

    // A Slurm that is removed before its successor comes, and one that a site built for itself.
    machine.installs("usr", None);
    assert_eq!(machine.follows(), Vec::<String>::new());
    assert_eq!(machine.linked(), Ok((25, 5)));
    machine.installs("opt", Some("25.11"));
    machine.follows();
    assert_eq!(machine.linked(), Ok((25, 11)));
    assert_eq!(machine.copies(), ["pillion-25.05.so", "pillion-25.11.so", "pillion.so"]);
}

#[test]
fn a_new_plugin_is_stamped_for_all() {
    let machine = Machine::new();
    machine.installs("usr", Some("24.11"));
    machine.installs("opt", Some("25.05"));
    let said = machine.follows();
    assert!(said.last().unwrap().contains("pillion-24.11.so, pillion-25.05.so"), "{said:?}");
    let mut newer = fs::read(&machine.places.built).unwrap();
    newer.extend(b"newer");
    fs::write(&machine.places.built, newer).unwrap();
    let said = machine.follows();
    assert_eq!(said[..2], ["stamped for Slurm 24.11", "stamped for Slurm 25.05"]);
}

/// What cannot be stamped leaves what is there alone.
#[test]
fn a_file_that_is_no_plugin_changes_nothing() {
    let machine = Machine::new();
    machine.installs("usr", Some("24.11"));
    machine.follows();
    machine.installs("usr", Some("25.05"));
    fs::write(&machine.places.built, "text").unwrap();
    let error = format!("{:#}", follow(&machine.places).unwrap_err());
    assert!(error.contains("not a built pillion SPANK plugin"), "{error}");
    assert_eq!(machine.linked(), Ok((24, 11)));
    assert_eq!(machine.copies(), ["pillion-24.11.so", "pillion.so"]);
}

/// A site that builds Slurm for itself has one in a folder of each release, and turns a link from one to the next.
#[test]
fn the_plugin_follows_the_link_of_a_site_among_its_releases() {
    let machine = Machine::new();
    let site = machine.folder.path().join("site");
    let turns_to = |release: &str| {
        let _ = fs::remove_file(site.join("current"));
        std::os::unix::fs::symlink(release, site.join("current")).unwrap();
    };
    machine.installs("site/24.11.5/lib/slurm", Some("24.11"));
    machine.follows();
    assert_eq!(machine.linked(), Ok((24, 11)), "without a link the only one that there is");
    turns_to("24.11.5");
    machine.installs("site/25.05.3/lib64/slurm", Some("25.05"));
    assert_eq!(machine.follows(), ["stamped for Slurm 25.05"], "its site has not gone over yet");
    assert_eq!(machine.linked(), Ok((24, 11)));
    turns_to("25.05.3");
    assert_eq!(machine.follows(), ["pillion.so is the one of Slurm 25.05"]);
    turns_to("24.11.5");
    assert_eq!(machine.follows(), ["pillion.so is the one of Slurm 24.11"], "and back");
    // A link that leads nowhere takes nothing away.
    turns_to("25.11.0");
    assert_eq!(
        machine.follows(),
        [
            "several Slurms are installed: name pillion-24.11.so, pillion-25.05.so in the plugstack.conf of each"
        ]
    );
    assert_eq!(machine.linked(), Ok((24, 11)));
}
