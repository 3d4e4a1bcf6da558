//! `pillion setup`: shows what a host needs beside the packages, does it on `--yes`, and takes it back with `--undo`.

use super::slurm_conf::{diff_of, pool, read_all, usual_directory};
use crate::args::{Global, SetupArgs, SlurmConfArgs};
use crate::config::{CONFIG_PATH, Config};
use crate::error::CliError;
use crate::exit::{self, ExitStatus};
use crate::format::clean;
use crate::output::{Answer, Block, Output, Table, json};
use crate::program::run_program;
use crate::setup::{
    Host, On, Plan, Record, Role, Step, Undo, Wanted, carry_out, do_steps, lock, must_watch_plugins, plan,
    undo_steps,
};
use crate::slurm_conf::{Files, SLURM_CONF};
use pillion_slurm::{CommandSlurm, Slurm as _};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Where a node without Slurm files of its own has those of slurmctld.
const CONFIGLESS: &str = "/run/slurm/conf";
/// Where what was there is kept; a folder a role, root's.
const KEPT: &str = "/var/lib/pillion-setup";
const SYSTEMCTL: &str = "systemctl";

/// Runs the command.
///
/// # Errors
/// [`CliError`], one sentence, where this is not the host, something is missing, or a step failed.
pub async fn run(args: &SetupArgs, global: &Global, output: &Output) -> Result<ExitStatus, CliError> {
    if (args.yes || args.undo) && !rustix::process::geteuid().is_root() {
        return Err(CliError::Usage(
            "run this as root: it writes files of root's, and enables services".to_owned(),
        ));
    }
    let config = configuration(global)?;
    let folder = Path::new(KEPT).join(args.role.word());
    // Held until this ends.
    let _lock = if args.yes { Some(lock(Path::new(KEPT))?) } else { None };
    if args.undo {
        return undo(args, &config, &Record::load(&folder)?, &folder, output).await;
    }
    let host = this_host(args, &config);
    let files = site_files(&host)?;
    host.check(args.role, &files)?;
    let wanted = wanted(args, &config, &files)?;
    let on = on(&host.units(args.role)).await;
    let mut plan = plan(&host, args.role, &files, &wanted, on.as_ref().unwrap_or(&On::default()));
    if let Err(why) = on {
        let units: Vec<String> = std::mem::take(&mut plan.units).into_iter().map(|unit| unit.name).collect();
        let units = units.join(" and ");
        plan.by_hand.push(format!("enable {units} as this host does: systemd cannot be asked ({why})"));
    }
    say(&plan);
    output.print(&answer(&plan))?;
    if !args.yes {
        return Ok(exit::OK);
    }
    if !plan.must_first.is_empty() {
        return Err(CliError::Data("nothing was changed: do first what is said to come first".to_owned()));
    }
    all_of(&do_steps(&plan, &Record::load(&folder)?, &folder)?).await?;
    Ok(exit::OK)
}

/// What our configuration says. Who only looks need not be one who may read it; a mistake in it is not gone over.
fn configuration(global: &Global) -> Result<Config, CliError> {
    match Config::load(global.config.as_deref()) {
        Err(CliError::File { source, .. }) if source.kind() == std::io::ErrorKind::PermissionDenied => {
            Ok(Config::default())
        }
        loaded => loaded,
    }
}

async fn all_of(steps: &[Step]) -> Result<(), CliError> {
    for step in steps {
        carry_out(step, Path::new(SYSTEMCTL)).await?;
    }
    Ok(())
}

fn this_host(args: &SetupArgs, config: &Config) -> Host {
    let slurm = args.directory.clone().unwrap_or_else(|| usual_directory(config));
    let is_configless = !slurm.join(SLURM_CONF).exists() && Path::new(CONFIGLESS).join(SLURM_CONF).exists();
    Host {
        name: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        must_watch_plugins: must_watch_plugins(Path::new("/")),
        root: PathBuf::from("/"),
        slurm: if is_configless { PathBuf::from(CONFIGLESS) } else { slurm },
        is_configless,
    }
}

fn site_files(host: &Host) -> Result<Files, CliError> {
    let conf = host.slurm.join(SLURM_CONF);
    if !conf.exists() {
        return Err(CliError::Data(format!(
            "there is no {}: set Slurm up on this host first, or say with --directory where it is",
            conf.display()
        )));
    }
    read_all(&host.slurm)
}

fn wanted(args: &SetupArgs, config: &Config, files: &Files) -> Result<Wanted, CliError> {
    match args.role {
        Role::Controller => {
            let nodes = args.nodes.clone().ok_or_else(|| {
                CliError::Usage("say which nodes are to be the pool: --nodes 'n[1-2]'".to_owned())
            })?;
            let order = SlurmConfArgs {
                nodes,
                partition: args.partition.clone(),
                devices: args.devices.clone(),
                directory: args.directory.clone(),
            };
            let user = files.slurm_user();
            let gid = uzers::get_user_by_name(&user).map(|user| user.primary_group_id());
            Ok(Wanted { pool: Some(pool(&order, config)?), backend: None, gid })
        }
        Role::Node => {
            let is_new = !Path::new(CONFIG_PATH).exists();
            if is_new && args.backend.is_none() {
                return Err(CliError::Usage(
                    "say by what the node's GPUs are read: --backend nvidia, intel or simulated".to_owned(),
                ));
            }
            Ok(Wanted { backend: args.backend.map(|backend| backend.word().to_owned()), ..Wanted::default() })
        }
        Role::Submit => Ok(Wanted::default()),
    }
}

