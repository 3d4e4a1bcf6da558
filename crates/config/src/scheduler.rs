//! What the scheduler reads: the top of the file and its sections but `[agent]`.

#![expect(clippy::doc_markdown, reason = "the sentences are printed for admins as they stand")]

use crate::auth::Auth;
use crate::overrides::Override;
use crate::words::{
    EndsBy, FirstRuns, Guests, Isolation, Objective, OomRequeue, ShardsBy, Trials, Users, Watch,
};
use pillion_core::heartbeat::Mode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The scheduler's part of the file. `pillion doctor` and `pillion rescue` look into it too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Scheduler {
    /// What the scheduler does. "off": it watches Slurm and takes reports of agents; jobs stay as their users wrote them.
    /// "shadow": besides, it decides on the jobs of observe.partitions as if these were the pool and every job of one GPU had asked
    /// to share; nothing is done of it, and when the jobs have ended it is scored (pillion shadow report). "active": jobs with
    /// --colocate wait in the pool for a decision, and share.
    #[schemars(with = "String", extend("enum" = ["off", "shadow", "active"]))]
    pub mode: Mode,
    /// The private Postgres lives in this directory, where no database is named below.
    #[schemars(extend("x-rule" = "absolute-path"))]
    pub state_directory: PathBuf,
    /// The file by which pillion.lua knows that the scheduler lives. On the controller's own disk or in memory, never on a
    /// network file system; the same path as in job_submit.lua (pillion.configure), whose default is this one.
    #[schemars(extend("x-rule" = "absolute-path"))]
    pub heartbeat_path: PathBuf,
    /// The dead man's switch: if all of Pillion dies, Slurm starts each waiting job alone this much later at the latest.
    #[schemars(range(min = 10, max = 3600))]
    pub bound_seconds: u64,
    /// How often the queue is read.
    #[schemars(range(min = 0.2, max = 10.0))]
    pub scan_period_seconds: f64,
    /// Which partitions are the pool.
    pub pool: PoolConfig,
    /// Which partitions are only observed.
    pub observe: ObserveConfig,
    /// How Slurm is reached.
    pub slurm: SlurmConfig,
    /// Where what was learnt is kept.
    pub database: DatabaseConfig,
    /// Who may reach the scheduler, and where.
    pub listen: ListenConfig,
    /// How whoever comes over TCP, and the scheduler, prove to each other who they are. Read by the scheduler and by the
    /// command line.
    pub auth: Auth,
    /// The read-only web page.
    pub web: WebConfig,
    /// What the site wants.
    pub policy: PolicyConfig,
    /// When the model is trained.
    pub training: TrainingConfig,
    /// What is told to Prometheus.
    pub metrics: MetricsConfig,
}

/// `[pool]`: which partitions are shared, and what users call their GPUs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PoolConfig {
    /// Partitions whose nodes serve shards only, in order of preference: a job goes to the first that could run it. May be absent
    /// where observe.partitions is given.
    #[schemars(length(min = 1), extend("x-example" = ["shared"]))]
    pub partitions: Vec<String>,
    /// What becomes of a job that names a partition of the pool and does not ask for co-location. "refused": its user is told what to
    /// write. "whole": it has whole GPUs, in Slurm's order, which nobody shares; so that the partition in which everybody works can be
    /// the pool. Batch jobs, salloc and srun; those with -w, --exclusive or a reservation are refused all the same.
    #[schemars(with = "String", extend("enum" = ["refused", "whole"]))]
    pub plain_jobs: PlainJobs,
    /// Whether a job that names a partition of the pool and says nothing of co-location counts as one that asks for it. "asked": it does
    /// not; plain_jobs says what becomes of it. "on": a batch job of one GPU may share there as if it said --colocate, and is told so;
    /// --colocate=no keeps it from that. What cannot be co-located, salloc and srun are treated as plain_jobs says.
    #[schemars(with = "String", extend("enum" = ["asked", "on"]))]
    pub colocate: Colocate,
    /// The same as pool.colocate for single partitions of the pool.
    #[schemars(
        with = "BTreeMap<String, String>",
        extend("x-example" = { "shared": "on" },
            "additionalProperties" = { "type": "string", "enum": ["asked", "on"] })
    )]
    pub colocate_partitions: BTreeMap<String, Colocate>,
    /// Names by device model under which users may ask for a GPU (--gres=gpu:hopper:1), besides the model itself. The pool's
    /// own types are g0, g1, .., one a GPU, so what users know as types has to be named here. Models as agents report them:
    /// `pillion status --json`.
    #[schemars(extend("x-example" = { "h200": ["h200", "hopper"] }))]
    pub gpu_types: BTreeMap<String, Vec<String>>,
}

