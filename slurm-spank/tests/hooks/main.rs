//! The hooks with a test in Slurm's place: what they read, what they set, what they leave alone, and that nothing that
//! happens inside gets out.

#![expect(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod inherited;

use pillion_core::handoff::{HandoffReply, HandoffRequest, MARKER_TELLS, Verdict};
use pillion_core::ids::{DecisionId, SlurmJobId};
use pillion_slurm_spank::ffi::slurm::fail_open;
use pillion_slurm_spank::hooks::{init, task_init, task_init_privileged};
use pillion_slurm_spank::spank::{Context, Item, Level, Spank};
use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread::{self, JoinHandle};

/// Slurm, as far as a hook sees it.
struct FakeSpank {
    context: Context,
    option: Option<String>,
    items: HashMap<Item, u32>,
    job: BTreeMap<String, String>,
    process: BTreeMap<String, String>,
    arguments: Vec<&'static str>,
    reported: Vec<String>,
    registered: usize,
    log: Vec<(Level, String)>,
    panics_on: Option<&'static str>,
}

impl FakeSpank {
    fn task() -> Self {
        let items = [(Item::Uid, 1000), (Item::Gid, 100), (Item::JobId, 7), (Item::StepId, 0xffff_fffb)];
        Self {
            context: Context::Remote,
            option: None,
            items: HashMap::from(items),
            job: variables(&[("SLURM_JOB_GPUS", "1"), ("SLURM_SHARDS_ON_NODE", "40"), ("SLURM_GPUS", "1")]),
            process: BTreeMap::new(),
            arguments: Vec::new(),
            reported: Vec::new(),
            registered: 0,
            log: Vec::new(),
            panics_on: None,
        }
    }

    fn colocated() -> Self {
        Self { option: Some(String::new()), ..Self::task() }
    }

    fn maybe_panic(&self, call: &'static str) {
        assert!(self.panics_on != Some(call), "the fake is to panic in {call}");
    }
}

impl Spank for FakeSpank {
    fn context(&self) -> Context {
        self.maybe_panic("context");
        self.context
    }
    fn register_option(&mut self) -> bool {
        self.maybe_panic("register_option");
        self.registered += 1;
        true
    }
    fn option(&mut self) -> Option<String> {
        self.maybe_panic("option");
        self.option.clone()
    }
    fn item(&mut self, item: Item) -> Option<u32> {
        self.maybe_panic("item");
        self.items.get(&item).copied()
    }
    fn getenv(&mut self, name: &str) -> Option<String> {
        self.maybe_panic("getenv");
        self.job.get(name).cloned()
    }
    fn setenv(&mut self, name: &str, value: &str) -> bool {
        self.maybe_panic("setenv");
        self.job.insert(name.to_owned(), value.to_owned());
        true
    }
    fn unsetenv(&mut self, name: &str) {
        self.maybe_panic("unsetenv");
        self.job.remove(name);
    }
    fn process_variable(&self, name: &str) -> Option<String> {
        self.process.get(name).cloned()
    }
    fn remove_process_variable(&mut self, name: &str) {
        self.process.remove(name);
    }
    fn process_arguments(&self) -> Vec<String> {
        self.arguments.iter().map(|argument| (*argument).to_owned()).collect()
    }
    fn tell_controller(&mut self, name: &str, value: &str) {
        self.reported.push(format!("{name}={value}"));
    }
    fn log(&mut self, level: Level, line: &str) {
        self.maybe_panic("log");
        self.log.push((level, line.to_owned()));
    }
}

fn variables(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// An agent that answers once, and gives back what it was asked.
fn agent(directory: &Path, reply: HandoffReply) -> (String, JoinHandle<HandoffRequest>) {
    let path = directory.join("agent.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let handle = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).unwrap();
        stream.write_all(&serde_json::to_vec(&reply).unwrap()).unwrap();
        stream.write_all(b"\n").unwrap();
        serde_json::from_str(&line).unwrap()
    });
    (format!("socket={}", path.display()), handle)
}

fn decided(set: &[(&str, &str)], unset: &[&str]) -> HandoffReply {
    HandoffReply {
        verdict: Verdict::Decided,
        decision_id: Some(DecisionId(5)),
        set: set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        unset: unset.iter().map(|name| (*name).to_owned()).collect(),
        container_bind: None,
    }
}

/// Both hooks of a task, with what slurmstepd does in between. Gives whether the task was taken for ours.
fn run_task(spank: &mut FakeSpank, arguments: &[&str], between: &[(&str, &str)]) -> bool {
    let recognised = task_init_privileged(spank, arguments);
    spank.job.extend(variables(between));
    let is_ours = recognised.is_some();
    task_init(spank, arguments, recognised);
    is_ours
}

