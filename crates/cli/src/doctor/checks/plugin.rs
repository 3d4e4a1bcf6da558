//! The SPANK plugin: loaded as optional, present, and built for this Slurm. Otherwise every `#SBATCH --colocate` script is
//! refused as an unknown option, or a failing plugin drains nodes.

use crate::doctor::facts::Facts;
use crate::doctor::finding::{Check, Finding};
use pillion_config::slurm_files::lines_of_ours;

/// plugstack.conf loads it, as `optional`.
pub(super) fn plugstack(facts: &Facts) -> Vec<Finding> {
    let check = Check("plugstack");
    let path = facts.plugstack.path.display();
    let add = format!("add 'optional pillion.so' to {path} on every machine that submits or runs jobs");
    let text = match &facts.plugstack.text {
        Ok(text) => text,
        Err(why) => return vec![check.fail(format!("{path}: {why}"), add)],
    };
    let ours = lines_of_ours(text);
    if ours.is_empty() {
        return vec![
            check.fail(format!("{path} does not load pillion.so: --colocate is an unknown option"), add),
        ];
    }
    if ours.iter().any(|(word, _)| word != "optional") {
        return vec![check.fail(
            format!("{path} loads pillion.so as '{}'", ours[0].0),
            "write 'optional': a required plugin that fails drains the node",
        )];
    }
    let mut wrong = Vec::new();
    if ours.len() > 1 {
        wrong.push(check.warn(
            format!("{path} loads pillion.so {} times", ours.len()),
            "keep one line; a second registration of --colocate is an error in every job's log",
        ));
    }
    check.ok_unless(wrong, format!("{path} loads {}", ours[0].1))
}

/// Slurm loads a plugin only where major.minor match.
pub(super) fn version(facts: &Facts) -> Vec<Finding> {
    let check = Check("plugin-version");
    let loaded: Vec<_> = facts.plugins.iter().filter(|plugin| plugin.is_loaded).collect();
    if loaded.is_empty() {
        return vec![check.skip("plugstack.conf names no plugin of ours")];
    }
    let wrong = loaded.iter().filter_map(|plugin| {
        let path = plugin.path.display();
        match (&plugin.built_for, &facts.version) {
            (Err(why), _) => Some(check.fail(
                format!("{path}: {why}; every script with #SBATCH --colocate is refused"),
                "install the pillion.so that was built for this Slurm",
            )),
            (Ok((major, minor)), Ok(slurm)) if (*major, *minor) != (slurm.major, slurm.minor) => Some(check.fail(
                format!("{path} was built for Slurm {major}.{minor:02}, here runs {slurm}; Slurm does not load it"),
                format!("install the pillion.so for {}.{:02}", slurm.major, slurm.minor),
            )),
            (Ok(_), _) => None,
        }
    });
    check.ok_unless(wrong.collect(), "pillion.so is there, for this Slurm")
}
