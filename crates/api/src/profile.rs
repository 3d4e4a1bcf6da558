//! How a workload runs alone: on the wire as the JSON that is also kept in the store.

use crate::Profile;
use pillion_core::profile::WorkloadProfile;
use serde_json::Value;

impl Profile {
    /// What the profile's own release reads.
    ///
    /// # Errors
    /// Where another release wrote it.
    pub fn read(&self) -> Result<WorkloadProfile, serde_json::Error> {
        serde_json::from_str(&self.json)
    }
}

impl From<&WorkloadProfile> for Profile {
    fn from(profile: &WorkloadProfile) -> Self {
        Self {
            json: serde_json::to_string(profile).unwrap_or_default(),
            workload_name: None,
            slices: Vec::new(),
        }
    }
}

/// As `--json` has it: with the name of its workload beside the key.
impl From<Profile> for Value {
    fn from(profile: Profile) -> Self {
        let mut value = profile.read().and_then(serde_json::to_value).unwrap_or_default();
        if let (Self::Object(fields), Some(name)) = (&mut value, profile.workload_name) {
            fields.insert("workload_name".to_owned(), Self::String(name));
        }
        if let (Self::Object(fields), false) = (&mut value, profile.slices.is_empty()) {
            let slices =
                profile.slices.into_iter().map(|slice| serde_json::to_value(slice).unwrap_or_default());
            fields.insert("slices".to_owned(), slices.collect());
        }
        value
    }
}