#[test]
fn a_decision_becomes_the_environment() {
    let directory = tempfile::tempdir().unwrap();
    let set = [
        ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "60"),
        ("CUDA_VISIBLE_DEVICES", "0"),
        ("PILLION_DECISION", "5"),
    ];
    let (socket, asked) =
        agent(directory.path(), decided(&set, &["CUDA_MPS_PIPE_DIRECTORY", "CUDA_VISIBLE_DEVICES"]));
    let mut spank = FakeSpank::colocated();
    spank.option = Some("memory=8G".to_owned());
    spank.items.extend([(Item::JobId, 35), (Item::ArrayId, 33), (Item::ArrayTaskId, 2)]);
    spank.job.extend(variables(&[("CUDA_MPS_PIPE_DIRECTORY", "/forged"), ("CUDA_VISIBLE_DEVICES", "1")]));
    // slurmstepd rewrites device variables for a step with a GPU binding; we have the last word.
    assert!(run_task(&mut spank, &[&socket], &[("CUDA_VISIBLE_DEVICES", "1")]));

    let asked = asked.join().unwrap();
    assert_eq!(asked.start.job_id, SlurmJobId::array_task(33, 2));
    assert_eq!((asked.start.restart_count, asked.inner_job_id), (0, Some(35)));
    assert_eq!((asked.uid.0, asked.gid, asked.step_id), (1000, 100, 0xffff_fffb));
    assert_eq!((asked.devices, asked.option.as_deref()), (vec![1], Some("memory=8G")));
    let mut expected = variables(&set);
    expected.extend(variables(&[("SLURM_JOB_GPUS", "1"), ("SLURM_SHARDS_ON_NODE", "40")]));
    assert_eq!(spank.job, expected);
}

#[test]
fn a_restart_is_reported_as_slurmstepd_does() {
    // What Slurm fills in: its item (0 in 24.11, whatever the count), the variable before and after it writes its own.
    let cases = [
        (None, "", "", 0),
        (Some(0), "", "2", 2),
        (Some(0), "0", "2", 2),
        (Some(3), "7", "", 3),
        (Some(0), "x", "", 0),
        (None, "7", "", 0),
        (Some(0), "7", "", 0),
        (Some(0), "7", "2", 2),
    ];
    for (item, forged, written, expected) in cases {
        let directory = tempfile::tempdir().unwrap();
        let (socket, asked) = agent(directory.path(), decided(&[], &[]));
        let mut spank = FakeSpank::colocated();
        spank.items.extend(item.map(|count| (Item::RestartCount, count)));
        spank.job.insert("SLURM_RESTART_COUNT".to_owned(), forged.to_owned());
        let between = [("SLURM_RESTART_COUNT", written)];
        run_task(&mut spank, &[&socket], if written.is_empty() { &[] } else { &between });
        assert_eq!(asked.join().unwrap().start.restart_count, expected, "{item:?} {forged} {written}");
    }
}

#[test]
fn of_a_steps_environment_only_what_gives_it_less_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let (socket, asked) = agent(directory.path(), decided(&[], &[]));
    let mut spank = FakeSpank::colocated();
    spank.items.insert(Item::StepId, 0);
    let forged = [("SLURM_JOB_GPUS", "0-3"), ("SLURM_SHARDS_ON_NODE", "100"), ("SLURM_RESTART_COUNT", "7")];
    spank.job.extend(variables(&forged));
    assert!(run_task(&mut spank, &[&socket], &[]));
    let asked = asked.join().unwrap();
    assert_eq!((asked.start.restart_count, asked.devices, asked.shards), (0, vec![], Some(100)));
    assert_eq!(spank.job["SLURM_RESTART_COUNT"], "7", "its own, for its own use");
}

#[test]
fn a_job_that_is_not_ours_is_not_touched() {
    let directory = tempfile::tempdir().unwrap();
    let socket = format!("socket={}", directory.path().join("agent.sock").display());
    for option in [None, Some("no"), Some("nonsense"), Some(&*"x".repeat(60_000))] {
        let mut spank = FakeSpank { option: option.map(str::to_owned), ..FakeSpank::task() };
        // Reading its environment would already be too much.
        spank.panics_on = Some("getenv");
        let before = spank.job.clone();
        assert!(task_init_privileged(&mut spank, &[&socket]).is_none());
        assert_eq!((spank.job, spank.log), (before, Vec::new()));
    }
}