/// What becomes of a job of a pool's partition that does not ask for co-location.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlainJobs {
    /// It is refused.
    #[default]
    Refused,
    /// It has whole GPUs.
    Whole,
}

/// Which jobs of the pool's partitions may share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Colocate {
    /// Those that ask for it.
    #[default]
    Asked,
    /// All that do not say no.
    On,
}

impl PoolConfig {
    /// The partitions of the pool in which a job that says nothing of co-location counts as one that asks for it.
    pub fn shared_by_default(&self) -> impl Iterator<Item = &str> {
        let of = |name: &String| self.colocate_partitions.get(name).unwrap_or(&self.colocate);
        self.partitions.iter().filter(move |name| *of(name) == Colocate::On).map(String::as_str)
    }
}

/// `[observe]`: which partitions are only observed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ObserveConfig {
    /// Ordinary partitions whose jobs with GPUs are measured by agents with mode = "observe", and learnt from. Nothing is changed
    /// there: Slurm is only read, and jobs stay as their users wrote them. With it a pool is not needed. Nodes that stand in the
    /// pool as well are the pool's.
    #[schemars(extend("x-example" = ["gpu"]))]
    pub partitions: Vec<String>,
    /// Decides on their jobs whatever the mode is, as mode = "shadow" does: nothing is done of it, and it is scored. So one node can be
    /// an active pool while the rest of the site is only looked at, and what is measured in that pool is held against what was
    /// foretold (pillion shadow report).
    pub shadow: bool,
}

/// `[slurm]`: how Slurm's programs are run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SlurmConfig {
    /// The directory of squeue and scontrol; absent: they are looked for in PATH.
    #[schemars(extend("x-rule" = "absolute-path", "x-example" = "/usr/bin"))]
    pub binary_directory: Option<PathBuf>,
    /// Slurm's configuration; absent: where Slurm looks for it.
    #[schemars(extend("x-rule" = "absolute-path", "x-example" = "/etc/slurm/slurm.conf"))]
    pub conf: Option<PathBuf>,
    /// How long one of these programs may take.
    #[schemars(range(min = 1, max = 60))]
    pub timeout_seconds: u64,
}

/// `[database]`: where the store is, and how long it keeps what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DatabaseConfig {
    /// A PostgreSQL server (tested: 15 and 17), with a database and a role that owns it, or by socket:
    /// "postgres:///pillion?host=/run/postgresql"; absent: a private Postgres in state_directory, made from the programs
    /// installed on this machine. Beyond this machine the connection is encrypted and the server's certificate verified
    /// (sslmode=verify-full, by the system's authorities or sslrootcert=FILE); anything weaker is refused. With a password in
    /// it, give this file mode 0640 and group slurm.
    #[schemars(extend("x-rule" = "postgres-url", "x-example" = "postgres://pillion:PASSWORD@db.example.org/pillion"))]
    pub url: Option<String>,
    /// The directory of initdb, pg_ctl and postgres, for the private one; absent: they are looked for.
    #[schemars(extend("x-rule" = "absolute-path", "x-example" = "/usr/lib/postgresql/17/bin"))]
    pub binary_directory: Option<PathBuf>,
    /// How many days decisions, explanations, events, runs and ended jobs are kept: how far back pillion explain, pairs and
    /// events can tell. What was learnt from them, and what sharing gained by the hour, is kept for ever. 0: all of it for ever.
    #[schemars(range(min = 0, max = 36500))]
    pub history_kept_days: u32,
    /// How many days the samples of the devices are kept: some 14 MB a day of each device.
    #[schemars(range(min = 1, max = 3650))]
    pub samples_kept_days: u32,
    /// How far apart the samples of a device are that are kept, besides one whenever a job comes to it or goes. Agents look more often
    /// (agent.sample_period_seconds), and what is of the moment goes by that; of what is kept the scheduler reads the power of a sharing.
    #[schemars(range(min = 1, max = 3600))]
    pub sample_period_seconds: u32,
}

