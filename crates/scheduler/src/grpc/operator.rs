//! The operators' and users' service: reads the store and the board; what operators order is written down by `act`.

mod observed;
mod scaled;

use super::auth::{Caller, caller};
use super::naming::{self, Naming};
use super::owned::{is_of, own_user_name};
use super::top::to_u32;
use super::{act, browse, events, explain, idle, job, listing, rightsize, scale, shadow, status, top};
use crate::context::Context;
use crate::device_status::Amiss;
use crate::engine::Engine;
use crate::rules;
use pillion_api::operator_service_server::OperatorService;
use pillion_api::{self as api, DeviceStatus, StatusResponse};
use pillion_auth::Prover;
use pillion_core::device::DeviceDescription;
use pillion_core::event::EventKind;
use pillion_core::health::DeviceCondition;
use pillion_core::workload::on_any;
use pillion_core::{DecisionId, GresType, NodeName, SlurmJobId};
use pillion_slurm::JobState;
use pillion_store::postgres::PgStore;
use pillion_store::{Decision, GroupBy, MemoryAlarms, StoreError};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tonic::{Request, Response, Status};

pub struct OperatorServer {
    context: Arc<Context>,
    engine: Arc<Engine>,
    /// What pages alone ask of the store.
    pages: Arc<PgStore>,
    /// What the database is, for doctor.
    database: String,
    /// By what nodes prove who they are, for doctor; absent in tests.
    prover: Option<Arc<Prover>>,
}

impl OperatorServer {
    /// A service over the reconcilers' world.
    pub fn new(context: Arc<Context>, engine: Arc<Engine>, pages: Arc<PgStore>, database: String) -> Self {
        Self { context, engine, pages, database, prover: None }
    }

    /// The same, which can report by what nodes prove who they are.
    #[must_use]
    pub fn with_prover(self, prover: Arc<Prover>) -> Self {
        Self { prover: Some(prover), ..self }
    }

    /// The answer, with the names of its workloads.
    async fn named<A: Naming>(&self, answer: A) -> Result<Response<A>, Status> {
        let named = naming::named(self.context.store.as_ref(), answer).await;
        Ok(Response::new(named.map_err(store_error)?))
    }

    /// Puts the key in place of what a request calls a workload.
    async fn resolve(&self, workload: &mut String, caller: Caller) -> Result<(), Status> {
        let asked = std::mem::take(workload);
        *workload = naming::resolved(self.context.store.as_ref(), caller, asked).await?;
        Ok(())
    }

    fn shown(&self, caller: Caller) -> listing::Shown {
        listing::Shown { caller, hides_jobs: self.context.hides_jobs() }
    }

    async fn queue_rows(&self, caller: Caller) -> Result<Vec<api::QueueJob>, StoreError> {
        let Some(scan) = self.context.board().scan.clone() else { return Ok(Vec::new()) };
        // Not whole decisions, whose reasons are long, and of those that are active only what is not running yet.
        let waiting: Vec<SlurmJobId> = listing::managed_waiting(&scan).map(|job| job.id).collect();
        let tenants = self.pages.tenancies(&waiting).await?;
        let shown = self.shown(caller);
        let board = self.context.board();
        Ok(listing::queue(&scan, &tenants, &board.reasons, self.context.settings.by_job(), shown))
    }

    /// The row of one job, where it waits.
    async fn queue_row(&self, id: SlurmJobId, caller: Caller) -> Result<Option<api::QueueJob>, StoreError> {
        let Some(scan) = self.context.board().scan.clone() else { return Ok(None) };
        let Some(job) = scan.jobs.get(&id).filter(|job| job.state == JobState::Pending) else {
            return Ok(None);
        };
        let shown = self.shown(caller);
        let mut decisions = self.context.store.decisions_of(id).await?;
        decisions.retain(|decision| decision.state.is_active());
        let board = self.context.board();
        let by_job = self.context.settings.by_job();
        Ok(listing::queue_row(job, &scan, &decisions, &board.reasons, by_job, shown))
    }

