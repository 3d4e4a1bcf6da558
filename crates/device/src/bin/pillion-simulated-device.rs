//! `pillion-simulated-device`: driver and hardware of all simulated GPUs of one node, in one process that outlives the
//! agent. Arguments in, [`serve`] until told to stop.

use anyhow::Context as _;
use clap::Parser;
use pillion_device::simulated::{DeviceConfig, Machine, MachineConfig, SOCKET_VARIABLE, serve, socket_path};
use serde::Deserialize;
use std::path::PathBuf;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

/// Plays the driver and the hardware of all GPUs of a node.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// A TOML file with `socket` and a `[machine]`; options given beside it win
    #[arg(long)]
    config: Option<PathBuf>,
    /// Where to listen; %n stands for the node's name
    #[arg(long, env = SOCKET_VARIABLE)]
    socket: Option<String>,
    /// The node's name
    #[arg(long, env = "SLURMD_NODENAME")]
    node: Option<String>,
    /// v100, a30, a100-40, h100, h200 or max-1550; several, separated by commas, for unlike devices
    #[arg(long, value_delimiter = ',')]
    model: Vec<String>,
    /// How many devices of the model, or of each model
    #[arg(long, default_value_t = 1)]
    count: usize,
    /// How many times faster than real work goes
    #[arg(long)]
    time_scale: Option<f64>,
    /// GRES types are this and the device's index
    #[arg(long)]
    gres_prefix: Option<String>,
    /// Standard deviation of speeds and readings
    #[arg(long)]
    noise: Option<f64>,
    /// What the noise is drawn from
    #[arg(long)]
    seed: Option<u64>,
    /// MIG is on when the devices come up
    #[arg(long)]
    mig: bool,
    /// A job sees only the devices of `SLURM_JOB_GPUS`, numbered from 0
    #[arg(long)]
    constrain_devices: bool,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    socket: Option<String>,
    machine: MachineConfig,
}

/// For bad arguments and bad configuration, as sysexits has it.
const EXIT_USAGE: u8 = 64;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let arguments = Arguments::parse();
    let (machine, socket) = match prepare(arguments) {
        Ok(prepared) => prepared,
        Err(error) => {
            eprintln!("pillion-simulated-device: {error:#}");
            return ExitCode::from(EXIT_USAGE);
        }
    };
    match run(machine, socket).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pillion-simulated-device: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn prepare(arguments: Arguments) -> anyhow::Result<(Machine, PathBuf)> {
    let file = match &arguments.config {
        None => File::default(),
        Some(path) => {
            let text =
                std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
            toml::from_str(&text).with_context(|| format!("reading {}", path.display()))?
        }
    };
    let mut config = file.machine;
    config.node = arguments.node.unwrap_or(config.node);
    config.time_scale = arguments.time_scale.unwrap_or(config.time_scale);
    config.gres_prefix = arguments.gres_prefix.unwrap_or(config.gres_prefix);
    config.noise_fraction = arguments.noise.unwrap_or(config.noise_fraction);
    config.seed = arguments.seed.unwrap_or(config.seed);
    config.constrain_devices |= arguments.constrain_devices;
    if !arguments.model.is_empty() {
        let of_model = |model: &String| {
            vec![DeviceConfig { mig: arguments.mig, ..DeviceConfig::new(model.as_str()) }; arguments.count]
        };
        config.devices = arguments.model.iter().flat_map(of_model).collect();
    }
    let socket = socket_path(arguments.socket.or(file.socket).as_deref(), Some(&config.node));
    Ok((Machine::new(&config)?, socket))
}

async fn run(machine: Machine, socket: PathBuf) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    let stop = async move {
        tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
    };
    tracing::info!(socket = %socket.display(), devices = machine.descriptions().len(), "serving simulated devices");
    serve(machine, &socket, stop).await?;
    Ok(())
}
