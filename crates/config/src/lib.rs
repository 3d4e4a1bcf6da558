//! `/etc/pillion/pillion.toml`, the one configuration file of Pillion's programs: its keys, what each may hold, and who reads
//! what. But for reading the file it is pure: texts in, values or [`Mistake`]s out. Beside it, what is read of Slurm's own files
//! ([`slurm_files`]).
//!
//! ```text
//! structs (docs, defaults, ranges) ─► schema ─► example  (deploy/pillion.toml.example, `pillion config example`)
//!                                          └──► check ──► Mistakes: line, key, what is allowed
//! text ─► check ─► Scheduler | Agent       └──► show  ──► each key's value and where it comes from
//! ```
//!
//! The structs are the one place where a key is written down. What the scheduler reads stands at the top of the file and in
//! sections, what the agent reads in `[agent]`; each program answers for its own part only, so that a key that one of them
//! does not know yet never keeps the other from starting.

mod agent;
mod auth;
mod check;
mod database;
mod example;
mod manual;
mod migrate;
mod mistake;
mod overrides;
mod read;
mod replaced;
mod rules;
mod scheduler;
mod schema;
mod show;
pub mod slurm_files;
mod words;

pub use agent::{
    Agent, AgentMetricsConfig, AgentMode, BackendKind, DevicesConfig, ExporterConfig, IntelConfig, MigConfig,
    MpsConfig, NvidiaConfig, SchedulerConfig, SimulatedConfig,
};
pub use auth::{Auth, AuthMethod};
pub use example::example;
pub use manual::manual;
pub use migrate::{Migration, Step, migrate};
pub use mistake::{ConfigError, Mistake};
pub use overrides::Override;
pub use read::{Part, mistakes, parse_agent, parse_scheduler, parts, read_agent};
pub use rules::{is_loopback_host, scheduler_addresses};
pub use scheduler::{
    Colocate, DatabaseConfig, ListenConfig, MetricsConfig, ObserveConfig, PlainJobs, PolicyConfig,
    PoolConfig, Scheduler, SlurmConfig, TrainingConfig, WebConfig,
};
pub use schema::{Key, Section, scheduler_sections};
pub use show::{Origin, Setting, read_scheduler_in_force, show};
pub use words::{
    EndsBy, FirstRuns, Guests, Isolation, Objective, OomRequeue, ShardsBy, Trials, Users, Watch,
};

/// Where the file is, unless `--config` names another place.
pub const CONFIG_PATH: &str = "/etc/pillion/pillion.toml";
/// The agent's own file of earlier releases, which goes before the common one where it exists.
pub const AGENT_CONFIG_PATH: &str = "/etc/pillion/agent.toml";
