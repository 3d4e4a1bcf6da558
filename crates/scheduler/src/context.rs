//! What every reconciler is given: the four seams, the settings, and the board on which the last scan hangs.

mod leading;

use crate::agents::Agents;
use crate::credit::strain::Strain;
use crate::device_status::Amiss;
use crate::failure::endings::Endings;
use crate::first_runs::seen::FirstRunSeen;
use crate::idle::{Idle, Place};
use crate::job_rules::{ByJob, JobPolicy};
use crate::log::Repeats;
use crate::metrics::{CountedSlurm, Tally};
use crate::observe::activity::Activity;
use crate::observe::seen::Observed;
use crate::pace::settings::PaceSettings;
use crate::room_asked::RoomAsked;
use crate::rules::Rule;
use crate::scan::Scan;
use crate::shadow::seen::ShadowSeen;
use crate::step::Timeouts;
use crate::tick_error::TickError;
use crate::train::{LearnedRecipe, Models, Recipe, Training};
use crate::view::{Combination, Watched};
use pillion_auth::Refusals;
use pillion_config::PlainJobs;
use pillion_core::device::TENANTS_MAX;
use pillion_core::heartbeat::Mode;
use pillion_core::invariant::Violation;
use pillion_core::{Clock, GresType, JobStart, NodeName, SlurmJobId, UnixTime, UserId, report};
use pillion_doors::TurnedAway;
use pillion_pairing::{LetGo, Policy, Reason};
use pillion_slurm::{GpuDefaults, Privacy, Reservation, Slurm, SlurmVersion};
use pillion_store::{Decision, Store};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tracing::warn;

pub(crate) use leading::is_of_before;

/// How long nothing is done after the fence of `pillion.lua` was found to be missing.
const FENCE_MISSING: Duration = Duration::from_mins(10);

/// The checked configuration, in the shape that the tasks use.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Partitions of the pool, in order of preference.
    pub pool: Vec<String>,
    /// Ordinary partitions that are only observed.
    pub observed: Vec<String>,
    /// Whether jobs of those are decided on in whatever mode, and nothing done of it.
    pub observe_shadow: bool,
    /// The longest that Slurm holds a job back without us.
    pub bound: Duration,
    /// What is done with decisions.
    pub mode: Mode,
    /// The site's policy.
    pub policy: Policy,
    /// What it says of single jobs.
    pub job_policy: JobPolicy,
    /// Time limits of releases.
    pub timeouts: Timeouts,
    /// A scan older than this is not acted on.
    pub scan_age_max: Duration,
    /// How long a job whose plan was dropped is left out of plans.
    pub cooling: Duration,
    /// The configuration file that all this was read from; absent in tests.
    pub config_path: Option<PathBuf>,
    /// Where `pillion.lua` looks for us; absent = no heartbeat (tests).
    pub heartbeat_path: Option<PathBuf>,
    /// How many runs alone a user owes who lost the right to share.
    pub credit_runs: u32,
    /// Whether what runs used beyond their profiles is booked with the next ones.
    pub books_by_use: bool,
    /// Whether who ran out of device memory is started again where its user lets it.
    pub restarts_by_consent: bool,
    /// How many devices of one user's jobs may be held by them alone before his next such job comes after everybody else's.
    pub alone_devices_max: u32,
    /// For how long an interactive job leaves its device idle before a guest may come.
    pub session_idle: Duration,
    /// Names by device model under which users may ask for it.
    pub gpu_types: BTreeMap<String, Vec<String>>,
    /// What becomes of jobs of the pool's partitions that do not ask for co-location.
    pub plain_jobs: PlainJobs,
    /// The partitions of the pool in which a job that says nothing of co-location counts as one that asks for it.
    pub shared_by_default: BTreeSet<String>,
    /// How long is kept what is of the past alone; `None` = for ever.
    pub history_kept: Option<Duration>,
    /// How long device samples are kept.
    pub samples_kept: Duration,
    /// How far apart those of a device are that are kept at all.
    pub sample_period: Duration,
    /// When the model is trained.
    pub training: Training,
    /// How the speed of tenants is followed.
    pub pace: PaceSettings,
    /// The configured rules, as they are told to everybody.
    pub rules: Vec<Rule>,
}

