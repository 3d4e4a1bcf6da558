//! Simulated devices, with named machines.
//!
//! ```text
//!  pillion-load ──┐ environment, workload            ┌── Simulated (Backend) ── pillion-agent
//!  (one a job)    ▼                                  ▼
//!            pillion-simulated-device: driver process, one a node (server; capabilities: the files of instances)
//!                 └─ Machine: devices, processes, MPS daemons, CCS modes, instances; stepped by time
//!                       ├─ driver: what a process's environment means      (pure)
//!                       ├─ contention: who gets what, and at which power   (pure)
//!                       └─ workload, hardware: demands and machines        (data)
//! ```
//!
//! Work goes `time_scale` times faster than real, while watts and joules are per real second: at 60 a workload of 600 s
//! takes 10 s and a sixtieth of its energy. Ratios of times, of energies and of rates are those of real time.
//!
//! A Max 1550 is simulated as one tile a device, as sites book it in the FLAT hierarchy: devices 2n and 2n + 1 are one
//! card. Whoever predicts slowdowns must not look in here: the simulation is what predictions are judged by.

mod capabilities;
mod client;
mod config;
pub mod contention;
mod device;
mod driver;
pub mod hardware;
mod in_process;
mod limits;
mod machine;
mod meter;
mod mig;
mod mps;
mod mps_service;
mod noise;
mod remote;
mod remote_mig;
mod server;
mod wire;
pub mod workload;

pub use client::{AttachRequest, ClientId, Phase, Progress, Tenant};
pub use config::{CcsScope, ConfigError, DeviceConfig, MachineConfig};
pub use driver::{ClientError, Environment, VARIABLES};
pub use in_process::InProcess;
pub use machine::Machine;
pub use meter::{Counters, Totals};
pub use mig::Way;
pub use mps_service::MpsService;
pub use remote::{JobConnection, JobError, SOCKET_DEFAULT, SOCKET_VARIABLE, Simulated, socket_path};
pub use remote_mig::Monitor;
pub use server::{ServeError, serve};
