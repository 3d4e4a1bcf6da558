//! The scheduler, its database and its agents, as the scheduler itself reports.

use crate::doctor::facts::Facts;
use crate::doctor::facts::SlurmConf;
use crate::doctor::finding::{Check, Finding};
use crate::format;
use crate::format::listed;
use pillion_api::{AgentStatus, DeviceStatus, Fault, RefusedPeer, StatusResponse};
use pillion_core::health::FaultKind;
use std::collections::BTreeSet;

/// A clock further off than this spoils the order of what happened.
const CLOCK_SKEW_SECONDS_MAX: f64 = 5.0;
/// The queue is read every few seconds.
pub(super) const SCAN_AGE_SECONDS_MAX: f64 = 30.0;

/// Runs a check on what the scheduler says; where it says nothing, one check complains and the others pass.
fn with_status(
    facts: &Facts,
    check: Check,
    look: impl FnOnce(&StatusResponse) -> Vec<Finding>,
) -> Vec<Finding> {
    match &facts.status {
        Ok(status) => look(status),
        Err(_) => vec![check.skip("the scheduler does not answer")],
    }
}

/// It runs, acts, and is of our release.
pub(super) fn scheduler(facts: &Facts) -> Vec<Finding> {
    let check = Check("scheduler");
    let status = match &facts.status {
        Ok(status) => status,
        Err(why) => {
            return vec![
                check.fail(why, "systemctl status pillion-scheduler, and journalctl -u pillion-scheduler"),
            ];
        }
    };
    let mut wrong = Vec::new();
    if let Some(why) = &status.slurm_refusal {
        wrong.push(check.fail(format!("it does not act: {why}"), "upgrade Slurm"));
    }
    if let (Some(why), None, true) = (&status.not_acting, &status.slurm_refusal, status.leading) {
        wrong.push(check.fail(
            format!("it decides nothing now: {why}"),
            "install the pillion.lua of its release and 'touch' job_submit.lua; journalctl -u pillion-scheduler",
        ));
    }
    if status.mode == "off" {
        wrong.push(check.warn(
            "its mode is off: jobs stay as their users wrote them",
            "set mode = \"active\" in /etc/pillion/pillion.toml and restart it, when jobs are to share",
        ));
    }
    let own = env!("CARGO_PKG_VERSION");
    if status.scheduler_version != own {
        wrong.push(check.warn(
            format!("it is of release {}, this command of {own}", status.scheduler_version),
            "install the same release on both sides",
        ));
    }
    if status.violation_count > 0 {
        wrong.push(check.fail(
            format!("{} times a GPU was booked beyond the plan", status.violation_count),
            "see 'journalctl -u pillion-scheduler' for the node and jobs; releases there are stopped",
        ));
    }
    if status.miss_count > 0 {
        wrong.push(check.warn(
            format!(
                "{} starts got no share: nothing was decided for them, or their agent was not responding",
                status.miss_count
            ),
            "see 'pillion explain JOB' for whose they were, and 'journalctl -u pillion-agent' on those nodes",
        ));
    }
    check.ok_unless(wrong, format!("release {own}, mode {}", status.mode))
}

/// It sees the queue.
pub(super) fn queue_scan(facts: &Facts) -> Vec<Finding> {
    let check = Check("queue-scan");
    with_status(facts, check, |status| {
        let Some(at) = status.last_scan_at_seconds else {
            return vec![check.fail(
                "it has not read the queue yet",
                "see that squeue and scontrol work for the user that pillion-scheduler runs as",
            )];
        };
        let age = status.now_seconds - at;
        if age > SCAN_AGE_SECONDS_MAX {
            return vec![check.fail(
                format!("it last read the queue {age:.0} s ago"),
                "see that slurmctld answers, and journalctl -u pillion-scheduler",
            )];
        }
        if status.dropped_line_count > 0 {
            return vec![check.warn(
                format!(
                    "{} lines of Slurm's answers could not be read and were passed over",
                    status.dropped_line_count
                ),
                "see journalctl -u pillion-scheduler; those jobs are left alone",
            )];
        }
        vec![check.ok(format!("read {:.0} s ago", age.max(0.0)))]
    })
}

/// It has its memory.
pub(super) fn database(facts: &Facts) -> Vec<Finding> {
    let check = Check("database");
    with_status(facts, check, |status| {
        if status.database.is_empty() {
            return vec![check.fail(
                "the scheduler names no database",
                "set database.url in /etc/pillion/pillion.toml, or install Postgres on this machine",
            )];
        }
        vec![check.ok(status.database.clone())]
    })
}