/// It did not ask for co-location, its GPU became shards, and Slurm started it by itself.
#[test]
fn a_job_that_has_shards_and_is_not_ours_keeps_all_but_what_breaks_srun() {
    let mut spank = FakeSpank::task();
    spank.job.extend(variables(&[
        ("SLURM_SHARDS_ON_NODE", "100"),
        ("SLURM_GPUS", "1"),
        ("SLURM_RESTART_COUNT", "7"),
    ]));
    let mut expected = spank.job.clone();
    expected.remove("SLURM_GPUS");
    // As `sbatch --deadline` leaves it there.
    for hint in ["DEADLINE", "SBATCH_COLOCATE"] {
        spank.job.insert(format!("SLURM_SPANK_PILLION_{hint}"), "1".to_owned());
    }
    assert!(!run_task(&mut spank, &[], &[]));
    assert_eq!((spank.job, spank.log), (expected, Vec::new()));
}

#[test]
fn the_marker_recognises_a_step_without_the_option() {
    let directory = tempfile::tempdir().unwrap();
    let (socket, asked) = agent(directory.path(), decided(&[("PILLION_DECISION", "5")], &[]));
    std::fs::create_dir(directory.path().join("jobs")).unwrap();
    std::fs::write(directory.path().join("jobs/8"), "").unwrap();
    assert!(task_init_privileged(&mut FakeSpank::task(), &[&socket]).is_none());
    // A link is not the agent's marker, wherever it points.
    std::os::unix::fs::symlink("8", directory.path().join("jobs/7")).unwrap();
    assert!(task_init_privileged(&mut FakeSpank::task(), &[&socket]).is_none());
    std::fs::remove_file(directory.path().join("jobs/7")).unwrap();
    std::fs::write(directory.path().join("jobs/7"), "").unwrap();
    let mut spank = FakeSpank::task();
    assert!(run_task(&mut spank, &[&socket], &[]));
    assert_eq!(asked.join().unwrap().option, None);
    assert_eq!(spank.job.get("PILLION_DECISION").map(String::as_str), Some("5"));
}

#[test]
fn who_did_not_ask_keeps_his_environment_and_waits_for_no_answer() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("jobs")).unwrap();
    std::fs::write(directory.path().join("jobs/7"), MARKER_TELLS).unwrap();
    let socket = format!("socket={}", directory.path().join("agent.sock").display());
    let before = variables(&[
        ("SLURM_SHARDS_ON_NODE", "100"),
        ("SLURM_RESTART_COUNT", "7"),
        ("CUDA_MPS_PIPE_DIRECTORY", "/his/own"),
    ]);
    let begin = |step: u32| {
        let mut spank = FakeSpank::task();
        spank.items.insert(Item::StepId, step);
        spank.job.clone_from(&before);
        assert!(run_task(&mut spank, &[&socket, "deadline_ms=2000"], &[]));
        assert_eq!(spank.job, before, "step {step}");
        spank.log
    };
    // Dead: only whoever debugs reads of it.
    let log = begin(0);
    assert!(
        matches!(&log[..], [(Level::Debug, line)] if line.starts_with("pillion: job 7 is not measured")),
        "{log:?}"
    );
    // It stands still: it has been told when it goes on.
    let listener = UnixListener::bind(directory.path().join("agent.sock")).unwrap();
    for step in 0..40 {
        assert_eq!(begin(step), [], "nothing is missing");
    }
    for step in 0..40 {
        let mut line = String::new();
        BufReader::new(listener.accept().unwrap().0).read_line(&mut line).unwrap();
        let told: HandoffRequest = serde_json::from_str(&line).unwrap();
        assert_eq!((told.step_id, told.option), (step, None));
    }
}

#[test]
fn without_an_answer_the_job_runs_as_it_is_and_the_miss_is_logged_once() {
    let directory = tempfile::tempdir().unwrap();
    let socket = format!("socket={}", directory.path().join("agent.sock").display());
    let mut spank = FakeSpank::colocated();
    assert!(run_task(&mut spank, &[&socket], &[]));
    // Its GPU became shards all the same, so the stale request goes.
    assert_eq!(spank.job, variables(&[("SLURM_JOB_GPUS", "1"), ("SLURM_SHARDS_ON_NODE", "40")]));
    let [(Level::Info, line)] = &spank.log[..] else { panic!("{:?}", spank.log) };
    assert!(line.starts_with("pillion: job 7 starts without a share: the agent cannot be reached"), "{line}");
}

