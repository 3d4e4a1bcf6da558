//! `deploy/slurm/pillion.lua`, run by every Lua on this machine against a fake slurmctld (tests/lua/support.lua): Slurm is
//! built with 5.1 on Debian and with 5.4 on Red Hat. And the two readers of `--colocate`, held against each other.

#![expect(clippy::unwrap_used, reason = "a test may fail where it stands")]

#[path = "support/option_line.rs"]
mod option_line;

use option_line::{normalised_option_line, option_line};
use pillion_core::name;
use pillion_core::workload;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const INTERPRETERS: [&str; 5] = ["lua5.1", "lua5.2", "lua5.3", "lua5.4", "luajit"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Runs a script of tests/lua with `input`; `None` where this interpreter is not installed.
#[expect(clippy::disallowed_methods, reason = "runs the Lua interpreter, which no other package needs")]
fn run(interpreter: &str, script: &str, input: &str) -> Option<Output> {
    let directory = tempfile::tempdir().unwrap();
    let mut child = Command::new(interpreter)
        .arg(script)
        .arg(repository().join("deploy/slurm/pillion.lua"))
        .arg(directory.path())
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lua"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    // Written beside the reading: a full pipe each way would wait for ever.
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    let _ = writer.join().unwrap();
    Some(output)
}

/// Runs a script by every Lua that is here, and gives what each printed.
fn run_everywhere(script: &str, input: &str) -> Vec<String> {
    let outputs =
        INTERPRETERS.iter().filter_map(|name| run(name, script, input).map(|output| (name, output)));
    let texts: Vec<String> = outputs
        .map(|(name, output)| {
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{script} with {name}: {errors}");
            String::from_utf8(output.stdout).unwrap()
        })
        .collect();
    assert!(!texts.is_empty(), "no Lua found; install one of {}", INTERPRETERS.join(", "));
    texts
}

#[test]
fn submit() {
    assert!(run_everywhere("submit.lua", "").iter().all(|text| text.contains(" passed with Lua")));
}

#[test]
fn modify() {
    assert!(run_everywhere("modify.lua", "").iter().all(|text| text.contains(" passed with Lua")));
}

#[test]
fn plain() {
    assert!(run_everywhere("plain.lua", "").iter().all(|text| text.contains(" passed with Lua")));
}

#[test]
fn default() {
    assert!(run_everywhere("default.lua", "").iter().all(|text| text.contains(" passed with Lua")));
}

#[test]
fn session() {
    assert!(run_everywhere("session.lua", "").iter().all(|text| text.contains(" passed with Lua")));
}

#[test]
fn fence() {
    assert!(run_everywhere("fence.lua", "").iter().all(|text| text.contains(" passed with Lua")));
}

/// A small generator with a fixed seed: the values must be the same in each run, or a failure could not be looked at.
struct Generator(u64);

impl Generator {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }
    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }
}

/// Of settings, and nearly.
const NAMES: [&str; 13] = [
    "max-slowdown",
    "profile",
    "memory",
    "cap",
    "isolation",
    "restart",
    "Memory",
    "max_slowdown",
    "yes",
    "no",
    "guest",
    "session",
    "",
];

/// Pieces of values: right, nearly right and wrong.
const VALUES: [&str; 47] = [
    "yes",
    "early",
    "hard",
    "shared",
    "0.1",
    "0.9",
    "0.0",
    "1",
    "1.0",
    "1.15",
    "1.150",
    "10",
    "10.0",
    "10.1",
    "0.99",
    "01.5",
    "1.",
    ".5",
    "1..2",
    "1.1.1",
    "1e1",
    "0x1",
    "inf",
    "nan",
    "1.0000001",
    "123456789",
    "8G",
    "8GB",
    "8GiB",
    "8iB",
    "8B",
    "8",
    "0K",
    "16T",
    "17T",
    "16385G",
    "17179869184K",
    "17179869185K",
    "999999999999T",
    "1000000000000K",
    "8g",
    "-8G",
    "8GBB",
    "bert.v2_x-1",
    "(null)",
    "a b",
    "é",
];

