//! The queue of `tests/bench peers` in virtual time: the real scheduler over doubles, on devices that run at the clock's own pace.
//! On real Slurm simulated devices run sixty times faster than the clock, and every delay of ours counts sixty times; here a second
//! is one. It prints a table, and holds nothing against anything.

use crate::faulty::{FaultySlurm, is_over};
use crate::node::{Node, Work, end_those_gone};
use crate::scheduler::Scheduler;
use crate::users::mark_of;
use pillion_core::heartbeat::Mode;
use pillion_core::{GresType, JobStart, ManualClock, SlurmJobId, UnixTime, UserId};
use pillion_fake_slurm::{FakeJob, FakeNode, FakePartition, FakeSettings, FakeSlurm};
use pillion_memory_store::MemoryStore;
use pillion_scheduler::context::Settings;
use pillion_slurm::{Ending, JobState};
use pillion_store::{Decision, Member};
use pillion_tests::peers::{
    DEVICE_COUNT, DEVICE_MODEL, DEVICES_PER_NODE, Figures, JobEnd, NODES, Order, PROMISE_RATIO, SEED, Way,
    draw, figures, named, table,
};
use pillion_tests::testbed::USERS;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const BEGIN: u64 = 1_700_000_000;
const TIME_LIMIT_SECONDS: u64 = 36_000;
/// Devices go on in such steps, and the scheduler looks after so many of them: its own period of scanning Slurm.
const STEP: Duration = Duration::from_secs(1);
const STEPS_PER_TICK: u64 = 2;
const REPORTS_MAX: usize = 1000;

/// What became of one job.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    submitted_at: f64,
    started_at: f64,
    ended_at: Option<f64>,
    work_seconds: f64,
}

struct Site {
    way: Way,
    now: UnixTime,
    clock: Arc<ManualClock>,
    slurm: Arc<FakeSlurm>,
    scheduler: Scheduler,
    nodes: Vec<Node>,
    works: BTreeMap<SlurmJobId, Work>,
    seen: BTreeMap<SlurmJobId, Seen>,
    started: BTreeSet<JobStart>,
    held_seconds: f64,
    shared_seconds: f64,
}

impl Site {
    fn new(way: Way, settings: Settings) -> Self {
        let now = UnixTime::from_epoch(BEGIN);
        let clock = Arc::new(ManualClock::new(now));
        let nodes = NODES.map(|name| FakeNode::pool(name, DEVICES_PER_NODE)).into();
        let partitions = vec![FakePartition::new("shared", &NODES)];
        let slurm = Arc::new(FakeSlurm::new(FakeSettings::default(), nodes, partitions, now));
        let line = Arc::new(FaultySlurm::new(Arc::clone(&slurm), Arc::clone(&clock)));
        let scheduler = Scheduler::new(Arc::clone(&clock), line, Arc::new(MemoryStore::new()), settings);
        let nodes = NODES.map(|name| Node::new(name, DEVICE_MODEL, DEVICES_PER_NODE as usize)).into();
        Self {
            way,
            now,
            clock,
            slurm,
            scheduler,
            nodes,
            works: BTreeMap::new(),
            seen: BTreeMap::new(),
            started: BTreeSet::new(),
            held_seconds: 0.0,
            shared_seconds: 0.0,
        }
    }

    fn submit(&mut self, order: &Order) {
        let place = USERS.iter().position(|user| *user == order.user).unwrap_or_default();
        let uid = UserId(2001 + u32::try_from(place).unwrap_or_default());
        let plain = FakeJob {
            uid,
            user: order.user.to_owned(),
            time_limit_seconds: Some(TIME_LIMIT_SECONDS),
            ..FakeJob::default()
        };
        let job = match self.way {
            Way::Whole => plain,
            Way::Shards => FakeJob { gres: "shard:50".to_owned(), ..plain },
            Way::Pillion => FakeJob {
                begin: Some(self.now + self.scheduler.context.settings.bound),
                admin_comment: mark_of(&order.workload).to_string(),
                ..plain
            },
        };
        let id = self.slurm.submit(job);
        let (workload, batch) = order.load.split_once(" --batch-size ").unwrap_or((order.load, ""));
        let seconds = f64::from(order.work_seconds);
        self.works.insert(
            id,
            Work {
                workload,
                batch_size: batch.parse().ok(),
                seconds,
                memory_bytes: None,
                uid,
                is_session: false,
                is_interactive: false,
            },
        );
        let seen = Seen { submitted_at: self.now.seconds(), work_seconds: seconds, ..Seen::default() };
        self.seen.insert(id, seen);
    }

