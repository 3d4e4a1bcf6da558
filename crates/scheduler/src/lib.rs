//! The central scheduler: reconcilers around a pure decision (docs/architecture.md, "The way of one job").
//!
//! ```text
//! watch ──► board ──► engine ──► store ──► release ──► Slurm        agents ──► ingest ──► store ──► profile
//!             │                                ▲                                                        │
//!             └────────────── step, view (pure)┘◄───────────────────────────────────────────────────────┘
//! ```

#![expect(
    missing_docs,
    reason = "a program and no boundary: besides it only its tests, benches and the simulation see this library"
)]

pub mod agents;
pub mod analysis;
pub mod config;
pub mod context;
pub mod credit;
pub mod device_status;
pub mod drive;
pub mod engine;
pub mod failure;
mod fence;
pub mod first_runs;
pub mod grpc;
pub mod heartbeat;
pub mod housekeep;
pub mod idle;
pub mod ingest;
pub mod job_rules;
mod keep;
mod log;
pub mod metrics;
pub mod misses;
pub mod names;
pub mod observe;
pub mod pace;
pub mod profile;
pub mod program;
pub mod reconcilers;
pub mod release;
pub mod renew;
mod room_asked;
pub mod rules;
pub mod run;
pub mod scan;
mod sent_away;
pub mod sessions;
pub mod setup_backoff;
pub mod shadow;
pub mod step;
pub mod strays;
pub mod submitted;
#[cfg(test)]
mod testing;
pub mod tick_error;
pub mod train;
pub mod trend;
mod truth;
pub mod view;
pub mod watch;
pub mod web;