/// Values around the edges of the grammar: pieces that are right, nearly right and wrong, put together at random.
fn values() -> Vec<Vec<u8>> {
    let mut generator = Generator(20_261_121);
    let mut all: Vec<Vec<u8>> = [
        "",
        "(null)",
        "yes",
        "no",
        "off",
        "on",
        ",",
        "=",
        "yes,no",
        "memory=8G,",
        "profile=a=b",
        "guest",
        "guest,guest",
        "session",
        "session,session",
        "session,memory=8G",
        "session=",
        "guest,memory=8G",
        "cap=1,guest",
        "guest=",
        "Guest",
    ]
    .iter()
    .map(|text| text.as_bytes().to_vec())
    .collect();
    for length in [63, 64, 65, 240, 256, 257] {
        all.push(format!("profile={}", "p".repeat(length)).into_bytes());
        all.push(vec![b'x'; length]);
    }
    all.extend([b"\xff".to_vec(), b"profile=\xc3".to_vec(), b"memory=8G\n".to_vec(), b"a\0b".to_vec()]);
    for _ in 0..800 {
        let settings: Vec<String> = (0..=generator.below(3))
            .map(|_| {
                let equals = generator.pick(&["=", "=", "=", "=", "", "=="]);
                format!("{}{equals}{}", generator.pick(&NAMES), generator.pick(&VALUES))
            })
            .collect();
        all.push(settings.join(",").into_bytes());
    }
    for name in &NAMES[..6] {
        all.extend(VALUES.iter().map(|value| format!("{name}={value}").into_bytes()));
    }
    all
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

#[test]
fn both_readers_of_the_option_agree() {
    let values = values();
    let expected: Vec<String> = values.iter().map(|value| option_line(value)).collect();
    // Otherwise the comparison would say little.
    let accepted = expected.iter().filter(|line| line.starts_with("yes")).count();
    assert!(accepted > 60 && accepted < values.len() - 200, "{accepted} of {} are accepted", values.len());
    let input: String = values.iter().map(|value| hexadecimal(value) + "\n").collect();
    for output in run_everywhere("option.lua", &input) {
        let lines: Vec<String> = output.lines().map(normalised_option_line).collect();
        assert_eq!(lines.len(), values.len());
        for ((value, line), expected) in values.iter().zip(&lines).zip(&expected) {
            assert_eq!(line, expected, "{:?}", String::from_utf8_lossy(value));
        }
    }
}

#[test]
fn both_make_the_same_digest_of_a_script() {
    let long: Vec<u8> = (0..70_000_u32).map(|at| u8::try_from(at % 251).unwrap_or(0)).collect();
    let scripts: [&[u8]; 9] = [
        b"",
        b"#!/bin/sh\npython train.py\n",
        b"#SBATCH -t 5\n#!/bin/sh\r\n#SBATCH --gres=gpu:1\n\tpython\x0b\x0ctrain.py",
        b"#!/bin/sh\n #SBATCH not at the beginning\n#SBATCHED\n##SBATCH\n",
        b"a\n#SBATCH\n#SBATCH\n\n#SBATCH",
        b"\xff\xfe\xc3\xa9\n\x80",
        &long[..64 * 1024],
        &long[..=64 * 1024],
        &long,
    ];
    let lines: Vec<String> =
        scripts.iter().map(|script| format!("script:train:{}", hexadecimal(script))).collect();
    let expected: Vec<String> = scripts
        .iter()
        .map(|script| workload::of_script("", "train", script).as_str().trim_start_matches('/').to_owned())
        .collect();
    for text in run_everywhere("digest.lua", &lines.join("\n")) {
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }
}

#[test]
fn both_make_the_same_digest_of_a_profile() {
    let names = ["a", "bert", "my-bert", "12345678", "123456789", "A.b_c-9", &"x".repeat(64)];
    let expected: Vec<String> = names.iter().map(|name| name::digest(&format!("profile:{name}"))).collect();
    for text in run_everywhere("digest.lua", &names.join("\n")) {
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }
}
