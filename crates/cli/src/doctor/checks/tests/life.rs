//! Set-ups in which jobs cannot start, end or come back as they should: MUNGE, and what slurm.conf says of a job's life.

use super::{Broken, Credential, FAIL, Facts, Status, WARN, conf};

fn munge_of(facts: &mut Facts) -> &mut super::Munge {
    facts.munge.as_mut().expect("known")
}

pub(super) const BROKEN: [Broken; 8] = [
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
    (
        "proctrack-type",
        WARN,
        "ProctrackType=proctrack/linuxproc: a guest cannot be held",
        "set ProctrackType=proctrack/cgroup",
        |f| {
            f.slurm_conf = Ok(conf(&[("ProctrackType", "proctrack/linuxproc")]));
            f.config_text.text =
                Ok(format!("{}[policy.watch_partitions]\nshared = \"act\"\n", super::CONFIG));
        },
    ),
    (
        "accounting-enforce",
        WARN,
        "AccountingStorageEnforce=associations is without qos",
        "add qos to AccountingStorageEnforce",
        |f| {
            f.slurm_conf = Ok(conf(&[("AccountingStorageEnforce", "associations")]));
            let of_some = "[[policy.override]]\naccounts = [\"lab\"]\nqos = [\"free\"]\nusers = \"any\"\n";
            f.config_text.text = Ok(format!("{}{of_some}", super::CONFIG));
        },
    ),
];

/// What one check says of a set-up.
fn status(facts: &Facts, check: &str) -> Option<Status> {
    super::examine(facts).iter().find(|finding| finding.check == check).map(|finding| finding.status)
}

#[test]
fn a_slower_scan_wants_jobs_to_be_remembered_longer() {
    let mut facts = super::sound();
    facts.slurm_conf = Ok(conf(&[("MinJobAge", "35 sec")]));
    assert_eq!(status(&facts, "min-job-age"), Some(WARN));
    facts.config_text.text = Ok(format!("scan_period_seconds = 10.0\n{}", super::CONFIG));
    assert_eq!(status(&facts, "min-job-age"), Some(FAIL));
}

#[test]
fn how_jobs_are_tracked_matters_only_where_guests_go_back() {
    let mut facts = super::sound();
    facts.slurm_conf = Ok(conf(&[("ProctrackType", "proctrack/linuxproc")]));
    assert_eq!(status(&facts, "proctrack-type"), Some(Status::Ok));
    facts.config_text.text = Ok(format!("{}[policy]\nwatch = \"act\"\n", super::CONFIG));
    assert_eq!(status(&facts, "proctrack-type"), Some(WARN));
    facts.slurm_conf = Ok(conf(&[]));
    assert_eq!(status(&facts, "proctrack-type"), Some(Status::Ok));
}
