//! Slurm itself: its release and the settings of slurm.conf that sharing stands on.

use crate::doctor::facts::Facts;
use crate::doctor::facts::SlurmConf;
use crate::doctor::finding::{Check, Finding};
use pillion_config::{Scheduler, parse_scheduler};
use pillion_core::fault::REQUEUE_AGE_SECONDS_MAX;
use pillion_slurm::SlurmVersion;

const RESTART: &str = "then restart slurmctld";
/// How late a scan may be before `queue-scan` complains.
const SCAN_AGE_SECONDS_MAX: f64 = super::scheduler::SCAN_AGE_SECONDS_MAX;

/// Earlier releases double-book GRES, and some later ones have faults that are known.
pub(super) fn version(facts: &Facts) -> Vec<Finding> {
    let check = Check("slurm-version");
    vec![match &facts.version {
        Err(why) => check.fail(why, "start slurmctld, and see that 'scontrol ping' works on this machine"),
        Ok(version) => match version.refusal() {
            None => faults(check, *version),
            Some(why) => check.fail(why, "upgrade Slurm; until then the scheduler decides nothing"),
        },
    }]
}

/// What a release is known for that a site wants to be without.
fn faults(check: Check, version: SlurmVersion) -> Finding {
    let found = version.faults();
    let Some(floor) = found.iter().map(|(_, floor)| floor).max() else {
        return check.ok(version.to_string());
    };
    let named: Vec<String> = found
        .iter()
        .map(|(fault, floor)| format!("{} ({}; mended in {floor})", fault.name, fault.meaning))
        .collect();
    check.warn(
        format!("Slurm {version} has {}", named.join(", ")),
        format!("upgrade Slurm to {floor} or later"),
    )
}

/// Runs a check on slurm.conf, or says why it cannot.
pub(super) fn with_conf(
    facts: &Facts,
    check: Check,
    look: impl FnOnce(&SlurmConf) -> Finding,
) -> Vec<Finding> {
    vec![match &facts.slurm_conf {
        Ok(conf) => look(conf),
        Err(why) => check.skip(why),
    }]
}

/// The scheduler's configuration as its file has it; the defaults where there is none that can be read.
fn written(facts: &Facts) -> Scheduler {
    let written = facts.config_text.text.as_deref().ok().and_then(|text| parse_scheduler(text).ok());
    written.unwrap_or_default()
}

/// Shards need `cons_tres`, and jobs of several on a node need memory to be a consumable.
pub(super) fn select_type(facts: &Facts) -> Vec<Finding> {
    let check = Check("select-type");
    with_conf(facts, check, |conf| {
        let (plugin, parameters) = (conf.get("SelectType"), conf.get("SelectTypeParameters"));
        if plugin != "select/cons_tres" {
            return check.fail(
                format!("SelectType={plugin}"),
                format!("set SelectType=select/cons_tres and SelectTypeParameters=CR_Core_Memory in slurm.conf, {RESTART}"),
            );
        }
        let parts: Vec<&str> = parameters.split(',').map(str::trim).collect();
        if parts
            .iter()
            .any(|part| ["CR_CORE_MEMORY", "CR_CPU_MEMORY"].contains(&part.to_ascii_uppercase().as_str()))
        {
            return check.ok(format!("{plugin}, {parameters}"));
        }
        check.fail(
            format!(
                "SelectTypeParameters={parameters} does not book memory, so partners could exhaust a node's"
            ),
            format!("set SelectTypeParameters=CR_Core_Memory in slurm.conf, {RESTART}"),
        )
    })
}

/// Both GRES must be known.
pub(super) fn gres_types_setting(facts: &Facts) -> Vec<Finding> {
    let check = Check("gres-types-setting");
    with_conf(facts, check, |conf| {
        let missing: Vec<&str> =
            ["gpu", "shard"].into_iter().filter(|word| !conf.has_word("GresTypes", word)).collect();
        if missing.is_empty() {
            return check.ok(format!("GresTypes={}", conf.get("GresTypes")));
        }
        check.fail(
            format!("GresTypes={} lacks {}", conf.get("GresTypes"), missing.join(" and ")),
            "set GresTypes=gpu,shard in slurm.conf, then restart slurmctld and every slurmd, and slurmctld once more",
        )
    })
}

/// Without our module nobody is routed, and nobody is kept from asking for shards himself.
pub(super) fn job_submit_plugins(facts: &Facts) -> Vec<Finding> {
    let check = Check("job-submit-plugins");
    with_conf(facts, check, |conf| {
        if conf.has_word("JobSubmitPlugins", "lua") {
            return check.ok(format!("JobSubmitPlugins={}", conf.get("JobSubmitPlugins")));
        }
        check.fail(
            format!(
                "JobSubmitPlugins={} does not load lua: --colocate does nothing, and anybody may take shards",
                conf.get("JobSubmitPlugins")
            ),
            format!("add lua to JobSubmitPlugins in slurm.conf, {RESTART}"),
        )
    })
}

/// What is not tracked is neither limited nor reported.
pub(super) fn accounting_tres(facts: &Facts) -> Vec<Finding> {
    let check = Check("accounting-tres");
    with_conf(facts, check, |conf| {
        if !conf.get("AccountingStorageType").contains("slurmdbd") {
            return check.skip("no slurmdbd: there is no accounting to be wrong");
        }
        let missing: Vec<&str> = ["gres/gpu", "gres/shard"]
            .into_iter()
            .filter(|word| !conf.has_word("AccountingStorageTRES", word))
            .collect();
        if missing.is_empty() {
            return check.ok(format!("AccountingStorageTRES={}", conf.get("AccountingStorageTRES")));
        }
        check.fail(
            format!(
                "AccountingStorageTRES lacks {}: limits and reports do not see it",
                missing.join(" and ")
            ),
            format!("add {} to AccountingStorageTRES in slurm.conf, {RESTART}", missing.join(",")),
        )
    })
}

