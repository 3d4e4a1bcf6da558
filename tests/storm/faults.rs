//! Breaks and mends what the plan says, and looks after nodes and daemons all the while, as Slurm and systemd see them.

use crate::lanes::{Clients, Journal, carry_out_on, epoch, locked};
use crate::say;
use pillion_tests::Cluster;
use pillion_tests::error::Result;
use pillion_tests::storm::facts::{Outage, Seen as JobSeen, Sight, Span};
use pillion_tests::storm::plan::{Broken, Change, Deed, Disk, Fault, How, Part, Plan};
use pillion_tests::storm::slurm_log::shards_used;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::{BTreeMap, BTreeSet};
use std::thread::sleep;
use std::time::Duration;

/// As Debian installs it; the linker knows `$LIB`. What reads the clock through it reads another.
const FAKETIME: &str = "/usr/$LIB/faketime/libfaketime.so.1";
/// How often what is due is looked for.
const TICK: Duration = Duration::from_millis(100);
/// Seconds from one look at the nodes to the next, and from one line for people to the next.
const LOOK_SECONDS: f64 = 1.5;
const TELL_SECONDS: f64 = 30.0;
/// As whom `pillion-rescue.timer` works, its period, and how old its leases are.
pub(crate) const RESCUER: &str = "slurm";
const RESCUE_SECONDS: f64 = 60.0;
const RESCUE_OLDER_THAN: &str = "120";
/// A daemon that systemd starts again, it starts after so long.
const RESTART_SECONDS: f64 = 1.0;
/// A scheduler that stands by looks at Slurm as seldom: what it sees is older than what the one that leads did.
const STANDBY_SCAN_SECONDS: f64 = 5.0;
/// A node that Slurm thinks away stays so for as long after its daemon is back; a drain likewise.
const NODE_RECOVERY_SECONDS: f64 = 30.0;
/// Slurm's own reason for a drain: a slurmctld that was killed has forgotten a start, makes it again on the node that still runs
/// it, and takes the node for mad. Plain jobs' nodes get it as ours do; an admin resumes them.
const FORGOTTEN_START: &str = "Duplicate jobid";
/// The admin looks after a drained node so long after it was seen so.
const ADMIN_SECONDS: f64 = 15.0;
/// A scheduler or an agent that cannot work ends, and is started again, while what it needs is broken and shortly after.
const DAEMON_RECOVERY_SECONDS: f64 = 20.0;
/// Where the queue does not change for so long, it never will: bound, lease and start.
const STILL_SECONDS: f64 = 75.0;
/// But Slurm itself holds a requeued job back for two minutes.
const REQUEUE_SECONDS: f64 = 140.0;
/// The longest that a queue may take to drain; or as long as it took to come, where that was longer.
const DRAIN_SECONDS_MAX: f64 = 1500.0;

/// What was seen from outside.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) outages: Vec<Outage>,
    pub(crate) overbooked: BTreeSet<String>,
    pub(crate) died: Vec<Sight>,
    pub(crate) drained: BTreeSet<String>,
    /// Starts of daemons that had ended while what they need was broken: as systemd does it.
    pub(crate) restarted: usize,
    looked_at: f64,
    told_at: f64,
    rescued_at: f64,
    /// When daemons were first seen ended, and nodes first seen drained by Slurm itself.
    ended: BTreeMap<String, f64>,
    drained_by_slurm: BTreeMap<String, f64>,
}

impl Seen {
    fn broken_now(&self, is_it: impl Fn(Broken) -> bool, recovery: f64) -> bool {
        let now = epoch();
        self.outages.iter().any(|outage| is_it(outage.broken) && now < outage.span.until + recovery)
    }

    /// Waiting for its answer would keep it broken, for the fault is mended where others are begun and mended.
    fn is_slurmctld_away(&self) -> bool {
        self.broken_now(|broken| matches!(broken, Broken::Process(Part::Slurmctld, _)), 0.0)
    }

    /// Whether slurmctld was ever killed: a start that it forgot it makes again when the job's turn comes, however late that is.
    fn has_forgotten_starts(&self) -> bool {
        let is_killed = |broken| broken == Broken::Process(Part::Slurmctld, How::Kill);
        self.broken_now(is_killed, f64::INFINITY)
    }
}

