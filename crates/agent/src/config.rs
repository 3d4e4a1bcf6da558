//! From the configuration file ([`pillion_config::Agent`]) to what the components take.

pub use pillion_config::{Agent as Config, AgentMode, BackendKind, IntelConfig};

use crate::mechanism::MpsPolicy;
use crate::mechanism::mig::MigPolicy;
use pillion_device::intel::{Bursts, Settings};
use std::path::PathBuf;
use std::time::Duration;

/// Beneath it each device's MPS daemon has its directories, by the device's GRES type.
pub(crate) fn mps_directory(config: &Config) -> PathBuf {
    crate::mechanism::mps::directory(&config.runtime_directory)
}

/// `[agent.mps]` as the mechanisms take it.
pub(crate) fn mps_policy(config: &Config) -> MpsPolicy {
    MpsPolicy { multi_user: config.mps.multi_user, static_partitions: config.mps.static_partitions }
}

/// `[agent.mig]` as the mechanisms take it.
pub(crate) fn mig_policy(config: &Config) -> MigPolicy {
    MigPolicy { is_enabled: config.mig.enabled, may_toggle: config.mig.toggle }
}

/// `[agent.intel]` as the backend takes it.
pub(crate) fn intel_settings(config: &IntelConfig) -> Settings {
    let bursts = (config.metric_burst_seconds > 0.0).then(|| Bursts {
        burst: Duration::from_secs_f64(config.metric_burst_seconds),
        period: Duration::from_secs_f64(config.metric_period_seconds),
    });
    Settings {
        library: config.library.as_ref().map(|library| library.to_string_lossy().into_owned()),
        bursts,
        cache_bytes_per_second_max: config.cache_bytes_per_second_max,
        sysfs_root: config.sysfs_root.clone(),
        ..Settings::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_written_is_what_the_backends_take_for_usual() {
        let config = Config::default();
        assert_eq!(intel_settings(&config.intel), Settings::default());
        assert_eq!(config.mps.control_binary, pillion_device::mps::control_binary_default());
    }

    #[test]
    fn metric_bursts_are_off_unless_they_are_asked_for() {
        let settings =
            |text: &str| intel_settings(&pillion_config::parse_agent(text, "n1").expect("it is valid").intel);
        assert_eq!(settings("[agent.intel]\nlibrary = '/opt/ze.so'").bursts, None);
        let all = "[agent.intel]\nlibrary = '/opt/ze.so'\nmetric_burst_seconds = 2.5\ncache_bytes_per_second_max = 1e12\n\
                   sysfs_root = '/x'";
        let expected = Settings {
            library: Some("/opt/ze.so".to_owned()),
            bursts: Some(Bursts { burst: Duration::from_millis(2500), period: Duration::from_mins(1) }),
            cache_bytes_per_second_max: Some(1e12),
            sysfs_root: PathBuf::from("/x"),
            ..Settings::default()
        };
        assert_eq!(settings(all), expected);
    }
}
