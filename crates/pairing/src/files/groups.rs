//! GROUPS.csv: two and more workloads that were measured together without caps, a tenant a line.

use super::table::{InvalidFile, NamedText, Table};
use crate::history::{Observation, ObservedTenant};
use pillion_core::WorkloadKey;
use pillion_core::device::Mechanism;
use pillion_core::share::Sharing;
use std::collections::BTreeMap;

const REQUIRED: [&str; 3] = ["group", "workload", "speed_fraction"];
const OPTIONAL: [&str; 2] = ["device", "mechanism"];

/// Reads them: the lines of one number in the column `group` are one group, in the order of their lines. A line that names no
/// device is of `device_model`.
///
/// # Errors
/// [`InvalidFile`]: what is wrong first.
pub fn read_groups(
    source: NamedText<'_>,
    mechanism: Mechanism,
    device_model: &str,
) -> Result<Vec<Observation>, InvalidFile> {
    let table = Table::read(source, &REQUIRED, &OPTIONAL)?;
    let mut groups: BTreeMap<u64, Observation> = BTreeMap::new();
    for row in table.rows() {
        let number: Option<u64> = row.word("group", "a number")?;
        let number = number.ok_or_else(|| row.invalid("group", "a number"))?;
        let device_model = row.name("device")?.unwrap_or(device_model);
        let sharing = Sharing::by(row.mechanism(mechanism)?, None, None);
        let group = groups.entry(number).or_insert_with(|| empty(device_model));
        if group.device_model != device_model {
            return Err(row.invalid("device", "one device for all of a group"));
        }
        let workload: WorkloadKey = row.workload("workload")?;
        let speed_fraction = row.speed("speed_fraction")?;
        group.tenants.push(ObservedTenant { workload, sharing, speed_fraction, is_self_reported: false });
    }
    Ok(groups.into_values().collect())
}

fn empty(device_model: &str) -> Observation {
    Observation {
        device_model: device_model.to_owned(),
        tenants: Vec::new(),
        power_watts: None,
        fits: true,
        run_count: 1.0,
        speed_fraction_deviation: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Observation>, String> {
        let source = NamedText { name: "GROUPS.csv", bytes: text.as_bytes() };
        read_groups(source, Mechanism::Mps, "h100").map_err(|error| error.to_string())
    }

    #[test]
    fn lines_of_one_number_are_one_group() {
        let text = "group,workload,speed_fraction,device\n2,c,0.5,\n1,a,0.9,h200\n1,b,,h200\n2,c,0.6,\n";
        let groups = read(text).unwrap();
        let said: Vec<_> = groups
            .iter()
            .map(|group| {
                let speeds: Vec<_> = group.tenants.iter().map(|tenant| tenant.speed_fraction).collect();
                (group.device_model.as_str(), group.mechanism(), speeds)
            })
            .collect();
        let expected = [
            ("h200", Mechanism::Mps, vec![Some(0.9), None]),
            ("h100", Mechanism::Mps, vec![Some(0.5), Some(0.6)]),
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn what_is_no_group_is_said_with_its_line() {
        let error = |line: &str| {
            read(&format!("group,workload,speed_fraction,device,mechanism\n{line}\n")).unwrap_err()
        };
        assert_eq!(
            error("one,a,0.5,,"),
            "GROUPS.csv, line 2, column group: 'one' where a number was expected"
        );
        assert!(error("1,a,0.5,,mig").contains("column mechanism: 'mig' where mps, ccs, none or nothing"));
        assert!(error("1,a,0.5,h200,\n1,a,0.5,,").contains("line 3, column device"));
    }
}