/// Passes over the time of the plan.
pub(crate) fn storm(cluster: &mut Cluster, plan: &Plan, journal: &Journal, seen: &mut Seen) -> Result<()> {
    let clients = Clients::of(cluster)?;
    let mut due: Vec<Fault> = plan.faults.clone();
    due.reverse();
    let mut broken: Vec<(Fault, usize)> = Vec::new();
    let last = plan.acts.iter().map(|act| act.at).chain([plan.seconds]).fold(0.0, f64::max);
    while journal.elapsed() < last || !broken.is_empty() {
        let now = journal.elapsed();
        while due.last().is_some_and(|fault| fault.at <= now) {
            let fault = due.pop().expect("it has one");
            let from = epoch();
            journal.note(from, &format!("FAULT {}", fault.broken));
            // One that is asked in vain may do it later, when nobody mends it any more.
            if asks_slurmctld(fault.broken) && seen.is_slurmctld_away() {
                journal.note(from, "  not broken: slurmctld is away");
                continue;
            }
            match begin(cluster, fault.broken) {
                Ok(()) => {
                    let span = Span { from, until: f64::INFINITY };
                    seen.outages.push(Outage { broken: fault.broken, span });
                    broken.push((fault, seen.outages.len() - 1));
                }
                Err(error) => {
                    journal.note(epoch(), &format!("  not broken: {}", pillion_core::report(&error)));
                }
            }
        }
        let is_away = seen.is_slurmctld_away();
        let is_over = |fault: &Fault| fault.until <= now && !(is_away && asks_slurmctld(fault.broken));
        let (over, rest): (Vec<_>, Vec<_>) = broken.into_iter().partition(|(fault, _)| is_over(fault));
        broken = rest;
        for (fault, outage) in over {
            if let Err(error) = mend(cluster, fault.broken) {
                journal.note(epoch(), &format!("  not mended: {}", pillion_core::report(&error)));
                seen.died.push(Sight {
                    text: format!("{} was not mended: {}", fault.broken, pillion_core::report(&error)),
                });
            }
            seen.outages[outage].span.until = epoch();
            journal.note(epoch(), &format!("mended: {}", fault.broken));
        }
        look_after(cluster, &clients, journal, seen);
        sleep(TICK);
    }
    Ok(())
}

/// What is begun and mended by asking slurmctld.
fn asks_slurmctld(broken: Broken) -> bool {
    matches!(broken, Broken::Drain(_) | Broken::Reserve(_))
}

fn daemon_of(part: Part) -> String {
    match part {
        Part::Scheduler | Part::Postgres => "pillion-scheduler".to_owned(),
        Part::Agent(node) => format!("pillion-agent-{node}"),
        Part::Driver(node) => format!("pillion-simulated-device-{node}"),
        Part::Slurmctld => "slurmctld".to_owned(),
        Part::Slurmd(node) => format!("slurmd-{node}"),
    }
}

fn disk_of(disk: Disk) -> String {
    match disk {
        Disk::Scheduler => "scheduler".to_owned(),
        Disk::Agent(node) => format!("agent/{node}"),
    }
}

fn reservation_of(node: &str) -> String {
    format!("ReservationName=storm-{node}")
}

fn signal_of(how: How) -> Signal {
    match how {
        How::Kill => Signal::KILL,
        How::Freeze => Signal::STOP,
        How::Stop => Signal::TERM,
    }
}

fn begin(cluster: &mut Cluster, broken: Broken) -> Result<()> {
    match broken {
        Broken::Process(Part::Postgres, how) => {
            signal_postgres(cluster, if how == How::Stop { Signal::INT } else { signal_of(how) });
            Ok(())
        }
        Broken::Process(part, How::Freeze) => {
            cluster.daemon(&daemon_of(part))?.signal(Signal::STOP);
            Ok(())
        }
        Broken::Process(part, how) => cluster.stop_daemon(&daemon_of(part), signal_of(how)),
        Broken::Drain(node) => {
            let node = format!("NodeName={node}");
            scontrol(cluster, &["update", &node, "State=DRAIN", "Reason=storm"])
        }
        Broken::Reserve(node) => {
            let (name, node) = (reservation_of(node), format!("Nodes={node}"));
            // Jobs have a limit of ten minutes: none of them would be over when it begins.
            let when = ["StartTime=now+300", "Duration=60", "Users=root", "Flags=IGNORE_JOBS"];
            scontrol(cluster, &[&["create", "reservation", &name, &node], &when[..]].concat())
        }
        Broken::Full(disk) => cluster.fill_disk(&disk_of(disk)),
        Broken::SecondScheduler => cluster.start_second_scheduler(STANDBY_SCAN_SECONDS).map(drop),
        Broken::Clock { node, ahead_seconds } => set_clock(cluster, node, ahead_seconds),
    }
}

