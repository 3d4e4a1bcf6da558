//! What users and root do, each in the order of his own time, and the journal of it.

use crate::say;
use pillion_core::{Clock as _, SystemClock};
use pillion_tests::Cluster;
use pillion_tests::cluster::show::parse_fields;
use pillion_tests::error::{Result, io_error};
use pillion_tests::process::Program;
use pillion_tests::storm::facts::{BEGIN_REFUSED, Done, Seen, Span};
use pillion_tests::storm::plan::{Act, After, Change, Deed, KNOWN, Kind, Moment, Order, Plan, USERS, Work};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread::{Scope, ScopedJoinHandle, sleep};
use std::time::{Duration, Instant};

/// A client of Slurm that is not answered in so long is given up.
const CLIENT_SECONDS: &str = "90";
/// How long somebody waits for a job's release to begin.
const RELEASE_DEADLINE: Duration = Duration::from_secs(4);
const RELEASE_POLL: Duration = Duration::from_millis(30);
/// How long an act waits for its submission to be answered.
const SUBMISSION_DEADLINE: Duration = Duration::from_secs(100);
/// What a client said is kept so far.
const SAID_LENGTH_MAX: usize = 300;

/// Now, in epoch seconds.
pub(crate) fn epoch() -> f64 {
    SystemClock.now().seconds()
}

/// Slurm's clients, as each user and root runs them.
pub(crate) struct Clients(BTreeMap<&'static str, Program>);

impl Clients {
    pub(crate) fn of(cluster: &Cluster) -> Result<Self> {
        let users = USERS.into_iter().chain(["root", "slurm"]);
        let of_user =
            |user: &'static str| Ok((user, cluster.program_as(user, "timeout")?.arg(CLIENT_SECONDS)));
        Ok(Self(users.map(of_user).collect::<Result<_>>()?))
    }

    /// Runs a client; whether it ended well, what it printed, and what it said beside it in one line.
    pub(crate) fn run(&self, user: &str, words: &[&str], input: &str) -> (bool, String, String) {
        let program = self.0[user].clone().args(words.iter().copied()).input(input);
        match program.output() {
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                let mut said = said.split_whitespace().collect::<Vec<_>>().join(" ");
                said.truncate(said.floor_char_boundary(SAID_LENGTH_MAX));
                (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned(), said)
            }
            Err(error) => (false, String::new(), pillion_core::report(&error)),
        }
    }

    /// How a job is; `None` where Slurm does not say.
    pub(crate) fn look(&self, name: &str) -> Option<(Seen, String)> {
        let (_, text, _) = self.run("root", &["scontrol", "show", "job", "-o", name], "");
        let mut fields = parse_fields(text.lines().next()?);
        let mut of = |name: &str| fields.remove(name).unwrap_or_default();
        let seen = Seen {
            state: of("JobState"),
            partition: of("Partition"),
            priority: of("Priority"),
            reason: of("Reason"),
            mark: of("AdminComment"),
            nodes: of("ReqNodeList"),
        };
        Some((seen, of("StartTime")))
    }
}

/// What became of a submission.
#[derive(Debug, Clone)]
pub(crate) struct Submitted {
    /// Empty where it was refused.
    pub(crate) name: String,
    pub(crate) span: Span,
    pub(crate) said: String,
    pub(crate) is_managed: bool,
    /// What it was made to wait for: nothing where that was never submitted.
    pub(crate) after: Option<After>,
}

/// Everything that was done, with times.
pub(crate) struct Journal {
    begun: Instant,
    pub(crate) began_at: f64,
    sequence: Mutex<File>,
    pub(crate) submitted: Mutex<Vec<Option<Submitted>>>,
    /// By number and task.
    pub(crate) done: Mutex<Vec<(usize, Option<u32>, Done)>>,
}

impl Journal {
    pub(crate) fn create(path: &Path, plan: &Plan, begun: Instant) -> Result<Self> {
        let sequence = Mutex::new(File::create(path).map_err(io_error("write", path))?);
        let submitted = Mutex::new(vec![None; plan.orders.len()]);
        Ok(Self { begun, began_at: epoch(), sequence, submitted, done: Mutex::default() })
    }

    /// Writes one line of the sequence.
    pub(crate) fn note(&self, at: f64, line: &str) {
        let mut file = locked(&self.sequence);
        // A sequence that cannot be written is no reason to end the storm.
        let _ = writeln!(file, "{:>9.2} {line}", at - self.began_at);
    }

