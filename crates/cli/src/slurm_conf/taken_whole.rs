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
    let text = proposal.files.plugstack_text();
    // The name of a file that is included may have ours in it, too.
    let lines: Vec<(String, String)> =
        lines_of_ours(&text).into_iter().filter(|(word, _)| word != "include").collect();
    if let Some((word, _)) = lines.iter().find(|(word, _)| word != "optional") {
        proposal.first(format!("{name} loads pillion.so as '{word}': write 'optional', for a required plugin that fails drains its node"));
    } else if lines.len() > 1 {
        proposal.first(format!(
            "{name} and what it includes load pillion.so {} times: keep one of the lines",
            lines.len()
        ));
    } else if lines.is_empty() {
        proposal.files.append(&name, PLUGIN_LINE);
    }
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
