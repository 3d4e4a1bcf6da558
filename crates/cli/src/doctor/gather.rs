//! Gathers the facts: asks Slurm, the scheduler and systemd, and reads files. Every failure becomes a sentence beside the
//! fact; nothing here judges.

use super::facts::{Credential, Facts, Hook, HookKind, Known, Limit, Munge, Plugin, SlurmConf, TextFile};
use super::lua::module_path;
use crate::client::{Target, connect};
use crate::commands::status;
use crate::config::{CONFIG_PATH, Config};
use crate::error::CliError;
use crate::format::clean;
use crate::program::{Said, run_program, run_with_input};
use pillion_api::StatusResponse;
use pillion_config::slurm_files::{lines_of_ours, matching, plugin_version, plugstack, read_text};
use pillion_core::{UnixTime, report};
use pillion_slurm::{CommandSlurm, Slurm as _, SlurmError};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Everything, as it is now.
///
/// # Errors
/// [`CliError`] for a configuration that cannot be read.
pub async fn gather(
    config_path: Option<&Path>,
    scheduler: &Target,
    plugin_dir: Option<&Path>,
    now: UnixTime,
) -> Result<Facts, CliError> {
    let status = status(scheduler).await;
    let Configuration { config, path, is_reported } =
        Configuration::find(config_path, Path::new(CONFIG_PATH), status.as_ref().ok())?;
    let slurm = CommandSlurm::new(config.slurm.command_settings());
    let slurm_conf = slurm.config().await.map(SlurmConf::new).map_err(|error| said(&error));
    let conf = slurm_conf.clone().unwrap_or_default();
    let folder = match (&config.slurm.conf, conf.get("SLURM_CONF").is_empty()) {
        (Some(file), true) => file.parent().unwrap_or(Path::new("/etc/slurm")).to_owned(),
        _ => conf.folder(),
    };
    let job_submit_lua = text_file(folder.join("job_submit.lua"));
    let named = job_submit_lua.text.as_deref().ok().and_then(module_path).map(PathBuf::from);
    let plugstack = plugstack_file(&conf, &folder);
    let plugins = plugins(&conf, &plugstack, plugin_dir);
    Ok(Facts {
        now,
        version: slurm.version().await.map_err(|error| said(&error)),
        munge: munge(&conf).await,
        partitions: slurm.partitions().await.map_err(|error| said(&error)),
        nodes: slurm.nodes().await.map_err(|error| said(&error)),
        limits: limits(&config, &conf).await,
        pillion_lua: text_file(named.unwrap_or_else(|| folder.join("pillion.lua"))),
        job_container: text_file(folder.join("job_container.conf")),
        namespace: text_file(folder.join("namespace.yaml")),
        config_text: text_file(path),
        is_config_reported: is_reported,
        is_heartbeat_in_memory: is_in_memory(&config.heartbeat_path),
        heartbeat_uid: owner(&config.heartbeat_path),
        heartbeat: text_file(config.heartbeat_path.clone()),
        hooks: hooks(&conf),
        rescue_timer: rescue_timer().await,
        status,
        config,
        slurm_conf,
        job_submit_lua,
        plugstack,
        plugins,
    })
}

/// The configuration by which doctor looks.
struct Configuration {
    config: Config,
    path: PathBuf,
    /// Whether the running scheduler reported the path.
    is_reported: bool,
}

impl Configuration {
    /// The one that is named, else the one in the usual place, else the one that the running scheduler was started with.
    fn find(named: Option<&Path>, usual: &Path, status: Option<&StatusResponse>) -> Result<Self, CliError> {
        let reported = status.and_then(|status| status.config_path.as_deref()).map(Path::new);
        match (named, reported) {
            (None, Some(reported)) if !usual.exists() => {
                // One that cannot be read is a finding; where the heartbeat is, the scheduler reports too.
                let heartbeat = status.and_then(|status| status.heartbeat_path.clone()).map(PathBuf::from);
                let config = Config::load(Some(reported)).unwrap_or_else(|_| {
                    let known = Config::default();
                    Config { heartbeat_path: heartbeat.unwrap_or(known.heartbeat_path.clone()), ..known }
                });
                Ok(Self { config, path: reported.to_owned(), is_reported: true })
            }
            _ => {
                let path = named.unwrap_or(usual).to_owned();
                Ok(Self { config: Config::load(named)?, path, is_reported: false })
            }
        }
    }
}

