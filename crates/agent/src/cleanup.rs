//! `pillion-agent cleanup`, for a node's Epilog: the last tenant's MPS daemon goes with it, and his instance, also where no agent
//! runs. With one it only says "look now": the agent then does it. It takes less than five seconds and fails no hook, for that
//! would drain the node. With one exception: a device that is still cut though nobody has any of it would give the next job that
//! Slurm starts there alone a part of it or nothing, and no agent would see it.

use crate::backend::{backend, compute_modes};
use crate::config::{Config, mps_directory};
use crate::inventory;
use crate::mechanism::mig::orphans::{self, Left};
use crate::mechanism::mig::record::{self, Record};
use crate::mechanism::mps::directory_name_of;
use crate::poke::poke;
use crate::procfs::ProcFs;
use crate::sampler::SamplerState;
use pillion_core::share::Share;
use pillion_core::{Clock, JobStart, SlurmJobId, SystemClock};
use pillion_device::mps;
use serde::de::DeserializeOwned;
use std::io;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::time::Instant;

/// How long the daemons may take in all; the poke before may have taken a second more.
const DEADLINE: Duration = Duration::from_millis(3500);
/// How long instances are tried, of that.
const INSTANCES_DEADLINE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(100);

/// Tells the agent to look; where there is none, ends the daemons whose device nobody holds a share of but `ending`, and takes
/// away the instances of those who are over. Returns why devices are not whole that should be.
///
/// # Errors
/// What kept it from that, for the hook's log.
pub fn cleanup(config: &Config, ending: Option<SlurmJobId>) -> anyhow::Result<Vec<String>> {
    if poke(&config.handoff_socket).is_ok() {
        return Ok(Vec::new());
    }
    let (told, not_whole) = mpsc::channel();
    let of_instances = config.clone();
    // Not joined either: a driver that hangs holds nobody up.
    std::thread::spawn(move || {
        let _ = told.send(take_away(&of_instances, ending));
    });
    let until = Instant::now() + DEADLINE;
    let daemons = end_daemons(config, ending);
    let left = until.saturating_duration_since(Instant::now());
    let not_whole = match not_whole.recv_timeout(left) {
        Ok(not_whole) => not_whole?,
        Err(_) => vec!["the driver of a device that is cut does not answer".to_owned()],
    };
    daemons.map(|()| not_whole)
}

/// Takes away the instances of those who are over, for as long as there is time. Between two tries others may: of several jobs that
/// end at once each has an Epilog.
fn take_away(config: &Config, ending: Option<SlurmJobId>) -> anyhow::Result<Vec<String>> {
    let path = record::path(&config.state_directory);
    let proc = ProcFs::new("/proc");
    let boot_id = proc.boot_id();
    // A node that was cut once keeps an empty record.
    if !record::has_devices(&path, &boot_id) {
        return Ok(Vec::new());
    }
    let shares = read_shares(&config.state_directory.join("shares.json"))?;
    let runs: SamplerState = read(&config.state_directory.join("runs.json"))?.unwrap_or_default();
    // One whose tasks no agent has seen does not know of its instance; but of one that it has just told it may not have written.
    let (running, seen) = (runs.with_tasks(&proc), proc.job_numbers());
    let has_process = |job_id: SlurmJobId| job_id.task.is_none() && seen.contains(&job_id.id);
    let stays = |share: &&Share| {
        let JobStart { job_id, .. } = share.start;
        Some(job_id) != ending && (running.contains(&share.start) || has_process(job_id))
    };
    let stay: Vec<Share> = shares.iter().filter(stays).cloned().collect();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let mut backend = backend(config, &clock);
    let site = inventory::site(config, &boot_id);
    let until = Instant::now() + INSTANCES_DEADLINE;
    let all = |why: String| vec![Left { is_empty: true, why }];
    let mut left = all("an agent that does not answer keeps it as it is".to_owned());
    while Instant::now() < until {
        if let Ok(record) = Record::open(path.clone(), &boot_id, PAUSE) {
            if record.devices().count() == 0 {
                return Ok(Vec::new());
            }
            left = match inventory::ask(backend.as_mut(), &site) {
                Ok(devices) => orphans::clear(backend.as_mut(), record, &devices, &stay),
                Err(error) => all(pillion_core::report(&error)),
            };
            if left.is_empty() {
                break;
            }
        }
        std::thread::sleep(PAUSE);
    }
    // One that somebody has a part of is whole later: his Epilog comes too.
    Ok(left.into_iter().filter(|left| left.is_empty).map(|left| left.why).collect())
}

fn end_daemons(config: &Config, ending: Option<SlurmJobId>) -> anyhow::Result<()> {
    let shares = read_shares(&config.state_directory.join("shares.json"))?;
    let binary = config.mps.control_binary.clone();
    let directory = mps_directory(config);
    let mut modes = compute_modes(config);
    let (done, all_done) = mpsc::channel();
    // Not joined: what is not done in time is left to the agent's next start.
    std::thread::spawn(move || {
        // Nobody listens any more: too late.
        let _ = done
            .send(mps::cleanup(&binary, &directory, modes.as_mut(), |name| is_wanted(&shares, name, ending)));
    });
    let cleaned = all_done.recv_timeout(DEADLINE)?;
    let failed = cleaned.into_iter().filter_map(|(name, it)| Some(format!("{name}: {}", it.err()?)));
    let failed: Vec<String> = failed.collect();
    anyhow::ensure!(failed.is_empty(), "{}", failed.join("; "));
    Ok(())
}

