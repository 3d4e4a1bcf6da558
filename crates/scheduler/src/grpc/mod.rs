//! The gRPC services: thin. `agent` hands each message to `ingest`, `operator` reads the store and the board, `act` writes
//! down what operators order. `auth` is the one
//! place where a caller is told apart, `status` the one place where errors become gRPC codes.

mod act;
mod admit;
pub mod agent;
pub mod auth;
mod browse;
mod events;
mod explain;
pub(crate) mod fair;
pub(crate) mod idle;
mod job;
pub(crate) mod limits;
mod listing;
mod naming;
pub mod operator;
mod owned;
mod rightsize;
mod role;
mod scale;
mod shadow;
mod status;
mod top;