fn said(error: &SlurmError) -> String {
    format!("Slurm does not answer: {}", clean(&report(error)))
}

async fn status(scheduler: &Target) -> Known<StatusResponse> {
    let ask = async { status::ask(&mut connect(scheduler).await?).await };
    ask.await.map_err(|error| clean(&report(&error)))
}

fn owner(path: &Path) -> Known<u32> {
    let metadata = std::fs::metadata(path).map_err(|_| "there is no heartbeat".to_owned())?;
    Ok(std::os::unix::fs::MetadataExt::uid(&metadata))
}

/// `f_type` of a tmpfs and of a ramfs (statfs(2)).
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

fn is_in_memory(path: &Path) -> Option<bool> {
    let found = rustix::fs::statfs(path).ok()?;
    Some(u64::try_from(found.f_type).is_ok_and(|kind| IN_MEMORY.contains(&kind)))
}

fn text_file(path: PathBuf) -> TextFile {
    let text = read_text(&path);
    TextFile { path, text }
}

fn plugstack_file(conf: &SlurmConf, folder: &Path) -> TextFile {
    let named = conf.get("PlugStackConfig");
    let path = if named.is_empty() { folder.join("plugstack.conf") } else { PathBuf::from(named) };
    TextFile { text: plugstack(&path, folder), path }
}

fn plugins(conf: &SlurmConf, plugstack: &TextFile, plugin_dir: Option<&Path>) -> Vec<Plugin> {
    let mut folders: Vec<PathBuf> = plugin_dir.map(Path::to_owned).into_iter().collect();
    folders.extend(conf.get("PluginDir").split(':').filter(|folder| !folder.is_empty()).map(PathBuf::from));
    let text = plugstack.text.as_deref().unwrap_or_default();
    lines_of_ours(text).iter().map(|(_, name)| plugin(&folders, name)).collect()
}

/// As Slurm finds it: in the first folder that has it.
fn plugin(folders: &[PathBuf], name: &str) -> Plugin {
    let place = folders.iter().map(|folder| folder.join(name)).find(|path| path.exists());
    let path = place.unwrap_or_else(|| PathBuf::from(name));
    Plugin { built_for: plugin_version(&path), path, is_loaded: true }
}

fn hooks(conf: &SlurmConf) -> Vec<Hook> {
    let mut hooks = Vec::new();
    for kind in [HookKind::Prolog, HookKind::Epilog, HookKind::EpilogSlurmctld] {
        for pattern in conf.all(kind.setting()).iter().flat_map(|value| value.split(',')) {
            hooks.extend(matching(Path::new(pattern)).into_iter().map(|path| hook(kind, path)));
        }
    }
    hooks
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
    for line in qos.lines() {
        if let [name, values @ ..] = line.split('|').collect::<Vec<_>>().as_slice() {
            limits.extend(limits_of(&format!("qos {name}"), &QOS_LIMIT_FIELDS, values));
        }
    }
    for line in assoc.lines() {
        if let [account, user, values @ ..] = line.split('|').collect::<Vec<_>>().as_slice() {
            let owner = if user.is_empty() {
                format!("account {account}")
            } else {
                format!("user {user} of account {account}")
            };
            limits.extend(limits_of(&owner, &LIMIT_FIELDS, values));
        }
    }
    limits
}