/// Victims and evicted jobs come back by `scontrol requeue`, which Slurm refuses for a job that may not be requeued
/// (slurm.conf(5), `JobRequeue`).
pub(super) fn job_requeue(facts: &Facts) -> Vec<Finding> {
    let check = Check("job-requeue");
    with_conf(facts, check, |conf| {
        if conf.get("JobRequeue") != "0" {
            return check.ok("jobs may be started again unless their users forbid it");
        }
        check.warn(
            "JobRequeue=0: a job that a neighbour's crash took down, or that is evicted, is not started again unless its user \
             wrote --requeue",
            "set JobRequeue=1 in slurm.conf, then 'scontrol reconfigure'; users who want none write --no-requeue",
        )
    })
}

/// Ends are read from the queue: a job that Slurm forgets between two scans has no outcome, and is no victim to start again
/// (slurm.conf(5), `MinJobAge`; 0 is never).
pub(super) fn min_job_age(facts: &Facts) -> Vec<Finding> {
    let check = Check("min-job-age");
    let period = written(facts).scan_period_seconds;
    with_conf(facts, check, |conf| {
        let Some(age) = conf.seconds("MinJobAge") else {
            return check.skip("Slurm does not say its MinJobAge");
        };
        let mend = "set MinJobAge=300 in slurm.conf, then 'scontrol reconfigure'";
        if age <= 0.0 || age >= REQUEUE_AGE_SECONDS_MAX {
            return check.ok(format!("Slurm remembers ended jobs (MinJobAge={age:.0})"));
        }
        if age < SCAN_AGE_SECONDS_MAX + period {
            return check.fail(
                format!(
                    "MinJobAge={age:.0}: Slurm forgets ended jobs before the scheduler, which reads the queue every {period} s and \
                     may be {SCAN_AGE_SECONDS_MAX:.0} s late, has seen how they ended"
                ),
                mend,
            );
        }
        check.warn(
            format!(
                "MinJobAge={age:.0}: a victim of a neighbour's crash can be started again for {REQUEUE_AGE_SECONDS_MAX:.0} s \
                 after its end, and Slurm has forgotten it by then"
            ),
            mend,
        )
    })
}

/// Several tenants start and end on one node: with `Serial` their prologs and epilogs wait for each other, "with a
/// significant penalty to job throughput on each node" (slurm.conf(5), `PrologFlags`). The other flags are as good as none:
/// our hooks only poke.
pub(super) fn prolog_flags(facts: &Facts) -> Vec<Finding> {
    let check = Check("prolog-flags");
    with_conf(facts, check, |conf| {
        if !conf.has_word("PrologFlags", "Serial") {
            return check.ok("prologs and epilogs of one node do not wait for each other");
        }
        check.warn(
            format!(
                "PrologFlags={} has Serial: on a shared node a start waits for the prologs and epilogs of its neighbours",
                conf.get("PrologFlags")
            ),
            "take Serial out of PrologFlags in slurm.conf, then restart slurmctld and every slurmd",
        )
    })
}

/// Rules for accounts and QOS go by what Slurm says of a job, and Slurm says what its user wrote where it checks neither
/// (docs/decisions/0036-policy-by-job.md).
pub(super) fn accounting_enforce(facts: &Facts) -> Vec<Finding> {
    let check = Check("accounting-enforce");
    with_conf(facts, check, |conf| {
        let overrides = &written(facts).policy.overrides;
        let wanted = [
            ("associations", overrides.iter().any(|own| own.accounts.is_some())),
            ("qos", overrides.iter().any(|own| own.qos.is_some())),
        ];
        let is_checked =
            |word: &str| ["all", word].iter().any(|word| conf.has_word("AccountingStorageEnforce", word));
        let unchecked: Vec<&str> = wanted
            .into_iter()
            .filter(|(word, is_wanted)| *is_wanted && !is_checked(word))
            .map(|(word, _)| word)
            .collect();
        if unchecked.is_empty() {
            return check.ok("whatever account or QOS policy.override goes by, Slurm checks it");
        }
        let unchecked = unchecked.join(",");
        check.warn(
            format!(
                "AccountingStorageEnforce={} is without {unchecked}: a user may write any account or QOS that policy.override goes by",
                conf.get("AccountingStorageEnforce")
            ),
            format!("add {unchecked} to AccountingStorageEnforce in slurm.conf, then restart slurmctld"),
        )
    })
}

/// A guest that goes back is held in the control group that Slurm made for it, so that its clients leave the GPU before SIGTERM
/// comes. Where there is none it stays, and after the first such guest nobody is tried (docs/decisions/0015-the-watch.md).
pub(super) fn proctrack_type(facts: &Facts) -> Vec<Finding> {
    let check = Check("proctrack-type");
    with_conf(facts, check, |conf| {
        let tracked = conf.get("ProctrackType");
        if !written(facts).sends_guests_back() {
            return check.ok(format!("ProctrackType={tracked}; nobody is sent back (policy.watch)"));
        }
        if tracked == "proctrack/cgroup" {
            return check.ok("a guest that goes back can be held while it leaves its GPU");
        }
        check.warn(
            format!(
                "ProctrackType={tracked}: a guest cannot be held, so one that SIGTERM kills stays where policy.watch = \"act\" would send \
                 it back, and after it nobody is tried and no first run is joined"
            ),
            "set ProctrackType=proctrack/cgroup in slurm.conf, then restart slurmctld and every slurmd, when no job runs",
        )
    })
}
