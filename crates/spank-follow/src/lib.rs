//! The SPANK plugin follows Slurm: one built plugin, a copy of it stamped for each Slurm that is installed, and a link that
//! `plugstack.conf` names. Packages run it whenever a folder of Slurm's plugins changes. It must not know what the plugin does.
//!
//! Slurm refuses a plugin of another release, and every script with `#SBATCH --colocate` with it. So what is there is only ever
//! replaced whole, by a rename, and nothing is taken away before its successor is in place.

pub mod plan;

use anyhow::{Context as _, Result, ensure};
use pillion_config::slurm_files::plugin_version;
use pillion_slurm_spank::stamp::stamp;
use pillion_slurm_spank::version::SlurmVersion;
use plan::{Found, Plan, Release, plan, shown};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Where Slurm's plugins lie: Debian and Ubuntu, EL and SLES, Slurm's own default, and sites that build it for themselves.
pub const PLUGIN_FOLDERS: [&str; 9] = [
    "/usr/lib/x86_64-linux-gnu/slurm-wlm",
    "/usr/lib/aarch64-linux-gnu/slurm-wlm",
    "/usr/lib/x86_64-linux-gnu/slurm",
    "/usr/lib/aarch64-linux-gnu/slurm",
    "/usr/lib64/slurm",
    "/usr/lib/slurm",
    "/usr/local/lib/slurm",
    "/opt/slurm/lib/slurm",
    "/opt/slurm/lib64/slurm",
];
/// Where sites that build Slurm for themselves have a folder for each release, and often a link to the one that runs.
pub const RELEASES_FOLDERS: [&str; 1] = ["/opt/slurm"];
/// What such a link is called; the first that is there counts.
const CURRENT: [&str; 2] = ["current", "default"];
/// Where a release has its plugins below its own folder.
const PLUGINS_OF_A_RELEASE: [&str; 2] = ["lib/slurm", "lib64/slurm"];
/// Plugins that every Slurm has, clients' included: they say which one it is.
const TELLING: [&str; 3] = ["hash_k12.so", "select_cons_tres.so", "auth_munge.so"];
/// What plugstack.conf names.
const LINK: &str = "pillion.so";

/// The folders of one run.
#[derive(Debug, Clone)]
pub struct Places {
    /// The plugin as it was built.
    pub built: PathBuf,
    /// Where the copies and the link are.
    pub copies: PathBuf,
    /// Where a Slurm may have its plugins.
    pub slurms: Vec<PathBuf>,
    /// Folders that may have one of each release of Slurm.
    pub releases: Vec<PathBuf>,
}

/// Makes the copies and the link what they are to be; what it did, a sentence each.
///
/// # Errors
/// Where the built plugin cannot be read or is none, and where a copy cannot be written; those that were there are then untouched.
pub fn follow(places: &Places) -> Result<Vec<String>> {
    let built = fs::read(&places.built).with_context(|| format!("reading {}", places.built.display()))?;
    let found = look(places)?;
    let Plan { stamped, removed, linked } = plan(&found);
    let mut said = Vec::new();
    for release in stamped {
        if stamp_one(&built, places, release)? {
            said.push(format!("stamped for Slurm {}", shown(release)));
        }
    }
    if let Some(release) = linked.filter(|release| Some(*release) != found.linked) {
        link(places, release)?;
        said.push(format!("{LINK} is the one of Slurm {}", shown(release)));
    }
    for release in removed {
        let path = copy_path(places, release);
        fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
        said.push(format!("removed the one of Slurm {}", shown(release)));
    }
    if found.installed.len() > 1 && found.current.is_none() {
        let names: Vec<String> = found.installed.iter().map(|release| copy_name(*release)).collect();
        said.push(format!(
            "several Slurms are installed: name {} in the plugstack.conf of each",
            names.join(", ")
        ));
    }
    Ok(said)
}

/// The releases whose plugins lie in these folders.
fn installed(folders: &[PathBuf]) -> BTreeSet<Release> {
    folders.iter().filter_map(|folder| release_in(folder)).collect()
}

