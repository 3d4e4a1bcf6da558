//! What somebody who has never seen Pillion types on a cluster that was kept up, and where he looks. Pure.
//!
//! Lines that begin with four blanks and no more are commands, in the order in which one shell takes them: `tests/demo` types
//! them as they stand, and holds the README against them.

use super::story::{Shown, Unpaired};
use std::net::SocketAddr;

/// What the steps speak of.
#[derive(Debug)]
pub(super) struct Steps<'a> {
    /// The folder of the wrappers, as it is typed in the checkout.
    pub(super) output: &'a str,
    /// The page.
    pub(super) page: SocketAddr,
    /// Where the Prometheus would be that the steps start.
    pub(super) prometheus: SocketAddr,
    /// How much faster work goes than in life.
    pub(super) time_scale: f64,
    /// What the story left.
    pub(super) shown: &'a Shown,
}

/// A job for each of NVIDIA's GPUs: 50 seconds of work at the demo's pace.
const FOUR_JOBS: &str = "for n in 1 2 3 4; do sbatch -C nvidia --gpus=1 --colocate --job-name=mine$n \
     --wrap 'pillion-load gromacs --seconds 3000'; done";
/// One more than there are GPUs: ten seconds.
const FIFTH_JOB: &str = "JOB=$(sbatch --parsable -C nvidia --gpus=1 --colocate --job-name=mine5 \
     --wrap 'pillion-load bert-small-batch --seconds 600')";
/// The steps.
pub(super) fn text(steps: &Steps<'_>) -> String {
    let Steps { output, page, prometheus, time_scale, shown } = steps;
    let Shown { unpaired: Unpaired { workload, decision, partner } } = shown;
    format!(
        "\
The cluster is up. What follows is typed as root in one shell on this machine, in the folder of this checkout.

1. Submit jobs, and ask why one waits. Nobody has seen these before, so each wants one of four GPUs for itself.

    . {output}/env.sh
    export DEMO_USER=alice
    {FOUR_JOBS}
    {FIFTH_JOB}
    sleep 2; pillion queue
    pillion why $JOB

   sinfo, squeue, sbatch, scancel, pillion, .. now speak to the cluster, as alice: users see their own jobs. bob is there too.

2. See its report. Work goes {time_scale:.0} times faster than in life: after a good minute it has ended.

    squeue
    pillion report $JOB

3. Open the page in a browser on this machine (from elsewhere after ssh -L {port}:{page} root@MACHINE):

   http://{page}/              every GPU now, and who is on it
   http://{page}/heatmap       which pair gained most: \"Pairs that gained most\", below the map
   http://{page}/gains         what sharing gained, by day
   http://{page}/pairs         who shared, foretold and measured; each leads to its decision
   http://{page}/decisions/{decision:<4}
      why {workload} was not paired with {partner}: \"Partners considered\", each with its rule

   A workload is called as its jobs are, or by profile=, there as in every command: pillion profile gromacs.

   Whoever opens it on this machine, whichever user he is, comes through a port that root forwards, so he sees what operators
   see. It can only be read, nothing but this demo is in it, and it ends with the cluster.

4. See what the dashboards see. demo-prometheus (it needs Debian's package prometheus) scrapes the scheduler and the agents;
   the same jobs are known by now, and share; demo-dashboards asks every query of every panel of deploy/grafana.

    demo-prometheus
    {FOUR_JOBS}
    {FIFTH_JOB}
    demo-dashboards

   In a Grafana of yours: add the data source http://{prometheus}, then Dashboards, New, Import: deploy/grafana/*.json.

5. Be an operator, who sees everybody's jobs: is all set up right, and what was gained today.

    unset DEMO_USER
    pillion doctor
    pillion acct

   What else: pillion pairs -S today, pillion top; pillion-load --list says what can be run; in-cluster -u alice is a prompt
   inside, in her home, where the jobs' output is. This ends it and all that is in it:

    deploy/demo --down
",
        port = page.port(),
    )
}
