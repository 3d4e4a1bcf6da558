//! What of this machine or container keeps values away that a GPU has: why there is no GPM, and why processes are not seen.

use std::path::Path;

/// `CAP_SYS_ADMIN` and `CAP_PERFMON` (linux/capability.h).
const CAPABILITIES_TO_PROFILE: [u32; 2] = [21, 38];
/// The number of the first pid namespace (`PROC_PID_INIT_INO` of Linux's `proc_ns.h`).
const PID_NAMESPACE_FIRST: &str = "pid:[4026531836]";
/// The first compute capability with GPM: Hopper's.
const GPM_CAPABILITY_MIN: f64 = 9.0;

/// What is known of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Whether process numbers here are those of the driver.
    pub is_first_pid_namespace: Option<bool>,
    /// Whether this process may profile where only administrators may.
    pub is_administrator: Option<bool>,
    /// Whether the driver lets only administrators profile (`RmProfilingAdminOnly`).
    pub profiling_is_for_administrators: Option<bool>,
}

impl Surroundings {
    /// Looks at `/proc`.
    pub fn read() -> Self {
        let text = |path: &str| std::fs::read_to_string(path).ok();
        let namespace = std::fs::read_link(Path::new("/proc/self/ns/pid")).ok();
        Self {
            is_first_pid_namespace: namespace.map(|namespace| namespace.as_os_str() == PID_NAMESPACE_FIRST),
            is_administrator: text("/proc/self/status").as_deref().and_then(may_profile),
            profiling_is_for_administrators: text("/proc/driver/nvidia/params")
                .as_deref()
                .and_then(profiling_is_for_administrators),
        }
    }

    /// Why neither we nor nvidia-smi have GPM's values. `compute_capability`, `mig_mode`: as nvidia-smi prints them.
    pub fn why_no_gpm(&self, compute_capability: Option<&str>, mig_mode: Option<&str>) -> String {
        let is_old = compute_capability
            .and_then(|text| text.parse::<f64>().ok())
            .is_some_and(|capability| capability < GPM_CAPABILITY_MIN);
        if is_old {
            return "GPM begins with Hopper (compute capability 9.0), and this GPU is older".to_owned();
        }
        if mig_mode == Some("Enabled") {
            return "MIG is on: GPM is told of its instances only".to_owned();
        }
        match (self.profiling_is_for_administrators, self.is_administrator) {
            (Some(false), _) | (_, Some(true)) => {
                "the driver gives no GPM values, although this process may profile".to_owned()
            }
            (Some(true), Some(false)) => "the driver lets only administrators profile (RmProfilingAdminOnly), and this \
                                    process has neither CAP_SYS_ADMIN nor CAP_PERFMON"
                .to_owned(),
            _ => "the driver gives no GPM values, perhaps because this process has neither CAP_SYS_ADMIN nor CAP_PERFMON"
                .to_owned(),
        }
    }

    /// Why neither we nor nvidia-smi list a client that runs.
    pub fn why_not_seen(&self) -> String {
        match self.is_first_pid_namespace {
            Some(false) => {
                "processes cannot be compared: this is a pid namespace of its own, and the driver knows \
                            the numbers of the first one"
                    .to_owned()
            }
            _ => "processes cannot be compared: nobody lists the client that runs".to_owned(),
        }
    }
}

/// From `/proc/PID/status` (proc(5)).
fn may_profile(status: &str) -> Option<bool> {
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    let capabilities = u64::from_str_radix(capabilities.trim(), 16).ok()?;
    Some(CAPABILITIES_TO_PROFILE.iter().any(|bit| capabilities >> bit & 1 == 1))
}

/// From the driver's parameters, `Name: value` a line.
fn profiling_is_for_administrators(parameters: &str) -> Option<bool> {
    let value = parameters.lines().find_map(|line| line.strip_prefix("RmProfilingAdminOnly:"))?;
    match value.trim() {
        "1" => Some(true),
        "0" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_and_parameters_are_read() {
        assert_eq!(may_profile("Name:\tx\nCapEff:\t000001ffffffffff\n"), Some(true));
        assert_eq!(may_profile("CapEff:\t00000000a80425fb\n"), Some(false), "those of a plain container");
        assert_eq!(may_profile("CapEff:\t0000004000000000\n"), Some(true), "CAP_PERFMON alone");
        assert_eq!(may_profile("CapPrm:\t000001ffffffffff\n"), None);
        let parameters = "ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\nTemporaryFilePath: \"\"\n";
        assert_eq!(profiling_is_for_administrators(parameters), Some(true));
        assert_eq!(profiling_is_for_administrators("RmProfilingAdminOnly: 0\n"), Some(false));
        assert_eq!(profiling_is_for_administrators(""), None);
    }

    #[test]
    fn the_likeliest_reason_is_given() {
        let plain = Surroundings {
            is_first_pid_namespace: Some(false),
            is_administrator: Some(false),
            profiling_is_for_administrators: Some(true),
        };
        let why = |capability, mig| plain.why_no_gpm(Some(capability), Some(mig));
        assert!(why("8.0", "[N/A]").contains("older"));
        assert!(why("9.0", "Enabled").contains("MIG"));
        assert!(why("9.0", "Disabled").contains("RmProfilingAdminOnly"));
        assert!(Surroundings::default().why_no_gpm(None, None).contains("perhaps"));
        let free = Surroundings { profiling_is_for_administrators: Some(false), ..plain.clone() };
        assert!(free.why_no_gpm(Some("10.0"), None).contains("although"), "10.0 is later than 9.0");
        assert!(plain.why_not_seen().contains("namespace"));
        let first = Surroundings { is_first_pid_namespace: Some(true), ..plain };
        assert!(!first.why_not_seen().contains("namespace"));
    }
}