    /// Seconds since it began.
    pub(crate) fn elapsed(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    /// Whether a job was requeued after that second of the storm.
    pub(crate) fn has_requeued_since(&self, second: f64) -> bool {
        let is_requeue = |done: &Done| matches!(done.deed, Deed::Requeue | Deed::RequeueNow) && done.accepted;
        locked(&self.done)
            .iter()
            .any(|(_, _, done)| is_requeue(done) && done.span.until - self.began_at > second)
    }

    fn wait_until(&self, at: f64) {
        sleep(Duration::from_secs_f64((at - self.elapsed()).max(0.0)));
    }

    fn submission(&self, number: usize) -> Option<Submitted> {
        locked(&self.submitted)[number].clone()
    }

    /// The job of a submission, where it has one; waits for its answer.
    fn job(&self, number: usize) -> Option<Submitted> {
        let since = self.elapsed();
        loop {
            if let Some(submitted) = self.submission(number) {
                return Some(submitted).filter(|submitted| !submitted.name.is_empty());
            }
            if self.elapsed() - since > SUBMISSION_DEADLINE.as_secs_f64() {
                return None;
            }
            sleep(RELEASE_POLL);
        }
    }
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins what everybody does.
pub(crate) fn start<'s, 'e: 's>(
    scope: &'s Scope<'s, 'e>,
    plan: &'e Plan,
    clients: &'e Clients,
    journal: &'e Journal,
) -> Vec<ScopedJoinHandle<'s, ()>> {
    let mut threads = Vec::new();
    for user in USERS {
        threads.push(scope.spawn(move || {
            for order in plan.orders.iter().filter(|order| order.user == user) {
                journal.wait_until(order.at);
                submit(order, clients, journal);
            }
        }));
        threads.push(scope.spawn(move || {
            let own = |act: &&Act| !act.by_root && plan.orders[act.number].user == user;
            for act in plan.acts.iter().filter(own) {
                journal.wait_until(act.at);
                carry_out(act, user, clients, journal);
            }
        }));
    }
    threads.push(scope.spawn(move || {
        for act in plan.acts.iter().filter(|act| act.by_root) {
            journal.wait_until(act.at);
            carry_out(act, "root", clients, journal);
        }
    }));
    threads
}

/// Waits for all of it.
pub(crate) fn join(threads: Vec<ScopedJoinHandle<'_, ()>>) {
    for thread in threads {
        if thread.join().is_err() {
            say("a user's thread ended by a panic: what he was to do is missing");
        }
    }
}

