//! Who is believed over TCP, with real MUNGE: users on hosts without the scheduler's socket, agents that are none, agents of
//! nodes that are none, two agents of one node, and munged away.

use crate::rides::{SOON, load, submit};
use pillion_auth::munge::{Library, Munge as _, MungeError};
use pillion_tests::testbed::identity_of;
use pillion_tests::wait::{Look, wait_for};
use pillion_tests::{Cluster, ClusterSpec};
use rustix::process::Signal;
use serde_json::Value;
use std::path::PathBuf;

/// The scheduler's TCP address, as a host knows it that has nothing else of the scheduler's.
fn over_tcp(cluster: &mut Cluster) -> String {
    format!("https://127.0.0.1:{}", cluster.port("scheduler").unwrap())
}

/// What a login node has: where munged listens. Everybody may read it.
fn login_toml(cluster: &Cluster) -> PathBuf {
    let text = format!("[auth]\nmunge_socket = \"{}\"\n", cluster.layout().munge_socket().display());
    cluster.layout().write("conf/login.toml", text).unwrap()
}

/// A command of a user on a login node: exit status, and what it said.
pub(crate) fn on_login_node(cluster: &mut Cluster, user: &str, arguments: &[&str]) -> (i32, String) {
    let (address, config) = (over_tcp(cluster), login_toml(cluster));
    let program = cluster.program_as(user, "pillion").unwrap().env("PILLION_SCHEDULER", address);
    let program = program.arg("--config").arg(config).args(arguments);
    let output = program.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8_lossy(&said).into_owned())
}

fn status(cluster: &Cluster) -> Value {
    let text = cluster.pillion_as("root", &["status", "--json"]).unwrap().stdout().unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Waits until the scheduler has turned somebody away, and says why.
pub(crate) fn refusal(cluster: &Cluster, who: &str, why: &str) -> Value {
    let what = format!("refusal of {who}: {why}");
    wait_for(&what, SOON, || {
        let told = status(cluster);
        let refused = told["refused"].as_array().cloned().unwrap_or_default();
        let is_it =
            |row: &&Value| row["who"] == who && row["why"].as_str().is_some_and(|text| text.contains(why));
        let found = refused.iter().find(is_it).cloned();
        Ok(found.map_or_else(|| Look::NotYet(told["refused"].to_string()), Look::Ready))
    })
    .unwrap()
}

pub(crate) fn wait_for_agent(cluster: &Cluster, node: &str, is_connected: bool) {
    wait_for(&format!("agent of {node}: connected {is_connected}"), SOON, || {
        let told = status(cluster);
        let agents = told["agents"].as_array().cloned().unwrap_or_default();
        let is_it = agents.iter().any(|agent| agent["node"] == node && agent["connected"] == is_connected);
        Ok(if is_it || (!is_connected && agents.is_empty()) {
            Look::Ready(())
        } else {
            Look::NotYet(told["agents"].to_string())
        })
    })
    .unwrap();
}

/// Another agent, beside those of the cluster: its name there, and whose it is.
fn start_other_agent(cluster: &mut Cluster, name: &str, node: &str, user: &str) {
    let endpoint = over_tcp(cluster);
    let folder = cluster.home(user).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let identity = identity_of(user).unwrap();
    std::os::unix::fs::chown(&folder, Some(identity.uid), Some(identity.gid)).unwrap();
    let text = format!(
        "[agent]\nnode_name = \"{node}\"\nstate_directory = \"{root}/state\"\nruntime_directory = \"{root}/run\"\n\
         handoff_socket = \"{root}/agent.sock\"\n\
         [agent.scheduler]\nendpoint = \"{endpoint}\"\nretry_seconds_max = 1.0\n\
         [agent.auth]\nmunge_socket = \"{munge}\"\n\
         [agent.simulated]\nsocket = \"{cluster_root}/run/n1/devices.sock\"\n",
        root = folder.display(),
        munge = cluster.layout().munge_socket().display(),
        cluster_root = cluster.root().display(),
    );
    let config = cluster.layout().write(&format!("conf/{name}.toml"), text).unwrap();
    let program = pillion_tests::daemons::built("pillion-agent").unwrap().display().to_string();
    let program = cluster.program(&program).arg("--config").arg(config).identity(identity);
    cluster.start_daemon(name, &program).unwrap();
}

#[test]
fn a_user_on_a_host_without_the_schedulers_socket_asks_as_himself() {
    let mut cluster = Cluster::start(ClusterSpec::default()).unwrap();
    cluster.start_pillion().unwrap();
    assert_eq!(status(&cluster)["auth_method"], "munge");
    let job = submit(&cluster, "alice", "bert", &load("bert", 24000), &[]).to_string();
    cluster.wait_for_job(job.parse().unwrap(), &["RUNNING"], SOON).unwrap();

    // While things happen to the job, two answers may differ.
    wait_for("over TCP what she gets on the socket", SOON, || {
        let here = cluster.pillion_as("alice", &["explain", &job])?.stdout()?;
        let (code, there) = on_login_node(&mut cluster, "alice", &["explain", &job]);
        let is_same = code == 0 && there == here;
        Ok(if is_same { Look::Ready(()) } else { Look::NotYet(format!("{here}\n{code}: {there}")) })
    })
    .unwrap();
    let (code, said) = on_login_node(&mut cluster, "alice", &["why", &job]);
    assert!(code == 0 && said.contains(&job), "{said}");
    let (code, said) = on_login_node(&mut cluster, "bob", &["why", &job]);
    assert!(code == 1 && !said.contains("bert"), "another one's job: {said}");
    let (code, said) = on_login_node(&mut cluster, "alice", &["drain", "n1", "--reason", "x"]);
    assert!(code == 1, "she is no operator: {said}");
    let (code, said) = on_login_node(&mut cluster, "root", &["queue"]);
    assert_eq!(code, 0, "{said}");
    // Nobody speaks to the port without a proof.
    let port = cluster.port("scheduler").unwrap();
    let plain = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{port}; printf 'PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n' >&3; timeout 5 cat <&3 | tr -cd A-Z"
    );
    let said = cluster.program("bash").args(["-c", &plain]).output().unwrap();
    assert!(!String::from_utf8_lossy(&said.stdout).contains("HTTP"));
}

