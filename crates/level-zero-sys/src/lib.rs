//! The part of Level Zero that Pillion uses: types, constants and functions as the specification writes them (oneAPI
//! Level Zero Specification 1.4; the three functions of `zesInit` are of 1.5), and a library that is loaded at run time.
//!
//! Written by hand: it is 35 functions and 20 structures, and needs neither headers nor libclang to be built. Every
//! function is optional, so that one program starts on any node, whatever its loader knows. Knows nothing of units and
//! of what a call means; that is `pillion-device`'s.

#![allow(
    non_camel_case_types,
    non_snake_case,
    clippy::wildcard_imports,
    reason = "names are those of the specification, so that they can be looked up there"
)]
#![expect(unsafe_code, reason = "loads a foreign library and calls its functions")]

mod constants;
mod functions;
mod structures;

pub use constants::*;
pub use functions::*;
pub use structures::*;
