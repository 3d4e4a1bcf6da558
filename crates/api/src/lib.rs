//! What people ask the scheduler and what it answers: one type an answer, made of `proto/pillion/v1/operator.proto`, which the
//! command line, the web page and `--json` read as it came.
//!
//! A field that is added is written to `--json` under its own name; a field of a later release is passed over. Words of
//! states, kinds and reasons stay texts, for a later release may know more of them: whoever decides by one reads it
//! ([`Fault::kind`], [`JobStatus::lesson`]).
//!
//! It knows neither stores nor Slurm, and not who may see what: the scheduler leaves that out before it answers.

mod answer;
mod device;
mod json;
mod profile;

/// Generated from `proto/pillion/v1/operator.proto`.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated code")]
mod generated {
    tonic::include_proto!("pillion.v1");
}

pub use generated::*;
