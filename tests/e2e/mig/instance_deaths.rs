//! kill -9 of the agent at every step of an instance's life, on real Slurm: before and after each thing that it asks of the driver
//! while it cuts, holds, drains and fuses a GPU. Whatever it was about to do, the next agent adopts what is there; no tenant fails,
//! and no instance is left over. The test sits between the agent and the simulated driver, and stops it there.

use super::instances::{SOON, cluster, finds_all_of_it, held, submit_alone, tenant};
use pillion_core::SlurmJobId;
use pillion_core::mig::Slot;
use pillion_device::MigControl as _;
use pillion_device::mechanism::mig::{Layout, MigMode};
use pillion_device::simulated::Simulated;
use pillion_tests::Cluster;
use pillion_tests::cluster::spec::NodeBackend;
use pillion_tests::wait::{Look, wait_for};
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};

/// What an agent asks of a driver where it cuts: by these words its acts are told apart.
const ASKED: [&str; 5] = ["mig_layout", "make_instance", "give_instance", "destroy_instance", "set_mig_mode"];
const TENANTS: [(&str, &str); 3] = [("alice", "3g.40gb@4"), ("bob", "2g.20gb@0"), ("carol", "1g.10gb@2")];

/// A moment at which the agent is killed: the phase, what it asks, and whether the driver has done it.
type Step = (&'static str, String, Side);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    /// The driver has not heard of it.
    Before,
    /// The driver has done it, and the agent will never know.
    After,
}

/// The agent stands at a step, until this is dropped.
struct Stopped {
    step: Step,
    _goes_on: mpsc::Sender<()>,
}

/// What the conversations with the driver share.
struct Between {
    driver: PathBuf,
    /// `None`: nobody is stopped.
    phase: Mutex<Option<&'static str>>,
    /// Where the agent was stopped already.
    known: Mutex<BTreeSet<Step>>,
    stops: Mutex<mpsc::Sender<Stopped>>,
}

impl Between {
    /// Listens where the agent looks for its driver.
    fn listen(folder: &Path) -> (Arc<Self>, mpsc::Receiver<Stopped>) {
        let listener = UnixListener::bind(folder.join("between.sock")).unwrap();
        let (stops, stopped) = mpsc::channel();
        let between = Arc::new(Self {
            driver: folder.join("devices.sock"),
            phase: Mutex::default(),
            known: Mutex::default(),
            stops: Mutex::new(stops),
        });
        let all = Arc::clone(&between);
        std::thread::spawn(move || {
            for agent in listener.incoming().flatten() {
                let between = Arc::clone(&all);
                // One that ends badly is an agent that was killed.
                std::thread::spawn(move || drop(between.pass_on(&agent)));
            }
        });
        (between, stopped)
    }

    /// Passes on questions and answers until the agent is stopped or goes.
    fn pass_on(&self, agent: &UnixStream) -> io::Result<()> {
        let driver = UnixStream::connect(&self.driver)?;
        // An Epilog that finds no agent asks the driver, too.
        let pid = rustix::net::sockopt::socket_peercred(agent)?.pid.as_raw_nonzero();
        let is_agent = !std::fs::read_to_string(format!("/proc/{pid}/cmdline"))?.contains("cleanup");
        let mut questions = BufReader::new(agent).lines();
        let mut answers = BufReader::new(&driver).lines();
        while let Some(question) = questions.next().transpose()? {
            if is_agent && self.stops(&question, Side::Before) {
                return Ok(());
            }
            writeln!(&driver, "{question}")?;
            let Some(answer) = answers.next().transpose()? else { return Ok(()) };
            if is_agent && self.stops(&question, Side::After) {
                return Ok(());
            }
            writeln!(&mut &*agent, "{answer}")?;
        }
        Ok(())
    }

    /// Whether the agent is killed here; then it is dead.
    fn stops(&self, question: &str, side: Side) -> bool {
        let op = serde_json::from_str::<serde_json::Value>(question).unwrap()["op"].clone();
        let Some(phase) = *self.phase.lock().unwrap() else { return false };
        let step = (phase, question.to_owned(), side);
        if !ASKED.iter().any(|asked| op == *asked) || !self.known.lock().unwrap().insert(step.clone()) {
            return false;
        }
        let (goes_on, is_over) = mpsc::channel();
        let told = self.stops.lock().unwrap().send(Stopped { step, _goes_on: goes_on });
        // It errs as soon as the other end is dropped.
        told.is_ok() && is_over.recv().is_err()
    }
}

