//! The files that are taken whole: plugstack.conf and `job_submit.lua`.

use super::proposal::{Pool, Proposal};
use pillion_config::slurm_files::lines_of_ours;

const JOB_SUBMIT: &str = "job_submit.lua";
const PLUGIN_LINE: &str =
    "optional /usr/lib/pillion/pillion.so socket=/run/pillion/agent.sock deadline_ms=200\n";
const JOB_SUBMIT_EXAMPLE: &str = include_str!("../../../../deploy/slurm/job_submit.lua.example");

/// The plugin's line, and the job submit script.
pub(super) fn propose(proposal: &mut Proposal, pool: &Pool) {
    plugstack(proposal);
    job_submit(proposal, pool);
}

pub(super) fn plugstack(proposal: &mut Proposal) {
    let name = proposal.files.plugstack();
    let text = proposal.files.text(&name);
    if let Some((word, _)) = lines_of_ours(text).into_iter().find(|(word, _)| word != "optional") {
        proposal.first(format!("{name} loads pillion.so as '{word}': write 'optional', for a required plugin that fails drains its node"));
    } else if lines_of_ours(text).is_empty() {
        proposal.files.append(&name, PLUGIN_LINE);
    }
    if text_includes(proposal.files.text(&name)) {
        proposal.note(format!("{name} includes other files, which are not looked into here: keep one line for pillion.so in all of them"));
    }
}

fn text_includes(plugstack: &str) -> bool {
    plugstack.lines().any(|line| line.trim_start().starts_with("include"))
}

fn job_submit(proposal: &mut Proposal, pool: &Pool) {
    let text = proposal.files.text(JOB_SUBMIT);
    if text.contains("pillion") {
        return;
    }
    if text.trim().is_empty() {
        let script = JOB_SUBMIT_EXAMPLE.replace("{ \"shared\" }", &format!("{{ \"{}\" }}", pool.partition));
        proposal.files.append(JOB_SUBMIT, &script);
    } else {
        proposal.note(format!(
            "{JOB_SUBMIT} is the site's own: add the lines of deploy/slurm/job_submit.lua.example to it, with pools = {{ \"{}\" }}",
            pool.partition
        ));
    }
}