/// What munged itself makes of what we ask of it: a minute, and one reader. Root is no other reader.
#[test]
fn a_credential_is_for_one_reader_and_for_a_minute() {
    let cluster = Cluster::start(ClusterSpec::default()).unwrap();
    let socket = cluster.layout().munge_socket();
    let munge = Library::new(socket.clone());
    let alice = identity_of("alice").unwrap().uid;
    let for_alice = munge.encode("pillion1 scheduler - 00", alice).unwrap();
    let read_by_root = munge.decode(&for_alice);
    let for_root = munge.encode("pillion1 scheduler - 00", 0).unwrap();
    let unmunge = cluster.program("unmunge").arg(format!("--socket={}", socket.display()));
    let told = unmunge.input(format!("{for_root}\n")).stdout().unwrap();
    let value = |name: &str| {
        let line = told.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(|rest| rest.trim().to_owned())
    };
    let is_roots = value("UID_RESTRICTION").is_some_and(|who| who.contains("(0)"));
    let found = (read_by_root, value("TTL"), is_roots, munge.decode(&for_root));
    let wanted = (Err(MungeError::NotForUs), Some("60".to_owned()), true, Err(MungeError::Replayed));
    assert_eq!(found, wanted, "{told}");
}

#[test]
fn who_is_no_agent_of_a_pool_node_reports_nothing() {
    let mut cluster = Cluster::start(ClusterSpec::default()).unwrap();
    cluster.start_pillion().unwrap();
    let agent_of = |node: &str| format!("the agent of {node}");
    // A user's own agent, as which a stranger's reports came in before.
    start_other_agent(&mut cluster, "pillion-agent-of-alice", "n1", "alice");
    refusal(&cluster, &agent_of("n1"), "the credential was made by uid");
    // Root's, of a node that Slurm does not know, and of one that is not in the pool.
    start_other_agent(&mut cluster, "pillion-agent-of-nobody", "n9", "root");
    refusal(&cluster, &agent_of("n9"), "it is no node of the pool");
    start_other_agent(&mut cluster, "pillion-agent-elsewhere", "w1", "root");
    refusal(&cluster, &agent_of("w1"), "it is no node of the pool");
    // The agents of the pool may still be on their way; whoever is no agent would have come before them.
    for node in ["n1", "n2"] {
        wait_for_agent(&cluster, node, true);
    }
    let told = status(&cluster);
    let known: Vec<&str> =
        told["agents"].as_array().unwrap().iter().filter_map(|agent| agent["node"].as_str()).collect();
    assert_eq!(known, ["n1", "n2"], "nothing is known of the others");
    // Whoever is no operator is not told of them.
    let text = cluster.pillion_as("alice", &["status", "--json"]).unwrap().stdout().unwrap();
    let told: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(told["refused"].as_array().map(Vec::len), Some(0));
    let doctor = cluster.pillion_as("root", &["doctor", "--quiet"]).unwrap().output().unwrap();
    let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(said.contains("the agent of n9 at 127.0.0.1 was not let in"), "{said}");
}

