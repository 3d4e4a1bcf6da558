//! Gathers the facts: asks Slurm, the scheduler and systemd, and reads files. Every failure becomes a sentence beside the
//! fact; nothing here judges.

use super::checks::lines_of_ours;
use super::facts::{Facts, Hook, HookKind, Known, Limit, Plugin, SlurmConf, TextFile};
use super::lua::module_path;
use crate::client::{Address, answer, connect};
use crate::config::Config;
use crate::format::clean;
use crate::view::StatusRow;
use object::{Object as _, ObjectSymbol as _};
use pillion_core::{UnixTime, report};
use pillion_proto::v1::StatusRequest;
use pillion_slurm::{CommandSlurm, Slurm as _, SlurmError};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a program of the system may take.
const PROGRAM_DEADLINE: Duration = Duration::from_secs(10);
/// A file longer than this is not what it should be.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Everything, as it is now.
pub async fn gather(
    config: Config,
    config_path: &Path,
    scheduler: &Address,
    plugin_dir: Option<&Path>,
    now: UnixTime,
) -> Facts {
    let slurm = CommandSlurm::new(config.slurm.command_settings());
    let slurm_conf = slurm.config().await.map(SlurmConf::new).map_err(|error| said(&error));
    let conf = slurm_conf.clone().unwrap_or_default();
    let folder = match (&config.slurm.conf, conf.get("SLURM_CONF").is_empty()) {
        (Some(file), true) => file.parent().unwrap_or(Path::new("/etc/slurm")).to_owned(),
        _ => conf.folder(),
    };
    let job_submit_lua = text_file(folder.join("job_submit.lua"));
    let named = job_submit_lua.text.as_deref().ok().and_then(module_path).map(PathBuf::from);
    let plugstack = plugstack(&conf, &folder);
    let plugins = plugins(&conf, &plugstack, plugin_dir);
    Facts {
        now,
        version: slurm.version().await.map_err(|error| said(&error)),
        partitions: slurm.partitions().await.map_err(|error| said(&error)),
        nodes: slurm.nodes().await.map_err(|error| said(&error)),
        limits: limits(&config, &conf).await,
        pillion_lua: text_file(named.unwrap_or_else(|| folder.join("pillion.lua"))),
        job_container: text_file(folder.join("job_container.conf")),
        config_text: text_file(config_path.to_owned()),
        heartbeat_uid: owner(&config.heartbeat_path),
        heartbeat: text_file(config.heartbeat_path.clone()),
        hooks: hooks(&conf),
        rescue_timer: rescue_timer().await,
        status: status(scheduler).await,
        config,
        slurm_conf,
        job_submit_lua,
        plugstack,
        plugins,
    }
}

fn said(error: &SlurmError) -> String {
    format!("Slurm does not answer: {}", clean(&report(error)))
}

async fn status(scheduler: &Address) -> Known<StatusRow> {
    let ask = async { answer(connect(scheduler).await?.status(StatusRequest {})).await };
    ask.await.map(StatusRow::from).map_err(|error| clean(&report(&error)))
}

fn owner(path: &Path) -> Known<u32> {
    let metadata = std::fs::metadata(path).map_err(|_| "there is no heartbeat".to_owned())?;
    Ok(std::os::unix::fs::MetadataExt::uid(&metadata))
}

fn text_file(path: PathBuf) -> TextFile {
    let text = read_text(&path);
    TextFile { path, text }
}

/// A regular file's text. Whatever is no UTF-8 in it is no setting of ours either.
fn read_text(path: &Path) -> Known<String> {
    let sentence = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".to_owned(),
        std::io::ErrorKind::PermissionDenied => "it may not be read; run doctor as root".to_owned(),
        _ => error.to_string(),
    };
    let metadata = std::fs::metadata(path).map_err(sentence)?;
    if !metadata.is_file() {
        return Err("it is not a file".to_owned());
    }
    if metadata.len() > FILE_BYTES_MAX {
        return Err(format!("it is {} MiB long", metadata.len() >> 20));
    }
    std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).map_err(sentence)
}