/// A cluster whose agent dies.
struct Scene {
    cluster: Cluster,
    between: Arc<Between>,
    stopped: mpsc::Receiver<Stopped>,
    /// How often it died in each phase at what.
    deaths: BTreeMap<(&'static str, String), u32>,
}

impl Scene {
    /// Kills the agent wherever it stands, and starts the next, until it died so often in this phase and something holds.
    fn die(
        &mut self,
        phase: &'static str,
        death_count: usize,
        mut holds: impl FnMut(&Cluster, &Layout) -> bool,
    ) {
        *self.between.phase.lock().unwrap() = Some(phase);
        let Self { cluster, between, stopped, deaths } = self;
        wait_for(phase, 2 * SOON, || {
            while let Ok(Stopped { step: (phase, question, _), .. }) = stopped.try_recv() {
                cluster.kill_agent("n1", Signal::KILL)?;
                *deaths.entry((phase, question)).or_default() += 1;
                cluster.start_agent("n1")?;
            }
            let died = deaths.iter().filter(|((of, _), _)| *of == phase).map(|(_, count)| *count as usize);
            let died: usize = died.sum();
            let layout = layout(cluster);
            let is_so = died >= death_count && holds(cluster, &layout);
            Ok(if is_so { Look::Ready(()) } else { Look::NotYet(format!("dead {died} times, {layout:?}")) })
        })
        .unwrap();
        *between.phase.lock().unwrap() = None;
    }

    /// The names of the instances of those tenants, by what their jobs were told.
    fn told(&self, jobs: &[SlurmJobId]) -> BTreeSet<String> {
        let told = |job: &SlurmJobId| {
            let text = self.cluster.wait_for_output(*job, "told ", SOON).unwrap();
            text.lines().find_map(|line| line.strip_prefix("told ")).unwrap().to_owned()
        };
        jobs.iter().map(told).collect()
    }
}

fn layout(cluster: &Cluster) -> Layout {
    let mut driver = Simulated::new(cluster.root().join("run/n1/devices.sock"));
    driver.layout(0).unwrap()
}

fn names(layout: &Layout) -> BTreeSet<String> {
    let all = layout.instances.iter().flat_map(|instance| &instance.compute);
    all.map(|compute| compute.uuid.to_string()).collect()
}

/// Works until its home says that it may leave.
const WORK: &str = "pillion-load gemm-hog --memory 1G --seconds 360000 &\n\
     while [ ! -e \"$HOME/leave\" ]; do sleep 0.1; done\nkill $!; wait $!; exit 0";

#[test]
fn wherever_the_agent_is_killed_its_tenants_stay_and_the_next_one_adopts_them() {
    let cluster = cluster(NodeBackend::SimulatedThroughTest);
    let (between, stopped) = Between::listen(&cluster.root().join("run/n1"));
    let mut scene = Scene { cluster, between, stopped, deaths: BTreeMap::new() };
    let places = TENANTS.map(|(user, slot)| (user, slot.parse::<Slot>().unwrap()));
    let jobs = held(&scene.cluster, 0, &places, &tenant(&scene.cluster, WORK));

    // MIG on, three made and given; twice each, and the look besides.
    *scene.between.phase.lock().unwrap() = Some("cut");
    scene.cluster.start_agent("n1").unwrap();
    scene.die("cut", 2 * (1 + 3 + 3 + 1), |_, layout| layout.instances.len() == places.len());
    let cut = names(&layout(&scene.cluster));

    for job in &jobs {
        scene.cluster.scontrol(&["release", &job.to_string()]).unwrap();
    }
    assert_eq!(scene.told(&jobs), cut, "each found one of those that were made, whoever made them");
    let stay = |jobs: &[SlurmJobId]| {
        let jobs = jobs.to_vec();
        move |cluster: &Cluster, layout: &Layout| {
            let is_there = |job: &SlurmJobId| cluster.job_field(*job, "JobState").unwrap() == "RUNNING";
            let pids = layout.instances.iter().filter(|instance| !instance.pids.is_empty());
            jobs.iter().all(is_there) && pids.count() == jobs.len() && layout.instances.len() == jobs.len()
        }
    };
    scene.die("hold", 2 * (3 + 1), stay(&jobs));
    assert_eq!(names(&layout(&scene.cluster)), cut);

    // One leaves, and the others never notice.
    leave(&scene.cluster, TENANTS[0].0);
    scene.die("drain", 2 * (1 + 2 + 1), stay(&jobs[1..]));
    assert!(names(&layout(&scene.cluster)).is_subset(&cut));

    // All have left: whole again.
    for (user, _) in &TENANTS[1..] {
        leave(&scene.cluster, user);
    }
    scene.die("fuse", 2 * (2 + 1 + 1), |_, layout| layout.mode == MigMode::Off);
    for job in &jobs {
        let fields = scene.cluster.wait_for_job(*job, &["COMPLETED"], SOON).unwrap();
        assert_eq!((fields["Restarts"].as_str(), fields["ExitCode"].as_str()), ("0", "0:0"), "{fields:?}");
    }
    let record = std::fs::read_to_string(scene.cluster.layout().path("agent/n1/mig.json")).unwrap();
    assert!(!record.contains("1g.10gb") && !record.contains("MIG-"), "{record}");
    finds_all_of_it(&scene.cluster, submit_alone(&scene.cluster), "after all deaths");
    let asked = |op: &str| scene.deaths.keys().filter(|(_, question)| question.contains(op)).count();
    assert_eq!(asked("make_instance"), 3, "{:?}", scene.deaths);
    assert_eq!(asked("set_mig_mode"), 2, "{:?}", scene.deaths);
    assert!(asked("destroy_instance") >= 3, "{:?}", scene.deaths);
}

fn leave(cluster: &Cluster, user: &str) {
    std::fs::write(cluster.home(user).join("leave"), "").unwrap();
}
