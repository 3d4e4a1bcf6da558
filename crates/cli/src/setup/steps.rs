//! What is done, one step after the other: each is durable by itself, so that whatever ends this between two of them leaves a
//! host on which the same command goes on, and from which an undo comes back.

use super::file::{self, Made};
use super::plan::Plan;
use super::record::{Kept, Record};
use crate::config::CONFIG_PATH;
use crate::error::CliError;
use crate::program::{UNIT_DEADLINE, run_within};
use std::path::{Path, PathBuf};

/// Copies and record are root's alone.
const OURS: Made = Made { mode: 0o600, gid: None };

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A file is put where `before` is; `None` on either side: there is none.
    Replace { path: PathBuf, before: Option<Vec<u8>>, after: Option<Vec<u8>>, made: Made },
    /// What a run that was cut off left beside a file goes.
    ClearBeside { path: PathBuf },
    /// A unit is enabled and started, or neither.
    Unit { name: String, is_on: bool },
}

/// The way back.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Undo {
    pub steps: Vec<Step>,
    /// A sentence for each file that stays as somebody else made it.
    pub left: Vec<String>,
}

/// The steps of a plan. `folder`: where record and copies lie; `record`: what was done before.
///
/// # Errors
/// [`CliError`] where a copy cannot be read.
pub fn do_steps(plan: &Plan, record: &Record, folder: &Path) -> Result<Vec<Step>, CliError> {
    if plan.files.is_empty() && plan.units.is_empty() {
        return Ok(Vec::new());
    }
    let mut next = record.clone();
    let mut copies = Vec::new();
    for change in &plan.files {
        let before = change.before.as_ref().map(|text| text.as_bytes().to_vec());
        let known = next.files.iter().position(|kept| kept.path == change.path);
        let at = known.unwrap_or(next.files.len());
        if let Some(kept) = next.files.get_mut(at) {
            kept.is_edited |= !is_ours(kept, folder, before.as_deref())?;
        } else {
            let name = before.as_ref().map(|_| format!("{at}.before"));
            copies.extend(name.clone().zip(before));
            let path = change.path.clone();
            next.files.push(Kept { path, before: name, afters: Vec::new(), is_edited: false });
        }
        // Of a run that was cut off it is there already.
        if !is_made(&next.files[at], folder, change.after.as_bytes())? {
            let name = format!("{at}.after-{}", next.files[at].afters.len());
            copies.push((name.clone(), change.after.as_bytes().to_vec()));
            next.files[at].afters.push(name);
        }
    }
    let units = plan.units.iter().filter(|unit| !unit.is_enabled).map(|unit| &unit.name);
    next.units.extend(units.filter(|name| !record.units.contains(name)).cloned());
    next.partitions.extend(plan.partition.clone().filter(|name| !record.partitions.contains(name)));
    let mut steps = Vec::new();
    for (name, bytes) in copies {
        steps.extend(written(folder.join(name), bytes)?);
    }
    let (path, bytes) = next.written(folder);
    steps.extend(written(path, bytes)?);
    steps.extend(plan.files.iter().map(|change| Step::Replace {
        path: change.path.clone(),
        before: change.before.as_ref().map(|text| text.as_bytes().to_vec()),
        after: Some(change.after.as_bytes().to_vec()),
        made: change.made,
    }));
    steps.extend(plan.units.iter().map(|unit| Step::Unit { name: unit.name.clone(), is_on: true }));
    Ok(steps)
}