/// Which of the units are on; `Err`: why systemd cannot be asked.
async fn on(units: &[&str]) -> Result<On, String> {
    let mut on = On::default();
    for unit in units {
        for (question, yes, answers) in
            [("is-enabled", "enabled", &mut on.enabled), ("is-active", "active", &mut on.active)]
        {
            let (_, said) = run_program(Path::new(SYSTEMCTL), &[question, unit]).await?;
            if said.trim() == yes {
                answers.push((*unit).to_owned());
            }
        }
    }
    Ok(on)
}

/// A site's own slurmctld that still knows jobs of a partition that goes crashes at its second start (seen with 24.11.5).
async fn refuse_known_jobs(names: &[String], config: &Config) -> Result<(), CliError> {
    if names.is_empty() {
        return Ok(());
    }
    // Where Slurm has no such partition there is nothing to wait for. Where it does not answer, the files that setup wrote may be
    // why, and the way back must not need it.
    let known = CommandSlurm::new(config.slurm.command_settings()).jobs(names).await;
    match known.map_or(0, |scan| scan.jobs.len()) {
        0 => Ok(()),
        count => Err(CliError::Data(format!(
            "nothing was changed: Slurm still knows {count} jobs of {}; say mode = \"off\", restart pillion-scheduler, and wait until squeue -t all -p {} shows none",
            names.join(","),
            names.join(",")
        ))),
    }
}

async fn undo(
    args: &SetupArgs,
    config: &Config,
    record: &Record,
    folder: &Path,
    output: &Output,
) -> Result<ExitStatus, CliError> {
    if record.is_empty() {
        return Err(CliError::Data(format!(
            "there is nothing to undo: 'pillion setup {}' has changed nothing here",
            args.role.word()
        )));
    }
    let undo = undo_steps(record, folder)?;
    refuse_known_jobs(&record.partitions, config).await?;
    undo.left.iter().for_each(|why| eprintln!("left: {}", clean(why)));
    output.print(&answer_of_undo(&undo, folder))?;
    if args.yes {
        all_of(&undo.steps).await?;
    }
    Ok(exit::OK)
}

fn say(plan: &Plan) {
    for (word, sentences) in [("first", &plan.must_first), ("by hand", &plan.by_hand)] {
        for sentence in sentences {
            eprintln!("{word}: {}", clean(sentence));
        }
    }
    for (_, why) in &plan.left {
        eprintln!("left: {}", clean(why));
    }
}

#[derive(Serialize)]
struct Shown<'a> {
    diff: &'a str,
    files: &'a [String],
    units: &'a [String],
    first: &'a [String],
    by_hand: &'a [String],
    left: Vec<&'a str>,
}

fn answer(plan: &Plan) -> Answer {
    let changes = plan.files.iter().chain(plan.left.iter().map(|(change, _)| change));
    let diff: String =
        changes.map(|change| diff_of(&change.path, change.before.as_deref(), Some(&change.after))).collect();
    let units: Vec<String> =
        plan.units.iter().map(|unit| format!("systemctl enable --now {}", unit.name)).collect();
    let left = plan.left.iter().map(|(_, why)| why.as_str()).collect();
    let files: Vec<String> = plan.files.iter().map(|change| change.path.display().to_string()).collect();
    shown(&Shown {
        diff: &diff,
        files: &files,
        units: &units,
        first: &plan.must_first,
        by_hand: &plan.by_hand,
        left,
    })
}

fn answer_of_undo(undo: &Undo, folder: &Path) -> Answer {
    let (mut diff, mut files, mut units) = (String::new(), Vec::new(), Vec::new());
    for step in &undo.steps {
        match step {
            Step::ClearBeside { .. } => {}
            Step::Replace { path, .. } if path.starts_with(folder) => {}
            Step::Replace { path, before, after, .. } => {
                let text = |bytes: &Option<Vec<u8>>| {
                    bytes.as_ref().map(|it| String::from_utf8_lossy(it).into_owned())
                };
                diff += &diff_of(path, text(before).as_deref(), text(after).as_deref());
                files.push(path.display().to_string());
            }
            Step::Unit { name, .. } => units.push(format!("systemctl disable --now {name}")),
        }
    }
    let left = undo.left.iter().map(String::as_str).collect();
    shown(&Shown { diff: &diff, files: &files, units: &units, first: &[], by_hand: &[], left })
}

fn shown(shown: &Shown<'_>) -> Answer {
    let mut table = Table::new(&["DIFF"]);
    let lines = shown.diff.lines().chain(shown.units.iter().map(String::as_str));
    lines.clone().for_each(|line| table.push(vec![line.to_owned()]));
    let blocks = lines.map(|line| Block::Verbatim(line.to_owned())).collect();
    Answer { blocks, parsable: table, json: json::render(shown) }
}