fn submit(order: &Order, clients: &Clients, journal: &Journal) {
    let after = order.after.filter(|after| match after {
        After::Ok(number) | After::Any(number) => journal.job(*number).is_some(),
        After::Singleton(_) => true,
    });
    let mut words: Vec<String> =
        ["sbatch", "--parsable", "-o", "/dev/null", "--mem=100", "-t10", "--kill-on-invalid-dep=yes"]
            .map(str::to_owned)
            .into();
    // On several nodes whoever leaves that to the site is not managed.
    if !order.number.is_multiple_of(3) || order.node_count > 1 {
        words.push("-c1".to_owned());
    }
    words.push(format!("--gres=gpu:{}", order.gpus));
    let name = match (order.kind, order.work) {
        (Kind::First, _) => format!("first-{}", order.number),
        (_, Work::Load { name, .. }) => name.to_owned(),
        (_, Work::Sleep { .. }) => KNOWN[order.number % KNOWN.len()].to_owned(),
    };
    match order.kind {
        Kind::Plain => {}
        Kind::Whole => words.push("--partition=shared".to_owned()),
        Kind::Known | Kind::First => words.push(format!("--colocate=profile={name}")),
        Kind::Guest => words.push(format!("--colocate=profile={name},guest")),
    }
    if order.node_count > 1 {
        words.push(format!("--nodes={}", order.node_count));
    }
    if let Some(array) = order.array {
        words.push(format!("--array=0-{}%{}", array.tasks - 1, array.throttle));
    }
    let job_of =
        |number: usize| journal.submission(number).map(|submitted| submitted.name).unwrap_or_default();
    match after {
        Some(After::Ok(number)) => words.push(format!("--dependency=afterok:{}", job_of(number))),
        Some(After::Any(number)) => words.push(format!("--dependency=afterany:{}", job_of(number))),
        Some(After::Singleton(name)) => {
            words.extend([format!("--job-name=single-{name}"), "--dependency=singleton".to_owned()]);
        }
        None => words.push(format!("--job-name=s{}", order.number)),
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let from = epoch();
    let (is_taken, printed, said) = clients.run(order.user, &words, &script(order));
    let span = Span { from, until: epoch() };
    let name = printed.trim().split(';').next().filter(|_| is_taken).unwrap_or_default().to_owned();
    let is_told = ["waits for a GPU", "GPUs of one node", "on each of", "waits as a guest"]
        .iter()
        .any(|told| said.contains(told));
    let is_managed = is_told || (is_taken && order.kind == Kind::Whole);
    let shown = if name.is_empty() { format!("refused: {said}") } else { format!("job {name}") };
    let (kind, work, array) = (order.kind, order.work, order.array);
    let (nodes, gpus) = (order.node_count, order.gpus);
    journal.note(
        from,
        &format!(
            "{} submits #{}: {kind:?} {nodes} x {gpus} {work:?} {array:?} {after:?} -> {shown}{}",
            order.user,
            order.number,
            if is_managed { ", managed" } else { "" }
        ),
    );
    locked(&journal.submitted)[order.number] = Some(Submitted { name, span, said, is_managed, after });
}

/// What a job does: its first line says what it found, its last line how its work ended.
fn script(order: &Order) -> String {
    let work = match order.work {
        Work::Sleep { milliseconds } => format!("sleep {:.3}", f64::from(milliseconds) / 1000.0),
        Work::Load { name, seconds } => format!("pillion-load {name} --seconds {seconds}"),
    };
    format!(
        "#!/bin/bash\n\
         own=\"job=$SLURM_JOB_ID array=$SLURM_ARRAY_JOB_ID task=$SLURM_ARRAY_TASK_ID restarts=${{SLURM_RESTART_COUNT:-0}} number={number}\"\n\
         say() {{ echo \"line=$1 at=$EPOCHREALTIME $own $2\" >> \"$HOME/storm.log\"; }}\n\
         found=(${{!PILLION_@}} ${{!CUDA_MPS_@}} ${{!ZEX_@}})\n\
         ours=$(IFS=,; echo \"${{found[*]}}\")\n\
         trap 'say ended; exit 143' TERM\n\
         say begun \"node=$SLURMD_NODENAME partition=$SLURM_JOB_PARTITION gpus=$SLURM_JOB_GPUS shards=$SLURM_SHARDS_ON_NODE \
         decision=$PILLION_DECISION cap=$CUDA_MPS_ACTIVE_THREAD_PERCENTAGE limit=$CUDA_MPS_PINNED_DEVICE_MEM_LIMIT \
         pipe=$CUDA_MPS_PIPE_DIRECTORY ccs=$ZEX_NUMBER_OF_CCS ours=$ours\"\n\
         {work} > /dev/null &\n\
         wait $!\n\
         exit=$?\n\
         say done \"exit=$exit\"\n\
         exit $exit\n",
        number = order.number,
    )
}

/// Waits until the job's begin time is moved or it is released; no longer than some seconds.
fn wait_for_release(name: &str, clients: &Clients) {
    let begun = pillion_tests::wait::now();
    let first = clients.look(name).map(|(_, begins)| begins);
    while begun.elapsed() < RELEASE_DEADLINE {
        match clients.look(name) {
            Some((seen, begins)) if seen.state == "PENDING" => {
                if seen.mark.contains(";lease=") || Some(&begins) != first.as_ref() {
                    return;
                }
            }
            _ => return,
        }
        sleep(RELEASE_POLL);
    }
}

fn carry_out(act: &Act, user: &str, clients: &Clients, journal: &Journal) {
    let Some(submitted) = journal.job(act.number) else {
        journal.note(epoch(), &format!("{user}: {} #{}: it was never submitted", act.deed, act.number));
        return;
    };
    let task = act.task.map(|task| format!("_{task}")).unwrap_or_default();
    let name = format!("{}{task}", submitted.name);
    if act.moment == Moment::AtRelease {
        wait_for_release(&name, clients);
    }
    let done = carry_out_on(&name, user, act.deed, clients);
    let answer = if done.accepted { "taken" } else { "refused" };
    let after = done.after.as_ref().map_or(String::new(), |seen| {
        format!("; then {} in {} priority {} ({})", seen.state, seen.partition, seen.priority, seen.reason)
    });
    journal.note(
        done.span.from,
        &format!("{user}: {} #{} job {name} -> {answer} {}{after}", act.deed, act.number, done.said),
    );
    locked(&journal.done).push((act.number, act.task, done));
}

/// Does something to a job, and looks how it is then.
pub(crate) fn carry_out_on(name: &str, user: &str, deed: Deed, clients: &Clients) -> Done {
    let change = |change: Change| {
        vec!["scontrol".to_owned(), "update".into(), format!("JobId={name}"), change.to_string()]
    };
    let control = |verb: &str| vec!["scontrol".to_owned(), verb.into(), name.to_owned()];
    let words = match deed {
        Deed::Cancel => vec!["scancel".to_owned(), name.to_owned()],
        Deed::Hold => control("hold"),
        Deed::Release => control("release"),
        Deed::Requeue | Deed::RequeueNow => control("requeue"),
        Deed::Change(wanted) => change(wanted),
    };
    let run = |words: &[String]| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        clients.run(user, &words, "")
    };
    let from = epoch();
    let (accepted, _, mut said) = run(&words);
    if accepted && deed == Deed::RequeueNow {
        let (is_taken, _, answer) = run(&change(Change::StartNow));
        said = if is_taken { said } else { format!("{BEGIN_REFUSED}{answer}") };
    }
    let span = Span { from, until: epoch() };
    let after = clients.look(name).map(|(seen, _)| seen);
    Done { deed, by_root: user == "root", span, accepted, said, after }
}
