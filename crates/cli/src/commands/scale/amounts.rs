//! Times and quantities of runs, as people read them.

use crate::format;

/// From a minute on as Slurm writes it, below in seconds.
pub(super) fn time(seconds: f64) -> String {
    if seconds >= 60.0 { format::duration(Some(seconds)) } else { format!("{} s", quantity(seconds)) }
}

/// Three digits that count.
pub(super) fn quantity(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        size if size >= 0.9995 => format!("{value:.2}"),
        size if size >= 0.001 => format!("{value:.4}"),
        _ => format!("{value:.2e}"),
    }
}