/// Starts slurmd and the agent of a node again, with a clock that is off by so much; what slurmd starts inherits it.
fn set_clock(cluster: &mut Cluster, node: &'static str, ahead_seconds: i32) -> Result<()> {
    let environment = [
        ("LD_PRELOAD", FAKETIME.to_owned()),
        ("FAKETIME", format!("{ahead_seconds:+}s")),
        // What counts seconds since the start of the machine goes on as it did.
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
    ];
    let environment = if ahead_seconds == 0 { &[][..] } else { &environment[..] };
    for part in [Part::Slurmd(node), Part::Agent(node)] {
        let name = daemon_of(part);
        cluster.stop_daemon(&name, Signal::TERM)?;
        cluster.start_again_with(&name, environment)?;
    }
    Ok(())
}

fn mend(cluster: &mut Cluster, broken: Broken) -> Result<()> {
    match broken {
        // The scheduler starts it again by itself, unless it is only frozen.
        Broken::Process(Part::Postgres, How::Freeze) => {
            signal_postgres(cluster, Signal::CONT);
            Ok(())
        }
        Broken::Process(Part::Postgres, _) => Ok(()),
        Broken::Process(part, How::Freeze) => {
            cluster.daemon(&daemon_of(part))?.signal(Signal::CONT);
            Ok(())
        }
        Broken::Process(part, _) => {
            let name = daemon_of(part);
            // Two such faults may come in one moment on a machine that is behind: the first one mends both.
            let runs = cluster.daemon(&name).is_ok_and(|daemon| daemon.check_running().is_ok());
            if runs { Ok(()) } else { cluster.start_again(&name) }
        }
        Broken::Drain(node) => {
            let node = format!("NodeName={node}");
            scontrol(cluster, &["update", &node, "State=RESUME"])
        }
        Broken::Reserve(node) => scontrol(cluster, &["delete", &reservation_of(node)]),
        Broken::Full(disk) => cluster.empty_disk(&disk_of(disk)),
        Broken::SecondScheduler => cluster.stop_daemon("pillion-scheduler-second", Signal::TERM),
        Broken::Clock { node, .. } => set_clock(cluster, node, 0),
    }
}

/// One that has just come back may not answer yet: then again.
fn scontrol(cluster: &Cluster, words: &[&str]) -> Result<()> {
    let mut tries = 0;
    loop {
        let program = cluster.program("timeout").args(["20", "scontrol"]).args(words.iter().copied());
        match program.stdout() {
            Err(_) if tries < 5 => tries += 1,
            answer => return answer.map(drop),
        }
    }
}

/// To the server and, where it is frozen, to each of its processes.
fn signal_postgres(cluster: &Cluster, signal: Signal) {
    let data = cluster.layout().path("scheduler/postgres/data");
    let server = std::fs::read_to_string(data.join("postmaster.pid"))
        .ok()
        .and_then(|text| text.lines().next()?.trim().parse::<i32>().ok());
    let is_freeze = matches!(signal, Signal::STOP | Signal::CONT);
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let works_there = std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == data);
        if works_there
            && (is_freeze || server == Some(pid))
            && let Some(pid) = Pid::from_raw(pid)
        {
            // It may have ended meanwhile.
            let _ = kill_process(pid, signal);
        }
    }
}

