//! The MPS daemon of the GPU, started and stopped by the code that the agent uses; and raw words with it.

use crate::kernels::Workload;
use crate::programs::{Said, command, run, until};
use crate::tenant::{Client, Tenant};
use pillion_agent::share::{SharePaths, environment};
use pillion_core::device::{DeviceDescription, Mechanism};
use pillion_core::share::Share;
use pillion_core::share::Sharing;
use pillion_core::{DecisionId, DeviceUuid, Fraction, GresType, JobStart, Shards, SlurmJobId, UserId};
use pillion_device::mps::MpsDaemons;
use pillion_device::{MpsControl, MpsPlace, MpsSettings, MpsStatus};
use std::path::PathBuf;
use std::time::Duration;

/// Our number for the GPU.
const INDEX: u32 = 0;
/// How long one command may take; `terminate_client` and `quit` wait for others.
const COMMAND_DEADLINE: Duration = Duration::from_secs(10);
/// How long a daemon may take to be rid of its clients.
const STOP_DEADLINE: Duration = Duration::from_secs(10);

/// Whom a daemon serves, and how. By default root alone.
#[derive(Debug, Clone, Default)]
pub struct Served {
    /// Several users at the same time.
    pub several_at_once: bool,
    /// Who besides root reaches it: nobody else does.
    pub users: Vec<UserId>,
    /// The cap of its next server.
    pub cap_default: Option<Fraction>,
}

/// Where the checks take place.
pub struct Bench {
    control: PathBuf,
    directory: PathBuf,
    device: DeviceDescription,
    daemons: MpsDaemons,
}

impl Bench {
    /// For the GPU with this UUID. `directory`: where pipes and logs go.
    pub fn new(control: PathBuf, directory: PathBuf, uuid: &str) -> Self {
        let devices = [(INDEX, DeviceUuid::new(uuid))];
        let daemons = MpsDaemons::new(control.clone(), &directory, None, devices);
        let device = DeviceDescription {
            index: INDEX,
            uuid: DeviceUuid::new(uuid),
            model: String::new(),
            memory_bytes: 0,
            gres_type: GresType::new("g0"),
            mechanism: Mechanism::Mps,
            instances: None,
            geometry: None,
            links: std::collections::BTreeMap::new(),
        };
        Self { control, directory, device, daemons }
    }

    fn settings(&self, served: &Served) -> MpsSettings {
        MpsSettings {
            pipe_directory: self.pipe_directory(),
            log_directory: self.directory.join("g0/log"),
            multi_user: served.several_at_once,
            partitions: false,
            users: served.users.iter().copied().collect(),
            cap_default: served.cap_default,
            memory_limit_bytes_default: None,
        }
    }

    fn pipe_directory(&self) -> PathBuf {
        self.directory.join("g0/pipe")
    }

    /// Starts the daemon.
    ///
    /// # Errors
    /// A sentence: why it does not come up.
    pub fn start(&mut self) -> Result<(), String> {
        self.start_for(&Served::default())
    }

    /// Starts it with options.
    ///
    /// # Errors
    /// As [`Bench::start`].
    pub fn start_for(&mut self, served: &Served) -> Result<(), String> {
        let settings = self.settings(served);
        self.daemons
            .prepare(&MpsPlace::device(INDEX), &settings)
            .map_err(|error| pillion_core::report(&error))
    }

    /// Stops it when its last client has gone. Whoever calls has ended them.
    ///
    /// # Errors
    /// A sentence: what keeps it.
    pub fn stop(&mut self) -> Result<(), String> {
        let mut reason = String::new();
        let stopped = until(STOP_DEADLINE, || match self.daemons.release(&MpsPlace::device(INDEX)) {
            Ok(()) => true,
            Err(error) => {
                reason = pillion_core::report(&error);
                false
            }
        });
        if stopped { Ok(()) } else { Err(reason) }
    }

    /// Asks it to stop, once: as long as it has clients it only drains.
    ///
    /// # Errors
    /// A sentence: what keeps it.
    pub fn stop_once(&mut self) -> Result<(), String> {
        self.daemons.release(&MpsPlace::device(INDEX)).map_err(|error| pillion_core::report(&error))
    }

    /// How the agent's code sees it.
    ///
    /// # Errors
    /// A sentence: what it does not understand.
    pub fn status(&mut self) -> Result<Option<MpsStatus>, String> {
        self.daemons.status(&MpsPlace::device(INDEX)).map_err(|error| pillion_core::report(&error))
    }

    /// Whether this process is a client of the daemon: one that misses it runs all the same, without MPS.
    ///
    /// # Errors
    /// A sentence: it is not, or the daemon does not tell.
    pub fn has_client(&mut self, tenant: &Tenant) -> Result<(), String> {
        let clients = self.status()?.map(|status| status.client_pids).unwrap_or_default();
        let is_there = clients.contains(&tenant.pid());
        if is_there { Ok(()) } else { Err("a client runs that the daemon does not know".to_owned()) }
    }

