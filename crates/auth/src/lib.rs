//! Who is at the other end of a TCP connection, and the proof that we are who we say: used by agent, scheduler and command line.
//!
//! ```text
//!  client                                        scheduler
//!   TCP, TLS 1.3 (a certificate made at its start: secret, not yet proven)
//!   exporter E of this very connection            the same E, if nobody sits between
//!   claim: method, role, proof over E   ───────►  judged before a byte of gRPC is read
//!   judged before anything is sent        ◄───────  answer: its own proof over E, or why not
//!   gRPC                                ◄──────►  with the `Peer` in each request
//! ```
//!
//! What is pure: `claim` (the texts), `verify` (is a proof good), `key` (the shared secret). `prover` puts them together with the
//! modules that act: `munge`, `tls`, files. What a peer may do, once it is known, is decided elsewhere.

mod claim;
mod client;
mod error;
mod frame;
mod identity;
mod key;
mod limits;
pub mod munge;
mod prover;
mod refusals;
mod server;
mod tls;
mod verify;

pub use claim::{Answer, Claim, Claimant, Exporter, Method};
pub use client::Door;
pub use error::{AuthError, Denial};
pub use identity::Identity;
pub use key::{KEY_OVERLAP, Keys, new_key, new_key_file};
pub use prover::{Judged, Prover};
pub use refusals::{Refusals, Refused};
pub use server::{Gate, Peer, Welcomed};
