//! The other ways to prove who one is, on a cluster: a shared key, also while it is rotated, and certificates of the site's
//! authority. Users are who they are by MUNGE with either, and see of each other what Slurm lets them see (`PrivateData`).

use crate::identity::{on_login_node, refusal, wait_for_agent};
use crate::rides::{SOON, load, starts, submit};
use pillion_tests::daemons::heartbeat;
use pillion_tests::testbed::identity_of;
use pillion_tests::wait::{Look, wait_for};
use pillion_tests::{Cluster, ClusterSpec};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustix::process::Signal;
use serde_json::Value;
use std::path::{Path, PathBuf};

const SCHEDULER: &str = "pillion-scheduler";
const NODES: [&str; 2] = ["n1", "n2"];

fn agent(node: &str) -> String {
    format!("pillion-agent-{node}")
}

/// Gives a daemon another `[auth]`; from its next start on.
fn set_auth(cluster: &Cluster, daemon: &str, keys: &str) {
    let path = cluster.layout().path(format!("conf/{daemon}.toml"));
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once("[auth]\n").unwrap();
    let (_, after) = rest.split_once('[').unwrap();
    let munge = format!("munge_socket = \"{}\"", cluster.layout().munge_socket().display());
    std::fs::write(&path, format!("{before}[auth]\n{munge}\n{keys}\n[{after}")).unwrap();
}

/// Ends daemons, and starts them again with what stands in their files now.
fn start_again(cluster: &mut Cluster, daemons: &[String]) {
    for daemon in daemons {
        cluster.stop_daemon(daemon, Signal::TERM).unwrap();
        cluster.start_again(daemon).unwrap();
    }
}

/// The scheduler and both agents with what stands in their files now; then it acts, and these agents are in.
fn all_again(cluster: &mut Cluster, in_again: &[&str]) {
    let beat = heartbeat(cluster);
    cluster.stop_daemon(SCHEDULER, Signal::TERM).unwrap();
    std::fs::remove_file(&beat).unwrap();
    cluster.start_again(SCHEDULER).unwrap();
    start_again(cluster, &NODES.map(agent));
    // From then on lua sends jobs to the pool.
    wait_for("scheduler that acts", SOON, || {
        let text = std::fs::read_to_string(&beat).unwrap_or_default();
        let first = text.lines().next().unwrap_or_default().to_owned();
        Ok(if first.ends_with(" mode=active") { Look::Ready(()) } else { Look::NotYet(first) })
    })
    .unwrap();
    for node in in_again {
        wait_for_agent(cluster, node, true);
    }
}