    /// Lets one client go, by the agent's code.
    ///
    /// # Errors
    /// A sentence: why not.
    pub fn terminate(&mut self, pid: u32) -> Result<(), String> {
        self.daemons
            .terminate_client(&MpsPlace::device(INDEX), pid)
            .map_err(|error| pillion_core::report(&error))
    }

    /// Says one command to the daemon.
    ///
    /// # Errors
    /// A sentence: it cannot be said, or is not answered in time.
    pub fn say(&self, text: &str) -> Result<Said, String> {
        let mut program = command(&self.control);
        program.env("CUDA_MPS_PIPE_DIRECTORY", self.pipe_directory());
        run(program, &format!("{text}\n"), COMMAND_DEADLINE)
    }

    /// Runs the control program with an argument, without a daemon.
    ///
    /// # Errors
    /// As [`Bench::say`].
    pub fn call(&self, argument: &str) -> Result<Said, String> {
        let mut program = command(&self.control);
        program.arg(argument).env("CUDA_MPS_PIPE_DIRECTORY", self.directory.join("nobody"));
        run(program, "", COMMAND_DEADLINE)
    }

    /// The process of the daemon or its server, by its name in the list of servers.
    pub fn server_pid(&self) -> Option<u32> {
        self.say("get_server_list").ok()?.out.split_whitespace().find_map(|word| word.parse().ok())
    }

    /// The process of the daemon.
    pub fn daemon_pid(&self) -> Option<u32> {
        let file = self.pipe_directory().join("nvidia-cuda-mps-control.pid");
        std::fs::read_to_string(file).ok()?.trim().parse().ok()
    }

    /// A client of the daemon, with the environment that the agent makes for a tenant with this share.
    pub fn client(&self, workload: Workload, limits: Limits) -> Client {
        Client::new(workload, self.variables(limits))
    }

    /// That environment.
    pub fn variables(&self, limits: Limits) -> Vec<(String, String)> {
        let share = Share {
            decision_id: DecisionId(1),
            start: JobStart { job_id: SlurmJobId::plain(1), restart_count: 0 },
            uid: UserId(0),
            gres_types: self.device.gres_type.clone().into(),
            sharing: Sharing::Mps { cap: limits.cap_fraction, memory_limit_bytes: limits.memory_bytes },
            shards: Shards::ALL,
            memory_bytes: None,
            is_session: false,
            is_plain: false,
        };
        let pipe = self.pipe_directory();
        let paths =
            SharePaths { progress: None, mps_pipe_directory: pipe, mps_partition: None, instance: None };
        environment(&share, std::slice::from_ref(&self.device), &paths)
    }

    /// Starts such a client.
    ///
    /// # Errors
    /// As [`Tenant::start`].
    pub fn tenant(&self, workload: Workload, limits: Limits) -> Result<Tenant, String> {
        Tenant::start(&self.client(workload, limits))
    }

    /// The variables of a program that finds no daemon.
    pub fn without_mps(&self) -> Vec<(String, String)> {
        let nobody = self.directory.join("nobody").display().to_string();
        vec![
            ("CUDA_VISIBLE_DEVICES".to_owned(), self.device.uuid.to_string()),
            ("CUDA_MPS_PIPE_DIRECTORY".to_owned(), nobody),
        ]
    }

    /// Whether anything of the daemon is left: a process of it, or its directory.
    pub fn is_gone(&self) -> bool {
        !self.directory.join("g0/pipe").exists()
    }
}

/// What a tenant may use.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Limits {
    /// Of the compute units.
    pub cap_fraction: Option<Fraction>,
    /// Of the memory.
    pub memory_bytes: Option<u64>,
}

impl Limits {
    /// A cap in hundredths; 100 is none, as it is for the agent.
    pub fn cap(hundredths: u32) -> Self {
        let cap_fraction = (hundredths < 100).then(|| Fraction::clamped(f64::from(hundredths) / 100.0));
        Self { cap_fraction, memory_bytes: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_have_the_environment_that_the_agent_makes() {
        let bench = Bench::new("/usr/bin/true".into(), "/tmp/x".into(), "GPU-1");
        let limits = Limits { memory_bytes: Some(2 << 30), ..Limits::cap(30) };
        let variables = bench.client(Workload::Compute, limits).variables;
        let text: Vec<String> = variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let expected = [
            "CUDA_VISIBLE_DEVICES=GPU-1",
            "CUDA_MPS_PIPE_DIRECTORY=/tmp/x/g0/pipe",
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30",
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2048M",
            "PILLION_DECISION=1",
        ];
        assert_eq!(text, expected);
        assert_eq!(Limits::cap(100), Limits::default(), "no cap, and no variable");
    }
}
