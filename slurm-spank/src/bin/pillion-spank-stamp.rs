//! Writes a Slurm version into a copy of the built plugin: `pillion-spank-stamp IN OUT 24.11`. One build serves every
//! Slurm; packages and test clusters call this (or `stamp::stamp`) for each Slurm at hand.

use pillion_slurm_spank::stamp::stamp;
use pillion_slurm_spank::version::SlurmVersion;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match &arguments[..] {
        [from, to, version] => run(from, to, version),
        _ => Err("usage: pillion-spank-stamp IN.so OUT.so MAJOR.MINOR".to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("pillion-spank-stamp: {message}");
            ExitCode::from(64)
        }
    }
}

fn run(from: &str, to: &str, version: &str) -> Result<(), String> {
    let parsed = SlurmVersion::parse(version)
        .ok_or_else(|| format!("'{version}' is not a Slurm version; write it as 24.11"))?;
    let mut bytes = std::fs::read(from).map_err(|error| format!("cannot read {from}: {error}"))?;
    stamp(&mut bytes, parsed).map_err(|error| format!("{from}: {error}"))?;
    std::fs::write(to, bytes).map_err(|error| format!("cannot write {to}: {error}"))
}