/// A file for one user of this machine alone.
fn give(path: &Path, user: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    let identity = identity_of(user).unwrap();
    std::os::unix::fs::chown(path, Some(identity.uid), Some(identity.gid)).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// A job of a user runs by a decision: agent and scheduler speak with each other in both directions.
fn a_job_is_served_on(cluster: &Cluster, excluded: &str) {
    let job = submit(cluster, "alice", "served", &load("launch-bound", 60), &["-x", excluded]);
    cluster.wait_for_job(job, &["COMPLETED"], SOON).unwrap();
    let start = &starts(cluster, "alice", job)[0];
    assert!(!start["decision"].is_empty(), "job {job} had no decision: {start:?}");
}

/// Who the scheduler says waits, as a user on a login node is told.
fn seen_by(cluster: &mut Cluster, user: &str) -> Vec<String> {
    let (code, said) = on_login_node(cluster, user, &["queue", "--json"]);
    assert_eq!(code, 0, "{said}");
    jobs_in(&said)
}

fn jobs_in(answer: &str) -> Vec<String> {
    let told: Value = serde_json::from_str(answer).unwrap();
    let jobs = told["jobs"].as_array().unwrap().iter();
    jobs.map(|job| job["job_id"].as_str().unwrap().to_owned()).collect()
}

/// `PrivateData=jobs`: neither that another has jobs, nor what became of them.
fn users_see_no_jobs_of_others(cluster: &mut Cluster) {
    let state = |cluster: &Cluster, state: &str| {
        cluster.scontrol(&["update", "NodeName=n1,n2", &format!("State={state}"), "Reason=test"]).unwrap();
    };
    state(cluster, "DRAIN");
    let [hers, his] =
        ["alice", "bob"].map(|user| submit(cluster, user, "waits", &load("launch-bound", 60), &[]));
    let both = [hers.to_string(), his.to_string()];
    wait_for("both jobs in the queue of an operator", SOON, || {
        let seen = seen_by(cluster, "root");
        let is_there = both.iter().all(|job| seen.contains(job));
        Ok(if is_there { Look::Ready(()) } else { Look::NotYet(format!("{seen:?}")) })
    })
    .unwrap();
    assert_eq!(seen_by(cluster, "alice"), [hers.to_string()]);
    assert_eq!(seen_by(cluster, "bob"), [his.to_string()]);
    let socket = cluster.pillion_as("alice", &["queue", "--json"]).unwrap().stdout().unwrap();
    assert_eq!(jobs_in(&socket), [hers.to_string()], "the same on the socket");
    for command in ["why", "explain", "report"] {
        let (code, said) = on_login_node(cluster, "alice", &[command, &his.to_string()]);
        assert!(code == 1 && !said.contains("waits") && !said.contains("bob"), "{command}: {said}");
    }
    let (_, said) = on_login_node(cluster, "alice", &["events", "--json"]);
    assert!(!said.contains(&format!("\"{his}\"")), "{said}");
    state(cluster, "RESUME");
    for job in [hers, his] {
        cluster.wait_for_job(job, &["COMPLETED"], SOON).unwrap();
    }
}

/// A new key in a file, or in front of the one that is there.
fn keygen(cluster: &Cluster, path: &Path, rotate: &[&str]) {
    let file = path.display().to_string();
    let arguments = [&["keygen", &file], rotate].concat();
    cluster.pillion_as("root", &arguments).unwrap().stdout().unwrap();
}

fn by_key(cluster: &mut Cluster) {
    let folder = cluster.layout().path("conf");
    let (ours, theirs) = (folder.join("scheduler.key"), folder.join("node.key"));
    let with = |path: &Path| format!("method = \"key\"\nkey_path = \"{}\"", path.display());
    keygen(cluster, &ours, &[]);
    let copy = |from: &Path, to: &Path, user: &str| {
        std::fs::copy(from, to).unwrap();
        give(to, user);
    };
    give(&ours, "slurm");
    copy(&ours, &theirs, "root");
    set_auth(cluster, SCHEDULER, &with(&ours));
    for node in NODES {
        set_auth(cluster, &agent(node), &with(&theirs));
    }
    all_again(cluster, &NODES);
    a_job_is_served_on(cluster, "n2");

    // Rotated on the controller: nodes come in with the old key, and with the new one.
    keygen(cluster, &ours, &["--rotate"]);
    start_again(cluster, &[agent("n1")]);
    wait_for_agent(cluster, "n1", true);
    copy(&ours, &theirs, "root");
    start_again(cluster, &[agent("n2")]);
    wait_for_agent(cluster, "n2", true);

    // Another one is refused, and told by name.
    let other = folder.join("other.key");
    keygen(cluster, &other, &[]);
    set_auth(cluster, &agent("n2"), &with(&other));
    start_again(cluster, &[agent("n2")]);
    let refused = refusal(cluster, "the agent of n2", "the proof is not good");
    assert_eq!(refused["address"], "127.0.0.1");
    wait_for_words(cluster, "n2", "the node's key is another one, or too old");
    // A key proves no user: they come by MUNGE as before.
    let (code, said) = on_login_node(cluster, "alice", &["queue"]);
    assert_eq!(code, 0, "{said}");
}

/// Waits until an agent says that it is not connected, and why.
fn wait_for_words(cluster: &Cluster, node: &str, why: &str) {
    let log = cluster.layout().log(&format!("{}.out", agent(node)));
    wait_for("agent that says why it is not connected", SOON, || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let mut told = text.lines().filter(|line| line.contains("not connected to the scheduler"));
        Ok(if told.any(|line| line.contains(why)) { Look::Ready(()) } else { Look::NotYet(text.clone()) })
    })
    .unwrap();
}

/// A certificate of the site for a name or an address, and the lines that name its files.
fn certificate(
    cluster: &Cluster,
    file: &str,
    name: &str,
    authority: &Issuer<'_, KeyPair>,
    user: &str,
) -> String {
    let key = KeyPair::generate().unwrap();
    let made = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, authority).unwrap();
    let write = |name: String, text: String| -> PathBuf {
        let path = cluster.layout().write(&format!("conf/{name}"), text).unwrap();
        give(&path, user);
        path
    };
    let certificate = write(format!("{file}.pem"), made.pem());
    let private_key = write(format!("{file}-key.pem"), key.serialize_pem());
    format!(
        "method = \"mtls\"\nca_path = \"{}\"\ncertificate_path = \"{}\"\nprivate_key_path = \"{}\"",
        cluster.layout().path("conf/ca.pem").display(),
        certificate.display(),
        private_key.display(),
    )
}