/// `[listen]`: where agents and command lines connect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ListenConfig {
    /// For the agents, and for the command line on other machines. It is encrypted, and everybody proves who he is (auth.method).
    /// The default serves this machine alone.
    #[schemars(with = "String", extend("x-rule" = "socket-address"))]
    pub tcp: SocketAddr,
    /// For the command line on this machine. Users see their own jobs here, by the kernel's word on who they are.
    #[schemars(extend("x-rule" = "socket-path"))]
    pub socket: PathBuf,
    /// Uids that see everything, besides root and the user that the scheduler runs as: here and over TCP.
    pub operator_uids: Vec<u32>,
}

/// `[web]`: where the read-only page is served.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WebConfig {
    /// Where the page is served, as plain HTTP; absent: nowhere. Whoever opens it on this machine, or through ssh -L as
    /// himself, sees what the command line shows him: the kernel says whose connection it is. A proxy in between would lend
    /// its own eyes to everybody.
    #[schemars(with = "Option<String>", extend("x-rule" = "socket-address", "x-example" = "127.0.0.1:6821"))]
    pub listen_address: Option<SocketAddr>,
    /// Whether that address may be reachable from other machines. Who comes from there is nobody: he sees devices and sums,
    /// and no job, user or workload.
    pub allow_remote: bool,
}

