//! The two readers of `--colocate`: Rust's in the plugin, and lua's in slurmctld, which must agree on every text.

use crate::option_line::{normalised_option_line, option_line};
use crate::values::{bytes_like, text_like};
use crate::{fuzz, fuzz_in_turns};
use pillion_core::option::{self, ColocateOption, OPTION_LENGTH_MAX};
use pillion_tests::process::Program;
use proptest::prelude::*;
use std::path::{Path, PathBuf};

const EXAMPLES: [&str; 20] = [
    "yes",
    "guest",
    "guest,memory=8G",
    "session,memory=8G",
    "no",
    "(null)",
    "max-slowdown=1.15",
    "max-slowdown=10",
    "profile=bert-large_v2.1",
    "memory=8G",
    "memory=17179869184K",
    "memory=16TiB",
    "cap=0.3",
    "cap=1",
    "isolation=hard",
    "isolation=hard,cap=0.3",
    "restart=yes",
    "restart=early",
    "memory=8G,restart=yes",
    "max-slowdown=1.1,profile=bert,memory=24GB,cap=0.9",
];
/// How many values one run of the interpreter reads.
const AT_ONCE: usize = 400;

#[test]
fn what_is_read_is_written_so_that_it_is_read_again() {
    fuzz("option", &text_like(&EXAMPLES), |text| {
        let Ok(ColocateOption::Yes(request)) = option::parse(Some(&text)) else { return };
        assert!(text.len() <= OPTION_LENGTH_MAX);
        // Written in whole kibibytes.
        if request.memory_bytes.is_none_or(|bytes| bytes % 1024 == 0) {
            let again = option::parse(Some(&request.to_string()));
            assert_eq!(again, Ok(ColocateOption::Yes(request)), "{text}");
        }
    });
}

fn lua() -> Option<&'static Path> {
    ["lua5.4", "lua5.3", "lua5.2", "lua5.1", "luajit"]
        .map(|name| Path::new("/usr/bin").join(name))
        .into_iter()
        .find(|path| path.exists())
        .map(|path| &*Box::leak(path.into_boxed_path()))
}

/// What `pillion.lua` makes of each value, as `option.lua` prints it.
fn read_by_lua(lua: &Path, values: &[Vec<u8>], folder: &Path) -> Vec<String> {
    let checkout = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let line =
        |value: &Vec<u8>| value.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}")) + "\n";
    let script = Program::new(lua)
        .arg("option.lua")
        .arg(checkout.join("deploy/slurm/pillion.lua"))
        .arg(folder)
        .folder(checkout.join("slurm-spank/tests/lua"))
        .input(values.iter().map(line).collect::<String>());
    script.stdout().unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn rust_and_lua_agree() {
    let Some(lua) = lua() else { panic!("no Lua found; install lua5.3") };
    let folder = tempfile::tempdir().unwrap();
    let examples = EXAMPLES.iter().map(|text| text.as_bytes().to_vec()).collect();
    // An interpreter a value would be slow: many at once, and few times.
    let values = prop::collection::vec(bytes_like(examples), AT_ONCE);
    fuzz_in_turns("rust and lua, 400 at once", 20, &values, |values| {
        let read = read_by_lua(lua, &values, folder.path());
        assert_eq!(read.len(), values.len());
        for (value, line) in values.iter().zip(&read) {
            assert_eq!(
                normalised_option_line(line),
                option_line(value),
                "{:?}",
                String::from_utf8_lossy(value)
            );
        }
    });
}
