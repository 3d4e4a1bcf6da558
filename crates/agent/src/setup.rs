//! How the node is set up beside its devices, looked at whenever the agent connects, for `pillion doctor`: directories, the
//! plugin that Slurm loads here, and what the mechanisms stand on. Changes nothing; what cannot be seen is left out.

use crate::config::{BackendKind, Config, mig_policy, mps_directory};
use crate::mig_setup::MigPlaces;
use crate::progress::is_mounted;
use pillion_config::slurm_files::{lines_of_ours, plugin_version, plugstack, read_text};
use pillion_core::device::DeviceDescription;
use pillion_core::setup::{LoadedPlugin, NodeSetup, SetupFault, SetupFaultKind};
use pillion_device::mps::{Scopes, unscoped};
use pillion_device::nvidia::MigFiles;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Where Slurm's configuration lies unless the site says otherwise; the second is a configless slurmd's (slurm.conf(5)).
const SLURM_CONFS: [&str; 2] = ["/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf"];
/// Where distributions and Slurm's own packages put plugins: what a plugin without a path is looked for in after `PluginDir`.
const PLUGIN_FOLDERS: [&str; 4] = [
    "/usr/lib64/slurm",
    "/usr/lib/slurm",
    "/usr/lib/x86_64-linux-gnu/slurm-wlm",
    "/usr/lib/aarch64-linux-gnu/slurm-wlm",
];
/// By it nvidia-persistenced is spoken to while it runs. Without it "some non-persistent state associated with that GPU will be
/// lost" when the last client leaves (NVIDIA, Driver Persistence, Overview).
const PERSISTENCE_SOCKET: &str = "/run/nvidia-persistenced/socket";

/// Where to look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// The directory of progress files and of the MPS daemons.
    pub runtime_directory: PathBuf,
    /// That of the progress files alone.
    pub progress_directory: PathBuf,
    /// That of the socket at which SPANK asks.
    pub handoff_directory: PathBuf,
    /// Slurm's configuration: the first of them that is there.
    pub slurm_confs: Vec<PathBuf>,
    /// MPS's control program and nvidia-persistenced's socket, where NVIDIA's devices are to be shared by MPS.
    pub mps: Option<(PathBuf, PathBuf)>,
    /// Where MPS daemons get control groups of their own: how, and what all of them lie beneath.
    pub scopes: Option<(Scopes, PathBuf)>,
    /// What cutting devices stands on, where NVIDIA's are to be cut.
    pub mig: Option<MigPlaces>,
    /// The files of the CCS modes, where Intel's devices are.
    pub ccs_modes: Vec<PathBuf>,
}

impl Places {
    /// Those of a configuration.
    pub fn of(config: &Config) -> Self {
        let slurm_confs = match &config.slurm_conf {
            Some(path) => vec![path.clone()],
            None => SLURM_CONFS.map(PathBuf::from).into(),
        };
        let has_mps = config.backend == BackendKind::Nvidia && config.mps.enabled;
        let is_cut = config.backend == BackendKind::Nvidia && config.mig.enabled;
        let is_intel = config.backend == BackendKind::Intel;
        Self {
            runtime_directory: config.runtime_directory.clone(),
            progress_directory: config.runtime_directory.join("progress"),
            handoff_directory: config.handoff_socket.parent().unwrap_or(Path::new("/")).to_owned(),
            slurm_confs,
            mps: has_mps.then(|| (config.mps.control_binary.clone(), PERSISTENCE_SOCKET.into())),
            scopes: Scopes::of_systemd().filter(|_| has_mps).zip(Some(mps_directory(config))),
            mig: is_cut.then(|| MigPlaces {
                files: MigFiles::default(),
                processes: "/proc".into(),
                policy: mig_policy(config),
            }),
            ccs_modes: if is_intel {
                pillion_device::intel::mode_paths(&config.intel.sysfs_root)
            } else {
                Vec::new()
            },
        }
    }

    /// How it is there now.
    pub fn look(&self) -> NodeSetup {
        let mut setup = NodeSetup::default();
        setup.faults.extend(self.directories());
        setup.faults.extend(unbounded(&self.progress_directory));
        if let Some((program, persistence)) = &self.mps {
            setup.faults.extend(missing_for_mps(program, persistence));
        }
        if let Some((scopes, directory)) = &self.scopes {
            setup.faults.extend(unscoped_daemons(scopes.obstacle(), &unscoped(directory)));
        }
        setup.faults.extend(unwritable(&self.ccs_modes, |path| {
            rustix::fs::access(path, rustix::fs::Access::WRITE_OK).map_err(|error| error.to_string())
        }));
        // Where no slurm.conf is found, nothing is known.
        if let Some(conf) = self.slurm_confs.iter().find(|path| path.exists()) {
            let text = read_text(conf).unwrap_or_default();
            setup.faults.extend(["Prolog", "Epilog"].into_iter().filter_map(|name| hook(&text, name)));
            plugin(&text, conf.parent().unwrap_or(Path::new("/")), &mut setup);
        }
        setup
    }

