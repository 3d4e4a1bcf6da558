//! What a site runs before anybody has heard of Pillion: jobs on whole GPUs. Whatever is done beside them, they go on.

use crate::site::{SOON, Site, USER};
use pillion_tests::wait::{Look, wait_for};

/// Two of them, as users write them.
pub(crate) struct OwnJobs {
    /// On a node that stays as it is, until the end.
    long: String,
    /// On the node that becomes the pool, until its user says so.
    short: String,
}

impl OwnJobs {
    pub(crate) fn new(site: &Site) -> Self {
        let long = site.submits("-w n2 --gpus=1 -t 180 --wrap 'sleep 10800'");
        let short = site.submits("-w n1 --gpus=1 -t 60 --wrap 'until test -e go; do sleep 0.2; done'");
        for job in [&long, &short] {
            site.wait_for_job(job, "RUNNING");
        }
        Self { long, short }
    }

    /// The long one runs, and was never started again.
    pub(crate) fn go_on(&self, site: &Site, after: &str) {
        is_as_it_was(site, &self.long, "RUNNING", after);
    }

    /// The node of the short one is being drained, which it does not notice; it ends by itself, and only then the node is empty.
    pub(crate) fn leave_the_drained_node(&self, site: &Site) {
        let state = || site.controller.types("sinfo -h -N -n n1 -o %t");
        assert_eq!(state().unwrap().trim(), "drng", "a job is still on it");
        is_as_it_was(site, &self.short, "RUNNING", "its node began to drain");
        site.machine("n1").types(&format!("touch /home/{USER}/go")).unwrap();
        site.wait_for_job(&self.short, "COMPLETED");
        is_as_it_was(site, &self.short, "COMPLETED", "its node was drained");
        wait_for("a node that is empty", SOON, || {
            let seen = state()?.trim().to_owned();
            Ok(if seen == "drain" { Look::Ready(()) } else { Look::NotYet(seen) })
        })
        .unwrap();
    }
}

fn is_as_it_was(site: &Site, job: &str, state: &str, after: &str) {
    let seen = format!("{} {}", site.job(job, "JobState"), site.job(job, "Restarts"));
    assert_eq!(seen, format!("{state} 0"), "job {job} after {after}");
}