impl Settings {
    /// The site's policy, as it is asked of one job.
    pub fn by_job(&self) -> ByJob<'_> {
        ByJob { policy: &self.policy, own: &self.job_policy, pace: &self.pace }
    }

    /// Whether some jobs may have more than four on their device: copies of one workload.
    pub fn has_copies(&self) -> bool {
        self.policy.tenants_max.max(self.job_policy.tenants_max()) > TENANTS_MAX
    }

    /// Whether jobs in observed partitions are decided on, and nothing done of it.
    pub fn has_shadow(&self) -> bool {
        self.mode == Mode::Shadow || self.observe_shadow
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            pool: vec!["shared".to_owned()],
            observed: Vec::new(),
            observe_shadow: false,
            bound: Duration::from_mins(10),
            mode: Mode::Active,
            policy: Policy::default(),
            job_policy: JobPolicy::default(),
            timeouts: Timeouts::default(),
            scan_age_max: Duration::from_secs(15),
            cooling: Duration::from_secs(15),
            config_path: None,
            heartbeat_path: None,
            credit_runs: 10,
            books_by_use: false,
            restarts_by_consent: true,
            alone_devices_max: 4,
            session_idle: Duration::from_mins(5),
            gpu_types: BTreeMap::new(),
            plain_jobs: PlainJobs::Refused,
            shared_by_default: BTreeSet::new(),
            history_kept: None,
            samples_kept: Duration::from_hours(7 * 24),
            sample_period: Duration::from_secs(10),
            training: Training::default(),
            pace: PaceSettings::default(),
            rules: Vec::new(),
        }
    }
}

/// What is known now and not worth keeping: it is found again after a restart.
#[derive(Debug, Default)]
pub struct Board {
    /// The last scan.
    pub scan: Option<Arc<Scan>>,
    /// Since when we lead, or last did; `None`: it was never said (tests).
    pub led_since: Option<UnixTime>,
    /// What is observed.
    pub observed: Arc<Observed>,
    /// What would be done with it.
    pub shadow: Arc<ShadowSeen>,
    /// Slurm's version, once asked.
    pub slurm_version: Option<SlurmVersion>,
    /// What users may not see of each other, and when Slurm said so.
    pub privacy: Option<(Privacy, UnixTime)>,
    /// What jobs get by GPU where they ask for nothing, by partition; asked with the former.
    pub gpu_defaults: BTreeMap<String, GpuDefaults>,
    /// What is reserved for others, and when Slurm said so.
    pub reservations: Option<(Arc<Vec<Reservation>>, UnixTime)>,
    /// Nodes on which releases stopped after a violation, and why.
    pub stopped: BTreeMap<NodeName, Violation>,
    /// Jobs whose last plan was dropped, and until when they are left out.
    pub cooling: BTreeMap<SlurmJobId, UnixTime>,
    /// What decisions of ours presupposed of their jobs, where the policy is not the same for all.
    pub decided_on: BTreeMap<JobStart, String>,
    /// What the last plan said of each job that it left waiting.
    pub reasons: BTreeMap<SlurmJobId, Arc<str>>,
    /// When a release was last tried or answered for a start: only a later scan tells what became of it.
    pub tried: BTreeMap<JobStart, UnixTime>,
    /// When a release was begun that was never answered: it may land yet.
    pub unanswered: BTreeMap<JobStart, UnixTime>,
    /// When a node said that it had begun a start: whoever waits after that was forgotten by Slurm.
    pub launched: BTreeMap<JobStart, UnixTime>,
    /// Those of them that were seen to wait.
    pub forgotten: BTreeSet<JobStart>,
    /// Devices whose tenants are not as they were planned.
    pub amiss: Amiss,
    /// How fast the tenants of a shared device go over their speeds alone, where all were judged by their counters.
    pub speeds: BTreeMap<(NodeName, GresType), BTreeMap<JobStart, f64>>,
    /// What the watch saw of two and nobody measured to the end yet.
    pub watched: BTreeMap<Combination, Watched>,
    /// Guests that were asked to make room.
    pub room_asked: BTreeMap<JobStart, RoomAsked>,
    /// For whom guests were last on their way out.
    pub room_expected: BTreeMap<SlurmJobId, UnixTime>,
    /// Jobs that wait and were submitted with `--no-requeue`, as far as that was asked: they are not tried.
    pub steadfast: BTreeSet<JobStart>,
    /// What was measured of each tenant's sharing while he was there.
    pub strains: BTreeMap<JobStart, Strain>,
    /// When a job of another was last sent away on this user's word alone.
    pub believed: BTreeMap<UserId, UnixTime>,
    /// A guest could not go back without harm to its neighbours, nor could any other there: nothing is begun any more that may end so.
    pub is_parting_unsafe: bool,
    /// First runs that others may join one day, as far as they were measured.
    pub first_runs: BTreeMap<JobStart, Arc<FirstRunSeen>>,
    /// Interactive jobs that leave their devices idle: guests may come to them.
    pub idle_sessions: BTreeSet<JobStart>,
    /// Violations seen since we started.
    pub violation_count: u64,
    /// Lines of the queue that could not be read since we started.
    pub dropped_line_count: u64,
    /// The decisions that were planned or released at the last tick of `release`.
    pub active: Arc<Vec<Decision>>,
    /// For how many jobs the last plan had which reason to leave them waiting.
    pub reason_counts: BTreeMap<Reason, u64>,
    /// When the heartbeat was written last.
    pub heartbeat_at: Option<UnixTime>,
    /// When a report of an agent was stored last.
    pub reported_at: Option<UnixTime>,
    /// What `train` saw of models last.
    pub model: Option<ModelSeen>,
    /// When the fence of `pillion.lua` was last met.
    pub fence_met_at: Option<UnixTime>,
    /// When it was found to be missing.
    pub fence_missing_since: Option<UnixTime>,
    /// Devices that stand free, and since when.
    pub idle: Idle,
    /// When a plan was last made and committed, or nothing was left to plan.
    pub planned_at: Option<UnixTime>,
    /// For whom the last plan set devices apart.
    pub set_apart: BTreeMap<Place, SlurmJobId>,
    /// Jobs of several nodes whose turn it is by the last plan.
    pub let_go: LetGoTurns,
}