/// plugstack.conf with the files that it includes, one level deep as Slurm's own example has it.
fn plugstack(conf: &SlurmConf, folder: &Path) -> TextFile {
    let named = conf.get("PlugStackConfig");
    let path = if named.is_empty() { folder.join("plugstack.conf") } else { PathBuf::from(named) };
    let mut file = text_file(path);
    if let Ok(text) = &mut file.text {
        let patterns: Vec<PathBuf> = text
            .lines()
            .filter_map(|line| {
                line.trim().strip_prefix("include")?.split_whitespace().next().map(str::to_owned)
            })
            .map(|pattern| folder.join(pattern))
            .collect();
        for included in patterns.iter().flat_map(|pattern| matching(pattern)) {
            text.push('\n');
            text.push_str(&read_text(&included).unwrap_or_default());
        }
    }
    file
}

/// The files that a pattern with `*` in its last part names.
fn matching(pattern: &Path) -> Vec<PathBuf> {
    let name = pattern.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let Some((start, end)) = name.split_once('*') else { return vec![pattern.to_owned()] };
    let Some(Ok(entries)) = pattern.parent().map(std::fs::read_dir) else { return Vec::new() };
    let fits = |path: &PathBuf| {
        path.file_name().is_some_and(|found| {
            let found = found.to_string_lossy();
            found.len() >= start.len() + end.len() && found.starts_with(start) && found.ends_with(end)
        })
    };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(fits).collect();
    files.sort();
    files
}

fn plugins(conf: &SlurmConf, plugstack: &TextFile, plugin_dir: Option<&Path>) -> Vec<Plugin> {
    let mut folders: Vec<PathBuf> = plugin_dir.map(Path::to_owned).into_iter().collect();
    folders.extend(conf.get("PluginDir").split(':').filter(|folder| !folder.is_empty()).map(PathBuf::from));
    let text = plugstack.text.as_deref().unwrap_or_default();
    let plugin = |(_, name): (String, String)| {
        let place = folders.iter().map(|folder| folder.join(&name)).find(|path| path.exists());
        let path = place.unwrap_or_else(|| PathBuf::from(&name));
        Plugin { built_for: plugin_version(&path), path, is_loaded: true }
    };
    lines_of_ours(text).into_iter().map(plugin).collect()
}

/// The number behind the exported symbol `plugin_version`, which Slurm compares: `major << 16 | minor << 8 | micro`.
fn plugin_version(path: &Path) -> Known<(u32, u32)> {
    let bytes = std::fs::read(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".to_owned(),
        _ => error.to_string(),
    })?;
    let file = object::File::parse(&*bytes).map_err(|_| "it is no shared library".to_owned())?;
    let number =
        file.dynamic_symbols().find(|symbol| symbol.name() == Ok("plugin_version")).and_then(|symbol| {
            use object::ObjectSection as _;
            let section = file.section_by_index(symbol.section_index()?).ok()?;
            let data = section.data_range(symbol.address(), 4).ok()??;
            Some(u32::from_le_bytes(data.try_into().ok()?))
        });
    let number = number.ok_or("it exports no plugin_version")?;
    Ok((number >> 16 & 0xff, number >> 8 & 0xff))
}

fn hooks(conf: &SlurmConf) -> Vec<Hook> {
    let kinds = [HookKind::Prolog, HookKind::Epilog, HookKind::EpilogSlurmctld];
    let of_kind = |kind: HookKind| {
        let patterns = conf.all(kind.setting()).iter().flat_map(|value| value.split(','));
        patterns
            .flat_map(|pattern| matching(Path::new(pattern)))
            .map(move |path| hook(kind, path))
            .collect::<Vec<_>>()
    };
    kinds.into_iter().flat_map(of_kind).collect()
}

fn hook(kind: HookKind, path: PathBuf) -> Hook {
    let mode = std::fs::metadata(&path).map_or(0, |metadata| metadata.permissions().mode());
    Hook { kind, file: text_file(path), is_executable: mode & 0o111 != 0 }
}

async fn rescue_timer() -> Known<String> {
    if !Path::new("/run/systemd/system").exists() {
        return Err(
            "this machine does not run systemd; see that 'pillion rescue' runs once a minute".to_owned()
        );
    }
    // `is-active` exits 3 for an inactive unit, and says so.
    let (_, text) = run_program(Path::new("systemctl"), &["is-active", "pillion-rescue.timer"]).await?;
    Ok(text.trim().to_owned())
}

/// Where `sacctmgr` prints limits on TRES: the kind of owner, the columns that name it, and the limits.
const LIMIT_FIELDS: [&str; 5] = ["GrpTRES", "MaxTRES", "MaxTRESPerNode", "GrpTRESMins", "MaxTRESMins"];
const QOS_LIMIT_FIELDS: [&str; 4] = ["MaxTRESPerUser", "MaxTRESPerAccount", "GrpTRES", "MaxTRES"];

