//! `job_submit.lua`, which loads our module, and the heartbeat by which the module knows that the scheduler lives.

use crate::doctor::facts::Facts;
use crate::doctor::finding::{Check, Finding};
use crate::doctor::lua::{Loading, heartbeat_path, loading};
use pillion_core::heartbeat::STALE_AFTER_SECONDS;

/// The site's script loads and calls our module by `pcall`, and the module is there.
pub(super) fn module(facts: &Facts) -> Vec<Finding> {
    let check = Check("lua-module");
    let path = facts.job_submit_lua.path.display();
    let script = match &facts.job_submit_lua.text {
        Ok(script) => script,
        Err(why) => {
            return vec![check.fail(
                format!("{path}: {why}"),
                "run doctor on the controller as root; where there is no script yet, start from job_submit.lua.example",
            )];
        }
    };
    match loading(script) {
        Loading::Absent => vec![check.fail(
            format!("{path} does not load pillion.lua: --colocate does nothing, and anybody may take shards"),
            "add the lines of job_submit.lua.example to it",
        )],
        Loading::Bare { line, text } => vec![check.fail(
            format!("{path} line {line} is not protected: {text}"),
            "use pcall(dofile, PATH) and pcall(pillion.FUNCTION, ...): otherwise a missing or broken module keeps slurmctld from starting",
        )],
        Loading::Protected => match &facts.pillion_lua.text {
            Ok(_) => vec![check.ok(format!("{path} loads {} by pcall", facts.pillion_lua.path.display()))],
            Err(why) => vec![check.fail(
                format!("{}: {why}", facts.pillion_lua.path.display()),
                "install pillion.lua there; until then jobs stay as their users wrote them",
            )],
        },
    }
}

/// The heartbeat is fresh, and written where it is read.
pub(super) fn heartbeat(facts: &Facts) -> Vec<Finding> {
    let check = Check("heartbeat");
    let written = &facts.heartbeat.path;
    let read = [&facts.job_submit_lua, &facts.pillion_lua]
        .into_iter()
        .find_map(|file| heartbeat_path(file.text.as_deref().ok()?));
    if let Some(read) = read.filter(|read| std::path::Path::new(read) != written) {
        return vec![check.fail(
            format!("the lua module reads {read}, the scheduler writes {}", written.display()),
            "name the same file in both: heartbeat_path in pillion.toml, and the path in job_submit.lua",
        )];
    }
    let text = match &facts.heartbeat.text {
        Ok(text) => text,
        Err(why) => {
            return vec![check.fail(
                format!("{}: {why}", written.display()),
                "start pillion-scheduler on this machine; without a heartbeat jobs stay as their users wrote them",
            )];
        }
    };
    let epoch = text.strip_prefix("pillion1 ").and_then(|rest| {
        rest.split_whitespace().find_map(|word| word.strip_prefix("epoch=")?.parse::<u64>().ok())
    });
    let Some(epoch) = epoch else {
        return vec![check.fail(
            format!("{} is no heartbeat", written.display()),
            "see that nothing else writes this file, then restart pillion-scheduler",
        )];
    };
    let now = facts.now.epoch();
    if now.saturating_sub(epoch) > STALE_AFTER_SECONDS {
        return vec![check.fail(
            format!(
                "the last heartbeat is {} s old, more than {STALE_AFTER_SECONDS} s are too many",
                now - epoch
            ),
            "see 'systemctl status pillion-scheduler'; until then jobs stay as their users wrote them",
        )];
    }
    if epoch > now + STALE_AFTER_SECONDS {
        return vec![check.fail(
            format!("the last heartbeat lies {} s in the future", epoch - now),
            "set this machine's clock, and see that chronyd or ntpd runs",
        )];
    }
    if facts.is_heartbeat_in_memory == Some(false) {
        return vec![check.warn(
            format!("{} lies on a disk, and slurmctld reads it at each submission under its lock", written.display()),
            "name a file on a tmpfs: heartbeat_path = \"/run/pillion/heartbeat\" in pillion.toml, the same in job_submit.lua and hooks.env",
        )];
    }
    vec![check.ok(format!("{} is {} s old", written.display(), now.saturating_sub(epoch)))]
}
