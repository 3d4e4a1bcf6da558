//! `pillion-convert-data SET DATA OUT`: published measurements in, SOLO.csv and PAIRS.csv out.

use clap::Parser;
use pillion_tests::convert::{Set, convert};
use std::path::PathBuf;
use std::process::ExitCode;

/// Turns a set of published measurements into the files that `pillion backtest` and `pillion plan` read.
#[derive(Parser)]
struct Arguments {
    /// Which set.
    #[arg(value_enum)]
    set: Set,
    /// The folder with the published files.
    data: PathBuf,
    /// The folder for SOLO.csv and PAIRS.csv.
    out: PathBuf,
}

fn main() -> ExitCode {
    let Arguments { set, data, out } = Arguments::parse();
    match convert(set, &data, &out) {
        Ok(written) => {
            for file in written {
                println!("{}", file.display());
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {}", pillion_core::report(&error));
            ExitCode::FAILURE
        }
    }
}
