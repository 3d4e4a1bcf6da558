//! Whether the scheduler that runs is the one that is configured, runs as who it must, and leads.

use crate::doctor::facts::Facts;
use crate::doctor::finding::{Check, Finding};
use pillion_config::{Part, mistakes, parse_scheduler, parts};

/// The file is one with which the programs start, and the scheduler has read it as it is now.
pub(super) fn config(facts: &Facts) -> Vec<Finding> {
    let check = Check("config");
    let path = facts.config_text.path.display();
    let text = match &facts.config_text.text {
        Ok(text) => text,
        Err(why) => {
            return vec![check.fail(
                format!("{path}: {why}"),
                "write it from deploy/pillion.toml.example ('pillion config example')",
            )];
        }
    };
    let found = parts(text).unwrap_or_else(|_| vec![Part::Scheduler]);
    let wrong: Vec<Finding> = found
        .into_iter()
        .flat_map(|part| mistakes(part, text, "localhost").into_iter().map(move |mistake| (part, mistake)))
        .map(|(part, mistake)| {
            let mend = format!("correct it: {} does not start with it", part.program());
            check.fail(format!("{path}, {mistake}"), mend)
        })
        .collect();
    if !wrong.is_empty() {
        return wrong;
    }
    let running = facts.status.as_ref().ok();
    let written = parse_scheduler(text);
    if let Ok(written) = &written
        && let unwatched = written.first_runs_unwatched()
        && !unwatched.is_empty()
    {
        let found = format!(
            "{path} says first_runs = \"host\", and the watch does not act in {}: first runs stay alone",
            unwatched.join(",")
        );
        return vec![check.warn(
            found,
            "set policy.watch = \"act\", or first_runs = \"alone\"; then restart the scheduler",
        )];
    }
    if let (Ok(written), Some(status)) = (written, running) {
        let restart = "systemctl restart pillion-scheduler: it reads the file at start only";
        let mode = written.mode.as_str();
        if status.mode != mode {
            let found = format!("{path} says mode = \"{mode}\", the scheduler runs with {}", status.mode);
            return vec![check.warn(found, restart)];
        }
        if status.pool_partitions != written.pool.partitions {
            let found = format!(
                "{path} names the pool {}, the scheduler runs with {}",
                written.pool.partitions.join(","),
                status.pool_partitions.join(",")
            );
            return vec![check.warn(found, restart)];
        }
    }
    let whose = if facts.is_config_reported { ", with which the scheduler runs," } else { "" };
    vec![check.ok(format!("{path}{whose} has no mistake"))]
}

/// Only `SlurmUser` and root may change the jobs of others. Who writes the heartbeat is who the scheduler runs as.
pub(super) fn slurm_user(facts: &Facts) -> Vec<Finding> {
    let check = Check("slurm-user");
    let conf = match &facts.slurm_conf {
        Ok(conf) => conf,
        Err(why) => return vec![check.skip(why)],
    };
    let uid = match &facts.heartbeat_uid {
        Ok(uid) => *uid,
        Err(why) => return vec![check.skip(why)],
    };
    // `scontrol show config` has `slurm(64030)`.
    let named = conf.get("SlurmUser");
    let wanted = named.split_once('(').and_then(|(_, rest)| rest.trim_end_matches(')').parse::<u32>().ok());
    vec![match wanted {
        Some(wanted) if uid == wanted || uid == 0 => check.ok(format!("the scheduler runs as uid {uid}")),
        Some(_) => check.fail(
            format!("the scheduler runs as uid {uid}, and may not change jobs: SlurmUser is {named}"),
            "systemctl edit pillion-scheduler, and pillion-rescue: User= and Group= of SlurmUser; then restart it",
        ),
        None => check.skip("Slurm does not say who SlurmUser is"),
    }]
}

/// Of two schedulers on one database one leads; the heartbeat of the other says off, and lua here goes by that.
pub(super) fn leader(facts: &Facts) -> Vec<Finding> {
    let check = Check("leader");
    let mode =
        facts.heartbeat.text.as_deref().ok().and_then(|text| {
            text.lines().next()?.split_whitespace().find_map(|word| word.strip_prefix("mode="))
        });
    let (Some(mode), Ok(status)) = (mode, &facts.status) else {
        return vec![check.skip("there is no heartbeat, or the scheduler does not answer")];
    };
    if status.slurm_refusal.is_some() {
        return vec![check.skip("the scheduler does not act on this Slurm")];
    }
    if status.leading && status.not_acting.is_some() {
        return vec![check.skip("the scheduler decides nothing now, and its heartbeat says so")];
    }
    if mode == status.mode {
        return vec![check.ok("the heartbeat on this machine is the scheduler's own")];
    }
    vec![check.fail(
        format!("the heartbeat on this machine says mode={mode}, the scheduler runs with {}: another one leads", status.mode),
        "run one scheduler on the machine of the active slurmctld, and stop the other: jobs stay as their users wrote them",
    )]
}

/// Without it a job reaches devices of which it holds no share.
pub(super) fn constrain_devices(facts: &Facts) -> Vec<Finding> {
    let check = Check("constrain-devices");
    let conf = match &facts.slurm_conf {
        Ok(conf) => conf,
        Err(why) => return vec![check.skip(why)],
    };
    if !conf.has_word("TaskPlugin", "task/cgroup") {
        return vec![check.warn(
            format!("TaskPlugin={} lacks task/cgroup: a job reaches devices of which it holds no share", conf.get("TaskPlugin")),
            "add task/cgroup to TaskPlugin in slurm.conf, and ConstrainDevices=yes to cgroup.conf, then restart every slurmd",
        )];
    }
    if conf.get("ConstrainDevices").eq_ignore_ascii_case("yes") {
        return vec![check.ok("jobs reach only devices of which they hold a share")];
    }
    vec![check.warn(
        "ConstrainDevices is off: a job reaches devices of which it holds no share",
        "set ConstrainDevices=yes in cgroup.conf, then restart every slurmd",
    )]
}