/// Whoever comes over TCP from other machines proves who he is, and can.
pub(super) fn tcp(facts: &Facts) -> Vec<Finding> {
    let check = Check("tcp");
    let Some(address) = facts.config.listen.tcp.filter(|address| !address.ip().is_loopback()) else {
        return vec![check.ok("it is reached from this machine only")];
    };
    let method = match &facts.status {
        Ok(status) => status.auth_method.as_deref().unwrap_or("none"),
        Err(_) => return vec![check.skip("the scheduler does not answer")],
    };
    if method == "none" {
        return vec![check.fail(
            format!("{address} can be reached from other machines, and whoever comes is believed"),
            "set auth.method = \"munge\" in /etc/pillion/pillion.toml, install the same release everywhere, and restart \
             pillion-scheduler",
        )];
    }
    if method == "munge"
        && let Some(slurm_user) = facts.slurm_conf.as_ref().ok().and_then(slurm_user_other_than(facts))
    {
        return vec![check.fail(
            format!("auth.scheduler_user = \"{}\", and SlurmUser is {slurm_user}", facts.config.auth.scheduler_user),
            "write the user that pillion-scheduler runs as into [auth] scheduler_user here, and into [agent.auth] on every node",
        )];
    }
    vec![check.ok(format!("{address}: nodes prove who they are by {method}, users by MUNGE"))]
}

/// `SlurmUser` as Slurm shows it, `slurm(64030)`, where that is not who is configured to be the scheduler.
fn slurm_user_other_than(facts: &Facts) -> impl Fn(&SlurmConf) -> Option<String> {
    let wanted = facts.config.auth.scheduler_user.clone();
    move |conf| {
        let shown = conf.get("SlurmUser");
        let (name, uid) = shown.split_once('(')?;
        (wanted != name && wanted != uid.trim_end_matches(')')).then(|| shown.to_owned())
    }
}

/// A refusal that is longer ago is over, or nobody tries any more.
const REFUSAL_AGE_SECONDS_MAX: f64 = 600.0;

/// Nobody of ours was turned away lately.
pub(super) fn refused(facts: &Facts) -> Vec<Finding> {
    let check = Check("refused");
    with_status(facts, check, |status| {
        let is_recent =
            |refused: &&RefusedPeer| status.now_seconds - refused.at_seconds < REFUSAL_AGE_SECONDS_MAX;
        let wrong = status.refused.iter().filter(is_recent).map(|refused| {
            let RefusedPeer { who, address, why, count, .. } = refused;
            let mend = if why.contains("clock") {
                "see that chronyd or ntpd runs there and here"
            } else {
                "see [auth] here and [agent.auth] there, that munged runs on both with one key, and that NodeAddr and \
                 pool.partitions name the node; a stranger is to be kept from the port"
            };
            check.fail(format!("{who} at {address} was not let in ({count} times): {why}"), mend)
        });
        let wrong = wrong.collect();
        check.ok_unless(wrong, "nobody was turned away")
    })
}

/// Every pool node has an agent, with the right time.
pub(super) fn agents(facts: &Facts) -> Vec<Finding> {
    let check = Check("agents");
    with_status(facts, check, |status| {
        let connected: Vec<&AgentStatus> = status.agents.iter().filter(|agent| agent.connected).collect();
        let nodes = facts.pool_nodes();
        let names = nodes.iter().map(|node| node.name.as_str());
        let missing: Vec<&str> =
            names.filter(|name| connected.iter().all(|agent| agent.node != *name)).collect();
        let mut wrong = Vec::new();
        if !missing.is_empty() {
            wrong.push(check.fail(
                format!("no agent is connected from {}: nothing is released there", listed(&missing)),
                "systemctl enable --now pillion-agent there, and see that it reaches the scheduler's TCP address",
            ));
        }
        let mut other = Vec::new();
        for agent in connected {
            if agent.clock_skew_seconds.abs() >= CLOCK_SKEW_SECONDS_MAX {
                wrong.push(check.fail(
                    format!("the clock of {} is off by {:+.1} s", agent.node, agent.clock_skew_seconds),
                    "see that chronyd or ntpd runs there and here",
                ));
            }
            if agent.version != status.scheduler_version {
                other.push(agent.node.as_str());
            }
        }
        if !other.is_empty() {
            wrong.push(check.warn(
                format!("the agents of {} are of another release than the scheduler", listed(&other)),
                "install the same release there and restart pillion-agent; jobs are not disturbed",
            ));
        }
        check.ok_unless(
            wrong,
            format!("{} of {} pool nodes connected", nodes.len() - missing.len(), nodes.len()),
        )
    })
}