/// Jobs of several nodes whose turn it is by one plan.
#[derive(Debug, Clone, Default)]
pub struct LetGoTurns {
    /// When the scan was made that it was planned on.
    pub planned_at: Option<UnixTime>,
    pub all: Vec<LetGo>,
}

/// Models at one moment.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelSeen {
    /// The one in use.
    pub version: Option<u64>,
    /// It cannot be read by this release.
    pub is_stand_in: bool,
    /// When the newest was trained.
    pub trained_at: Option<UnixTime>,
    /// On how many observations.
    pub observation_count: Option<u64>,
    /// How far it was off in its backtest.
    pub error_mean: Option<f64>,
    /// Observations that came since.
    pub waiting_count: u64,
}

/// Wakes reconcilers before their period is over; carries no data.
#[derive(Debug, Default)]
pub struct Nudges {
    /// Scan Slurm now.
    pub watch: Arc<Notify>,
    /// Something may be planned now.
    pub engine: Arc<Notify>,
    /// A decision may go on now.
    pub release: Arc<Notify>,
    /// A run was summarised.
    pub profile: Arc<Notify>,
    /// A run was summarised, or a job ended: why?
    pub judge: Arc<Notify>,
    /// A requeue was decided.
    pub requeue: Arc<Notify>,
    /// There may be workloads without a name.
    pub names: Arc<Notify>,
    /// Something new can be learnt.
    pub train: Arc<Notify>,
    /// The first scan is there.
    pub heartbeat: Arc<Notify>,
    /// Observed partitions were looked at.
    pub shadow: Arc<Notify>,
}

/// The reconcilers' world.
pub struct Context {
    pub clock: Arc<dyn Clock>,
    pub slurm: Arc<dyn Slurm>,
    pub store: Arc<dyn Store>,
    pub agents: Arc<Agents>,
    /// Configuration.
    pub settings: Settings,
    pub nudges: Nudges,
    /// The model that plans are made with.
    pub models: Models,
    /// What has happened since we started.
    pub tally: Arc<Tally>,
    /// Tenants that are being ended.
    pub endings: Endings,
    /// Who was not let in.
    pub refusals: Arc<Refusals>,
    pub(crate) repeats: Repeats,
    /// Connections that found no place.
    pub turned_away: Arc<TurnedAway>,
    board: RwLock<Board>,
    /// How busy the devices of observed nodes are.
    activity: Mutex<Activity>,
    leading: AtomicBool,
    /// Until when it is certain that nobody else leads; `None`: it is not asked about (tests).
    leads_until: Mutex<Option<Instant>>,
    /// Whether another scheduler is known to lead.
    following: watch::Sender<bool>,
}

