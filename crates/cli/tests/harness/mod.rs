//! A scheduler that answers from fixtures, on a Unix socket, and the real `pillion` beside it.

mod act;
mod job;
mod live;
mod models;
mod scale;

use pillion_api::operator_service_server::{OperatorService, OperatorServiceServer};
use pillion_api::{
    AccountRequest, AccountResponse, AgentStatus, Candidate, CapFractions, ClusterRequest, ClusterResponse,
    DecidedRequest, DecidedResponse, Decision, DeviceStatus, DrainRequest, DrainResponse, DryRunRequest,
    DryRunResponse, Estimate, Event, EventsRequest, EventsResponse, EvictRequest, EvictResponse,
    ExplainRequest, ExplainResponse, Explanation, Fault, Faults, HeatmapRequest, HeatmapResponse,
    IdleRequest, IdleResponse, JobExplanation, JobRequest, JobResponse, Member, MetricStatus, ModelsRequest,
    ModelsResponse, PairsRequest, PairsResponse, PokeRequest, PokeResponse, PolicyRequest, PolicyResponse,
    Profile, ProfileSlice, ProfilesRequest, ProfilesResponse, QueueJob, QueueRequest, QueueResponse,
    RefusedPeer, RightsizeRequest, RightsizeResponse, ScaleRequest, ScaleResponse, ShadowRequest,
    ShadowResponse, StatusRequest, StatusResponse, TopRequest, TopResponse, UndrainRequest, UndrainResponse,
};
use pillion_proto::v1::{LoadedPlugin, MigInstance, MigInstances, MigPlacement, NodeSetup, SetupFault};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

pub(crate) const PLAN: &str = include_str!("../fixtures/plan.json");
pub(crate) const VIEW: &str = include_str!("../fixtures/view.json");

/// 2026-11-18T11:06:40Z.
const NOW: f64 = 1_795_000_000.0;

