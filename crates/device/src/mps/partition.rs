//! Static SM partitions: compute units that a tenant has to itself. The daemon gives them out in chunks. Pure.
//!
//! Source: NVIDIA Multi-Process Service (r590 and later, CUDA 13.1), Legacy MPS v2 Interface: `sm_partition`, `lspart`,
//! `CUDA_MPS_SM_PARTITION`. The table of `lspart` shows `-` where a cell does not apply; programs in the field leave those
//! cells out. `sm_partition add` prints the name, or the name in a sentence.

use super::parse::{Unknown, lines, unknown};
use pillion_core::{DeviceUuid, Fraction};

/// What `lspart` shows of a daemon's one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Table {
    /// Chunks that nobody has.
    pub(super) free: u32,
    /// Chunks of partitions.
    pub(super) used: u32,
    /// The partitions, by what follows the UUID in their names; long ones may be cut, with dots.
    partitions: Vec<String>,
}

impl Table {
    /// Whether the partition of this name is there. `partition`: without the UUID.
    pub(super) fn holds(&self, partition: &str) -> bool {
        self.partitions.iter().any(|shown| match shown.strip_suffix("...") {
            Some(start) => partition.starts_with(start),
            None => partition == shown,
        })
    }

    /// The partitions that an earlier sample did not show, as shown.
    pub(super) fn new_since(&self, before: &Self) -> Vec<String> {
        self.partitions.iter().filter(|partition| !before.partitions.contains(partition)).cloned().collect()
    }
}

/// `lspart`: two lines of headings; a row of the device with its chunks and compute units, free and used; and one of each
/// partition with its name, chunks, compute units, and whether it has clients.
///
/// # Errors
/// [`Unknown`], also of a table without a device: what is not shown is not offered.
pub(super) fn table(text: &str) -> Result<Table, Unknown> {
    let mut found = None;
    for line in lines(text).filter(|line| line.starts_with("GPU-")) {
        let cells: Vec<&str> = line.split_whitespace().filter(|cell| *cell != "-").collect();
        match (&cells[..], &mut found) {
            ([_, partition, _, _, "Yes" | "No"], Some(Table { partitions, .. })) => {
                partitions.push((*partition).to_owned());
            }
            ([_, free, used, _, _], None) => {
                let number = |cell: &str| cell.parse().map_err(|_| unknown("lspart", line));
                found = Some(Table { free: number(free)?, used: number(used)?, partitions: Vec::new() });
            }
            _ => return Err(unknown("lspart", line)),
        }
    }
    found.ok_or_else(|| unknown("lspart", text))
}

/// `sm_partition add`: the name of the new partition, `UUID/PARTITION`, alone or in a sentence.
///
/// # Errors
/// [`Unknown`] holds what was said instead.
pub(super) fn created(device: &DeviceUuid, text: &str) -> Result<String, Unknown> {
    let name = text.split_whitespace().find(|word| {
        word.strip_prefix(device.as_str())
            .and_then(|rest| rest.strip_prefix('/'))
            .is_some_and(|partition| !partition.is_empty())
    });
    name.map(str::to_owned).ok_or_else(|| unknown("sm_partition add", text))
}

/// How many chunks a cap is: rounded down, so that caps that fit together do so as chunks; one at least, and no more than
/// are free, for the caps of a plan may sum to more than all. `None`: none is free.
pub(super) fn chunks(cap: Fraction, table: &Table) -> Option<u32> {
    let total = table.free + table.used;
    // A cap of 0.3 is a little less than three tenths.
    let exact = cap.value() * f64::from(total) + 1e-9;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to total")]
    let whole = exact.floor() as u32;
    (table.free > 0).then(|| whole.clamp(1, table.free))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: &str = "GPU           Partition   free   used   free  used  clients\n\
                         \x20                         chunk  chunk  SM    SM\n";

    #[test]
    fn tables_with_and_without_empty_cells() {
        let documented = format!(
            "{SHOWN}GPU-74d43ed3  -          2      14     20    112   -\n\
             GPU-74d43ed3  Dx4AAA...   -      7      -     56    Yes\n\
             GPU-74d43ed3  E/79x       -      7      -     56    No\n"
        );
        let printed = format!("{SHOWN}GPU-74 2 14 20 112\nGPU-74 Dx4AAA... 7 56 Yes\nGPU-74 E/79x 7 56 No\n");
        for text in [documented, printed] {
            let table = table(&text).unwrap();
            assert_eq!((table.free, table.used), (2, 14));
            assert!(table.holds("Dx4AAAAAAA") && table.holds("E/79x"));
            assert!(!table.holds("E/79xA") && !table.holds("Fx4AAA"));
        }
        for wrong in ["", SHOWN, "Unknown command", "GPU-74 a b c d", "GPU-74 P 7 56 No\n", "GPU-74 1 2"] {
            assert!(table(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_new_partition_is_named_alone_or_in_a_sentence() {
        let device = DeviceUuid::new("GPU-74d43ed3-cdf7");
        let name = "GPU-74d43ed3-cdf7/D/79e/DgwAAA";
        assert_eq!(created(&device, &format!("{name}\n")).as_deref(), Ok(name));
        assert_eq!(created(&device, &format!("Partition {name} created\n")).as_deref(), Ok(name));
        let failed = "Failed to fulfill the requested SM partition of 28 chunks, error \
                      CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION\n";
        assert!(created(&device, failed).unwrap_err().to_string().contains("28 chunks"));
        assert!(created(&device, "GPU-74d43ed3-cdf7/").is_err(), "a name without a partition");
        assert!(created(&device, "GPU-other/Dx4").is_err());
    }

    fn shown(free: u32, used: u32, partitions: &[&str]) -> Table {
        Table { free, used, partitions: partitions.iter().map(|it| (*it).to_owned()).collect() }
    }

    #[test]
    fn caps_become_whole_chunks_that_fit_together() {
        let of = |cap: f64, total| chunks(Fraction::clamped(cap), &shown(total, 0, &[]));
        assert_eq!([of(0.5, 16), of(0.25, 16), of(1.0, 16)], [Some(8), Some(4), Some(16)]);
        assert_eq!([of(0.5, 9), of(0.3, 10), of(0.7, 10)], [Some(4), Some(3), Some(7)]);
        assert_eq!([of(0.01, 16), of(0.0, 16)], [Some(1), Some(1)], "a tenant has something");
    }

    #[test]
    fn a_cap_that_does_not_fit_takes_what_is_free() {
        let of = |cap: f64, free| chunks(Fraction::clamped(cap), &shown(free, 16 - free, &["A"]));
        assert_eq!([of(0.5, 7), of(1.0, 7), of(0.25, 7)], [Some(7), Some(7), Some(4)]);
        assert_eq!([of(0.5, 0), of(0.0, 0)], [None, None]);
    }

    #[test]
    fn what_is_new_in_a_table() {
        let before = shown(10, 6, &["A/1", "B/2"]);
        assert_eq!(shown(5, 11, &["B/2", "C/3", "A/1"]).new_since(&before), ["C/3"]);
        assert!(shown(13, 3, &["A/1"]).new_since(&before).is_empty());
    }
}
