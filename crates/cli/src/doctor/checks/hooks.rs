//! Slurm's hooks, which only poke, and the timer of `pillion rescue`.

use crate::doctor::facts::Facts;
use crate::doctor::facts::{Hook, HookKind};
use crate::doctor::finding::{Check, Finding};

/// Each hook is there, may be executed, and cannot fail or hang.
pub(super) fn hooks(facts: &Facts) -> Vec<Finding> {
    let check = Check("hooks");
    if let Err(why) = &facts.slurm_conf {
        return vec![check.skip(why)];
    }
    let kinds = [HookKind::Prolog, HookKind::Epilog, HookKind::EpilogSlurmctld];
    let wrong: Vec<Finding> = kinds.into_iter().flat_map(|kind| of_kind(check, facts, kind)).collect();
    check.ok_unless(
        wrong,
        "Prolog, Epilog and EpilogSlurmctld poke, and cannot fail (as seen on this machine)",
    )
}

fn of_kind(check: Check, facts: &Facts, kind: HookKind) -> Vec<Finding> {
    let setting = kind.setting();
    let hooks: Vec<&Hook> = facts.hooks.iter().filter(|hook| hook.kind == kind).collect();
    let ours: Vec<&&Hook> = hooks.iter().filter(|hook| mentions_us(hook)).collect();
    if let Some(hook) = hooks.iter().find(|hook| hook.file.text.is_err()) {
        let why = hook.file.text.as_ref().err().map_or("", String::as_str);
        let found = format!("{setting}={}: {why}", hook.file.path.display());
        let mend = "install the script on every node: a hook that cannot be run drains the node";
        return vec![match kind {
            HookKind::EpilogSlurmctld => check.fail(found, "install the script here: slurmctld runs it"),
            // A controller that is no node has no use for it.
            _ if agents_report_setup(facts) => {
                check.skip(format!("{found} here; on each node its agent looks, as node-setup tells"))
            }
            _ => check.fail(found, mend),
        }];
    }
    if ours.is_empty() {
        return vec![check.warn(
            format!("{setting} does not call pillion: ends and starts are seen only by the next scan"),
            format!("set {setting} in slurm.conf to the script of deploy/slurm/hooks, or call it from yours"),
        )];
    }
    ours.into_iter().filter_map(|hook| judge(check, hook)).collect()
}

/// Whether some agent reports how its own node is set up.
fn agents_report_setup(facts: &Facts) -> bool {
    facts.status.as_ref().is_ok_and(|status| status.agents.iter().any(|agent| agent.setup.is_some()))
}

fn mentions_us(hook: &Hook) -> bool {
    let is_named_so = hook.file.path.to_string_lossy().contains("pillion");
    is_named_so || hook.file.text.as_ref().is_ok_and(|text| commands(text).any(calls_us))
}

/// The lines of a shell script that do something.
fn commands(script: &str) -> impl DoubleEndedIterator<Item = &str> {
    script.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Whether a line runs one of our programs (and does not only name a file of ours), or the script that does.
fn calls_us(line: &str) -> bool {
    runs_us(line) || line.contains("/pillion/epilog_slurmctld")
}

fn runs_us(line: &str) -> bool {
    line.contains("pillion poke") || line.contains("pillion-agent ")
}

fn judge(check: Check, hook: &Hook) -> Option<Finding> {
    let Hook { kind, file, is_executable } = hook;
    let (setting, path) = (kind.setting(), file.path.display());
    if !is_executable {
        return Some(
            check.fail(format!("{setting}={path} may not be executed"), format!("chmod 755 {path}")),
        );
    }
    let text = file.text.as_deref().unwrap_or_default();
    let hangs = commands(text).any(|line| runs_us(line) && !line.contains("timeout"));
    if hangs {
        return Some(check.fail(
            format!("{setting}={path} calls pillion without a time limit"),
            "write 'timeout 2 pillion ...': a hook that hangs holds up every job",
        ));
    }
    if commands(text).next_back() != Some("exit 0") {
        return Some(check.fail(
            format!("{setting}={path} does not end in 'exit 0'"),
            "make 'exit 0' its last line: a hook that fails drains the node",
        ));
    }
    // Slurm runs this one for every job of the cluster, and calls the job completing meanwhile.
    let is_waited_for = commands(text).any(runs_us) && !commands(text).any(|line| line.contains("setsid"));
    if *kind == HookKind::EpilogSlurmctld && is_waited_for {
        return Some(check.warn(
            format!("{setting}={path} waits for pillion: every job of the cluster ends later while the scheduler is slow"),
            "install the script of deploy/slurm/hooks, or call it from yours: it waits for nothing",
        ));
    }
    None
}

/// The last resort has to be wound up before it is needed.
pub(super) fn rescue_timer(facts: &Facts) -> Vec<Finding> {
    let check = Check("rescue-timer");
    vec![match &facts.rescue_timer {
        Err(why) => check.skip(why),
        Ok(state) if state == "active" => check.ok("pillion-rescue.timer is active"),
        Ok(state) => check.fail(
            format!("pillion-rescue.timer is {state}: if the scheduler dies, released jobs that did not start wait for ever"),
            "systemctl enable --now pillion-rescue.timer on the controller",
        ),
    }]
}