/// Whether a job other than `ending` holds a share of the device, or of the instance, whose daemon has this name.
fn is_wanted(shares: &[Share], name: &str, ending: Option<SlurmJobId>) -> bool {
    shares.iter().any(|share| {
        directory_name_of(share).is_some_and(|own| own == name) && Some(share.start.job_id) != ending
    })
}

/// As the agent left them.
fn read_shares(path: &Path) -> anyhow::Result<Vec<Share>> {
    Ok(read(path)?.unwrap_or_default())
}

/// A file of the agent's. One that cannot be read stops the cleanup: nobody's daemon is ended by mistake.
fn read<T: DeserializeOwned>(path: &Path) -> anyhow::Result<Option<T>> {
    match std::fs::read(path) {
        Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poke::job_of;
    use crate::share::tests::share;
    use pillion_core::device::Mechanism;

    #[test]
    fn the_ending_job_is_named_as_in_decisions() {
        let job = |variables: &[(&str, &str)]| {
            job_of(|name| Some(variables.iter().find(|(it, _)| *it == name)?.1.to_owned()))
        };
        assert_eq!(job(&[("SLURM_JOB_ID", "33")]), Some(SlurmJobId::plain(33)));
        let task = [("SLURM_JOB_ID", "35"), ("SLURM_ARRAY_JOB_ID", "33"), ("SLURM_ARRAY_TASK_ID", "2")];
        assert_eq!(job(&task), Some(SlurmJobId::array_task(33, 2)));
        assert_eq!(job(&[]), None);
    }

    #[test]
    fn a_daemon_is_wanted_by_every_share_but_the_ending_jobs() {
        let shares = [share(33, Mechanism::Mps), share(34, Mechanism::TimeSliced)];
        let job = |id| Some(SlurmJobId::plain(id));
        assert!(is_wanted(&shares, "g3", job(34)) && is_wanted(&shares, "g3", None));
        assert!(!is_wanted(&shares, "g3", job(33)), "34 shares without MPS");
        assert!(!is_wanted(&shares, "g0", None));
        let slot: pillion_core::mig::Slot = "3g.40gb@4".parse().unwrap();
        let (profile, start) = (slot.profile, slot.start);
        let sharing =
            pillion_core::share::Sharing::MigMps { profile, start, cap: None, memory_limit_bytes: None };
        let inside = [35, 36].map(|job| Share { sharing, ..share(job, Mechanism::TimeSliced) });
        assert!(
            is_wanted(&inside, "g3-3g.40gb@4", job(35)) && !is_wanted(&inside[..1], "g3-3g.40gb@4", job(35))
        );
        assert!(!is_wanted(&inside, "g3", None) && !is_wanted(&inside, "g3-3g.40gb@0", None));
    }

    #[test]
    fn shares_that_cannot_be_read_are_not_taken_for_none() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shares.json");
        assert_eq!(read_shares(&path).unwrap(), []);
        std::fs::write(&path, serde_json::to_vec(&[share(33, Mechanism::Mps)]).unwrap()).unwrap();
        assert_eq!(read_shares(&path).unwrap(), [share(33, Mechanism::Mps)]);
        std::fs::write(&path, "[3").unwrap();
        assert!(read_shares(&path).is_err());
        assert!(path.exists(), "it is the agent's to set aside");
    }

    /// A process that looks like the daemon of this pipe directory and never answers.
    fn silent_daemon(root: &Path, index: u32) -> std::process::Child {
        let device = root.join(format!("mps/g{index}"));
        let pipe = device.join("pipe");
        std::fs::create_dir_all(&pipe).unwrap();
        let program = device.join(mps::CONTROL_PROGRAM);
        std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
        #[expect(clippy::disallowed_methods, reason = "a daemon is a program")]
        let mut command = std::process::Command::new(program);
        let child = command.arg("60").env("CUDA_MPS_PIPE_DIRECTORY", &pipe).spawn().unwrap();
        // The kernel lets us go on before it shows the environment of the new program.
        let environment = format!("/proc/{}/environ", child.id());
        let is_shown = || std::fs::read_to_string(&environment).unwrap().contains("CUDA_MPS_PIPE_DIRECTORY=");
        while !is_shown() {
            std::thread::yield_now();
        }
        std::fs::write(pipe.join("nvidia-cuda-mps-control.pid"), child.id().to_string()).unwrap();
        let settings = serde_json::json!({
            "pipe_directory": pipe, "log_directory": device.join("log"), "multi_user": false,
            "cap_default": null, "memory_limit_bytes_default": null,
        });
        let started_ticks = ProcFs::new("/proc").identify(child.id()).unwrap().start_ticks;
        let record = serde_json::json!({
            "index": index, "device": "GPU-1", "settings": settings,
            "pid": child.id(), "started_ticks": started_ticks,
        });
        std::fs::write(pipe.join("pillion.json"), record.to_string()).unwrap();
        child
    }

    #[test]
    fn daemons_that_do_not_answer_hold_no_epilog_up() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let hangs = root.join("control");
        std::fs::write(&hangs, "#!/bin/sh\nexec sleep 60\n").unwrap();
        std::fs::set_permissions(&hangs, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let mut daemons = [0, 1].map(|index| silent_daemon(root, index));
        let mut config = Config {
            runtime_directory: root.to_owned(),
            state_directory: root.to_owned(),
            handoff_socket: root.join("agent.sock"),
            ..Config::default()
        };
        config.mps.control_binary = hangs;
        let error = cleanup(&config, None).expect_err("each takes two seconds");
        assert!(error.to_string().contains("timed out"), "{error}");
        for daemon in &mut daemons {
            assert!(daemon.try_wait().unwrap().is_none(), "it is not ours to kill");
            daemon.kill().unwrap();
            daemon.wait().unwrap();
        }
    }
}
