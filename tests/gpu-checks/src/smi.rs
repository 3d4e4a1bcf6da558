//! What nvidia-smi says: the other side of every comparison. It is asked for one field at a time, for one that it does not
//! know fails the whole question.

use crate::programs::{Said, command, run};
use std::time::Duration;

/// Without persistence mode the driver comes up anew at each question.
const DEADLINE: Duration = Duration::from_secs(15);

/// The settings that must be after the checks as they were before.
pub const SETTINGS: [&str; 6] = [
    "compute_mode",
    "mig.mode.current",
    "persistence_mode",
    "power.limit",
    "clocks.max.sm",
    "ecc.mode.current",
];

/// One GPU as nvidia-smi knows it.
#[derive(Debug, Clone)]
pub struct Smi {
    /// Its UUID.
    pub uuid: String,
}

impl Smi {
    /// The UUIDs of all GPUs.
    ///
    /// # Errors
    /// A sentence: why none can be named.
    pub fn uuids() -> Result<Vec<String>, String> {
        let text = ask(&["--query-gpu=uuid", "--format=csv,noheader"])?;
        Ok(text.lines().map(|line| line.trim().to_owned()).filter(|line| line.starts_with("GPU-")).collect())
    }

    /// One field of `--query-gpu`, as printed without its unit; `None` where it has none.
    pub fn text(&self, field: &str) -> Option<String> {
        let query = format!("--query-gpu={field}");
        let text = ask(&["-i", &self.uuid, &query, "--format=csv,noheader,nounits"]).ok()?;
        value(&text).map(str::to_owned)
    }

    /// The same, as a number.
    pub fn number(&self, field: &str) -> Option<f64> {
        self.text(field)?.parse().ok()
    }

    /// All of [`SETTINGS`].
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        SETTINGS.map(|field| (field, self.text(field).unwrap_or_else(|| "not told".to_owned()))).to_vec()
    }

    /// GPM metrics by their numbers, in hundredths, over one second; empty where they are not offered.
    pub fn gpm(&self, metrics: &[u32]) -> Vec<Option<f64>> {
        let list = metrics.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let option = format!("--gpm-metrics={list}");
        let text =
            ask(&["dmon", "-i", &self.uuid, "-s", "u", "-c", "2", "-d", "1", &option]).unwrap_or_default();
        last_columns(&text, metrics.len())
    }

    /// What is printed of SM and memory activity of each instance of the GPU, over one second.
    ///
    /// # Errors
    /// A sentence: what nvidia-smi said instead.
    pub fn gpm_of_instances(&self) -> Result<String, String> {
        ask(&["dmon", "-i", &self.uuid, "-c", "2", "-d", "1", "--gpm-metrics=2,3,10", "--gpm-options=m"])
    }

    /// Process and memory (MiB) of each compute process.
    pub fn processes(&self) -> Vec<(u32, Option<f64>)> {
        let query = "--query-compute-apps=pid,used_memory";
        let text = ask(&["-i", &self.uuid, query, "--format=csv,noheader,nounits"]).unwrap_or_default();
        text.lines().filter_map(process).collect()
    }
}

fn ask(arguments: &[&str]) -> Result<String, String> {
    let mut program = command("nvidia-smi");
    program.args(arguments);
    match run(program, "", DEADLINE)? {
        Said { code: Some(0), out, .. } => Ok(out),
        Said { out, errors, .. } => {
            Err(format!("nvidia-smi failed: {}", [out.trim(), errors.trim()].join(" ").trim()))
        }
    }
}

/// A cell; those that stand for no value are none.
fn value(text: &str) -> Option<&str> {
    let text = text.trim();
    let is_none = text.is_empty() || text == "-" || text.starts_with('[') || text.starts_with("N/A");
    (!is_none).then_some(text)
}

fn process(line: &str) -> Option<(u32, Option<f64>)> {
    let (pid, memory) = line.split_once(',')?;
    Some((pid.trim().parse().ok()?, value(memory).and_then(|memory| memory.parse().ok())))
}

/// The last `count` columns of the last row of a `dmon` table, to whose end metrics that were asked for are appended.
fn last_columns(text: &str, count: usize) -> Vec<Option<f64>> {
    let mut rows = text.lines().filter(|line| !line.trim_start().starts_with('#') && !line.trim().is_empty());
    let cells: Vec<&str> = rows.next_back().map(|row| row.split_whitespace().collect()).unwrap_or_default();
    // The first column is the GPU's number.
    if cells.len() <= count {
        return vec![None; count];
    }
    cells[cells.len() - count..].iter().map(|cell| value(cell).and_then(|cell| cell.parse().ok())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_without_a_value_are_none() {
        assert_eq!(value(" 81559\n"), Some("81559"));
        for none in ["", "[N/A]\n", "[Not Supported]", "-", "N/A"] {
            assert_eq!(value(none), None, "{none:?}");
        }
    }

    #[test]
    fn processes_with_and_without_memory() {
        assert_eq!(process("4711, 1234"), Some((4711, Some(1234.0))));
        assert_eq!(process("4711, [N/A]"), Some((4711, None)));
        assert_eq!(process("no processes"), None);
    }

    #[test]
    fn metrics_are_the_last_columns_of_the_last_row() {
        let text = "# gpu     sm    mem    smutil   smocc\n# Idx      %      %    GPM:%    GPM:%\n\
                    \x20   0      1      2    3.5      -\n    0    100     12   98.2     61\n";
        assert_eq!(last_columns(text, 2), [Some(98.2), Some(61.0)]);
        assert_eq!(last_columns("# gpu sm\n    0    -     -\n", 2), [None, None]);
        assert_eq!(last_columns("0 1\n", 2), [None, None], "an old program appends nothing");
        assert_eq!(last_columns("", 1), [None]);
    }
}