/// `[policy]`: who may share with whom, and what for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
pub struct PolicyConfig {
    /// Who may share a device. On NVIDIA devices "same-account" and "any" need mps.multi_user in the agents' part.
    #[schemars(with = "String", extend("enum" = ["same-user", "same-account", "any"]))]
    pub users: Users,
    /// What stands between tenants of different users. "shared": what the mechanism gives, which under MPS is no wall. "hard":
    /// users share a device in MIG instances of their own only, and none that cannot be cut into such. A job may ask for more
    /// (--colocate=isolation=hard), never for less.
    #[schemars(with = "String", extend("enum" = ["shared", "hard"]))]
    pub isolation: Isolation,
    /// Whether two jobs of one user may share one MIG instance, by an MPS daemon of its own, where both keep their promises in it. Never two
    /// users. How fast they are there is foretold from their runs on whole devices and was measured on no GPU yet; what becomes of such
    /// runs teaches nothing of pairs, and no watch follows their promises. Agents of an earlier release refuse such shares.
    pub share_instances: bool,
    /// Whether batch jobs of several GPUs of one node share them, two jobs of equally many on the same GPUs, by one MPS daemon for all of them.
    /// Only where both workloads ran alone with as many GPUs before and each GPU keeps what is promised. Off until it was seen on real
    /// GPUs: whether NCCL works beside another job under MPS was measured on none, and a fault of one job reaches the other on every GPU.
    /// Agents of an earlier release refuse such shares.
    pub share_wide: bool,
    /// What a plan maximises: "throughput" (GPU-hours saved), "energy" or "throughput-per-watt".
    #[schemars(with = "String", extend("enum" = ["throughput", "energy", "throughput-per-watt"]))]
    pub objective: Objective,
    /// The promise to jobs that name none: they take at most so many times as long as alone.
    #[schemars(range(min = 1.0, max = 10.0))]
    pub slowdown_ratio_max: f64,
    /// Device memory kept free on a shared device, of its whole memory.
    #[schemars(range(min = 0.0, max = 0.5))]
    pub memory_margin_fraction: f64,
    /// The least gain for which jobs share: the sum of their speeds, each as a fraction of its speed alone, less one.
    #[schemars(range(min = 0.0, max = 3.0))]
    pub gain_min: f64,
    /// How many jobs may share a device; with 1 nobody shares. More than 4 are copies of one workload (tasks of an array), each one more
    /// after as many as run there were measured together and kept their promises.
    #[schemars(range(min = 1, max = 16))]
    pub tenants_max: u32,
    /// Whether a job may be kept from the whole of a device's compute units.
    pub caps: bool,
    /// Runs alone that a workload needs before it is paired.
    #[schemars(range(min = 0, max = 1000))]
    pub solo_runs_min: u32,
    /// Seconds that these runs must have taken together: a profile of a moment says little of a job that runs for hours.
    #[schemars(range(min = 0.0, max = 86400.0), extend("x-unit" = "seconds"))]
    pub solo_seconds_min: f64,
    /// What becomes of the first run of a workload. "alone": it has its device to itself until it ends. "host": once it was measured
    /// alone for first_run_seconds_min, is steady and counts its progress, known jobs may join it, with a promise like everybody's;
    /// only where watch is "act" in every partition of the pool. A quarter of new jobs costs a third of what sharing saves
    /// under "alone".
    #[schemars(with = "String", extend("enum" = ["alone", "host"]))]
    pub first_runs: FirstRuns,
    /// Seconds that a first run is measured alone before anybody may join it, where first_runs is "host".
    #[schemars(range(min = 60.0, max = 86400.0), extend("x-unit" = "seconds"))]
    pub first_run_seconds_min: f64,
    /// By what it is known when a job is over, where somebody waits for a whole device and another would join a job that runs: no
    /// joiner may keep its host's device for longer. "runs": by what its workload took in two or more runs, and of others by
    /// their time limits, which users set many times too long. "limits": by time limits alone.
    #[schemars(with = "String", extend("enum" = ["runs", "limits"]))]
    pub ends_by: EndsBy,
    /// Runs alone that a user owes whose job did far more than the profile that it was let in by, or whose newcomer broke a
    /// promise to somebody else. By user, for a name is anybody's to make up. 0: none, it is only told as an event.
    #[schemars(range(min = 0, max = 1000))]
    pub credit_runs: u32,
    /// By what the shards are chosen that Slurm books and bills for a job that shares. "profile": by how much of a GPU its
    /// workload uses alone. "use": by that, and by how much more than its profile says its last runs were seen to use beside others; of
    /// a workload that was not seen beside others, by how much more its user's were. A running job keeps what it was booked with.
    #[schemars(with = "String", extend("enum" = ["profile", "use"]))]
    pub shards_by: ShardsBy,
    /// What becomes of a job that certainly ran out of GPU memory beside others or under a memory limit. "ask": where its user wrote
    /// --colocate=restart=yes, it is started again once, with at least half as much again, unless it was submitted with --no-requeue or
    /// ran longer than an hour. --colocate=restart=early also lets it be ended where it will all but certainly run out. "never": its user is
    /// told, and nothing else.
    #[schemars(with = "String", extend("enum" = ["ask", "never"]))]
    pub oom_requeue: OomRequeue,
    /// Devices that one user's jobs may hold at once for themselves alone, because they are measured or leave room for nobody,
    /// before his next such job comes after everybody else's. It costs nobody anything who waits alone.
    #[schemars(range(min = 1, max = 100_000))]
    pub alone_devices_max: u32,
    /// Of the jobs that share, how many may be expected to run slower than promised, each promise being kept by itself
    /// already: a bound on the whole plan.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub broken_budget_fraction: f64,
    /// Whether jobs share where a device is free for each of them. false: only when devices are short.
    pub pair_when_idle: bool,
    /// What is done where a job beside others goes slower than it was promised, as surely as its progress counter tells. "off":
    /// nothing. "advise": it is told as an event, and nobody joins that GPU any more. "act": besides, who joined it last is ended
    /// and started again, alone; each job once at most, never with --no-requeue, and not where less time is left beside it than
    /// going back costs.
    #[schemars(with = "String", extend("enum" = ["off", "advise", "act"]))]
    pub watch: Watch,
    /// Whose progress counter is believed where it says that a promise is being broken beside a job of another user: how fast a counter
    /// counts is its user's to write, and who writes it slowly could have others sent away. "same-user": nobody's; beside another user's
    /// job only what agents measured themselves counts besides. "same-account": that of another user of the same account. "any":
    /// everybody's, for sites whose users do not cheat each other. Trials are of jobs between which counters are believed.
    #[schemars(with = "String", extend("enum" = ["same-user", "same-account", "any"]))]
    pub watch_believes: Users,
    /// Seconds of progress after which a job beside others is first judged; its start-up and the time until its counter moves do
    /// not count.
    #[schemars(range(min = 10, max = 3600))]
    pub watch_first_seconds: u32,
    /// Seconds of progress from each further judgement to the next.
    #[schemars(range(min = 10, max = 86400))]
    pub watch_steady_seconds: u32,
    /// What it costs to end a job and start it again, beside the work that it loses, which is counted by itself.
    #[schemars(range(min = 0, max = 86400))]
    pub watch_restart_seconds: u32,
    /// Whether two jobs of one user share for a trial where nobody can say that both keep their promises: where that is worth
    /// more than it costs to take them apart again. Only where both count their progress, in partitions whose watch is "act", and
    /// never with --no-requeue: the job that joined last goes back where a promise breaks.
    #[schemars(with = "String", extend("enum" = ["off", "on"]))]
    pub trials: Trials,
    /// Whether jobs that were submitted as guests (--colocate=guest) may be beside others, who keep their promises. "never": a guest
    /// has its GPU alone.
    #[schemars(with = "String", extend("enum" = ["beside", "never"]))]
    pub guests: Guests,
    /// Seconds for which an interactive job (salloc or srun with --colocate=memory=SIZE, sbatch with --colocate=session,memory=SIZE) leaves
    /// its GPU idle before a guest may come to it.
    /// The guest goes as soon as the GPU is used again.
    #[schemars(range(min = 10.0, max = 86400.0), extend("x-unit" = "seconds"))]
    pub session_idle_seconds: f64,
    /// The same as policy.watch for single partitions, by the partition of the job that joined last.
    #[schemars(
        with = "BTreeMap<String, String>",
        extend("x-example" = { "night": "act" },
            "additionalProperties" = { "type": "string", "enum": ["off", "advise", "act"] })
    )]
    pub watch_partitions: BTreeMap<String, Watch>,
    /// Other rules for some jobs; the first that matches a job counts.
    #[serde(rename = "override", skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<Override>,
}