/// What somebody who looks after the cluster does all along.
fn look_after(cluster: &mut Cluster, clients: &Clients, journal: &Journal, seen: &mut Seen) {
    look_at_daemons(cluster, journal, seen);
    let now = journal.elapsed();
    if seen.is_slurmctld_away() {
        return;
    }
    if now - seen.looked_at >= LOOK_SECONDS {
        seen.looked_at = now;
        look_at_nodes(clients, journal, seen);
    }
    if now - seen.rescued_at >= RESCUE_SECONDS {
        seen.rescued_at = now;
        rescue(clients, journal, seen);
    }
    if now - seen.told_at >= TELL_SECONDS {
        seen.told_at = now;
        let submitted = locked(&journal.submitted).iter().flatten().count();
        let (_, printed, _) = clients.run("root", &["squeue", "-h", "--array", "-o", "%T"], "");
        let count = |state: &str| printed.lines().filter(|line| *line == state).count();
        say(&format!(
            "{now:>5.0} s: {submitted} submitted, {} wait, {} run",
            count("PENDING"),
            count("RUNNING")
        ));
    }
}

/// What the timer of Pillion's own does where everything else of ours may be dead; it needs nothing but slurmctld.
fn rescue(clients: &Clients, journal: &Journal, seen: &mut Seen) {
    let words = ["pillion", "rescue", "--older-than", RESCUE_OLDER_THAN];
    let (is_done, printed, said) = clients.run(RESCUER, &words, "");
    let printed = printed.split_whitespace().collect::<Vec<_>>().join(" ");
    journal.note(epoch(), &format!("rescue: {printed} {said}"));
    let is_slurm_away = |broken| matches!(broken, Broken::Process(Part::Slurmctld, _));
    if !is_done && !seen.broken_now(is_slurm_away, DAEMON_RECOVERY_SECONDS) {
        seen.died.push(Sight { text: format!("pillion rescue ended badly: {said}") });
    }
}

/// Who ended though nobody ended him is started again, as systemd does.
fn look_at_daemons(cluster: &mut Cluster, journal: &Journal, seen: &mut Seen) {
    let now = epoch();
    for (name, how) in cluster.ended_daemons() {
        let is_ended_by_us = |outage: &Outage| match outage.broken {
            Broken::Process(Part::Postgres, _) => false,
            Broken::Process(part, _) => daemon_of(part) == name && outage.span.until.is_infinite(),
            Broken::SecondScheduler => name == "pillion-scheduler-second",
            _ => false,
        };
        if seen.outages.iter().any(is_ended_by_us) || name == "pillion-scheduler-second" {
            continue;
        }
        let since = *seen.ended.entry(name.clone()).or_insert(now);
        if now - since < RESTART_SECONDS {
            continue;
        }
        seen.ended.remove(&name);
        let needs = |broken: Broken| match broken {
            Broken::Full(Disk::Agent(node)) => name == daemon_of(Part::Agent(node)),
            Broken::Full(Disk::Scheduler) | Broken::SecondScheduler => name == daemon_of(Part::Scheduler),
            Broken::Process(part, _) => daemon_of(part) == name || part == Part::Slurmctld,
            Broken::Drain(_) | Broken::Reserve(_) | Broken::Clock { .. } => false,
        };
        let is_explained = seen.broken_now(needs, DAEMON_RECOVERY_SECONDS);
        journal.note(now, &format!("{name} has ended ({how}); it is started again"));
        if is_explained {
            seen.restarted += 1;
        } else {
            seen.died.push(Sight {
                text: format!("{name} ended by itself at {:.1}: {how}", now - journal.began_at),
            });
        }
        if let Err(error) = cluster.start_again(&name) {
            seen.died
                .push(Sight { text: format!("{name} does not start: {}", pillion_core::report(&error)) });
        }
    }
}

/// Slurm's own books of each GPU, and the states of the nodes.
fn look_at_nodes(clients: &Clients, journal: &Journal, seen: &mut Seen) {
    let (_, text, _) = clients.run("root", &["scontrol", "show", "node", "-d", "-o"], "");
    for line in text.lines() {
        let word = |name: &str| {
            let (_, rest) = line.split_once(&format!(" {name}="))?;
            rest.split(' ').next()
        };
        let Some(node) = line.strip_prefix("NodeName=").and_then(|rest| rest.split(' ').next()) else {
            continue;
        };
        let used = word("GresUsed").unwrap_or_default();
        for (gpu, count) in shards_used(used) {
            if count > 100 {
                seen.overbooked
                    .insert(format!("{node} GPU {gpu}: {count} shards in use by Slurm's books: {used}"));
            }
        }
        let state = word("State").unwrap_or_default();
        let is_away = ["DRAIN", "DOWN", "FAIL", "ERROR", "INVAL"].iter().any(|word| state.contains(word));
        let did_it = |broken: Broken| match broken {
            Broken::Drain(name)
            | Broken::Process(Part::Slurmd(name), _)
            | Broken::Clock { node: name, .. } => name == node,
            Broken::Process(Part::Slurmctld, _) => true,
            _ => false,
        };
        let reason = line.split_once(" Reason=").map_or("", |(_, reason)| reason);
        if state.contains("DRAIN") && reason.starts_with(FORGOTTEN_START) && seen.has_forgotten_starts() {
            resume_later(clients, journal, seen, node);
        } else if is_away && !seen.broken_now(did_it, NODE_RECOVERY_SECONDS) {
            let sight = format!("{node} is {state}: {reason}");
            if seen.drained.insert(sight.clone()) {
                journal.note(epoch(), &sight);
            }
        }
    }
}

