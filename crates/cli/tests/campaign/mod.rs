//! What `pillion characterize` keeps of a campaign of `train.sh`, as it lies on the disk.

use serde_json::{Value, json};
use std::path::Path;

pub(crate) const SCRIPT: &str = "#!/bin/sh\n#SBATCH --gres=gpu:1\ntrain\n";

/// When every run on record was submitted.
pub(crate) const SUBMITTED_AT: f64 = 1_763_463_940.0;

/// Puts a campaign on record. `place`: the folder of its kind, below the user's own.
pub(crate) fn remember(folder: &Path, place: &str, arguments: &[&str], runs: &[Value]) {
    std::fs::write(folder.join("train.sh"), SCRIPT).expect("written");
    let script = folder.join("train.sh").canonicalize().expect("it was written");
    let subject = json!({"script": script, "text": SCRIPT, "arguments": arguments, "options": []});
    let campaign = json!({"subject": subject, "runs": runs});
    let name = script.to_str().expect("text").replace('/', "%");
    let place = folder.join("pillion").join(place);
    std::fs::create_dir_all(&place).expect("a folder");
    std::fs::write(place.join(format!("{name}.json")), campaign.to_string()).expect("written");
}