/// The folders of plugins below each release's own folder.
fn folders_of_releases(releases: &[PathBuf]) -> Vec<PathBuf> {
    // A folder that is not there has no releases.
    let entries = releases.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    entries.flat_map(|entry| PLUGINS_OF_A_RELEASE.map(|plugins| entry.path().join(plugins))).collect()
}

/// The release that a site says is the one that runs, by a link beside the folders of all.
fn current(releases: &[PathBuf]) -> Option<Release> {
    let mut links = CURRENT.iter().flat_map(|name| releases.iter().map(move |folder| folder.join(name)));
    let link = links.find(|path| path.is_symlink())?;
    PLUGINS_OF_A_RELEASE.iter().find_map(|plugins| release_in(&link.join(plugins)))
}

/// Which release a folder of plugins is of.
fn release_in(folder: &Path) -> Option<Release> {
    let mut told = TELLING.iter().filter_map(|name| plugin_version(&folder.join(name)).ok());
    let (major, minor) = told.next()?;
    Some((u8::try_from(major).ok()?, u8::try_from(minor).ok()?))
}

fn look(places: &Places) -> Result<Found> {
    let mut copies: Vec<(SystemTime, Release)> = Vec::new();
    let entries =
        fs::read_dir(&places.copies).with_context(|| format!("reading {}", places.copies.display()))?;
    for entry in entries.flatten() {
        if let Some(release) = release_of(&entry.path()) {
            copies.push((entry.metadata()?.modified()?, release));
        }
    }
    copies.sort_unstable_by(|one, other| other.cmp(one));
    let linked = fs::read_link(places.copies.join(LINK)).ok().and_then(|target| release_of(&target));
    let copies = copies.into_iter().map(|(_, release)| release).collect();
    let mut folders = places.slurms.clone();
    folders.extend(folders_of_releases(&places.releases));
    Ok(Found { installed: installed(&folders), current: current(&places.releases), copies, linked })
}

fn copy_name((major, minor): Release) -> String {
    format!("pillion-{}.so", SlurmVersion { major, minor })
}

fn copy_path(places: &Places, release: Release) -> PathBuf {
    places.copies.join(copy_name(release))
}

/// Whose copy a path is.
fn release_of(path: &Path) -> Option<Release> {
    let name = path.file_name()?.to_str()?.strip_prefix("pillion-")?.strip_suffix(".so")?;
    let SlurmVersion { major, minor } = SlurmVersion::parse(name)?;
    (copy_name((major, minor)) == path.file_name()?.to_str()?).then_some((major, minor))
}

/// Whether it was not there as it is now.
fn stamp_one(built: &[u8], places: &Places, release: Release) -> Result<bool> {
    let (major, minor) = release;
    let mut bytes = built.to_vec();
    stamp(&mut bytes, SlurmVersion { major, minor })
        .with_context(|| format!("stamping {}", places.built.display()))?;
    let path = copy_path(places, release);
    if fs::read(&path).is_ok_and(|there| there == bytes) {
        return Ok(false);
    }
    let new = path.with_extension("so.new");
    fs::write(&new, bytes).with_context(|| format!("writing {}", new.display()))?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o644))
        .with_context(|| format!("opening {} to all", new.display()))?;
    let told = plugin_version(&new);
    ensure!(told == Ok((u32::from(major), u32::from(minor))), "{} says of itself: {told:?}", new.display());
    fs::rename(&new, &path).with_context(|| format!("putting {} in place", path.display()))?;
    Ok(true)
}

fn link(places: &Places, release: Release) -> Result<()> {
    let (link, new) = (places.copies.join(LINK), places.copies.join(format!("{LINK}.new")));
    // What is left of a run that was cut off.
    let _ = fs::remove_file(&new);
    std::os::unix::fs::symlink(copy_name(release), &new)
        .with_context(|| format!("linking {}", new.display()))?;
    fs::rename(&new, &link).with_context(|| format!("putting {} in place", link.display()))
}