/// `[training]`: when a model is trained anew, and on how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TrainingConfig {
    /// New observations of jobs that shared a device, or changed profiles of workloads, that make a new model worth
    /// training. An outcome that was worse than the model thought possible does not wait for others.
    #[schemars(range(min = 1, max = 1000))]
    pub observations_min: u32,
    /// The least time between two trainings.
    #[schemars(range(min = 1, max = 86400), extend("x-unit" = "seconds"))]
    pub period_seconds_min: u64,
    /// How many observations a model is trained on: the newest.
    #[schemars(range(min = 100, max = 100_000))]
    pub observations_max: u32,
}

/// `[metrics]`: the scheduler's page for Prometheus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsConfig {
    /// Where Prometheus gets the scheduler's metrics, at /metrics; absent: nowhere. Whoever reaches it may read them: they
    /// name nodes and devices, and no job, user or workload. Where the address cannot be had, the scheduler goes on without.
    #[schemars(with = "Option<String>", extend("x-rule" = "socket-address", "x-example" = "127.0.0.1:9820"))]
    pub listen_address: Option<SocketAddr>,
}

impl PolicyConfig {
    /// What is done in this partition about promises that are being broken.
    fn watch_of(&self, partition: &str) -> Watch {
        *self.watch_partitions.get(partition).unwrap_or(&self.watch)
    }
}

