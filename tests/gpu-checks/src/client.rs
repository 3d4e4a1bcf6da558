//! A CUDA program that runs one kernel over and over and says how far it is: one line of JSON ten times a second. It ends
//! when its standard input does, when its time is over, or when CUDA fails, whichever is first. Within a job it counts its
//! progress once a second, in the file that `PILLION_PROGRESS` names.

use crate::cuda::{CudaError, Facts, Work};
use crate::kernels::Workload;
use crate::programs::now;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The time between two lines.
const LINE_PERIOD: Duration = Duration::from_millis(100);
/// The time between two numbers of progress.
const COUNT_PERIOD: Duration = Duration::from_secs(1);

/// What it says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// It has the device, which looks so to it.
    Ready(Facts),
    /// How often the kernel ran since it was ready.
    Progress {
        /// Since then.
        seconds: f64,
        /// So often.
        iterations: u64,
    },
    /// CUDA failed; nothing comes after it.
    Failed(CudaError),
}

/// Runs `workload` for `seconds` at most, and holds `held_bytes` of device memory beyond what that needs. Returns whether
/// CUDA did all that it was asked.
pub fn run(workload: Workload, held_bytes: usize, seconds: f64) -> bool {
    match work(workload, held_bytes, seconds) {
        Ok(()) => true,
        Err(error) => {
            say(&Line::Failed(error));
            false
        }
    }
}

fn work(workload: Workload, held_bytes: usize, seconds: f64) -> Result<(), CudaError> {
    let is_over = until_input_ends();
    let mut work = Work::open(workload, held_bytes)?;
    let facts = work.describe()?;
    work.run()?;
    say(&Line::Ready(facts));
    let mut progress = progress_file();
    let (begun, mut iterations, mut said, mut counted) = (now(), 0, Duration::ZERO, Duration::ZERO);
    while !is_over.load(Ordering::Relaxed) && begun.elapsed().as_secs_f64() < seconds {
        iterations += work.run()?;
        let elapsed = begun.elapsed();
        if elapsed >= said + LINE_PERIOD {
            said = elapsed;
            say(&Line::Progress { seconds: elapsed.as_secs_f64(), iterations });
        }
        if let Some(file) = progress.as_mut().filter(|_| elapsed >= counted + COUNT_PERIOD) {
            counted = elapsed;
            // What cannot be counted is not: the work goes on.
            let _ = writeln!(file, "{iterations}");
        }
    }
    work.close()
}

/// Where a job counts its progress; `None` where nobody asks.
fn progress_file() -> Option<File> {
    let path = std::env::var_os("PILLION_PROGRESS")?;
    File::options().append(true).open(path).ok()
}

fn until_input_ends() -> Arc<AtomicBool> {
    let is_over = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&is_over);
    std::thread::spawn(move || {
        // Input that cannot be read has ended.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        told.store(true, Ordering::Relaxed);
    });
    is_over
}

fn say(line: &Line) {
    let mut text = serde_json::to_vec(line).unwrap_or_default();
    text.push(b'\n');
    // Nobody listens any more: its input ends too.
    let _ = std::io::stdout().write_all(&text);
}