    /// What keeps these devices from being cut.
    pub fn of_devices(&self, devices: &[DeviceDescription]) -> Vec<SetupFault> {
        self.mig.as_ref().map(|mig| mig.look(devices)).unwrap_or_default()
    }

    fn directories(&self) -> Vec<SetupFault> {
        let mode = |path: &Path| Some(std::fs::metadata(path).ok()?.permissions().mode());
        let mut faults: Vec<SetupFault> = mode(&self.runtime_directory)
            .and_then(|mode| closed(&self.runtime_directory, mode))
            .into_iter()
            .collect();
        let mut both = vec![&self.runtime_directory, &self.handoff_directory];
        both.dedup();
        faults.extend(both.into_iter().filter_map(|path| open(path, mode(path)?)));
        faults
    }
}

/// Jobs write there, and fill the file system that it lies on.
fn unbounded(progress: &Path) -> Option<SetupFault> {
    let detail =
        format!("{} is no file system of its own: jobs can fill the one that it lies on", progress.display());
    (is_mounted(progress) == Some(false))
        .then_some(SetupFault { kind: SetupFaultKind::ProgressUnbounded, detail })
}

/// A hook that Slurm cannot run drains the node. Of several by a pattern nothing is known.
fn hook(slurm_conf: &str, name: &str) -> Option<SetupFault> {
    let path = value(slurm_conf, name).filter(|path| path.starts_with('/') && !path.contains('*'))?;
    let why = match std::fs::metadata(path) {
        Ok(metadata) if metadata.permissions().mode() & 0o111 != 0 => return None,
        Ok(_) => "it may not be executed".to_owned(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => "there is no such file".to_owned(),
        Err(error) => error.to_string(),
    };
    Some(SetupFault { kind: SetupFaultKind::HookMissing, detail: format!("{name}={path}: {why}") })
}

/// The plugin of ours that Slurm loads on this node; `folder`: that of slurm.conf.
fn plugin(slurm_conf: &str, folder: &Path, setup: &mut NodeSetup) {
    let path =
        value(slurm_conf, "PlugStackConfig").map_or_else(|| folder.join("plugstack.conf"), PathBuf::from);
    let lines = match plugstack(&path, folder) {
        Ok(text) => lines_of_ours(&text),
        Err(why) => {
            let detail = format!("{}: {why}", path.display());
            setup.faults.push(SetupFault { kind: SetupFaultKind::NoPlugin, detail });
            return;
        }
    };
    let path = path.display();
    if lines.is_empty() {
        let detail = format!("{path} does not load pillion.so");
        setup.faults.push(SetupFault { kind: SetupFaultKind::NoPlugin, detail });
    }
    if lines.iter().any(|(word, _)| word == "required") {
        let detail = format!("{path} loads pillion.so as 'required'");
        setup.faults.push(SetupFault { kind: SetupFaultKind::PluginRequired, detail });
    }
    let mut folders: Vec<&str> =
        value(slurm_conf, "PluginDir").unwrap_or_default().split(':').filter(|it| !it.is_empty()).collect();
    folders.extend(PLUGIN_FOLDERS);
    setup.plugins.extend(lines.iter().filter_map(|(_, name)| loaded(name, &folders)));
}

/// What slurm.conf gives a setting, whatever its case; includes are not followed.
fn value<'a>(slurm_conf: &'a str, name: &str) -> Option<&'a str> {
    slurm_conf.lines().find_map(|line| {
        let (found, value) = line.split('#').next()?.split_once('=')?;
        found.trim().eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// A plugin as it lies there; `None`: without a path, and in none of the folders that are known.
fn loaded(name: &str, folders: &[&str]) -> Option<LoadedPlugin> {
    // Joining an absolute path gives that path.
    let path = folders.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.exists());
    let path = path.or_else(|| name.starts_with('/').then(|| PathBuf::from(name)))?;
    let (built_for, error) = match plugin_version(&path) {
        Ok((major, minor)) => (Some(format!("{major}.{minor:02}")), None),
        Err(why) => (None, Some(why)),
    };
    Some(LoadedPlugin { path: path.display().to_string(), built_for, error })
}

/// In a directory of everybody, anybody may take our socket's place, or a daemon's.
fn open(path: &Path, mode: u32) -> Option<SetupFault> {
    let is_open = mode & 0o002 != 0 && mode & 0o1000 == 0;
    is_open.then(|| SetupFault {
        kind: SetupFaultKind::DirectoryOpen,
        detail: format!("everybody may write into {} (mode {:o})", path.display(), mode & 0o7777),
    })
}

/// Users' programs write progress files and speak to MPS daemons.
fn closed(path: &Path, mode: u32) -> Option<SetupFault> {
    (mode & 0o001 == 0).then(|| SetupFault {
        kind: SetupFaultKind::DirectoryClosed,
        detail: format!("users may not enter {} (mode {:o})", path.display(), mode & 0o7777),
    })
}

fn missing_for_mps(program: &Path, persistence: &Path) -> Vec<SetupFault> {
    let absent = |path: &Path, kind, what: &str| {
        let detail = format!("there is no {}: {what}", path.display());
        (!path.exists()).then_some(SetupFault { kind, detail })
    };
    let faults = [
        absent(program, SetupFaultKind::NoMps, "devices are shared by time slices"),
        absent(persistence, SetupFaultKind::NoPersistence, "nvidia-persistenced does not run"),
    ];
    faults.into_iter().flatten().collect()
}

/// Daemons in the agent's own control group count as the agent, with all that its unit is allowed.
fn unscoped_daemons(obstacle: Option<String>, names: &[String]) -> Option<SetupFault> {
    let detail = match obstacle {
        Some(why) => format!("{why}: MPS daemons stay in the agent's control group"),
        None if names.is_empty() => return None,
        None => format!("in the agent's control group run the MPS daemons of {}", names.join(", ")),
    };
    Some(SetupFault { kind: SetupFaultKind::MpsUnscoped, detail })
}

/// The first file that may not be written: they share their file system. `check` tells why not.
fn unwritable(paths: &[PathBuf], check: impl Fn(&Path) -> Result<(), String>) -> Option<SetupFault> {
    paths.iter().find_map(|path| {
        let detail = format!("{} may not be written: {}", path.display(), check(path).err()?);
        Some(SetupFault { kind: SetupFaultKind::ModeFixed, detail })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;

    struct Machine(tempfile::TempDir);

    impl Machine {
        fn new() -> Self {
            let machine = Self(tempfile::tempdir().unwrap());
            std::fs::create_dir(machine.path("run")).unwrap();
            machine.mode("run", 0o755);
            machine.write("slurm.conf", "ClusterName=c\n");
            machine.write("plugstack.conf", "optional /nowhere/pillion.so\n");
            machine
        }
        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }
        fn write(&self, name: &str, text: &str) {
            std::fs::write(self.path(name), text).unwrap();
        }
        fn mode(&self, name: &str, mode: u32) {
            std::fs::set_permissions(self.path(name), Permissions::from_mode(mode)).unwrap();
        }
        fn places(&self) -> Places {
            Places {
                runtime_directory: self.path("run"),
                progress_directory: self.path("run/progress"),
                handoff_directory: self.path("run"),
                slurm_confs: vec![self.path("none/slurm.conf"), self.path("slurm.conf")],
                mps: None,
                scopes: None,
                mig: None,
                ccs_modes: Vec::new(),
            }
        }
    }

    fn kinds(places: &Places) -> Vec<SetupFaultKind> {
        places.look().faults.into_iter().map(|fault| fault.kind).collect()
    }

    #[test]
    fn a_sound_node_has_no_fault_and_a_node_without_slurm_is_unknown() {
        let machine = Machine::new();
        let setup = machine.places().look();
        assert_eq!(setup.faults, []);
        let plugin = LoadedPlugin {
            path: "/nowhere/pillion.so".to_owned(),
            built_for: None,
            error: Some("there is no such file".to_owned()),
        };
        assert_eq!(setup.plugins, [plugin]);
        std::fs::remove_file(machine.path("slurm.conf")).unwrap();
        assert_eq!(machine.places().look(), NodeSetup::default());
    }

    #[test]
    fn directories_are_neither_everybodys_nor_closed_to_users() {
        let machine = Machine::new();
        machine.mode("run", 0o777);
        let setup = machine.places().look();
        assert_eq!(setup.faults.len(), 1, "told once: {:?}", setup.faults);
        assert!(setup.faults[0].detail.ends_with("run (mode 777)"), "{:?}", setup.faults);
        machine.mode("run", 0o1777);
        assert_eq!(kinds(&machine.places()), []);
        machine.mode("run", 0o750);
        assert_eq!(kinds(&machine.places()), [SetupFaultKind::DirectoryClosed]);
    }

    #[test]
    fn progress_files_that_fill_the_file_system_of_others_are_told() {
        let machine = Machine::new();
        assert_eq!(kinds(&machine.places()), [], "it is not there, and nothing is known");
        std::fs::create_dir(machine.path("run/progress")).unwrap();
        assert_eq!(kinds(&machine.places()), [SetupFaultKind::ProgressUnbounded]);
        let mounted = Places { progress_directory: "/proc".into(), ..machine.places() };
        assert_eq!(kinds(&mounted), []);
    }

    #[test]
    fn a_plugstack_without_our_line_is_told() {
        let machine = Machine::new();
        machine.write("plugstack.conf", "optional other.so\n");
        assert_eq!(kinds(&machine.places()), [SetupFaultKind::NoPlugin]);
        machine.write("plugstack.conf", "required pillion.so\n");
        let setup = machine.places().look();
        assert_eq!(kinds(&machine.places()), [SetupFaultKind::PluginRequired]);
        assert_eq!(setup.plugins, [], "without a path, and in no folder that is known");
        std::fs::remove_file(machine.path("plugstack.conf")).unwrap();
        assert_eq!(kinds(&machine.places()), [SetupFaultKind::NoPlugin]);
    }

    #[test]
    fn a_hook_that_cannot_be_run_is_told() {
        let machine = Machine::new();
        let conf = format!("Prolog={}\nEpilog=/etc/epilog.d/*\n", machine.path("hook").display());
        machine.write("slurm.conf", &conf);
        assert!(machine.places().look().faults[0].detail.ends_with("hook: there is no such file"));
        machine.write("hook", "#!/bin/sh\n");
        assert!(machine.places().look().faults[0].detail.ends_with("hook: it may not be executed"));
        machine.mode("hook", 0o755);
        assert_eq!(kinds(&machine.places()), []);
    }

    #[test]
    fn the_plugin_is_looked_for_where_slurm_looks() {
        let machine = Machine::new();
        let folder = machine.path("plugins");
        std::fs::create_dir(&folder).unwrap();
        machine.write("plugins/pillion.so", "text");
        machine.write("elsewhere.conf", "optional pillion.so\n");
        let conf = format!(
            "# PluginDir=/old\nplugindir = /none:{} # ours\nPlugStackConfig={}\n",
            folder.display(),
            machine.path("elsewhere.conf").display()
        );
        machine.write("slurm.conf", &conf);
        let plugins = machine.places().look().plugins;
        assert_eq!(plugins[0].path, folder.join("pillion.so").to_string_lossy());
        assert_eq!(plugins[0].error.as_deref(), Some("it is no shared library"));
    }

    #[test]
    fn what_the_mechanisms_stand_on_is_looked_for() {
        let machine = Machine::new();
        let mut places = machine.places();
        places.mps = Some((machine.path("control"), machine.path("socket")));
        assert_eq!(kinds(&places), [SetupFaultKind::NoMps, SetupFaultKind::NoPersistence]);
        machine.write("control", "");
        machine.write("socket", "");
        assert_eq!(kinds(&places), []);
        places.ccs_modes = vec![machine.path("gone")];
        assert_eq!(kinds(&places), [SetupFaultKind::ModeFixed]);
        let read_only = |_: &Path| Err("Read-only file system".to_owned());
        let fault = unwritable(&[PathBuf::from("/sys/a"), PathBuf::from("/sys/b")], read_only).unwrap();
        assert_eq!(fault.detail, "/sys/a may not be written: Read-only file system");
    }

    #[test]
    fn a_daemon_in_our_own_control_group_is_told() {
        let none = unscoped_daemons(None, &[]);
        assert_eq!(none, None);
        let old = unscoped_daemons(None, &["g0".to_owned(), "g3".to_owned()]).unwrap();
        assert_eq!(
            (old.kind, old.detail.ends_with("daemons of g0, g3")),
            (SetupFaultKind::MpsUnscoped, true)
        );
        let machine = Machine::new();
        let scopes = Scopes::by(machine.path("busctl"), "/proc");
        let places = Places { scopes: Some((scopes, machine.path("mps"))), ..machine.places() };
        assert_eq!(kinds(&places), [SetupFaultKind::MpsUnscoped], "nothing to ask systemd with");
    }

    #[test]
    fn only_what_the_configuration_asks_for_is_looked_at() {
        let of = |backend, enabled| {
            let mut config = Config { backend, ..Config::default() };
            config.mps.enabled = enabled;
            Places::of(&config).mps.is_some()
        };
        assert!(of(BackendKind::Nvidia, true));
        assert!(!of(BackendKind::Nvidia, false) && !of(BackendKind::Simulated, true));
        let config = Config { slurm_conf: Some("/srv/slurm.conf".into()), ..Config::default() };
        assert_eq!(Places::of(&config).slurm_confs, [Path::new("/srv/slurm.conf")]);
        assert_eq!(Places::of(&config).handoff_directory, config.handoff_socket.parent().unwrap());
    }
}