async fn limits(config: &Config, conf: &SlurmConf) -> Known<Vec<Limit>> {
    if !conf.get("AccountingStorageType").contains("slurmdbd") {
        return Err("no slurmdbd: there are no limits".to_owned());
    }
    let program = config.slurm.binary_directory.as_deref().unwrap_or(Path::new("")).join("sacctmgr");
    let qos_format = format!("format=Name,{}", QOS_LIMIT_FIELDS.join(","));
    let qos = sacctmgr(&program, &["-nP", "show", "qos", &qos_format]).await?;
    let assoc_format = format!("format=Account,User,{}", LIMIT_FIELDS.join(","));
    let assoc = sacctmgr(&program, &["-nP", "show", "assoc", &assoc_format]).await?;
    Ok(parse_limits(&qos, &assoc))
}

async fn sacctmgr(program: &Path, arguments: &[&str]) -> Known<String> {
    let (succeeded, text) = run_program(program, arguments).await?;
    if succeeded { Ok(text) } else { Err("sacctmgr does not answer; see that slurmdbd runs".to_owned()) }
}

fn parse_limits(qos: &str, assoc: &str) -> Vec<Limit> {
    let mut limits = Vec::new();
    let mut take = |owner: &str, fields: &[&str], values: &[&str]| {
        for (field, value) in fields.iter().zip(values).filter(|(_, value)| !value.is_empty()) {
            limits.push(Limit {
                owner: clean(owner),
                field: (*field).to_owned(),
                value: (*value).to_owned(),
            });
        }
    };
    for line in qos.lines() {
        if let [name, values @ ..] = line.split('|').collect::<Vec<_>>().as_slice() {
            take(&format!("qos {name}"), &QOS_LIMIT_FIELDS, values);
        }
    }
    for line in assoc.lines() {
        if let [account, user, values @ ..] = line.split('|').collect::<Vec<_>>().as_slice() {
            let owner = if user.is_empty() {
                format!("account {account}")
            } else {
                format!("user {user} of account {account}")
            };
            take(&owner, &LIMIT_FIELDS, values);
        }
    }
    limits
}

/// Runs a program of the system that only reads: whether it succeeded, and what it printed.
async fn run_program(program: &Path, arguments: &[&str]) -> Known<(bool, String)> {
    let name = program.display();
    let child = tokio::process::Command::new(program)
        .args(arguments)
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true)
        .output();
    match tokio::time::timeout(PROGRAM_DEADLINE, child).await {
        Err(_) => Err(format!("{name} did not answer within {} s", PROGRAM_DEADLINE.as_secs())),
        Ok(Err(error)) => Err(format!("cannot run {name}: {error}")),
        Ok(Ok(output)) => Ok((output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_with_their_owners() {
        let limits = parse_limits(
            "normal||||\ngpu|gres/gpu=2||cpu=10|\n",
            "ml|||gres/gpu=4|||\nml|alice||||gres/gpu=600|\n",
        );
        let said: Vec<String> =
            limits.iter().map(|l| format!("{}: {}={}", l.owner, l.field, l.value)).collect();
        assert_eq!(
            said,
            [
                "qos gpu: MaxTRESPerUser=gres/gpu=2",
                "qos gpu: GrpTRES=cpu=10",
                "account ml: MaxTRES=gres/gpu=4",
                "user alice of account ml: GrpTRESMins=gres/gpu=600"
            ]
        );
    }

    #[test]
    fn patterns_name_files() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["10-a.conf", "20-b.conf", "c.txt"] {
            std::fs::write(folder.path().join(name), "").expect("written");
        }
        let names = |pattern: &str| {
            let found = matching(&folder.path().join(pattern));
            found
                .iter()
                .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(names("*.conf"), ["10-a.conf", "20-b.conf"]);
        assert_eq!(names("c.txt"), ["c.txt"]);
        assert_eq!(matching(Path::new("/nowhere/at/all/*")), Vec::<PathBuf>::new());
    }

    #[test]
    fn what_is_no_plugin_says_so() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pillion.so");
        assert_eq!(plugin_version(&path), Err("there is no such file".to_owned()));
        std::fs::write(&path, "text").expect("written");
        assert_eq!(plugin_version(&path), Err("it is no shared library".to_owned()));
    }
}
