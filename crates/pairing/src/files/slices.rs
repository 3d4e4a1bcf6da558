//! SLICES.csv: how fast workloads are in instances of one device model, a row a workload and size. The columns are those of
//! the published set (MISO), of which some are not read.

use super::table::{InvalidFile, NamedText, Table};
use pillion_core::mig::{Geometry, MigProfile};
use std::collections::BTreeMap;

/// The speed of each workload in each size that was measured, over its speed in the whole device.
pub type SliceSpeeds = BTreeMap<String, BTreeMap<MigProfile, f64>>;

const REQUIRED: [&str; 3] = ["model", "mig_profile", "norm_speed_vs_7g"];
const OPTIONAL: [&str; 8] = [
    "batch_size",
    "compute_slices",
    "mem_gb",
    "n_iterations",
    "iter_s_median",
    "iter_s_mean",
    "iter_s_p10",
    "iter_s_p90",
];

/// Reads them. A workload is its model and, where one is written, its batch size.
///
/// # Errors
/// [`InvalidFile`]: what is wrong first, a size that the device does not have among it.
pub fn read_slices(source: NamedText<'_>, geometry: &Geometry) -> Result<SliceSpeeds, InvalidFile> {
    let table = Table::read(source, &REQUIRED, &OPTIONAL)?;
    let mut speeds = SliceSpeeds::new();
    for row in table.rows() {
        let model = row.workload("model")?;
        let name = match row.name("batch_size")? {
            Some(batch) => format!("{model}-{batch}"),
            None => model.to_string(),
        };
        let sizes: Vec<String> = geometry.sizes().iter().map(|size| size.profile.to_string()).collect();
        let expected = format!("one of {}", sizes.join(", "));
        let profile = row.word::<MigProfile>("mig_profile", &expected)?;
        let profile = profile.filter(|profile| geometry.size(*profile).is_some());
        let profile = profile.ok_or_else(|| row.invalid("mig_profile", &expected))?;
        let speed = row.speed("norm_speed_vs_7g")?.filter(|speed| *speed > 0.0);
        let speed = speed.ok_or_else(|| row.invalid("norm_speed_vs_7g", "a number above 0, at most 10"))?;
        // Faster than on the whole device is noise of one of the two.
        if speeds.entry(name).or_default().insert(profile, speed.min(1.0)).is_some() {
            return Err(row.invalid("mig_profile", "each size once a workload"));
        }
    }
    Ok(speeds)
}