/// What the agent sees is what Slurm books.
pub(super) fn devices(facts: &Facts) -> Vec<Finding> {
    let check = Check("devices");
    with_status(facts, check, |status| {
        let mut wrong = Vec::new();
        for node in facts.pool_nodes() {
            let Some(agent) =
                status.agents.iter().find(|agent| agent.connected && agent.node == node.name.as_str())
            else {
                continue;
            };
            // Why it sees none at all is told with what is wrong with the node.
            if agent.no_devices().is_some() {
                continue;
            }
            let seen: BTreeSet<&str> = agent.devices.iter().map(|device| device.gres_type.as_str()).collect();
            let booked: BTreeSet<&str> = node.gpus.keys().map(pillion_core::GresType::as_str).collect();
            if seen != booked {
                wrong.push(check.fail(
                    format!(
                        "node {}: the agent sees {}, Slurm books {}",
                        node.name,
                        listed_or_none(&seen),
                        listed_or_none(&booked)
                    ),
                    "see whether the driver shows all of them there (nvidia-smi, xpu-smi): the agent takes up by itself what comes back; \
                     or make gres.conf name the devices that are there, in their order, and restart slurmd",
                ));
            }
        }
        check.ok_unless(wrong, "the agents see the devices that Slurm books")
    })
}

/// Every device of a connected node answers and gives what it gave.
pub(super) fn device_health(facts: &Facts) -> Vec<Finding> {
    let check = Check("device-health");
    with_status(facts, check, |status| {
        let mut wrong = Vec::new();
        for agent in status.agents.iter().filter(|agent| agent.connected) {
            for device in &agent.devices {
                let faults = device.known_faults().iter();
                wrong.extend(faults.map(|fault| device_fault(check, &agent.node, device, fault)));
            }
        }
        check.ok_unless(wrong, "every device answers")
    })
}

fn device_fault(check: Check, node: &str, device: &DeviceStatus, fault: &Fault) -> Finding {
    let since = format::time(fault.since_seconds);
    let found = format!("node {node}, device {}: {}, since {since}", device.gres_type, fault.sentence());
    let mend = match fault.kind() {
        FaultKind::Gone => {
            "see 'dmesg' there for the driver's errors (Xid) and reset or replace the device; it is used again when it answers"
        }
        FaultKind::Unreadable => {
            "see 'journalctl -u pillion-agent' and whether the vendor's own tool answers there (nvidia-smi, xpu-smi); the \
             device is used again when it answers"
        }
        FaultKind::MpsDied | FaultKind::MpsFault => {
            "its jobs may have failed; nobody new is put there until all of them have left, and then it is used again"
        }
        FaultKind::Divided => {
            "take away there what the agent has not made ('nvidia-smi mig -lgi' lists it, '-dci' and '-dgi' destroy it), or reset the GPU \
             where a change of its mode waits for that, and restart pillion-agent; where the agent is not to cut it ([agent.mig]), turn MIG \
             off ('nvidia-smi -i GPU -mig 0' with the agent stopped), or take the GPU out of the pool in gres.conf"
        }
        FaultKind::Held => {
            "end the programs that it names, or let go of the device there (monitors that are asked for it hold it: DCGM, an \
             exporter, nvidia-smi in a loop); who runs on it goes on, nobody new is put there, and when the driver lets go the \
             agent makes it whole by itself"
        }
        FaultKind::ModeHeld => {
            "the xe driver changes the mode of one tile only while nobody has a file of the whole card open; nobody new is \
             put there until all have left, and then it is used again"
        }
        FaultKind::MetricLost => {
            "see that no profiler holds the counters and that the exporter runs there; profiles do without this metric meanwhile"
        }
        FaultKind::NoPartitions => {
            "static SM partitions need a driver of CUDA 13.1 or later and an MPS daemon that nobody uses while it is started; \
             until then caps are only caps, or set mps.static_partitions = false there"
        }
        FaultKind::NoMechanism => {
            "install the Level Zero loader and driver there and start the agent anew; until then nothing keeps tenants of one \
             device apart, and what is told of it is XPU Manager's"
        }
        FaultKind::OneUser => {
            "several users on one device need a driver whose MPS has -multiuser-server; until then only jobs of one user share \
             it, or set mps.multi_user = false there"
        }
        FaultKind::Overused => {
            "ask its user: only a program that takes its MPS variables away, or several processes that hold a limit each, come \
             to that; what the job needs stands in --colocate=memory="
        }
        FaultKind::Outsider => {
            "ask its user, who came by another way than Slurm (ssh, cron, systemd-run) or left it behind; nobody joins that GPU while \
             it is there. pam_slurm_adopt in the node's sshd, and devices that only jobs may open, keep others out"
        }
        FaultKind::Other => "install the same release there and here to be told what it is",
    };
    if fault.closes_device { check.fail(found, mend) } else { check.warn(found, mend) }
}

fn listed_or_none(names: &BTreeSet<&str>) -> String {
    if names.is_empty() { "none".to_owned() } else { listed(names) }
}
