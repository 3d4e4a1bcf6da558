//! What a site has besides us: jobstats, rules of its own in `job_submit.lua`, another SPANK plugin, Open `OnDemand`. Each does what it did,
//! and so do we.

use crate::leases::{wait_for_member, wait_until_settled};
use crate::rides::{KNOWN_SECONDS, SOON, load, profile_count};
use pillion_core::SlurmJobId;
use pillion_core::device::Mechanism;
use pillion_tests::cluster::spec::PoolNode;
use pillion_tests::daemons::built;
use pillion_tests::wait::{Look, wait_for, wait_until};
use pillion_tests::{Cluster, ClusterSpec};

const ASKS: [&str; 4] = ["--gres=gpu:1", "-c1", "--mem=100", "-t10"];

fn start(accounting: bool) -> Cluster {
    let pool_nodes = vec![PoolNode::new("n1", "h200", Mechanism::Mps)];
    let mut cluster =
        Cluster::start(ClusterSpec { pool_nodes, accounting, ..ClusterSpec::default() }).unwrap();
    cluster.start_pillion().unwrap();
    cluster
}

fn submit(cluster: &Cluster, script: &str, more: &[&str]) -> SlurmJobId {
    cluster.submit_as("alice", script, &[&ASKS[..], more].concat()).unwrap()
}

/// What accounting has of a job, once it has it.
fn recorded(cluster: &Cluster, job: SlurmJobId, expected: &str) {
    let arguments = ["-nXP", "-o", "AdminComment,State", "-j"];
    wait_for(&format!("'{expected}' in accounting"), SOON, || {
        let said = cluster.program("sacct").args(arguments).arg(job.to_string()).stdout()?;
        Ok(if said.trim() == expected { Look::Ready(()) } else { Look::NotYet(said) })
    })
    .unwrap();
}

/// jobstats writes its summary where our mark stands: by `sacctmgr` when the job is over (its `slurmctldepilog.sh`), and sites of before by
/// `scontrol` while it ends.
#[test]
fn jobstats_has_its_summary_and_we_have_the_run() {
    let cluster = start(true);
    for (run, early) in [(1, false), (2, true)] {
        let job = submit(&cluster, &load("resnet50-infer", KNOWN_SECONDS), &["--colocate=profile=train"]);
        cluster.wait_for_job(job, &["RUNNING"], SOON).unwrap();
        wait_for_member(&cluster, job, &["running"]);
        let summary = format!("JS1:H4sIAAAA{run}");
        if early {
            cluster
                .scontrol(&["update", &format!("JobId={job}"), &format!("AdminComment={summary}")])
                .unwrap();
        }
        cluster.wait_for_job(job, &["COMPLETED"], SOON).unwrap();
        if !early {
            let of = format!("jobid={job}");
            let set = format!("AdminComment={summary}");
            wait_for("a record that sacctmgr takes", SOON, || {
                let output = cluster
                    .program("sacctmgr")
                    .args(["-i", "update", "job", "where", &of, "set", &set])
                    .output()?;
                let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
                Ok(if said.contains("Modified job") { Look::Ready(()) } else { Look::NotYet(said) })
            })
            .unwrap();
        }
        wait_until_settled(&cluster, job);
        wait_until("the run, counted", SOON, || {
            let runs: u64 =
                cluster.profiles()?.iter().filter_map(|profile| profile["run_count"].as_u64()).sum();
            Ok(runs == run)
        })
        .unwrap();
        recorded(&cluster, job, &format!("{summary}|COMPLETED"));
    }
    assert_eq!(profile_count(&cluster).unwrap(), 1);
}

/// The site's own rules: they run before us, what they change we see, and what they refuse we never do.
#[test]
fn rules_of_the_site_stand_beside_ours() {
    let cluster = start(false);
    let path = cluster.layout().path("conf/job_submit.lua");
    let text = std::fs::read_to_string(&path).unwrap();
    let rules = "  if job_desc.name == \"refused\" then slurm.log_user(\"the site says no\") return slurm.ERROR end\n  \
                 if job_desc.comment == nil then job_desc.comment = \"of-the-site\" end\n  \
                 if job_desc.name == \"whole\" then job_desc.shared = 0 end\n  return ask_pillion(\"submit\"";
    let call = "  return ask_pillion(\"submit\"";
    assert!(text.contains(call), "job_submit.lua.example no longer holds '{call}'");
    cluster.layout().write("conf/job_submit.lua", text.replace(call, rules)).unwrap();
    wait_until("rules that are read", SOON, || {
        Ok(cluster.try_submit_as("alice", "true", &["-J", "refused"])?.said.contains("the site says no"))
    })
    .unwrap();
    for colocate in [&[][..], &["--colocate"]] {
        let arguments = [&ASKS[..], colocate].concat();
        let refused =
            cluster.try_submit_as("alice", "true", &[&arguments[..], &["-J", "refused"]].concat()).unwrap();
        assert!(refused.job.is_none() && refused.said.contains("the site says no"), "{}", refused.said);
        let job = submit(&cluster, "true", colocate);
        let fields = cluster.job(job).unwrap();
        assert_eq!(fields["Comment"], "of-the-site");
        assert_eq!(
            fields.get("AdminComment").is_some_and(|mark| mark.starts_with("pillion1;")),
            !colocate.is_empty()
        );
        cluster.wait_for_job(job, &["COMPLETED"], SOON).unwrap();
    }
    let whole = cluster
        .try_submit_as("alice", "true", &[&ASKS[..], &["--colocate", "-J", "whole"]].concat())
        .unwrap();
    assert!(
        whole.said.contains("it asks for --exclusive"),
        "we see what the site made of it: {}",
        whole.said
    );
}