impl Context {
    /// A world in which nothing has been seen yet.
    pub fn new(
        clock: Arc<dyn Clock>,
        slurm: Arc<dyn Slurm>,
        store: Arc<dyn Store>,
        agents: Arc<Agents>,
        settings: Settings,
    ) -> Self {
        let (nudges, board) = <(Nudges, RwLock<Board>)>::default();
        let leading = AtomicBool::new(true);
        let models = Models::new(Arc::new(LearnedRecipe::default()));
        let tally = Arc::new(Tally::default());
        let slurm = Arc::new(CountedSlurm::new(slurm, Arc::clone(&tally)));
        let (refusals, turned_away) = (Arc::default(), Arc::default());
        let following = watch::Sender::new(false);
        Self {
            clock,
            slurm,
            store,
            agents,
            settings,
            nudges,
            models,
            tally,
            endings: Endings::default(),
            refusals,
            repeats: Repeats::default(),
            turned_away,
            board,
            activity: Mutex::default(),
            leading,
            leads_until: Mutex::default(),
            following,
        }
    }
    /// The same, with models made in another way.
    #[must_use]
    pub fn with_recipe(self, recipe: Arc<dyn Recipe>) -> Self {
        Self { models: Models::new(recipe), ..self }
    }
    /// The board, to read.
    pub fn board(&self) -> RwLockReadGuard<'_, Board> {
        self.board.read().unwrap_or_else(PoisonError::into_inner)
    }
    /// The board, to change; never held across an `await`.
    pub fn board_mut(&self) -> RwLockWriteGuard<'_, Board> {
        self.board.write().unwrap_or_else(PoisonError::into_inner)
    }
    /// How busy the devices of observed nodes are; never held across an `await`.
    pub(crate) fn activity(&self) -> MutexGuard<'_, Activity> {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// The time now.
    pub fn now(&self) -> UnixTime {
        self.clock.now()
    }
    /// The last scan, if it is fresh enough to act on.
    pub fn fresh_scan(&self) -> Option<Arc<Scan>> {
        let scan = self.board().scan.clone()?;
        self.is_fresh(&scan).then_some(scan)
    }
    /// A scan that was taken after this one, where one comes within `wait`: what people ask for is judged by what is now.
    pub async fn newer_scan(&self, than: &Scan, wait: Duration) -> Option<Arc<Scan>> {
        self.nudges.watch.notify_one();
        self.scan_when(wait, || self.fresh_scan().filter(|scan| scan.at > than.at)).await
    }
    /// Waits for the first scan since we were started.
    pub async fn first_scan(&self, wait: Duration) -> Option<Arc<Scan>> {
        self.scan_when(wait, || self.board().scan.clone()).await
    }
    /// Waits until observed partitions were read since we were started.
    pub async fn first_observed(&self, wait: Duration) -> Option<Arc<Observed>> {
        self.when(wait, || Some(Arc::clone(&self.board().observed)).filter(|observed| observed.at.is_some()))
            .await
    }
    async fn scan_when(&self, wait: Duration, newest: impl Fn() -> Option<Arc<Scan>>) -> Option<Arc<Scan>> {
        self.when(wait, newest).await
    }
    async fn when<T>(&self, wait: Duration, newest: impl Fn() -> Option<T>) -> Option<T> {
        let found = async {
            loop {
                if let Some(found) = newest() {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(wait, found).await.ok()
    }
    /// Whether a scan is fresh enough to act on.
    pub fn is_fresh(&self, scan: &Scan) -> bool {
        let age = self.now().seconds() - scan.at.seconds();
        // A scan from the future means that the clock was set back: as good as old.
        age.abs() <= self.settings.scan_age_max.as_secs_f64()
    }
    /// Whether a user may see that others have jobs at all; not before Slurm has said so.
    pub fn hides_jobs(&self) -> bool {
        self.board().privacy.is_none_or(|(privacy, _)| privacy.jobs)
    }
    /// Why we do not act at all; `None` = we do.
    pub fn refusal(&self) -> Option<String> {
        if !self.is_leading() {
            return Some("another scheduler leads, or the database does not answer".to_owned());
        }
        if self.board().fence_missing_since.is_some_and(|since| self.now() < since + FENCE_MISSING) {
            return Some("the pillion.lua of this release is not in use".to_owned());
        }
        match self.board().slurm_version {
            None => Some("Slurm's version is not known yet".to_owned()),
            Some(version) => version.refusal(),
        }
    }
    /// Goes past a row that a task can do nothing with: logged, counted, and no reason to leave the others.
    ///
    /// # Errors
    /// What is not about that one row: the next tick is the retry.
    pub fn pass_over(
        &self,
        task: &'static str,
        what: impl fmt::Display,
        error: TickError,
    ) -> Result<(), TickError> {
        if !error.is_of_one_row() {
            return Err(error);
        }
        let (what, error) = (what.to_string(), report(&error));
        if self.repeats.is_news(&format!("{task} {what} {error}"), self.now()) {
            warn!(task, what, error, "passed over");
        }
        self.tally.passed_over(task);
        Ok(())
    }
    /// Whether decisions are carried out.
    pub fn is_active(&self) -> bool {
        self.settings.mode == Mode::Active && self.refusal().is_none()
    }
}
