//! The central scheduler: reconcilers around a pure decision (docs/architecture.md, "The way of one job").

pub mod store;
