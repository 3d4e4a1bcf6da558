//! Set-ups in which jobs cannot start, end or come back as they should: MUNGE, and what slurm.conf says of a job's life.

use super::{Broken, Credential, FAIL, Facts, WARN, conf};

fn munge_of(facts: &mut Facts) -> &mut super::Munge {
    facts.munge.as_mut().expect("known")
}

pub(super) const BROKEN: [Broken; 6] = [
    ("munge", FAIL, "there is no socket /run/munge/munge.socket.2", "AuthInfo=socket=PATH", |f| {
        munge_of(f).has_socket = false;
    }),
    (
        "munge",
        FAIL,
        "'munge -n | unmunge' fails on /run/munge/munge.socket.2: unmunge: Error",
        "munge.key",
        |f| {
            munge_of(f).credential = Credential::Refused("unmunge: Error: Invalid credential".to_owned());
        },
    ),
    (
        "job-requeue",
        WARN,
        "JobRequeue=0: a job that a neighbour's crash took down",
        "set JobRequeue=1",
        |f| {
            f.slurm_conf = Ok(conf(&[("JobRequeue", "0")]));
        },
    ),
    (
        "min-job-age",
        FAIL,
        "MinJobAge=10: Slurm forgets ended jobs before the scheduler",
        "MinJobAge=300",
        |f| {
            f.slurm_conf = Ok(conf(&[("MinJobAge", "10 sec")]));
        },
    ),
    ("min-job-age", WARN, "MinJobAge=120: a victim of a neighbour's crash", "MinJobAge=300", |f| {
        f.slurm_conf = Ok(conf(&[("MinJobAge", "120 sec")]));
    }),
    ("prolog-flags", WARN, "PrologFlags=Alloc,Serial has Serial", "take Serial out of PrologFlags", |f| {
        f.slurm_conf = Ok(conf(&[("PrologFlags", "Alloc,Serial")]));
    }),
];

#[test]
fn a_slower_scan_wants_jobs_to_be_remembered_longer() {
    let mut facts = super::sound();
    facts.slurm_conf = Ok(conf(&[("MinJobAge", "35 sec")]));
    let status = |facts: &Facts| {
        let findings = super::examine(facts);
        findings.iter().find(|finding| finding.check == "min-job-age").map(|finding| finding.status)
    };
    assert_eq!(status(&facts), Some(WARN));
    facts.config_text.text = Ok(format!("scan_period_seconds = 10.0\n{}", super::CONFIG));
    assert_eq!(status(&facts), Some(FAIL));
}
