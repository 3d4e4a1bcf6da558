//! Settings of slurm.conf that hold for the whole cluster.

use super::files::SLURM_CONF;
use super::line::Pair;
use super::proposal::Proposal;

/// Hooks with the script that serves them, and what a site's own script has to call.
const HOOKS: [(&str, &str, &str); 3] = [
    ("Prolog", "/etc/slurm/pillion/prolog", "timeout 2 pillion-agent poke"),
    ("Epilog", "/etc/slurm/pillion/epilog", "timeout 5 pillion-agent cleanup"),
    ("EpilogSlurmctld", "/etc/slurm/pillion/epilog_slurmctld", "/etc/slurm/pillion/epilog_slurmctld"),
];

/// Hooks of nodes run on all of them.
const EVERY_NODE: &str = "every node needs the package pillion-slurm before it gets this slurm.conf, those outside the pool too: a Prolog or \
     Epilog that is named and not there drains the node at its next job";

/// Where a setting stands that holds: Slurm uses the last one.
pub(super) fn find(proposal: &Proposal, key: &str) -> Option<(String, Pair)> {
    let lines = proposal.files.read(SLURM_CONF);
    lines
        .into_iter()
        .rev()
        .find_map(|(file, line)| line.pairs.into_iter().find(|pair| pair.is(key)).map(|pair| (file, pair)))
}

/// Whether slurmdbd keeps the accounts: only then are GRES billed and limited.
pub(super) fn has_slurmdbd(proposal: &Proposal) -> bool {
    find(proposal, "AccountingStorageType").is_some_and(|(_, pair)| pair.value.contains("slurmdbd"))
}

/// What every cluster with a pool needs.
pub(super) fn propose(proposal: &mut Proposal) {
    list(proposal, "GresTypes", &["gpu", "shard"]);
    value(proposal, "SelectType", "select/cons_tres");
    select_parameters(proposal);
    list(proposal, "JobSubmitPlugins", &["lua"]);
    if has_slurmdbd(proposal) {
        list(proposal, "AccountingStorageTRES", &["gres/gpu", "gres/shard"]);
    }
    for (key, script, call) in HOOKS {
        hook(proposal, key, script, call);
    }
}

/// Adds what a comma list lacks.
fn list(proposal: &mut Proposal, key: &str, words: &[&str]) {
    let Some((file, pair)) = find(proposal, key) else {
        return proposal.files.append(SLURM_CONF, &format!("{key}={}\n", words.join(",")));
    };
    let lacks: Vec<&str> = words.iter().copied().filter(|word| !pair.has(word)).collect();
    if !lacks.is_empty() {
        let comma = if pair.value.is_empty() || pair.value.ends_with(',') { "" } else { "," };
        proposal.files.replace(&file, pair.end..pair.end, &format!("{comma}{}", lacks.join(",")));
    }
}

/// Gives a setting its one value.
fn value(proposal: &mut Proposal, key: &str, wanted: &str) {
    match find(proposal, key) {
        None => proposal.files.append(SLURM_CONF, &format!("{key}={wanted}\n")),
        Some((_, pair)) if pair.value.eq_ignore_ascii_case(wanted) => {}
        Some((file, pair)) => {
            proposal.first(format!(
                "{key} was {}: with another {key} slurmctld may drop the jobs that it knows; change it when none run",
                pair.value
            ));
            proposal.files.replace(&file, pair.place, &format!("{key}={wanted}"));
        }
    }
}

/// Memory has to be a consumable.
fn select_parameters(proposal: &mut Proposal) {
    const KEY: &str = "SelectTypeParameters";
    const UNITS: [&str; 6] = ["CR_CPU", "CR_Core", "CR_Socket", "CR_Socket_Memory", "CR_Memory", "CR_Board"];
    let Some((file, pair)) = find(proposal, KEY) else {
        return proposal.files.append(SLURM_CONF, &format!("{KEY}=CR_Core_Memory\n"));
    };
    if pair.has("CR_Core_Memory") || pair.has("CR_CPU_Memory") {
        return;
    }
    let by_cpu = if pair.has("CR_CPU") { "CR_CPU_Memory" } else { "CR_Core_Memory" };
    let kept = pair.words().filter(|word| !UNITS.iter().any(|unit| unit.eq_ignore_ascii_case(word)));
    let words: Vec<&str> = std::iter::once(by_cpu).chain(kept).collect();
    proposal.files.replace(&file, pair.place.clone(), &format!("{KEY}={}", words.join(",")));
}

/// A hook of the site stays; ours is called from it.
fn hook(proposal: &mut Proposal, key: &str, script: &str, call: &str) {
    match find(proposal, key) {
        None => {
            if key != "EpilogSlurmctld" {
                proposal.note(EVERY_NODE);
            }
            proposal.files.append(SLURM_CONF, &format!("{key}={script}\n"));
        }
        Some((_, pair)) if pair.value.contains("pillion") => {}
        Some((_, pair)) if pair.value.contains('*') => {
            proposal.note(format!("{key}={} takes every script of a folder: install {script} there", pair.value));
        }
        Some((_, pair)) => proposal.note(format!(
            "{key}={} is the site's own: add '{call} </dev/null >/dev/null 2>&1' to it, and see that it ends in 'exit 0'",
            pair.value
        )),
    }
}