    async fn overview(
        &self,
        request: api::TopRequest,
        caller: Caller,
    ) -> Result<api::TopResponse, StoreError> {
        let api::TopRequest { device_offset, device_limit, job_offset, job_limit } = request;
        let context = &self.context;
        let (store, agents) = (context.store.as_ref(), context.agents.all());
        let (scan, amiss) = {
            let board = context.board();
            (board.scan.clone(), board.amiss.clone())
        };
        let (decisions, drains) = (store.active_decisions().await?, store.drains().await?);
        let scan = scan.as_deref();
        let rows = top::rows(&top::Sources {
            scan,
            agents: &agents,
            decisions: &decisions,
            drains: &drains,
            amiss: &amiss,
        });
        let page = top::page(&rows, device_offset, device_limit);
        let users = explain::users_of(store, &top::decisions_on(page)).await?;
        let readings = context.agents.readings(page.iter().map(top::Row::place));
        let jobs = self.queue_rows(caller).await?;
        let shown = self.shown(caller);
        let now = context.now();
        Ok(api::TopResponse {
            now_seconds: now.seconds(),
            mode: context.settings.mode.as_str().to_owned(),
            counts: Some(top::counts(&rows)),
            agent_count: to_u32(agents.values().filter(|agent| agent.is_connected).count()),
            agents_not_responding_count: to_u32(agents.values().filter(|agent| !agent.is_connected).count()),
            waiting_count: to_u32(jobs.len()),
            unplaced_count: top::unplaced_count(scan, &decisions, shown),
            devices: top::devices(page, &readings, &users, shown, now),
            jobs: top::page(&jobs, job_offset, job_limit).to_vec(),
        })
    }

    async fn decisions(
        &self,
        decisions: &[Decision],
        caller: Caller,
    ) -> Result<Vec<api::Decision>, StoreError> {
        let users = explain::users_of(self.context.store.as_ref(), decisions).await?;
        Ok(decisions.iter().map(|decision| listing::decision(decision, &users, caller)).collect())
    }
}

fn text_of(path: Option<&Path>) -> Option<String> {
    path.map(|path| path.display().to_string())
}