#[test]
fn a_container_finds_the_pipe_directory_beside_what_its_user_bound() {
    let directory = tempfile::tempdir().unwrap();
    let reply = HandoffReply { container_bind: Some("/run/p/pipe".to_owned()), ..decided(&[], &[]) };
    let (socket, asked) = agent(directory.path(), reply);
    let mut spank = FakeSpank::colocated();
    spank.job.extend(variables(&[("APPTAINER_BIND", "/data:/data:ro")]));
    run_task(&mut spank, &[&socket], &[]);
    asked.join().unwrap();
    assert_eq!(spank.job["APPTAINER_BIND"], "/data:/data:ro,/run/p/pipe");
    assert_eq!(spank.job["SINGULARITY_BIND"], "/run/p/pipe");
}

#[test]
fn a_start_without_a_decision_is_measured_and_otherwise_left_as_it_is() {
    let untouched = [("SLURM_JOB_GPUS", "1"), ("SLURM_SHARDS_ON_NODE", "40")];
    let measured = [&untouched[..], &[("PILLION_PROGRESS", "/run/p/7")]].concat();
    let progress = ("PILLION_PROGRESS".to_owned(), "/run/p/7".to_owned());
    for (set, expected) in [(vec![], &untouched[..]), (vec![progress], &measured)] {
        let directory = tempfile::tempdir().unwrap();
        let (socket, asked) = agent(directory.path(), HandoffReply { set, ..HandoffReply::unknown() });
        let mut spank = FakeSpank::colocated();
        run_task(&mut spank, &[&socket], &[]);
        asked.join().unwrap();
        assert_eq!(spank.job, variables(expected));
        assert!(spank.log.iter().all(|(level, _)| *level == Level::Debug), "{:?}", spank.log);
    }
}

#[test]
fn a_job_that_was_left_unmanaged_keeps_its_request() {
    let directory = tempfile::tempdir().unwrap();
    let socket = format!("socket={}", directory.path().join("agent.sock").display());
    let mut spank = FakeSpank::colocated();
    spank.job.remove("SLURM_SHARDS_ON_NODE");
    let before = spank.job.clone();
    run_task(&mut spank, &[&socket], &[]);
    assert_eq!(spank.job, before);
}

#[test]
fn what_has_no_place_in_an_environment_is_left_out() {
    let directory = tempfile::tempdir().unwrap();
    let long = "v".repeat(60_000);
    let set = [
        ("GOOD", "1"),
        ("BAD NAME", "1"),
        ("BAD=", "1"),
        ("NEWLINE", "a\nFORGED=1"),
        ("LONG", &long),
        ("LAST", "2"),
    ];
    let (socket, _) = agent(directory.path(), decided(&set, &["", "A=B"]));
    let mut spank = FakeSpank::colocated();
    run_task(&mut spank, &[&socket], &[]);
    let expected = [("GOOD", "1"), ("LAST", "2"), ("SLURM_JOB_GPUS", "1"), ("SLURM_SHARDS_ON_NODE", "40")];
    assert_eq!(spank.job, variables(&expected));
    assert_eq!(spank.log.len(), 4, "{:?}", spank.log);
}

#[test]
fn the_socket_can_carry_the_node_s_name() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("n1")).unwrap();
    let (_, asked) = agent(&directory.path().join("n1"), decided(&[], &[]));
    let argument = format!("socket={}/%n/agent.sock", directory.path().display());
    let mut spank = FakeSpank::colocated();
    spank.process = variables(&[("SLURMD_NODENAME", "n1")]);
    // The job's own variable of that name is the user's to write, and is not looked at.
    spank.job.insert("SLURMD_NODENAME".to_owned(), "evil".to_owned());
    assert!(run_task(&mut spank, &[&argument], &[]));
    assert_eq!(asked.join().unwrap().start.job_id, SlurmJobId::plain(7));
}

#[test]
fn the_option_is_registered_where_it_is_used() {
    for (context, expected) in
        [(Context::Local, 1), (Context::Allocator, 1), (Context::Remote, 1), (Context::Other, 0)]
    {
        let mut spank = FakeSpank { context, ..FakeSpank::task() };
        init(&mut spank, &["nonsense"]);
        assert_eq!(spank.registered, expected, "{context:?}");
    }
}