const TELLS: &str = "echo neighbour=$NEIGHBOUR task=$NEIGHBOUR_TASK decision=${PILLION_DECISION:-none}
    env | grep -c SPANK_PILLION
    srun -n1 sh -c 'echo step neighbour=$NEIGHBOUR task=$NEIGHBOUR_TASK decision=${PILLION_DECISION:-none}'";

/// Stacked as a site would, ours first and ours last.
#[test]
fn another_plugin_in_one_plugstack_does_what_it_did() {
    let cluster = start(false);
    let own = std::fs::read_to_string(cluster.layout().path("conf/plugstack.conf")).unwrap();
    let said = cluster.program("slurmctld").arg("-V").stdout().unwrap();
    let (stamp, library) = (built("pillion-spank-stamp").unwrap(), built("libspank_neighbour.so").unwrap());
    let stamped = cluster.layout().path("conf/neighbour.so");
    let version = said.split_whitespace().last().unwrap_or_default();
    cluster.program(&stamp.display().to_string()).arg(library).arg(&stamped).arg(version).stdout().unwrap();
    let other = format!("required {}\n", stamped.display());
    for stack in [format!("{own}{other}"), format!("{other}{own}")] {
        cluster.layout().write("conf/plugstack.conf", &*stack).unwrap();
        let help = cluster.program_as("alice", "sbatch").unwrap().arg("--help").stdout().unwrap();
        assert!(help.contains("--neighbour") && help.contains("--colocate"), "{help}");
        for (colocate, is_ours) in [(&["--colocate"][..], true), (&[], false)] {
            let job = submit(&cluster, TELLS, &[&["--neighbour=word"], colocate].concat());
            let printed = cluster.finished_output(job, SOON).unwrap();
            let expected = "neighbour=word task=1 decision=";
            assert_eq!(printed.matches(expected).count(), 2, "in the job and in its step: {printed}");
            assert_eq!(printed.contains("decision=none"), !is_ours, "{stack}: {printed}");
            assert!(printed.lines().any(|line| line == "0"), "{printed}");
        }
        let refused =
            cluster.try_submit_as("alice", "true", &["--colocate=maybe", "--neighbour=word"]).unwrap();
        assert!(refused.job.is_none(), "{}", refused.said);
    }
}

/// What Open `OnDemand`'s batch connect does (`ood_core`, its adapter for Slurm): the script on standard input, an environment of its own that
/// the job does not get, options that the app's form adds.
#[test]
fn a_session_of_open_ondemand_shares_and_is_told_where_it_runs() {
    let cluster = start(false);
    let session = "trap 'rm -f connection.yml' EXIT
        export port=8888 host=$(hostname) password=secret
        (umask 077; printf 'host: %s\\nport: %s\\npassword: %s\\n' \"$host\" \"$port\" \"$password\" > connection.yml)
        cp connection.yml told.yml
        echo decision=${PILLION_DECISION:-none} home=$HOME portal=${OOD_PORTAL:-none}
        srun -n1 true && echo step";
    let sbatch = cluster.program_as("alice", "sbatch").unwrap();
    let sbatch = sbatch.env("OOD_PORTAL", "1").env("SLURM_EXPORT_ENV", "ALL").env("SBATCH_COLOCATE", "yes");
    let home = cluster.home("alice");
    let output = sbatch
        .args(["--parsable", "-J", "sys/dashboard/sys/jupyter", "--export", "NONE", "-D"])
        .arg(&home)
        .args(ASKS)
        .input(format!("#!/bin/bash -l\n{session}\n"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("pillion: by SBATCH_COLOCATE, waits for a GPU"), "{said}");
    let job: SlurmJobId = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
    let printed = cluster.finished_output(job, SOON).unwrap();
    assert!(!printed.contains("decision=none") && printed.contains("portal=none"), "{printed}");
    assert!(printed.ends_with("step\n"), "{printed}");
    assert!(std::fs::read_to_string(home.join("told.yml")).unwrap().contains("port: 8888"));
    assert!(!home.join("connection.yml").exists(), "its own trap ran");
}