/// What one run of `pillion` gave.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// A scheduler of fixtures and a folder for files; both end with it.
pub(crate) struct Harness {
    pub(crate) folder: TempDir,
    pub(crate) pokes: Arc<AtomicU32>,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for Harness {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Harness {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let listener = UnixListener::bind(folder.path().join("scheduler.sock")).expect("a socket");
        let pokes = Arc::new(AtomicU32::new(0));
        let service = OperatorServiceServer::new(Fixtures { pokes: pokes.clone() });
        let server = tokio::spawn(async move {
            let incoming = UnixListenerStream::new(listener);
            tonic::transport::Server::builder()
                .add_service(service)
                .serve_with_incoming(incoming)
                .await
                .expect("it serves");
        });
        Self { folder, pokes, server }
    }

    /// Runs `pillion` with the words of `line`, against this scheduler.
    pub(crate) async fn run(&self, line: &str) -> Ran {
        run_at(
            &format!("unix:{}", self.folder.path().join("scheduler.sock").display()),
            self.folder.path(),
            line,
        )
        .await
    }
}

/// Runs `pillion` against any address, in `folder`.
pub(crate) async fn run_at(scheduler: &str, folder: &Path, line: &str) -> Ran {
    let path = std::env::var("PATH").unwrap_or_default();
    let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_pillion"))
        .env("PATH", format!("{}:{path}", folder.join("bin").display()))
        .args(line.split_whitespace())
        .current_dir(folder)
        .env("TZ", "UTC")
        .env("XDG_STATE_HOME", folder)
        .env("PILLION_SCHEDULER", scheduler)
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .expect("pillion runs");
    Ran {
        code: output.status.code().expect("no signal"),
        out: String::from_utf8(output.stdout).expect("UTF-8"),
        err: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

struct Fixtures {
    pokes: Arc<AtomicU32>,
}

fn queue_job(job_id: &str, user: &str) -> QueueJob {
    QueueJob {
        job_id: job_id.to_owned(),
        user: user.to_owned(),
        account: "ml".to_owned(),
        partition: "shared".to_owned(),
        workload: Some(format!("{user}/4f1c09aa12bc77de")),
        workload_name: Some(format!("{user}/bert")),
        submitted_at_seconds: Some(NOW - 60.0),
        starts_alone_at_seconds: Some(NOW + 540.0),
        state: "waiting".to_owned(),
        reason: "no-device-free: every device is taken".to_owned(),
        slowdown_ratio_max: Some(1.25),
    }
}

fn host() -> Member {
    Member {
        job_id: Some("42".to_owned()),
        restart_count: 0,
        user: Some("alice".to_owned()),
        workload: Some("alice/4f1c09aa12bc77de".to_owned()),
        workload_name: Some("alice/bert".to_owned()),
        role: "host".to_owned(),
        state: "ended".to_owned(),
        cap_fraction: Some(0.6),
        ccs_mode: None,
        shards: 55,
        memory_limit_bytes: Some(9 << 30),
        predicted_speed_fraction: Some(0.85),
        predicted_speed_fraction_low: Some(0.81),
        measured_speed_fraction: Some(0.83),
        slowdown_ratio_max: Some(1.25),
        started_at_seconds: Some(NOW),
        ended_at_seconds: Some(NOW + 723.0),
        solo_duration_seconds: Some(600.0),
        energy_joules: Some(123_456.0),
        mig_slot: None,
    }
}

/// A partner as a user who is no operator sees it.
fn hidden_joiner() -> Member {
    Member {
        role: "joiner".to_owned(),
        state: "running".to_owned(),
        shards: 45,
        predicted_speed_fraction: Some(0.77),
        predicted_speed_fraction_low: Some(0.7),
        slowdown_ratio_max: Some(1.5),
        started_at_seconds: Some(NOW + 1.0),
        ..Member::default()
    }
}

fn decision() -> Decision {
    Decision {
        decision_id: 17,
        group_id: 17,
        state: "released".to_owned(),
        node: "n1".to_owned(),
        gres_type: "g1".to_owned(),
        device_model: "h100".to_owned(),
        mechanism: "mps".to_owned(),
        created_at_seconds: NOW - 2.0,
        members: vec![host(), hidden_joiner()],
        gain: 0.62,
        abandoned_reason: None,
    }
}

fn estimate(speed_fraction: f64, low: f64, high: f64, terms: &[(&str, f64)]) -> Estimate {
    Estimate {
        speed_fraction,
        speed_fraction_low: low,
        speed_fraction_high: high,
        terms: terms.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        ..Estimate::default()
    }
}

/// The last one comes from a scheduler whose reasons this release does not know.
fn explanations() -> Vec<JobExplanation> {
    let explanation = |reason: &str, text: &str, candidates| Explanation {
        candidates,
        job_id: "42".to_owned(),
        model: "contention-1".to_owned(),
        reason: reason.to_owned(),
        text: text.to_owned(),
    };
    let at_risk = Candidate {
        excluded_by: Some("promise-at-risk".to_owned()),
        gain: Some(0.6),
        is_running: true,
        other: Some(estimate(0.9, 0.82, 0.95, &[("prior", 0.9)])),
        own: Some(estimate(0.7, 0.55, 0.8, &[("prior", 0.82), ("memory-pair", -0.12)])),
        partner: Some("40".to_owned()),
        workload: Some("alice/90ff".to_owned()),
        workload_name: Some("alice/gpt".to_owned()),
        ..Candidate::default()
    };
    let own = estimate(0.85, 0.81, 0.9, &[("compute", 0.9), ("bandwidth", 0.944)]);
    let chosen = Candidate {
        cap_fractions: Some(CapFractions { own: Some(0.6), other: None }),
        chosen: true,
        gain: Some(0.62),
        own: Some(Estimate { speed_fraction_deviation: 0.031, ..own }),
        ..Candidate::default()
    };
    let barred = Candidate { excluded_by: Some("user-policy".to_owned()), ..Candidate::default() };
    let first = explanation("promise-at-risk", "beside 40 it would be slowed too much", vec![at_risk]);
    let second = explanation("paired", "starts with a partner on n1 g1", vec![chosen, barred]);
    let row = |(revision, at_seconds, explanation)| JobExplanation { revision, at_seconds, explanation };
    [(40, NOW - 30.0, Some(first)), (41, NOW - 2.0, Some(second)), (42, NOW, None)].map(row).into()
}

fn metric(metric: &str, source: &str, quality: &str) -> MetricStatus {
    MetricStatus { metric: metric.to_owned(), source: source.to_owned(), quality: quality.to_owned() }
}

/// What became of a workload's runs in instances.
fn slices() -> Vec<ProfileSlice> {
    let slice = |profile: &str, completed_count, out_of_memory_count, speed_fraction| ProfileSlice {
        profile: profile.to_owned(),
        completed_count,
        out_of_memory_count,
        speed_fraction,
    };
    vec![slice("1g.10gb", 0, 1, None), slice("2g.20gb", 4, 0, Some(0.91))]
}

/// A device with MIG on: of its instances one's place is not told.
fn cut_up(device: DeviceStatus) -> DeviceStatus {
    let instance = |number: u32, profile: &str, sm_count, gibibytes: u64, placement| MigInstance {
        uuid: format!("MIG-{number}"),
        gpu_instance_id: number,
        compute_instance_id: 0,
        profile: profile.to_owned(),
        placement,
        sm_count,
        memory_bytes: gibibytes << 30,
    };
    let instances = vec![
        instance(2, "3g.40gb", 60, 40, Some(MigPlacement { start: 4, size: 4 })),
        instance(9, "1g.10gb", 16, 10, Some(MigPlacement { start: 2, size: 1 })),
        instance(10, "1g.10gb", 16, 10, None),
    ];
    let (mechanism, instances) = ("none".to_owned(), Some(MigInstances { instances }));
    DeviceStatus { mechanism, instances, ..device }
}

fn well(device: DeviceStatus) -> DeviceStatus {
    let metrics = vec![
        metric("energy_joules", "nvml", "fine"),
        metric("sm_active_fraction", "nvml-gpm", "fine"),
        metric("gpu_busy_fraction", "nvml", "coarse"),
    ];
    let amiss = Some("a promise is being broken there".to_owned());
    DeviceStatus { faults: Some(Faults::default()), metrics, amiss, ..device }
}

fn setup() -> NodeSetup {
    let fault = SetupFault { kind: "no-mps".to_owned(), detail: "there is no program".to_owned() };
    let plugin = LoadedPlugin {
        path: "/usr/lib/slurm/pillion.so".to_owned(),
        built_for: "24.11".to_owned(),
        error: String::new(),
    };
    NodeSetup { faults: vec![fault], plugins: vec![plugin] }
}

fn no_devices() -> NodeSetup {
    let detail = "no device can be shared here: libnvidia-ml.so.1 cannot be loaded: there is no such file";
    let fault = SetupFault { kind: "no-devices".to_owned(), detail: detail.to_owned() };
    NodeSetup { faults: vec![fault], plugins: Vec::new() }
}

fn lost(device: DeviceStatus) -> DeviceStatus {
    let fault = |kind: &str, detail: &str, closes_device| Fault {
        kind: kind.to_owned(),
        detail: detail.to_owned(),
        since_seconds: NOW - 300.0,
        closes_device,
    };
    let list = vec![
        fault("gone", "fell off the bus", true),
        fault("metric-lost", "sm_active_fraction: silent", false),
    ];
    let metrics = vec![metric("power_watts", "nvml", "fine")];
    DeviceStatus { faults: Some(Faults { list }), metrics, ..device }
}

#[tonic::async_trait]
impl OperatorService for Fixtures {
    async fn scale(&self, request: Request<ScaleRequest>) -> Result<Response<ScaleResponse>, Status> {
        Ok(Response::new(scale::response(&request.into_inner().workload)))
    }

    async fn queue(&self, request: Request<QueueRequest>) -> Result<Response<QueueResponse>, Status> {
        let mut jobs = vec![queue_job("42", "alice"), queue_job("33_2", "bob")];
        // What a hostile user could have brought in must neither forge lines nor cells.
        "odd\n99|root\u{1b}[2J".clone_into(&mut jobs[1].reason);
        (jobs[1].workload, jobs[1].workload_name) = (None, None);
        let user = request.into_inner().user;
        jobs.retain(|job| user.is_empty() || job.user == user);
        Ok(Response::new(QueueResponse { jobs }))
    }

    async fn pairs(&self, request: Request<PairsRequest>) -> Result<Response<PairsResponse>, Status> {
        let request = request.into_inner();
        if request.user == "mallory" {
            return Err(Status::permission_denied("only operators see other users' jobs"));
        }
        let decisions = if request.active_only { vec![decision()] } else { vec![] };
        Ok(Response::new(PairsResponse { decisions }))
    }

    async fn explain(&self, request: Request<ExplainRequest>) -> Result<Response<ExplainResponse>, Status> {
        let job_id = request.into_inner().job_id;
        if let Some(observed) = live::explain_shadow(&job_id) {
            return Ok(Response::new(observed));
        }
        if job_id != "42" {
            return Ok(Response::new(ExplainResponse::default()));
        }
        let event = Event {
            at_seconds: NOW + 3.0,
            kind: "dropped".to_owned(),
            job_id: Some("42".to_owned()),
            node: Some("n1".to_owned()),
            detail: "it is held".to_owned(),
        };
        Ok(Response::new(ExplainResponse {
            shadow: None,
            found: true,
            job: Some(queue_job("42", "alice")),
            decisions: vec![decision()],
            explanations: explanations(),
            events: vec![event],
        }))
    }

    async fn job(&self, request: Request<JobRequest>) -> Result<Response<JobResponse>, Status> {
        Ok(Response::new(job::job(&request.into_inner().job_id)))
    }

    async fn account(&self, request: Request<AccountRequest>) -> Result<Response<AccountResponse>, Status> {
        Ok(Response::new(job::account(&request.into_inner())))
    }

    async fn profiles(
        &self,
        request: Request<ProfilesRequest>,
    ) -> Result<Response<ProfilesResponse>, Status> {
        let json = match request.into_inner().workload.as_str() {
            "broken" => "{}".to_owned(),
            _ => r#"{"workload":"alice/4f1c","device_model":"h100","run_count":3,"duration_seconds":600.4,
                "duration_variation_fraction":0.02,"throughput_per_second":null,"sm_active_fraction":0.55,
                "sm_occupancy_fraction":0.3,"stall_fraction":null,"fp32_active_fraction":null,"gpu_busy_fraction":0.9,
                "memory_bandwidth_fraction":0.21,"cache_bandwidth_fraction":null,"pcie_tx_bytes_per_second":null,
                "pcie_rx_bytes_per_second":null,"memory_bytes_peak":8589934592,"process_count_peak":1,
                "power_watts_mean":350.2,"energy_joules":210120.0}"#
                .to_owned(),
        };
        let profile = Profile { json, workload_name: Some("alice/bert".to_owned()), slices: slices() };
        Ok(Response::new(ProfilesResponse { profiles: vec![profile] }))
    }

    async fn models(&self, request: Request<ModelsRequest>) -> Result<Response<ModelsResponse>, Status> {
        let mut models = models::newest_first();
        models.truncate(usize::try_from(request.into_inner().limit).expect("a few"));
        Ok(Response::new(ModelsResponse { models }))
    }

    async fn dry_run(&self, _: Request<DryRunRequest>) -> Result<Response<DryRunResponse>, Status> {
        Ok(Response::new(DryRunResponse {
            plan_json: PLAN.to_owned(),
            view_json: VIEW.to_owned(),
            workload_names: [("alice/4f1c".to_owned(), "alice/bert".to_owned())].into(),
        }))
    }

    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusResponse>, Status> {
        let device = |index: u32| DeviceStatus {
            index,
            uuid: format!("GPU-{index}"),
            model: "h100".to_owned(),
            memory_bytes: 80 << 30,
            gres_type: format!("g{index}"),
            mechanism: "mps".to_owned(),
            ..DeviceStatus::default()
        };
        let agent = AgentStatus {
            node: "n1".to_owned(),
            connected: true,
            last_seen_at_seconds: Some(NOW - 1.0),
            clock_skew_seconds: -0.02,
            version: "0.1.0".to_owned(),
            devices: vec![well(device(0)), lost(device(1)), cut_up(device(2))],
            setup: Some(setup()),
        };
        let bare = AgentStatus {
            node: "n4".to_owned(),
            connected: true,
            last_seen_at_seconds: Some(NOW - 1.0),
            version: "0.1.0".to_owned(),
            setup: Some(no_devices()),
            ..AgentStatus::default()
        };
        let gone = AgentStatus { node: "n2".to_owned(), connected: false, ..AgentStatus::default() };
        Ok(Response::new(StatusResponse {
            scheduler_version: "0.1.0".to_owned(),
            mode: "active".to_owned(),
            now_seconds: NOW,
            slurm_version: "24.11.5".to_owned(),
            slurm_refusal: None,
            last_scan_at_seconds: Some(NOW - 2.0),
            revision: 41,
            agents: vec![agent, gone, bare],
            database: "private Postgres in /var/lib/pillion".to_owned(),
            miss_count: 0,
            violation_count: 0,
            dropped_line_count: 0,
            pool_partitions: vec!["shared".to_owned()],
            bound_seconds: 600,
            leading: true,
            not_acting: None,
            drains: act::drains(),
            config_path: Some("/etc/pillion/pillion.toml".to_owned()),
            heartbeat_path: Some("/run/pillion/heartbeat".to_owned()),
            auth_method: Some("munge".to_owned()),
            refused: vec![RefusedPeer {
                who: "the agent of n9".to_owned(),
                address: "10.0.0.9".to_owned(),
                why: "it is no node of the pool".to_owned(),
                at_seconds: NOW - 30.0,
                count: 2,
            }],
        }))
    }

    async fn cluster(&self, request: Request<ClusterRequest>) -> Result<Response<ClusterResponse>, Status> {
        Ok(Response::new(live::cluster(&request.into_inner())))
    }

    async fn heatmap(&self, _: Request<HeatmapRequest>) -> Result<Response<HeatmapResponse>, Status> {
        Err(Status::unimplemented("only the web page asks it"))
    }

    async fn decided(&self, _: Request<DecidedRequest>) -> Result<Response<DecidedResponse>, Status> {
        Err(Status::unimplemented("only the web page asks it"))
    }

    async fn poke(&self, _: Request<PokeRequest>) -> Result<Response<PokeResponse>, Status> {
        self.pokes.fetch_add(1, Ordering::SeqCst);
        Ok(Response::new(PokeResponse {}))
    }

    async fn drain(&self, request: Request<DrainRequest>) -> Result<Response<DrainResponse>, Status> {
        act::drain(request.into_inner()).map(Response::new)
    }

    async fn undrain(&self, request: Request<UndrainRequest>) -> Result<Response<UndrainResponse>, Status> {
        Ok(Response::new(act::undrain(request.into_inner())))
    }

    async fn evict(&self, request: Request<EvictRequest>) -> Result<Response<EvictResponse>, Status> {
        act::evict(request.into_inner()).map(Response::new)
    }

    async fn policy(&self, _: Request<PolicyRequest>) -> Result<Response<PolicyResponse>, Status> {
        Ok(Response::new(live::policy()))
    }

    async fn events(&self, request: Request<EventsRequest>) -> Result<Response<EventsResponse>, Status> {
        Ok(Response::new(live::events(&request.into_inner())))
    }

    async fn idle(&self, request: Request<IdleRequest>) -> Result<Response<IdleResponse>, Status> {
        Ok(Response::new(live::idle(&request.into_inner())))
    }

    async fn rightsize(
        &self,
        request: Request<RightsizeRequest>,
    ) -> Result<Response<RightsizeResponse>, Status> {
        Ok(Response::new(live::rightsize(&request.into_inner())))
    }

    async fn shadow(&self, request: Request<ShadowRequest>) -> Result<Response<ShadowResponse>, Status> {
        Ok(Response::new(live::shadow(&request.into_inner())))
    }

    async fn top(&self, request: Request<TopRequest>) -> Result<Response<TopResponse>, Status> {
        Ok(Response::new(live::top(request.into_inner())))
    }
}