#[test]
fn srun_inside_a_colocated_job_forgets_the_gpu_that_became_shards() {
    let stale =
        [("SLURM_GPUS", "1"), ("SLURM_GPUS_PER_NODE", "1"), ("SLURM_GPUS_PER_TASK", "1"), ("HOME", "/h")];
    let mut spank = FakeSpank { context: Context::Local, process: variables(&stale), ..FakeSpank::task() };
    init(&mut spank, &[]);
    assert_eq!(spank.process, variables(&stale), "no decision: not ours");
    spank.process.insert("PILLION_DECISION".to_owned(), "5".to_owned());
    init(&mut spank, &[]);
    assert_eq!(spank.process, variables(&[("HOME", "/h"), ("PILLION_DECISION", "5")]));
}

#[test]
fn what_the_gpu_options_left_behind_goes_and_the_rest_of_it_stays() {
    let directory = tempfile::tempdir().unwrap();
    let (socket, _) = agent(directory.path(), decided(&[], &[]));
    let mut spank = FakeSpank::colocated();
    let left_behind = [
        ("SLURM_CPUS_PER_GPU", "2"),
        ("SLURM_MEM_PER_GPU", "1024"),
        ("SLURM_TRES_BIND", "gres/gpu:per_task:1"),
        ("SLURM_TRES_PER_TASK", "cpu=2,gres/gpu=1"),
        ("SLURM_CPUS_PER_TASK", "2"),
    ];
    spank.job.extend(variables(&left_behind));
    run_task(&mut spank, &[&socket], &[]);
    let expected = [
        ("SLURM_CPUS_PER_TASK", "2"),
        ("SLURM_JOB_GPUS", "1"),
        ("SLURM_SHARDS_ON_NODE", "40"),
        ("SLURM_TRES_PER_TASK", "cpu=2"),
    ];
    assert_eq!(spank.job, variables(&expected));
}

#[test]
fn a_job_hands_its_option_to_no_job_that_it_submits() {
    for shards in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let socket = format!("socket={}", directory.path().join("agent.sock").display());
        let mut spank = FakeSpank::colocated();
        if !shards {
            spank.job.remove("SLURM_SHARDS_ON_NODE");
        }
        let mut left = spank.job.clone();
        left.remove(if shards { "SLURM_GPUS" } else { "" });
        spank
            .job
            .insert("SLURM_SPANK__SLURM_SPANK_OPTION_pillion_colocate".to_owned(), "memory=8G".to_owned());
        run_task(&mut spank, &[&socket], &[]);
        assert_eq!(spank.job, left);
    }
}

#[test]
fn sbatch_reports_a_deadline_that_lua_cannot_see() {
    for (arguments, count) in
        [(vec!["sbatch", "--deadline=now+1hour"], 1), (vec!["sbatch", "--delay-boot=1"], 0)]
    {
        let mut spank = FakeSpank { context: Context::Allocator, arguments, ..FakeSpank::task() };
        init(&mut spank, &[]);
        assert_eq!(spank.reported, vec!["PILLION_DEADLINE=1"; count]);
    }
}

#[test]
fn sbatch_tells_of_the_variable_that_stands_for_the_option() {
    let long = "x".repeat(60_000);
    for (value, told) in [
        (None, None),
        (Some(""), None),
        (Some("no"), Some("no".to_owned())),
        (Some("memory=8G"), Some("memory=8G".to_owned())),
        (Some(&*long), Some("x".repeat(257))),
    ] {
        for context in [Context::Allocator, Context::Local, Context::Remote] {
            let mut spank = FakeSpank { context, ..FakeSpank::task() };
            spank.process =
                value.map(|value| ("SBATCH_COLOCATE".to_owned(), value.to_owned())).into_iter().collect();
            init(&mut spank, &[]);
            let expected = told.as_ref().filter(|_| context == Context::Allocator);
            let expected: Vec<String> =
                expected.map(|told| format!("PILLION_SBATCH_COLOCATE={told}")).into_iter().collect();
            assert_eq!(spank.reported, expected, "{value:?} in {context:?}");
        }
    }
}

#[test]
fn a_panic_anywhere_inside_is_success() {
    for call in ["context", "register_option", "option", "item", "getenv", "setenv", "unsetenv", "log"] {
        let directory = tempfile::tempdir().unwrap();
        let (socket, _) = agent(directory.path(), decided(&[("A", "1"), ("B C", "1")], &["D"]));
        let mut spank = FakeSpank { panics_on: Some(call), ..FakeSpank::colocated() };
        assert_eq!(fail_open(|| init(&mut spank, &[])), 0, "init, {call}");
        let hooks = || {
            run_task(&mut spank, &[&socket], &[]);
        };
        assert_eq!(fail_open(hooks), 0, "task_init, {call}");
    }
}