impl Scheduler {
    /// Pool partitions in which nobody parts a pair whose promise breaks, where first runs are to be hosts: because of them they
    /// stay alone, for whoever joins a host that was measured for minutes must be able to go back. Empty: nothing stands in the way.
    pub fn first_runs_unwatched(&self) -> Vec<&str> {
        let rules = self.policy.overrides.iter().filter_map(|own| own.first_runs);
        if rules.chain([self.policy.first_runs]).all(|rule| rule == FirstRuns::Alone) {
            return Vec::new();
        }
        let names = self.pool.partitions.iter();
        names.filter(|name| self.policy.watch_of(name) != Watch::Act).map(String::as_str).collect()
    }

    /// Whether guests are sent back in any partition of the pool.
    pub fn sends_guests_back(&self) -> bool {
        let of_some = self.policy.overrides.iter().filter_map(|own| own.watch);
        let of_partitions = self.pool.partitions.iter().map(|name| self.policy.watch_of(name));
        of_partitions.chain(of_some).any(|watch| watch == Watch::Act)
    }
}

impl Default for Scheduler {
    fn default() -> Self {
        Self {
            mode: Mode::Off,
            state_directory: PathBuf::from("/var/lib/pillion"),
            heartbeat_path: PathBuf::from("/run/pillion/heartbeat"),
            bound_seconds: 600,
            scan_period_seconds: 2.0,
            pool: PoolConfig::default(),
            observe: ObserveConfig::default(),
            slurm: SlurmConfig::default(),
            database: DatabaseConfig::default(),
            listen: ListenConfig::default(),
            auth: Auth::default(),
            web: WebConfig::default(),
            policy: PolicyConfig::default(),
            training: TrainingConfig::default(),
            metrics: MetricsConfig::default(),
        }
    }
}

impl Default for DatabaseConfig {
    fn default() -> Self {
        Self {
            url: None,
            binary_directory: None,
            history_kept_days: 400,
            samples_kept_days: 7,
            sample_period_seconds: 10,
        }
    }
}

impl Default for SlurmConfig {
    fn default() -> Self {
        Self { binary_directory: None, conf: None, timeout_seconds: 10 }
    }
}

impl Default for ListenConfig {
    fn default() -> Self {
        Self {
            tcp: SocketAddr::from(([127, 0, 0, 1], 6820)),
            socket: PathBuf::from("/run/pillion/scheduler.sock"),
            operator_uids: Vec::new(),
        }
    }
}

impl Default for PolicyConfig {
    fn default() -> Self {
        Self {
            users: Users::SameUser,
            isolation: Isolation::Shared,
            share_instances: false,
            share_wide: false,
            objective: Objective::Throughput,
            slowdown_ratio_max: 1.25,
            memory_margin_fraction: 0.05,
            gain_min: 0.1,
            tenants_max: 2,
            caps: true,
            solo_runs_min: 1,
            solo_seconds_min: 30.0,
            first_runs: FirstRuns::Alone,
            first_run_seconds_min: 300.0,
            ends_by: EndsBy::Runs,
            credit_runs: 10,
            shards_by: ShardsBy::Profile,
            oom_requeue: OomRequeue::Ask,
            alone_devices_max: 4,
            broken_budget_fraction: 0.02,
            pair_when_idle: true,
            watch: Watch::Advise,
            watch_believes: Users::SameUser,
            watch_first_seconds: 60,
            watch_steady_seconds: 600,
            watch_restart_seconds: 120,
            watch_partitions: BTreeMap::new(),
            overrides: Vec::new(),
            trials: Trials::Off,
            guests: Guests::Beside,
            session_idle_seconds: 300.0,
        }
    }
}

impl Default for TrainingConfig {
    fn default() -> Self {
        Self { observations_min: 5, period_seconds_min: 60, observations_max: 20_000 }
    }
}