/// The steps back: units off, each file as it was, the last one first; then what was kept goes.
///
/// # Errors
/// [`CliError::Data`] where somebody changed a file of Slurm's since: then nothing is undone. Our own configuration, which names
/// none of them, stays where somebody changed it.
pub fn undo_steps(record: &Record, folder: &Path) -> Result<Undo, CliError> {
    let (mut files, mut left) = (Vec::new(), Vec::new());
    for kept in record.files.iter().rev() {
        let path = &kept.path;
        let now = file::read(path).map_err(CliError::file("read", path))?;
        let before = copy(folder, kept.before.as_deref())?;
        files.push(Step::ClearBeside { path: path.clone() });
        if path.ends_with(CONFIG_PATH.trim_start_matches('/')) && !is_ours(kept, folder, now.as_deref())? {
            left.push(format!("{} was changed since setup made it: it stays", path.display()));
            continue;
        }
        if kept.is_edited || !is_ours(kept, folder, now.as_deref())? || is_link(path) {
            let was = kept.before.as_ref().map_or_else(
                || "before the first run there was none".to_owned(),
                |name| format!("what it was before the first run is {}", folder.join(name).display()),
            );
            return Err(CliError::Data(format!(
                "{} was changed by somebody else since setup, so nothing is undone: take the lines out by hand ({was})",
                path.display()
            )));
        }
        if now != before {
            files.push(Step::Replace { path: path.clone(), before: now, after: before, made: OURS });
        }
    }
    let off = |unit: &String| Step::Unit { name: unit.clone(), is_on: false };
    let mut steps: Vec<Step> = record.units.iter().rev().map(off).collect();
    steps.extend(files);
    let (path, _) = record.written(folder);
    let names = record.files.iter().flat_map(|kept| kept.before.iter().chain(&kept.afters));
    // The record first: without it the copies are nothing that anybody goes by.
    for path in std::iter::once(path).chain(names.map(|name| folder.join(name))) {
        let before = file::read(&path).map_err(CliError::file("read", &path))?;
        if before.is_some() {
            steps.push(Step::Replace { path, before, after: None, made: OURS });
        }
    }
    Ok(Undo { steps, left })
}

/// Carries a step out.
///
/// # Errors
/// [`CliError`], one sentence; then nothing of this step is done.
pub async fn carry_out(step: &Step, systemctl: &Path) -> Result<(), CliError> {
    match step {
        Step::Replace { path, before, after, made } => {
            if let Some(folder) = path.parent().filter(|folder| !folder.exists()) {
                make_folder(folder, *made)?;
            }
            let done = file::replace(path, before.as_deref(), after.as_deref(), *made);
            done.map_err(|error| match error.kind() {
                std::io::ErrorKind::WouldBlock => CliError::Data(format!("{}: {error}", path.display())),
                _ => CliError::file("write", path)(error),
            })
        }
        Step::ClearBeside { path } => file::clear_beside(path).map_err(CliError::file("write", path)),
        Step::Unit { name, is_on } => {
            let word = if *is_on { "enable" } else { "disable" };
            match run_within(systemctl, &[word, "--now", name], UNIT_DEADLINE).await {
                Ok(said) if said.succeeded => Ok(()),
                Ok(_) => Err(CliError::Data(format!(
                    "'systemctl {word} --now {name}' failed: see 'systemctl status {name}', then run this again"
                ))),
                Err(why) => Err(CliError::Data(format!("cannot {word} {name}: {why}"))),
            }
        }
    }
}

fn make_folder(folder: &Path, made: Made) -> Result<(), CliError> {
    use std::os::unix::fs::DirBuilderExt as _;
    let rights = if made == OURS { 0o700 } else { 0o755 };
    let done = std::fs::DirBuilder::new().recursive(true).mode(rights).create(folder);
    done.map_err(CliError::file("write", folder))?;
    // What lies in it is synced with it; that it is there, with the folder above.
    file::sync_folder(folder).map_err(CliError::file("write", folder))
}

/// A file of ours, unless it is there already.
fn written(path: PathBuf, bytes: Vec<u8>) -> Result<Option<Step>, CliError> {
    let before = file::read(&path).map_err(CliError::file("read", &path))?;
    Ok((before.as_ref() != Some(&bytes)).then_some(Step::Replace {
        path,
        before,
        after: Some(bytes),
        made: OURS,
    }))
}

/// Whether a file is as it was before setup, or as setup made it at some time.
fn is_ours(kept: &Kept, folder: &Path, now: Option<&[u8]>) -> Result<bool, CliError> {
    if copy(folder, kept.before.as_deref())?.as_deref() == now {
        return Ok(true);
    }
    now.map_or(Ok(false), |now| is_made(kept, folder, now))
}

/// Whether setup made this of it at some time.
fn is_made(kept: &Kept, folder: &Path, bytes: &[u8]) -> Result<bool, CliError> {
    for name in &kept.afters {
        if copy(folder, Some(name))?.as_deref() == Some(bytes) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What a copy holds. One that the record names and that is gone is not nothing.
fn copy(folder: &Path, name: Option<&str>) -> Result<Option<Vec<u8>>, CliError> {
    let Some(name) = name else { return Ok(None) };
    let path = folder.join(name);
    match file::read(&path).map_err(CliError::file("read", &path))? {
        Some(bytes) => Ok(Some(bytes)),
        None => {
            Err(CliError::Data(format!("{} is gone, so setup does not know what was there", path.display())))
        }
    }
}

fn is_link(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|there| there.is_symlink())
}