/// The limits that are set: sacctmgr prints the others as nothing.
fn limits_of(owner: &str, fields: &[&str], values: &[&str]) -> impl Iterator<Item = Limit> {
    let set = fields.iter().zip(values).filter(|(_, value)| !value.is_empty());
    set.map(move |(field, value)| Limit {
        owner: clean(owner),
        field: (*field).to_owned(),
        value: (*value).to_owned(),
    })
}

/// MUNGE's own socket, where `AuthInfo` names none (munged(8)).
const MUNGE_SOCKET: &str = "/run/munge/munge.socket.2";

async fn munge(conf: &SlurmConf) -> Option<Munge> {
    if !["", "auth/munge"].contains(&conf.get("AuthType")) {
        return None;
    }
    let socket = munge_socket(conf);
    let has_socket = socket.exists();
    let credential = if has_socket {
        credential(&socket).await
    } else {
        Credential::NotTried("there is no socket".to_owned())
    };
    Some(Munge { socket, has_socket, credential })
}

fn munge_socket(conf: &SlurmConf) -> PathBuf {
    let named = conf.get("AuthInfo").split(',').find_map(|setting| setting.trim().strip_prefix("socket="));
    PathBuf::from(named.unwrap_or(MUNGE_SOCKET))
}

/// `munge -n | unmunge`.
async fn credential(socket: &Path) -> Credential {
    let option = format!("--socket={}", socket.display());
    let made = match run_with_input(Path::new("munge"), &["-n", &option], "").await {
        Err(why) => return Credential::NotTried(why),
        Ok(said) if !said.succeeded => return refused(&said),
        Ok(said) => said.text,
    };
    match run_with_input(Path::new("unmunge"), &["-n", &option], &made).await {
        Err(why) => Credential::NotTried(why),
        Ok(said) if !said.succeeded => refused(&said),
        Ok(_) => Credential::Read,
    }
}

fn refused(said: &Said) -> Credential {
    Credential::Refused(clean(said.complaint.lines().next().unwrap_or_default()))
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
    fn a_file_system_in_memory_is_known() {
        assert_eq!(is_in_memory(Path::new("/proc/self/status")), Some(false));
        assert_eq!(is_in_memory(Path::new("/nowhere/heartbeat")), None);
    }

    #[test]
    fn munge_is_asked_where_slurm_asks_it() {
        let of = |value: &str| munge_socket(&SlurmConf::new([("AuthInfo".to_owned(), value.to_owned())]));
        assert_eq!(of("(null)"), Path::new("/run/munge/munge.socket.2"));
        assert_eq!(of("ttl=60,socket=/srv/c1/munge/sock"), Path::new("/srv/c1/munge/sock"));
    }

    #[test]
    fn without_a_configuration_in_its_place_that_of_the_running_scheduler_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let usual = folder.path().join("usual.toml");
        let elsewhere = folder.path().join("elsewhere.toml");
        std::fs::write(&elsewhere, "heartbeat_path = \"/srv/beat\"\n").unwrap();
        let status = StatusResponse {
            config_path: Some(elsewhere.display().to_string()),
            heartbeat_path: Some("/srv/reported".to_owned()),
            ..Default::default()
        };
        let found = |named: Option<&Path>, status| Configuration::find(named, &usual, status).unwrap();
        let reported = found(None, Some(&status));
        assert_eq!((reported.path.as_path(), reported.is_reported), (elsewhere.as_path(), true));
        assert_eq!(reported.config.heartbeat_path, Path::new("/srv/beat"));
        let by_itself = found(None, None);
        assert_eq!((by_itself.path.as_path(), by_itself.is_reported), (usual.as_path(), false));

        std::fs::write(&elsewhere, "[pool\n").unwrap();
        assert_eq!(found(None, Some(&status)).config.heartbeat_path, Path::new("/srv/reported"));
        std::fs::write(&usual, "").unwrap();
        assert!(!found(None, Some(&status)).is_reported, "the usual place goes first");
        std::fs::write(&elsewhere, "").unwrap();
        assert!(!found(Some(&elsewhere), Some(&status)).is_reported, "what is named goes first");
    }
}