/// Each device of an agent with what was reported of it last, as the caller may see it.
fn devices(
    amiss: &Amiss,
    node: &NodeName,
    devices: Vec<DeviceDescription>,
    mut conditions: BTreeMap<GresType, DeviceCondition>,
    caller: Caller,
) -> Vec<DeviceStatus> {
    let devices = devices.into_iter().map(|device| {
        let mut condition = conditions.remove(&device.gres_type);
        for fault in condition.iter_mut().flat_map(|condition| &mut condition.faults) {
            *fault = listing::fault(fault, caller);
        }
        let amiss = amiss.of(node, &device.gres_type).map(|why| why.told(caller.is_operator));
        DeviceStatus { amiss, ..DeviceStatus::new(device, condition) }
    });
    devices.collect()
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err takes")]
fn store_error(error: StoreError) -> Status {
    status::from_store(&error)
}

#[tonic::async_trait]
impl OperatorService for OperatorServer {
    async fn queue(
        &self,
        request: Request<api::QueueRequest>,
    ) -> Result<Response<api::QueueResponse>, Status> {
        let caller = caller(&request);
        let user = request.into_inner().user;
        let mut jobs = self.queue_rows(caller).await.map_err(store_error)?;
        jobs.retain(|job| user.is_empty() || job.user == user);
        self.named(api::QueueResponse { jobs }).await
    }

    async fn pairs(
        &self,
        request: Request<api::PairsRequest>,
    ) -> Result<Response<api::PairsResponse>, Status> {
        let caller = caller(&request);
        let mut request = request.into_inner();
        self.resolve(&mut request.workload, caller).await?;
        self.resolve(&mut request.beside, caller).await?;
        let Some(filter) = browse::decision_filter(request, caller)? else {
            return Ok(Response::new(api::PairsResponse::default()));
        };
        let decisions = self.pages.decisions(&filter).await.map_err(store_error)?;
        let decisions = self.decisions(&decisions, caller).await.map_err(store_error)?;
        self.named(api::PairsResponse { decisions }).await
    }

    async fn explain(
        &self,
        request: Request<api::ExplainRequest>,
    ) -> Result<Response<api::ExplainResponse>, Status> {
        let caller = caller(&request);
        let text = request.into_inner().job_id;
        let id: SlurmJobId = text.parse().map_err(|error| Status::invalid_argument(format!("{error}")))?;
        let row = self.queue_row(id, caller).await.map_err(store_error)?;
        let store = self.context.store.as_ref();
        let found = match explain::explain(store, id, row, caller).await.map_err(store_error)? {
            Some(found) => Some(found),
            None => self.explain_shadow(id, caller).await.map_err(store_error)?,
        };
        self.named(found.unwrap_or_default()).await
    }

    async fn job(&self, request: Request<api::JobRequest>) -> Result<Response<api::JobResponse>, Status> {
        let caller = caller(&request);
        let text = request.into_inner().job_id;
        let id: SlurmJobId = text.parse().map_err(|error| Status::invalid_argument(format!("{error}")))?;
        let store = self.context.store.as_ref();
        let now = self.context.now();
        let record = store.job(id).await.map_err(store_error)?.filter(|record| caller.may_see(record.uid));
        let Some(record) = record else {
            let mut status = self.observed_status(id, caller).await.map_err(store_error)?;
            if let Some(status) = &mut status {
                let request = rightsize::request_for(status);
                status.rightsizing = self.rightsized(&request, caller).await.map_err(store_error)?.rows;
            }
            return self.named(api::JobResponse { found: status.is_some(), status }).await;
        };
        let row = self.queue_row(id, caller).await.map_err(store_error)?;
        let advice = self.advice_of_pool(&record).await.map_err(store_error)?;
        let status = job::status(store, record, row, caller, now).await.map_err(store_error)?;
        let status = api::JobStatus { advice: status.advice.or(advice), ..status };
        self.named(api::JobResponse { found: true, status: Some(status) }).await
    }

    async fn account(
        &self,
        request: Request<api::AccountRequest>,
    ) -> Result<Response<api::AccountResponse>, Status> {
        let caller = caller(&request);
        let mut request = request.into_inner();
        self.resolve(&mut request.workload, caller).await?;
        let (since_seconds, until_seconds) = (request.since_seconds, request.until_seconds);
        let scaling = scale::sum_filter(&request, caller);
        let (mut filter, group_by) = listing::run_filter(request, caller)?;
        // Nothing ended later than now; a day for clocks that differ.
        let latest = self.context.now() + Duration::from_hours(24);
        if filter.until > latest {
            filter.until = latest;
        }
        let accounts = self.pages.accounts(&filter, group_by).await.map_err(store_error)?;
        let rows = accounts.into_iter().map(listing::account_row);
        let scaling = match scaling {
            Some(filter) => self.above_break_even(&filter).await.map_err(store_error)?,
            None => None,
        };
        let MemoryAlarms { told, came_true } =
            self.pages.memory_alarms(&filter).await.map_err(store_error)?;
        let memory_alarms = Some(api::MemoryAlarms { told, came_true });
        let rows = rows.collect();
        let response = api::AccountResponse { since_seconds, until_seconds, rows, scaling, memory_alarms };
        if group_by == GroupBy::Workload { self.named(response).await } else { Ok(Response::new(response)) }
    }

    async fn profiles(
        &self,
        request: Request<api::ProfilesRequest>,
    ) -> Result<Response<api::ProfilesResponse>, Status> {
        let caller = caller(&request);
        let api::ProfilesRequest { mut workload, user } = request.into_inner();
        self.resolve(&mut workload, caller).await?;
        let own = own_user_name(&self.context, caller);
        let profiles = self.context.store.profiles().await.map_err(store_error)?;
        let slices = self.context.store.slices().await.map_err(store_error)?;
        let profiles = profiles
            .iter()
            .map(|stored| &stored.profile)
            .filter(|profile| caller.is_operator || own.as_ref().is_some_and(|own| is_of(profile, own)))
            .filter(|profile| workload.is_empty() || profile.workload.as_str() == workload)
            .filter(|profile| user.is_empty() || is_of(profile, &user))
            .map(|profile| listing::profile_with(profile, &slices))
            .collect();
        self.named(api::ProfilesResponse { profiles }).await
    }

    async fn models(
        &self,
        request: Request<api::ModelsRequest>,
    ) -> Result<Response<api::ModelsResponse>, Status> {
        let models = self.context.store.models(request.into_inner().limit).await.map_err(store_error)?;
        Ok(Response::new(api::ModelsResponse { models: models.into_iter().map(listing::model).collect() }))
    }

    async fn dry_run(
        &self,
        request: Request<api::DryRunRequest>,
    ) -> Result<Response<api::DryRunResponse>, Status> {
        if !caller(&request).is_operator {
            return Err(Status::permission_denied(
                "only operators see everybody's jobs; ask as root or SlurmUser",
            ));
        }
        let dry_run = self.engine.dry_run().await.map_err(|error| status::from_tick(&error))?;
        let (view, plan) = dry_run.ok_or_else(|| Status::unavailable("Slurm's queue was not read yet"))?;
        self.named(api::DryRunResponse {
            plan_json: json(&plan)?,
            view_json: json(&view)?,
            workload_names: naming::places(listing::workloads_of(&plan)),
        })
        .await
    }

    async fn status(&self, request: Request<api::StatusRequest>) -> Result<Response<StatusResponse>, Status> {
        let (context, caller) = (&self.context, caller(&request));
        let miss_count = context.store.event_count(&EventKind::Missed).await.map_err(store_error)?;
        let revision = context.store.revision().await.map_err(store_error)?.0;
        let amiss = context.board().amiss.clone();
        let agents = context.agents.all().into_iter().map(|(node, agent)| api::AgentStatus {
            node: node.to_string(),
            connected: agent.is_connected,
            last_seen_at_seconds: listing::known(agent.last_seen_at),
            clock_skew_seconds: agent.clock_skew_seconds,
            version: agent.version,
            devices: devices(&amiss, &node, agent.devices, agent.conditions, caller),
            setup: context.agents.setup(&node).map(Into::into),
        });
        let drains = context.store.drains().await.map_err(store_error)?;
        let not_acting = context.refusal();
        let board = context.board();
        Ok(Response::new(StatusResponse {
            not_acting,
            scheduler_version: env!("CARGO_PKG_VERSION").to_owned(),
            mode: context.settings.mode.as_str().to_owned(),
            now_seconds: context.now().seconds(),
            slurm_version: board.slurm_version.map(|version| version.to_string()).unwrap_or_default(),
            slurm_refusal: board.slurm_version.and_then(pillion_slurm::SlurmVersion::refusal),
            last_scan_at_seconds: board.scan.as_ref().map(|scan| scan.at.seconds()),
            revision,
            agents: agents.collect(),
            database: self.database.clone(),
            miss_count,
            violation_count: board.violation_count,
            dropped_line_count: board.dropped_line_count,
            pool_partitions: context.settings.pool.clone(),
            bound_seconds: context.settings.bound.as_secs(),
            leading: context.is_leading(),
            drains: drains.iter().map(act::drained_place).collect(),
            config_path: text_of(context.settings.config_path.as_deref()),
            heartbeat_path: text_of(context.settings.heartbeat_path.as_deref()),
            auth_method: self.prover.as_ref().map(|prover| prover.method().as_str().to_owned()),
            refused: if caller.is_operator { listing::refused(context.refusals.all()) } else { Vec::new() },
        }))
    }

    async fn cluster(
        &self,
        request: Request<api::ClusterRequest>,
    ) -> Result<Response<api::ClusterResponse>, Status> {
        let caller = caller(&request);
        self.named(browse::cluster(&self.context, &self.pages, request.into_inner(), caller).await?).await
    }

    async fn heatmap(
        &self,
        request: Request<api::HeatmapRequest>,
    ) -> Result<Response<api::HeatmapResponse>, Status> {
        let caller = caller(&request);
        let mut request = request.into_inner();
        self.resolve(&mut request.workload, caller).await?;
        let Some(filter) = browse::heat_filter(request, caller) else {
            return Ok(Response::new(api::HeatmapResponse::default()));
        };
        let heat = self.pages.heat(&filter).await.map_err(store_error)?;
        self.named(browse::heatmap(heat)).await
    }

    async fn decided(
        &self,
        request: Request<api::DecidedRequest>,
    ) -> Result<Response<api::DecidedResponse>, Status> {
        let caller = caller(&request);
        let id = DecisionId(request.into_inner().decision_id);
        let store = self.context.store.as_ref();
        self.named(browse::decided(store, id, caller).await.map_err(store_error)?).await
    }

    async fn poke(&self, request: Request<api::PokeRequest>) -> Result<Response<api::PokeResponse>, Status> {
        // Slurm's hooks come as root or SlurmUser. Nobody else makes us read the queue more often.
        if caller(&request).is_operator {
            self.context.nudges.watch.notify_one();
        }
        Ok(Response::new(api::PokeResponse {}))
    }

    async fn drain(
        &self,
        request: Request<api::DrainRequest>,
    ) -> Result<Response<api::DrainResponse>, Status> {
        let caller = caller(&request);
        act::drain(&self.context, caller, request.into_inner()).await.map(Response::new)
    }

    async fn undrain(
        &self,
        request: Request<api::UndrainRequest>,
    ) -> Result<Response<api::UndrainResponse>, Status> {
        let caller = caller(&request);
        act::undrain(&self.context, caller, request.into_inner()).await.map(Response::new)
    }

    async fn evict(
        &self,
        request: Request<api::EvictRequest>,
    ) -> Result<Response<api::EvictResponse>, Status> {
        let caller = caller(&request);
        act::evict(&self.context, caller, request.into_inner()).await.map(Response::new)
    }

    async fn policy(&self, _: Request<api::PolicyRequest>) -> Result<Response<api::PolicyResponse>, Status> {
        let configured = self.context.settings.rules.iter().cloned();
        let found = rules::mechanisms(&self.context.agents.all());
        let all = configured.chain(rules::built_in()).chain([found]);
        Ok(Response::new(api::PolicyResponse { rules: all.map(listing::rule).collect() }))
    }

    async fn events(
        &self,
        request: Request<api::EventsRequest>,
    ) -> Result<Response<api::EventsResponse>, Status> {
        let caller = caller(&request);
        let filter = events::filter(request.into_inner(), caller)?;
        let events = self.pages.list_events(&filter).await.map_err(store_error)?;
        Ok(Response::new(events::answer(events, &filter)))
    }

    async fn idle(&self, request: Request<api::IdleRequest>) -> Result<Response<api::IdleResponse>, Status> {
        let caller = caller(&request);
        let observed = Arc::clone(&self.context.board().observed);
        let (agents, now) = (self.context.agents.all(), self.context.now());
        self.named(idle::answer(&observed, &agents, &request.into_inner(), caller, now)?).await
    }

    async fn rightsize(
        &self,
        request: Request<api::RightsizeRequest>,
    ) -> Result<Response<api::RightsizeResponse>, Status> {
        let caller = caller(&request);
        let mut request = request.into_inner();
        self.resolve(&mut request.workload, caller).await?;
        self.named(self.rightsized(&request, caller).await.map_err(store_error)?).await
    }

    async fn scale(
        &self,
        request: Request<api::ScaleRequest>,
    ) -> Result<Response<api::ScaleResponse>, Status> {
        let caller = caller(&request);
        let asked = request.into_inner().workload;
        let workload = naming::resolved_as(self.context.store.as_ref(), caller, asked, on_any).await?;
        let filter = scale::filter(&workload, caller)?;
        let runs = self.pages.scaling(&filter).await.map_err(store_error)?;
        self.named(scale::answer(&runs, &filter)).await
    }

    async fn shadow(
        &self,
        request: Request<api::ShadowRequest>,
    ) -> Result<Response<api::ShadowResponse>, Status> {
        let filter = shadow::filter(request.get_ref(), caller(&request))?;
        let sums = self.pages.shadow_sums(&filter).await.map_err(store_error)?;
        let settings = &self.context.settings;
        let speeds = match shadow::calibrated_since(&filter) {
            Some(since) => self.pages.foretold_speeds(since, filter.until).await.map_err(store_error)?,
            None => Vec::new(),
        };
        Ok(Response::new(api::ShadowResponse {
            is_deciding: Some(settings.has_shadow()),
            calibration: shadow::calibrated(&speeds, &sums),
            ..shadow::answer(&sums, &filter, settings.mode.as_str(), &settings.observed)
        }))
    }

    async fn top(&self, request: Request<api::TopRequest>) -> Result<Response<api::TopResponse>, Status> {
        let caller = caller(&request);
        let response = self.overview(request.into_inner(), caller).await.map_err(store_error)?;
        self.named(response).await
    }
}

fn json(value: &impl serde::Serialize) -> Result<String, Status> {
    serde_json::to_string(value).map_err(|error| Status::internal(error.to_string()))
}

#[cfg(test)]
mod tests;
