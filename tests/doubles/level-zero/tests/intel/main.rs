//! Pillion's Intel backend through Level Zero, both ways: below the system's real loader, and by `zesInit`. Each test is a
//! process of its own; what it reads is held against what the device model did.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod ccs;
mod errors;
mod fields;
mod scene;
mod stream;

/// Makes each play a test of both ways.
macro_rules! both_ways {
    ($($name:ident)*) => {
        mod modern {
            $(#[test] fn $name() {
                let name = concat!(module_path!(), "::", stringify!($name));
                let name = name.split_once("::").unwrap().1;
                crate::scene::play(name, crate::scene::Way::Modern, super::$name);
            })*
        }
        mod legacy {
            $(#[test] fn $name() {
                let name = concat!(module_path!(), "::", stringify!($name));
                let name = name.split_once("::").unwrap().1;
                crate::scene::play(name, crate::scene::Way::Legacy, super::$name);
            })*
        }
    };
}
pub(crate) use both_ways;
