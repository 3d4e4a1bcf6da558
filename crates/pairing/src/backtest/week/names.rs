//! What the week's workloads are called, what each runs, and how it runs alone.

use super::calendar::Calendar;
use super::{Recurrence, Week};
use pillion_core::WorkloadKey;
use pillion_core::profile::WorkloadProfile;
use std::collections::BTreeMap;

/// The week's names: what each is called, what it runs, and how it runs alone.
pub(super) struct Names {
    pub(super) workload_of: Vec<usize>,
    pub(super) keys: Vec<WorkloadKey>,
    pub(super) profiles: Vec<WorkloadProfile>,
    pub(super) by_key: BTreeMap<WorkloadKey, usize>,
}

impl Names {
    pub(super) fn new(week: &Week<'_>, calendar: &Calendar) -> Self {
        let mut versions: BTreeMap<usize, usize> = BTreeMap::new();
        let mut names = Self {
            workload_of: calendar.workload_of.clone(),
            keys: Vec::new(),
            profiles: Vec::new(),
            by_key: BTreeMap::new(),
        };
        for (name, workload) in calendar.workload_of.iter().enumerate() {
            let version = versions.entry(*workload).or_default();
            *version += 1;
            let measured = &week.truth.workloads[*workload];
            let key = WorkloadKey::new(format!("{measured}@{version}"));
            let known = week.profiles.get(measured, &week.truth.device_model).cloned();
            let known = known.unwrap_or_else(|| {
                WorkloadProfile::empty(measured.clone(), week.truth.device_model.as_str())
            });
            let family = match week.options.recurrence {
                Recurrence::Unknown => None,
                Recurrence::Versions => Some(measured.to_string()),
            };
            let run_count = known.run_count.max(1);
            names.profiles.push(WorkloadProfile { workload: key.clone(), family, run_count, ..known });
            names.by_key.insert(key.clone(), name);
            names.keys.push(key);
        }
        names
    }
}
