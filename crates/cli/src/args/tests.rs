//! The command line as it is typed: what is taken, and what is answered with what was expected.

use super::*;
use clap::CommandFactory as _;

#[test]
fn the_command_line_is_well_formed() {
    Args::command().debug_assert();
}

#[test]
fn plan_wants_exactly_one_input() {
    let parse = |line: &str| Args::try_parse_from(line.split(' '));
    assert!(parse("pillion plan --live").is_ok());
    assert!(parse("pillion plan --view a.json --max-slowdown 1.2").is_ok());
    assert!(parse("pillion plan --solo a.csv --queue b.csv --mechanism mps").is_ok());
    for wrong in [
        "pillion plan",
        "pillion plan --live --view a.json",
        "pillion plan --solo a.csv",
        "pillion plan --live --history a.csv",
        "pillion plan --solo a.csv --queue b.csv --candidates --parsable2",
    ] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_bad_value_is_answered_with_what_was_expected() {
    let error = |option: &str| {
        let line = format!("pillion plan --solo a.csv --queue b.csv {option}");
        Args::try_parse_from(line.split(' ')).unwrap_err().to_string().lines().next().unwrap().to_owned()
    };
    let cases = [
        ("--max-slowdown 0.9", "'--max-slowdown <R>': a ratio from 1 to 10 is expected; write 1.25"),
        ("--max-slowdown nan", "'--max-slowdown <R>': a ratio from 1 to 10 is expected; write 1.25"),
        ("--broken-budget 2", "'--broken-budget <F>': a fraction from 0 to 1 is expected; write 0.02"),
        ("--device-memory 80G", "'--device-memory <BYTES>': a number of bytes is expected, 1 or more"),
        ("--max-tenants 17", "'--max-tenants <N>': 17 is not in 1..=16"),
        ("--caps maybe", "'--caps <CAPS>'"),
        ("--objective speed", "'--objective <OBJECTIVE>'"),
        (
            "--mechanism mig",
            "'--mechanism <MECHANISM>': pairs share by mps, ccs and none; by mig each has an instance of its own",
        ),
    ];
    for (option, expected) in cases {
        let message = error(option);
        assert!(message.starts_with("error: invalid value '"), "{message}");
        assert!(message.contains(expected), "{message:?} lacks {expected:?}");
    }
    let line = "pillion plan --solo a.csv --queue b.csv --device-memory 8e10";
    let Command::Plan(plan) = Args::try_parse_from(line.split(' ')).unwrap().command else {
        panic!("{line}")
    };
    assert_eq!(plan.device_memory, Some(80_000_000_000));
}