/// Resumes a node that Slurm drained by itself, once some seconds have passed.
fn resume_later(clients: &Clients, journal: &Journal, seen: &mut Seen, node: &str) {
    let now = epoch();
    let since = *seen.drained_by_slurm.entry(node.to_owned()).or_insert(now);
    if now - since < ADMIN_SECONDS {
        return;
    }
    seen.drained_by_slurm.remove(node);
    let node = format!("NodeName={node}");
    let (is_done, _, said) = clients.run("root", &["scontrol", "update", &node, "State=RESUME"], "");
    let answer = if is_done { "taken" } else { said.as_str() };
    journal.note(now, &format!("root resumes {node}, drained by Slurm itself ({FORGOTTEN_START}): {answer}"));
}

/// Waits for the queue to drain. Returns how the jobs are that it still holds when it no longer moves.
pub(crate) fn drain(
    cluster: &mut Cluster,
    clients: &Clients,
    journal: &Journal,
    seen: &mut Seen,
) -> BTreeMap<String, JobSeen> {
    cancel_the_impossible(clients, journal);
    let begun = journal.elapsed();
    let longest = DRAIN_SECONDS_MAX.max(begun);
    let still = if journal.has_requeued_since(begun - REQUEUE_SECONDS) || !seen.outages.is_empty() {
        STILL_SECONDS + REQUEUE_SECONDS
    } else {
        STILL_SECONDS
    };
    let (mut before, mut changed_at) = (String::new(), begun);
    loop {
        look_after(cluster, clients, journal, seen);
        let (is_told, queue, _) = clients.run("root", &["squeue", "-h", "--array", "-o", "%F_%K %i %T"], "");
        // Its order follows priorities and begin times, which may change without end.
        let queue = queue.lines().collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join("\n");
        if is_told && queue.is_empty() {
            break;
        }
        let now = journal.elapsed();
        if queue != before {
            (before, changed_at) = (queue, now);
        }
        if now - changed_at > still || now - begun > longest {
            journal.note(epoch(), &format!("the queue does not drain: {}", before.replace('\n', ", ")));
            break;
        }
        sleep(Duration::from_millis(500));
    }
    look_at_nodes(clients, journal, seen);
    let (_, queue, _) = clients.run("root", &["squeue", "-h", "--array", "-o", "%i"], "");
    let left = queue.lines().map(str::trim).filter_map(|name| Some((name.to_owned(), clients.look(name)?.0)));
    left.collect()
}

/// Jobs whose users asked for what no node has would wait for ever, as on plain Slurm: their users give up.
fn cancel_the_impossible(clients: &Clients, journal: &Journal) {
    let is_impossible = |deed: Deed| deed == Deed::Change(Change::Bogus);
    let numbers: BTreeSet<(usize, Option<u32>)> = locked(&journal.done)
        .iter()
        .filter(|(_, _, done)| done.accepted && is_impossible(done.deed))
        .map(|(number, task, _)| (*number, *task))
        .collect();
    for (number, task) in numbers {
        let Some(submitted) = locked(&journal.submitted)[number].clone() else { continue };
        let name = submitted.name + &task.map(|task| format!("_{task}")).unwrap_or_default();
        let done = carry_out_on(&name, "root", Deed::Cancel, clients);
        journal
            .note(done.span.from, &format!("root: cancel #{number} job {name}: it asks for the impossible"));
        locked(&journal.done).push((number, task, done));
    }
}
