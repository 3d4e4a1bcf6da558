//! Published measurements, turned into the SOLO.csv and PAIRS.csv that `pillion plan` and `pillion backtest` read, so that
//! anyone can repeat the tables of docs/benchmarks.md. docs/backtest.md says where the files come from and what each
//! column was made from. Figures are reshaped, never altered: what is above 1 by noise stays above 1.

mod gavel;
mod kace;
mod solo;
mod table;

use std::path::{Path, PathBuf};

/// Why a file could not be turned.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// It could not be read or written.
    #[error("cannot {action} {}", path.display())]
    File {
        /// `read` or `write`.
        action: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        source: csv::Error,
    },
    /// It is not what it should be.
    #[error("{}, line {line}, column {column}: {found:?} where {expected} was expected", path.display())]
    Invalid {
        /// Which.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// The column.
        column: String,
        /// What stood there.
        found: String,
        /// What may.
        expected: &'static str,
    },
}

/// A set of published measurements, by the name that the command line uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Set {
    /// Pairs under MPS with ten splits, V100: `kace_solo.csv`, `kace_pairs.csv`
    Kace,
    /// Pairs by time slicing, P100: `gavel_isolated.csv`, `gavel_pairs.csv`
    GavelP100,
    /// The same, K80
    GavelK80,
    /// Alone, V100: `gavel_isolated.csv`
    GavelV100,
    /// Alone, and four pairs, one tile of a Max 1550: `costa2025_solo.csv`, `costa2025_pairs.csv`
    Costa,
    /// Alone, V100: `han2025_solo.csv`
    Han,
    /// Alone, A100: `miso_solo_metrics.csv`, `miso_mig_solo.csv`
    Miso,
    /// Alone, RTX 2080 Ti: `glet_solo.csv`
    #[value(name = "glet-2080ti")]
    Glet2080ti,
    /// Alone, RTX 3080: `glet_solo.csv`
    #[value(name = "glet-3080")]
    Glet3080,
    /// Alone, on a whole node: `mlperf_v41_scaling.csv`
    Mlperf,
}

/// Reads a set from the folder `data` and writes SOLO.csv, and PAIRS.csv where it has pairs, into the folder `out`. Gives
/// the files written.
///
/// # Errors
/// [`ConvertError`] for the first thing that is wrong.
pub fn convert(set: Set, data: &Path, out: &Path) -> Result<Vec<PathBuf>, ConvertError> {
    let (solo, pairs) = match set {
        Set::Kace => kace::convert(data)?,
        Set::GavelP100 => gavel::convert(data, "p100")?,
        Set::GavelK80 => gavel::convert(data, "k80")?,
        Set::GavelV100 => gavel::convert(data, "v100")?,
        Set::Costa => solo::costa(data)?,
        Set::Han => (solo::han(data)?, Vec::new()),
        Set::Miso => (solo::miso(data)?, Vec::new()),
        Set::Glet2080ti => (solo::glet(data, "2080ti")?, Vec::new()),
        Set::Glet3080 => (solo::glet(data, "3080")?, Vec::new()),
        Set::Mlperf => (solo::mlperf(data)?, Vec::new()),
    };
    std::fs::create_dir_all(out).map_err(|error| ConvertError::File {
        action: "write",
        path: out.to_owned(),
        source: error.into(),
    })?;
    let mut written = vec![out.join("SOLO.csv")];
    table::write_solo(&written[0], &solo)?;
    if !pairs.is_empty() {
        written.push(out.join("PAIRS.csv"));
        table::write_pairs(&written[1], &pairs)?;
    }
    Ok(written)
}