    /// One second.
    fn pass(&mut self) {
        self.now = self.now + STEP;
        self.clock.set(self.now);
        for node in &mut self.nodes {
            node.advance(STEP);
            let mut tenants: BTreeMap<&GresType, u32> = BTreeMap::new();
            for run in &node.running {
                *tenants.entry(&run.gres_type).or_default() += 1;
            }
            for count in tenants.into_values() {
                self.held_seconds += STEP.as_secs_f64();
                self.shared_seconds += if count > 1 { STEP.as_secs_f64() } else { 0.0 };
            }
        }
        for (start, is_good) in self.nodes.iter().flat_map(Node::finished).collect::<Vec<_>>() {
            assert!(is_good, "{start} failed on its device");
            self.slurm.finish(start.job_id, Ending::Completed);
            let seen = self.seen.get_mut(&start.job_id).expect("it was submitted");
            seen.ended_at = Some(self.now.seconds());
        }
        self.slurm.tick(self.now);
        self.follow_slurm();
        for node in &mut self.nodes {
            node.look(self.now);
        }
    }

    fn follow_slurm(&mut self) {
        let open = self.slurm.open_jobs();
        end_those_gone(&mut self.nodes, &self.slurm, self.now);
        for job in open.iter().filter(|job| job.state == JobState::Running) {
            if !self.started.insert(job.start()) {
                continue;
            }
            let place = self.nodes.iter().position(|node| job.nodes.contains(&node.name)).expect("its node");
            let (_, shards) = job.shards().next().expect("it holds shards");
            let (_, gres_types) = self.slurm.devices_of(job.id).remove(0);
            self.nodes[place].start(job.start(), (&gres_types, shards), &self.works[&job.id], self.now);
            self.seen.get_mut(&job.id).expect("it was submitted").started_at = self.now.seconds();
        }
    }

    /// Prints what jobs were told, from that one on, and why those who ran already were not joined.
    async fn tell_why(&self, first: usize) {
        let mut explanations = Vec::new();
        for id in self.seen.keys().skip(first) {
            let told = self.scheduler.context.store.explanations(*id).await.unwrap_or_default();
            explanations.extend(told.into_iter().map(|(_, _, explanation)| explanation));
        }
        let hosts = explanations.iter().flat_map(|one| one.candidates.iter()).filter(|one| one.is_running);
        let excluded = hosts.filter_map(|host| host.excluded_by);
        println!("devices with two: {:.1} h", self.shared_seconds / 3600.0);
        println!("jobs were told: {}", counted(explanations.iter().map(|one| one.reason)));
        println!("who ran already was not joined: {}\n", counted(excluded));
    }

    /// Prints of each job whose promise was broken, from that one on, what it was told and whom it shared with.
    async fn tell_broken(&self, first: usize) {
        let broken = self.seen.iter().skip(first).filter_map(|(id, seen)| {
            let slowdown_ratio = end_of(seen)?.slowdown_ratio;
            (slowdown_ratio > PROMISE_RATIO).then_some((*id, *seen, slowdown_ratio))
        });
        let store = &self.scheduler.context.store;
        for (id, seen, slowdown_ratio) in broken {
            let (began, took) = (seen.started_at, seen.ended_at.unwrap_or_default() - seen.started_at);
            println!(
                "broken: {id} of {:?}, {slowdown_ratio:.2} times, {took:.0} s",
                self.works[&id].workload
            );
            let groups = store.decisions_of(id).await.unwrap_or_default();
            let mut lines = Vec::new();
            for group in groups.iter().map(|decision| decision.group).collect::<BTreeSet<_>>() {
                for decision in store.group(group).await.unwrap_or_default() {
                    lines
                        .extend(decision.members.iter().filter_map(|member| story(&decision, member, began)));
                }
            }
            for event in store.events(id).await.unwrap_or_default() {
                lines.push((event.at.seconds() - began, format!("{}: {}", event.kind, event.detail)));
            }
            lines.sort_by(|one, other| one.0.total_cmp(&other.0));
            for (at_seconds, line) in lines {
                println!("  {at_seconds:>6.0} s  {line}");
            }
        }
    }

