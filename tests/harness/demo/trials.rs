//! The last act: the site turns trials on, and two pairs that no bound admits are tried. Alice's hold; bob's do not, and the guest
//! goes back. Acts here; words in `tell`.

use super::answers;
use super::story::{PATIENCE, operator, wait_for_profiles};
use super::tell;
use crate::cluster::Cluster;
use crate::error::{HarnessError, Result};
use crate::wait::{Look, wait_for};
use pillion_core::SlurmJobId;

/// What a site writes into `[policy]` to have them. Caps are left out, so that each pair has one way to be tried; and jobs here are
/// a minute long, so that a restart must not count as two.
pub(super) const POLICY: [&str; 5] = [
    "trials = \"on\"",
    "watch = \"act\"",
    "watch_first_seconds = 40",
    "watch_restart_seconds = 0",
    "caps = false",
];
/// How long processes have from SIGTERM to SIGKILL: a guest that ignores the first has no more to do.
pub(super) const SLURM_CONF: &str = "KillWait=6";
/// Work of each first run: half a minute here, so that its speed alone is known well.
const ALONE_SECONDS: u32 = 1_800;
/// Work of those that are tried: longer than it takes to judge them.
const TRIED_SECONDS: u32 = 6_000;
/// Work of a guest's next start.
const AGAIN_SECONDS: u32 = 300;
/// After so many seconds all become eligible together.
const TOGETHER_SECONDS: u32 = 3;

/// Two workloads of one user, and what `pillion-load` is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pair {
    pub(super) user: &'static str,
    /// The names of host and guest.
    pub(super) names: [&'static str; 2],
    load: &'static str,
}

/// How the trial of a pair ended, in `result.json`'s word.
pub(super) type Outcome = (Pair, &'static str);

/// They go as fast together as alone. Expected is that too, but not surely enough for a promise of 1.1.
pub(super) const HOLDS: Pair =
    Pair { user: "alice", names: ["agent-left", "agent-right"], load: "launch-bound" };
/// Expected is .97 of their speed, and it is .81.
pub(super) const BREAKS: Pair = Pair { user: "bob", names: ["walk-left", "walk-right"], load: "graph-walk" };

/// One job of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Alone, for the first time.
    First,
    /// Promised 1.1.
    Host,
    /// May be slowed, and goes back where the host's promise breaks. There are no control groups here to hold it by while its
    /// processes leave the GPU, so it ignores SIGTERM instead.
    Guest,
}

impl Pair {
    fn script(&self, which: usize, role: Role) -> String {
        let Self { names, load, .. } = self;
        let name = names[which];
        let (promise, work) = match role {
            Role::First => ("", format!("exec pillion-load {load} --seconds {ALONE_SECONDS}")),
            Role::Host => {
                (",max-slowdown=1.1", format!("exec pillion-load {load} --seconds {TRIED_SECONDS}"))
            }
            Role::Guest => (
                ",max-slowdown=10",
                format!(
                    "seconds={AGAIN_SECONDS}\n\
                     if [ \"${{SLURM_RESTART_COUNT:-0}}\" = 0 ]; then trap '' TERM; seconds={TRIED_SECONDS}; fi\n\
                     exec pillion-load {load} --seconds $seconds"
                ),
            ),
        };
        format!(
            "#!/bin/bash\n#SBATCH --job-name={name} --gpus=1 --constraint=nvidia --time=10\n\
             #SBATCH --colocate=profile={name}{promise}\n{work}\n"
        )
    }

    fn submit(self, cluster: &Cluster, roles: [Role; 2], arguments: &[&str]) -> Result<[SlurmJobId; 2]> {
        let [host, guest] = [0, 1].map(|which| self.script(which, roles[which]));
        Ok([
            cluster.submit_as(self.user, &host, arguments)?,
            cluster.submit_as(self.user, &guest, arguments)?,
        ])
    }
}

/// Plays it, and leaves the site's policy as it was.
///
/// # Errors
/// [`HarnessError::Refused`] where a pair was not tried, or did not end as it should.
pub(super) fn tell(cluster: &mut Cluster) -> Result<[Outcome; 2]> {
    tell::trials();
    cluster.start_scheduler_with(&POLICY)?;
    make_known(cluster)?;
    // One pair after the other: of four who wait together others might share, without a trial.
    let holding = try_pair(cluster, HOLDS)?;
    let breaking = try_pair(cluster, BREAKS)?;
    let [_, guest] = breaking;
    let why = wait_for("the guest that goes back", PATIENCE, || {
        let json = operator(cluster, &["explain", "--json", &guest.to_string()])?;
        let told = answers::event(&json, "sent-back")?;
        Ok(told.map_or_else(|| Look::NotYet("not yet".to_owned()), Look::Ready))
    })?;
    tell::sent_back(BREAKS, guest, &why);
    ended(cluster, &[holding, breaking].concat())?;
    let mut restarts = Vec::new();
    for job in [holding, breaking].concat() {
        restarts.push(cluster.job_field(job, "Restarts")?);
    }
    if restarts != ["0", "0", "0", "1"] {
        let said = format!(
            "jobs {holding:?} and {breaking:?} were started again {restarts:?} times; only the last is to be, once"
        );
        return Err(HarnessError::Refused(said));
    }
    tell::trials_end(&operator(cluster, &["pairs", "-S", "now-5minutes", "-o", tell::TRIALS_COLUMNS])?);
    cluster.start_scheduler_with(&[])?;
    Ok([(HOLDS, "held"), (BREAKS, "sent-back")])
}

/// The host and the guest come together, and share for a trial.
fn try_pair(cluster: &Cluster, pair: Pair) -> Result<[SlurmJobId; 2]> {
    let begin = cluster.begin_together(TOGETHER_SECONDS)?;
    let jobs = pair.submit(cluster, [Role::Host, Role::Guest], &[&begin])?;
    tell::tried(pair, jobs[1], &tried(cluster, jobs)?);
    Ok(jobs)
}

/// Each runs alone once.
fn make_known(cluster: &Cluster) -> Result<()> {
    let before = answers::profiles(&operator(cluster, &["profile", "--json"])?, 0)?;
    let mut jobs = Vec::new();
    for pair in [HOLDS, BREAKS] {
        jobs.extend(pair.submit(cluster, [Role::First; 2], &[])?);
    }
    ended(cluster, &jobs)?;
    wait_for_profiles(cluster, before + jobs.len(), 0)
}

/// Waits until both run, and returns what the guest is told of it.
fn tried(cluster: &Cluster, jobs: [SlurmJobId; 2]) -> Result<String> {
    for job in jobs {
        cluster.wait_for_job(job, &["RUNNING"], PATIENCE)?;
    }
    let told = operator(cluster, &["explain", &jobs[1].to_string()])?;
    let line = told.lines().map(str::trim).find(|line| line.starts_with("trial: a trial: "));
    let refused = || HarnessError::Refused(format!("job {} shares no device for a trial: {told}", jobs[1]));
    Ok(line.ok_or_else(refused)?.to_owned())
}

fn ended(cluster: &Cluster, jobs: &[SlurmJobId]) -> Result<()> {
    for job in jobs {
        cluster.wait_for_job(*job, &["COMPLETED"], PATIENCE)?;
    }
    Ok(())
}
