//! The wire. `v1` is generated; `convert` is the only place where wire types meet domain types
//! (docs/decisions/0010-the-wire.md).

/// Generated from `proto/pillion/v1`.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated code")]
pub mod v1 {
    tonic::include_proto!("pillion.v1");
}

pub mod convert;