#[test]
fn a_second_agent_of_a_node_waits_until_the_first_has_gone() {
    let mut cluster = Cluster::start(ClusterSpec::default()).unwrap();
    cluster.start_pillion().unwrap();
    wait_for_agent(&cluster, "n1", true);
    start_other_agent(&mut cluster, "pillion-agent-second", "n1", "root");
    let log = cluster.layout().log("pillion-scheduler.out");
    wait_for("second agent that waits", SOON, || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        Ok(if text.contains("waits until the first has gone") {
            Look::Ready(())
        } else {
            Look::NotYet(String::new())
        })
    })
    .unwrap();
    let second = cluster.layout().log("pillion-agent-second.out");
    let is_in = || {
        std::fs::read_to_string(&second).unwrap_or_default().contains("connected to the scheduler scheduler=")
    };
    assert!(!is_in(), "the first stays");
    cluster.kill_agent("n1", Signal::KILL).unwrap();
    wait_for("second agent that is let in", SOON, || {
        Ok(if is_in() {
            Look::Ready(())
        } else {
            Look::NotYet(std::fs::read_to_string(&second).unwrap_or_default())
        })
    })
    .unwrap();
    wait_for_agent(&cluster, "n1", true);
}

#[test]
fn with_munged_away_nobody_is_denied_and_all_come_back_with_it() {
    let mut cluster = Cluster::start(ClusterSpec::default()).unwrap();
    cluster.start_pillion().unwrap();
    wait_for_agent(&cluster, "n1", true);
    cluster.stop_daemon("munged", Signal::TERM).unwrap();
    cluster.kill_agent("n1", Signal::TERM).unwrap();
    cluster.start_agent("n1").unwrap();
    let log = cluster.layout().log("pillion-agent-n1.out");
    wait_for("agent that says why it is not connected", SOON, || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let said =
            text.lines().find(|line| line.contains("not connected to the scheduler; reports are kept"));
        Ok(match said {
            Some(line) if line.contains("MUNGE does not answer") => Look::Ready(()),
            _ => Look::NotYet(text),
        })
    })
    .unwrap();
    let (code, said) = on_login_node(&mut cluster, "alice", &["queue"]);
    assert!(code == 75 && said.contains("MUNGE does not answer"), "{code}: {said}");
    cluster.start_again("munged").unwrap();
    wait_for_agent(&cluster, "n1", true);
    let (code, said) = on_login_node(&mut cluster, "alice", &["queue"]);
    assert_eq!(code, 0, "{said}");
}
