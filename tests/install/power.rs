//! Whole machines lose their power and come again, with nobody to help.

use crate::site::{SOON, Site};
use crate::{CONFIG, load};
use pillion_tests::wait::{Look, now, wait_for, wait_until};
use std::time::Duration;

/// What Slurm may take to see that a node has lost its jobs, and one bound.
const NODE_BACK: Duration = Duration::from_mins(4);

/// Slurm starts a job that waits in our care no later than one bound from now, whatever becomes of us.
pub(crate) fn is_bounded(site: &Site, job: &str) {
    let begin = site.job(job, "EligibleTime");
    let seconds = |line: &str| -> i64 { site.controller.types(line).unwrap().trim().parse().unwrap() };
    let left = seconds(&format!("echo $(($(date -d {begin} +%s) - $(date +%s)))"));
    let bound = seconds(&format!("sed -n 's/^bound_seconds = //p' {CONFIG}"));
    assert!(left <= bound, "job {job} is held back for {left} s more, and the bound is {bound} s");
}

/// The controller loses its power while a pair runs and a job waits in our care. It comes up again without a hand: the pair never
/// noticed, and who waits is released as soon as there is a GPU.
pub(crate) fn lose_power(site: &mut Site, pair: &[String]) {
    let waiting = load(site, "launch-bound", 36_000, "10");
    assert_eq!(site.job(&waiting, "JobState"), "PENDING", "both GPUs are taken");
    let it = |site: &Site| ["SubmitTime", "AdminComment"].map(|field| site.job(&waiting, field));
    let before = it(site);
    assert!(before[1].starts_with("pillion1;"), "{before:?}");
    is_bounded(site, &waiting);
    // slurmctld itself writes down within seconds what it has taken.
    let saved = "test \"$(find /var/lib/slurm/slurmctld/job_state -newer /run/pillion-submitted)\"";
    site.controller.types("touch /run/pillion-submitted").unwrap();
    wait_until("Slurm to have written it down", SOON, || Ok(site.controller.types(saved).is_ok())).unwrap();
    site.controller.loses_power().unwrap();
    site.connects();
    site.wait_for_nodes();
    site.wait_for_agent();
    for job in pair {
        assert_eq!(site.job(job, "JobState"), "RUNNING", "job {job} while the controller had no power");
    }
    assert_eq!(site.job(&waiting, "JobState"), "PENDING");
    assert_eq!(it(site), before, "it is in our care as it was");
    is_bounded(site, &waiting);
    site.controller.types("pillion undrain n1:g1").unwrap();
    site.wait_for_job(&waiting, "RUNNING");
    site.controller.types(&format!("scancel {waiting}")).unwrap();
    site.wait_for_job(&waiting, "CANCELLED");
    site.no_node_is_lost();
}

/// The node of the pool loses its power under the pair. It comes up again without a hand, and Slurm starts both jobs once more, as it
/// does with any, each alone on a GPU of its own; nothing of the boot before is left to keep anybody from it.
pub(crate) fn node_loses_power(site: &mut Site, pair: &[String]) {
    // One that has run for less than twenty seconds (BatchStartTimeout and MessageTimeout) Slurm does not miss on a node that comes up.
    wait_for("both jobs, well under way", SOON, || {
        let ran: Vec<String> = pair.iter().map(|job| site.job(job, "RunTime")).collect();
        let is_so = ran.iter().all(|time| time.as_str() > "00:00:30");
        Ok(if is_so { Look::Ready(()) } else { Look::NotYet(ran.join(", ")) })
    })
    .unwrap();
    site.node_loses_power("n1");
    let begun = now();
    wait_for("both jobs, started once more", NODE_BACK, || {
        let seen: Vec<String> = pair
            .iter()
            .map(|job| format!("{} {}", site.job(job, "JobState"), site.job(job, "Restarts")))
            .collect();
        Ok(if seen.iter().all(|it| it == "RUNNING 1") {
            Look::Ready(())
        } else {
            Look::NotYet(seen.join(", "))
        })
    })
    .unwrap_or_else(|error| panic!("{error:?}\n{}", site.logs()));
    let own: Vec<String> = pair.iter().map(|job| site.job(job, "TresPerNode")).collect();
    assert_eq!(own, ["gres/shard:100", "gres/shard:100"], "as Slurm starts them without a decision");
    println!("both ran again {} s after the node had come up", begun.elapsed().as_secs());
    site.wait_for_agent();
    site.no_node_is_lost();
    let said = site.machine("n1").types("systemctl --failed --no-legend --plain").unwrap();
    assert!(!said.contains("pillion"), "{said}");
}