/// The site's authority; its certificate is `conf/ca.pem`.
fn authority(cluster: &Cluster) -> Issuer<'static, KeyPair> {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let pem = params.self_signed(&key).unwrap().pem();
    cluster.layout().write("conf/ca.pem", pem).unwrap();
    Issuer::new(params, key)
}

fn by_certificates(cluster: &mut Cluster) {
    let site = authority(cluster);
    // The name by which agents go to it.
    let ours = certificate(cluster, "scheduler", "127.0.0.1", &site, "slurm");
    set_auth(cluster, SCHEDULER, &ours);
    // The second one has a good certificate of the site, for another node.
    for (node, name) in NODES.into_iter().zip(["n1", "n9"]) {
        let theirs = certificate(cluster, node, name, &site, "root");
        set_auth(cluster, &agent(node), &theirs);
    }
    all_again(cluster, &["n1"]);
    a_job_is_served_on(cluster, "n2");
    refusal(cluster, "the agent of n2", "has not the DNS name n2");
    wait_for_words(cluster, "n2", "has not the DNS name n2");
    let own = certificate(cluster, "n2", "n2", &site, "root");
    set_auth(cluster, &agent("n2"), &own);
    start_again(cluster, &[agent("n2")]);
    wait_for_agent(cluster, "n2", true);
    let (code, said) = on_login_node(cluster, "alice", &["queue"]);
    assert_eq!(code, 0, "users have no certificates: {said}");
}

#[test]
fn agents_prove_by_key_and_by_certificates_and_users_see_what_slurm_lets_them_see() {
    let spec =
        ClusterSpec { slurm_conf_extra: vec!["PrivateData=jobs".to_owned()], ..ClusterSpec::default() };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_pillion().unwrap();
    users_see_no_jobs_of_others(&mut cluster);
    by_key(&mut cluster);
    by_certificates(&mut cluster);
}

/// An agent that knows of three: nobody is there, one that follows and sends it on, and the one that leads. When that one dies,
/// it finds the other.
#[test]
fn an_agent_finds_whichever_scheduler_leads() {
    let mut cluster = Cluster::start(ClusterSpec::default()).unwrap();
    cluster.start_pillion().unwrap();
    let second = cluster.start_second_scheduler(0.5).unwrap();
    let ports = ["nobody", "scheduler-second", "scheduler"].map(|name| cluster.port(name).unwrap());
    for node in NODES {
        let path = cluster.layout().path(format!("conf/{}.toml", agent(node)));
        let text = std::fs::read_to_string(&path).unwrap();
        let one = format!("https://127.0.0.1:{}", ports[2]);
        let all = ports.map(|port| format!("https://127.0.0.1:{port}")).join(",");
        assert!(text.contains(&one), "{text}");
        std::fs::write(&path, text.replace(&one, &all)).unwrap();
    }
    let follows = cluster.layout().log(&format!("{second}.out"));
    wait_for("scheduler that follows", SOON, || {
        let text = std::fs::read_to_string(&follows).unwrap_or_default();
        Ok(if text.contains("scheduler runs") { Look::Ready(()) } else { Look::NotYet(text) })
    })
    .unwrap();
    // In the first second of its life it does not know yet who leads: the agents come twice.
    for _ in 0..2 {
        start_again(&mut cluster, &NODES.map(agent));
        for node in NODES {
            wait_for_agent(&cluster, node, true);
        }
    }
    let log = std::fs::read_to_string(cluster.layout().log(&format!("{}.out", agent("n1")))).unwrap();
    assert!(log.contains(&format!("connected to the scheduler scheduler=127.0.0.1:{}", ports[2])), "{log}");
    let text = std::fs::read_to_string(&follows).unwrap();
    assert!(text.contains("another scheduler leads; agents report to that one"), "nobody asked it: {text}");
    a_job_is_served_on(&cluster, "n2");

    // Its database goes on: the private Postgres outlives it.
    cluster.kill_scheduler(Signal::KILL).unwrap();
    let came = format!("connected to the scheduler scheduler=127.0.0.1:{}", ports[1]);
    for node in NODES {
        let log = cluster.layout().log(&format!("{}.out", agent(node)));
        wait_for("agent at the other scheduler", SOON, || {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            Ok(if text.contains(&came) { Look::Ready(()) } else { Look::NotYet(text) })
        })
        .unwrap();
    }
}
