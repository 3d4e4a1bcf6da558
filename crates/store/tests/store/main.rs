//! What both stores promise, tested over both: `MemoryStore` case by case, `PgStore` on a database a case. What only one of
//! them can do (faults on request, a server that goes away) follows.

mod accounts;
mod archive;
mod browse;
mod charges;
mod conformance;
mod credit;
mod faults;
mod fixtures;
mod growth;
mod learning;
mod memory;
mod mig;
mod names;
mod observed;
mod operators;
mod postgres;
mod reports;
mod roles;
mod scaling;
mod shadow;
mod slices;
mod starts;
#[path = "../support/postgres.rs"]
mod support;
mod tls;
