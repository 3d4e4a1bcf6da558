//! Which backend the configuration asks for. Nothing is opened here.

use crate::config::{BackendKind, Config, intel_settings, mps_directory};
use pillion_core::Clock;
use pillion_core::device::Mechanism;
use pillion_device::Backend;
use pillion_device::exporter::{Exporter, ExporterKind, ExporterSettings, Supplemented};
use pillion_device::intel::Intel;
use pillion_device::kernel_log::KERNEL_LOG;
use pillion_device::mps::ModeControl;
use pillion_device::nvidia::{NodeDaemons, Nvidia, NvidiaSettings, NvmlComputeModes};
use pillion_device::simulated::Simulated;
use std::sync::Arc;
use std::time::Duration;
use tracing::warn;

/// The node's backend, with what an exporter adds to it where one is named.
pub(crate) fn backend(config: &Config, clock: &Arc<dyn Clock>) -> Box<dyn Backend> {
    match config.backend {
        BackendKind::Simulated => Box::new(Simulated::new(&config.simulated.socket)),
        BackendKind::Nvidia => supplemented(config, ExporterKind::Dcgm, nvidia(config)),
        BackendKind::Intel => {
            let intel = Intel::new(intel_settings(&config.intel), Arc::clone(clock));
            supplemented(config, ExporterKind::XpuManager, intel)
        }
    }
}

/// The same for an agent that changes nothing: devices are read, and no program or setting that could share them is looked for.
pub(crate) fn observing(config: &Config, clock: &Arc<dyn Clock>) -> Box<dyn Backend> {
    match config.backend {
        BackendKind::Nvidia => {
            let settings = NvidiaSettings { mechanism: Mechanism::TimeSliced, ..nvml(config) };
            supplemented(config, ExporterKind::Dcgm, Nvidia::new(settings, None))
        }
        BackendKind::Simulated | BackendKind::Intel => backend(config, clock),
    }
}

fn supplemented(config: &Config, kind: ExporterKind, backend: impl Backend + 'static) -> Box<dyn Backend> {
    let Some(url) = &config.exporter.url else { return Box::new(backend) };
    let settings = ExporterSettings {
        keep_for: Duration::from_secs_f64(config.exporter.keep_seconds),
        ..ExporterSettings::new(kind, url)
    };
    Box::new(Supplemented::new(Box::new(backend), Exporter::new(settings)))
}

/// Devices are described as shared by MPS only where it can be set up: what cannot be is not promised.
fn nvidia(config: &Config) -> Nvidia {
    let mps = &config.mps;
    let has_mps = mps.enabled && mps.control_binary.exists();
    if mps.enabled && !has_mps {
        warn!(program = %mps.control_binary.display(), "there is no MPS control program: devices are shared by time slices");
    }
    let mechanism = if has_mps { Mechanism::Mps } else { Mechanism::TimeSliced };
    let settings = NvidiaSettings { mechanism, ..nvml(config) };
    let daemons = has_mps.then(|| {
        let (binary, directory) = (mps.control_binary.clone(), mps_directory(config));
        NodeDaemons::new(binary, directory, compute_modes(config))
    });
    Nvidia::new(settings, daemons)
}

fn nvml(config: &Config) -> NvidiaSettings {
    NvidiaSettings {
        library: config.nvidia.library.clone(),
        kernel_log: Some(KERNEL_LOG.into()),
        ..NvidiaSettings::default()
    }
}

/// What sets the compute modes of this node's devices. A site that is not strict any more has it too: devices may be closed
/// from before.
pub(crate) fn compute_modes(config: &Config) -> Option<ModeControl> {
    (config.backend == BackendKind::Nvidia).then(|| ModeControl {
        modes: Box::new(NvmlComputeModes::new(nvml(config))),
        is_strict: config.mps.strict,
    })
}