    async fn run_queue(&mut self, orders: &[Order]) -> Figures {
        let (begun, first) = (self.now.seconds(), self.seen.len());
        let energy = |nodes: &[Node]| nodes.iter().map(Node::energy_joules).sum::<f64>();
        let energy_before = energy(&self.nodes);
        (self.held_seconds, self.shared_seconds) = (0.0, 0.0);
        let mut waiting = orders.iter().peekable();
        let mut steps = 0;
        loop {
            while let Some(order) = waiting.next_if(|order| order.at_seconds <= self.now.seconds() - begun) {
                self.submit(order);
            }
            self.pass();
            steps += 1;
            if self.way == Way::Pillion && steps % STEPS_PER_TICK == 0 {
                for node in &mut self.nodes {
                    self.scheduler.talk(node, REPORTS_MAX, false).await;
                }
                self.scheduler.tick_all(true).await;
            }
            if waiting.peek().is_none() && self.works.keys().all(|id| is_over(&self.slurm, *id)) {
                break;
            }
        }
        self.tell_why(first).await;
        if self.way == Way::Pillion {
            self.tell_broken(first).await;
        }
        let jobs: Vec<Option<JobEnd>> = self.seen.values().skip(first).map(end_of).collect();
        let last = self.seen.values().filter_map(|seen| seen.ended_at).fold(begun, f64::max);
        let energy_joules = energy(&self.nodes) - energy_before;
        figures(&jobs, PROMISE_RATIO, last - begun, self.held_seconds, energy_joules)
    }
}

/// How often each of these was said.
fn counted<W: ToString>(words: impl Iterator<Item = W>) -> String {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for word in words {
        *counts.entry(word.to_string()).or_default() += 1;
    }
    let counts: Vec<String> = counts.into_iter().map(|(word, count)| format!("{word} {count}")).collect();
    counts.join(", ")
}

/// When this member ran, after that moment, in seconds, and how it came to its device.
fn story(decision: &Decision, member: &Member, began: f64) -> Option<(f64, String)> {
    let at_seconds = member.started_at?.seconds() - began;
    let until_seconds = member.ended_at.map_or(f64::NAN, |at| at.seconds() - began);
    let plan = &member.plan;
    let estimate = plan.estimate.as_ref().map_or("no estimate".to_owned(), |estimate| {
        format!("expected {:.2}, at least {:.2}", estimate.speed_fraction, estimate.speed_fraction_low)
    });
    let trial = decision.trial.map_or(String::new(), |keep| format!(", a trial ({:.2})", keep.value()));
    let first = if decision.first_run.is_some() { ", beside a first run" } else { "" };
    let (start, role, workload, sharing) = (plan.start, plan.role, &plan.workload, plan.sharing);
    let alone = plan.solo_duration_seconds;
    let text = format!(
        "{start} {role:?} {workload} on {} {} until {until_seconds:.0} s, {sharing:?}, {estimate}, alone {alone:.0?}{trial}{first}",
        decision.node, decision.gres_types
    );
    Some((at_seconds, text))
}

fn end_of(seen: &Seen) -> Option<JobEnd> {
    let ended_at = seen.ended_at?;
    Some(JobEnd {
        turnaround_seconds: ended_at - seen.submitted_at,
        slowdown_ratio: (ended_at - seen.started_at) / seen.work_seconds,
    })
}

/// The scheduler's settings where a site has written these lines into `[policy]`.
fn settings(lines: &str) -> Settings {
    let text = format!("[pool]\npartitions = [\"shared\"]\n[policy]\nusers = \"any\"\n{lines}\n");
    let config = pillion_config::parse_scheduler(&text).expect("PILLION_POLICY is lines of [policy]");
    Settings { heartbeat_path: None, mode: Mode::Active, ..pillion_scheduler::config::settings(&config) }
}

#[test]
#[ignore = "a figure of docs/benchmarks.md: tests/bench peers-virtual"]
fn peers_in_virtual_time() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let jobs = std::env::var("PILLION_JOBS").ok().and_then(|text| text.parse().ok()).unwrap_or(300);
    let policy = std::env::var("PILLION_POLICY").unwrap_or_default();
    let [first, second] = [0, 1].map(|again| draw(SEED, jobs, DEVICE_COUNT, again));
    let run = |way| runtime.block_on(Site::new(way, settings("")).run_queue(&first));
    let (whole, shards) = (run(Way::Whole), run(Way::Shards));
    let mut ours = Site::new(Way::Pillion, settings(&policy));
    let empty = runtime.block_on(ours.run_queue(&first));
    let warm = runtime.block_on(ours.run_queue(&second));
    let ways = named(whole, shards, empty, warm);
    println!(
        "{jobs} jobs, policy: {}\n\n{}",
        if policy.is_empty() { "the defaults" } else { &policy },
        table(&ways)
    );
}
