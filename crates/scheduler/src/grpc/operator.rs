//! The operators' and users' service: reads the store and the board, changes nothing.

use super::auth::{Caller, caller};
use super::{browse, explain, job, listing, status};
use crate::context::Context;
use crate::engine::Engine;
use crate::store::{Decision, StoreError};
use crate::story::Accounts;
use pillion_core::{DecisionId, NodeName, SlurmJobId};
use pillion_proto::v1::operator_service_server::OperatorService;
use pillion_proto::v1::{self, StatusResponse};
use std::sync::Arc;
use std::time::Duration;
use tonic::{Request, Response, Status};

/// How much of a long stretch of time is read at once: a year of a large site is more than memory should hold.
const ACCOUNT_PART: Duration = Duration::from_hours(24 * 7);

/// The service.
pub struct OperatorServer {
    context: Arc<Context>,
    engine: Arc<Engine>,
    /// What the database is, for doctor.
    database: String,
}

impl OperatorServer {
    /// A service over the reconcilers' world.
    pub fn new(context: Arc<Context>, engine: Arc<Engine>, database: String) -> Self {
        Self { context, engine, database }
    }

    async fn queue_rows(&self, caller: Caller) -> Result<Vec<v1::QueueJob>, StoreError> {
        let Some(scan) = self.context.board().scan.clone() else { return Ok(Vec::new()) };
        // Not whole decisions: their reasons are long, and most of those that are active run already.
        let mut nodes: Vec<NodeName> = scan.nodes.iter().map(|node| node.name.clone()).collect();
        nodes.extend(self.context.agents.all().into_keys());
        nodes.sort_unstable();
        nodes.dedup();
        let tenants = self.context.store.tenants(&nodes).await?;
        let reasons = self.context.board().reasons.clone();
        Ok(listing::queue(&scan, &tenants, &reasons, &self.context.settings.policy, caller))
    }

    async fn decisions(
        &self,
        decisions: &[Decision],
        caller: Caller,
    ) -> Result<Vec<v1::Decision>, StoreError> {
        let users = explain::users_of(self.context.store.as_ref(), decisions).await?;
        Ok(decisions.iter().map(|decision| listing::decision(decision, &users, caller)).collect())
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err takes")]
fn store_error(error: StoreError) -> Status {
    status::from_store(&error)
}

#[tonic::async_trait]
impl OperatorService for OperatorServer {
    async fn queue(&self, request: Request<v1::QueueRequest>) -> Result<Response<v1::QueueResponse>, Status> {
        let caller = caller(&request);
        let user = request.into_inner().user;
        let mut jobs = self.queue_rows(caller).await.map_err(store_error)?;
        jobs.retain(|job| user.is_empty() || job.user == user);
        Ok(Response::new(v1::QueueResponse { jobs }))
    }

    async fn pairs(&self, request: Request<v1::PairsRequest>) -> Result<Response<v1::PairsResponse>, Status> {
        let caller = caller(&request);
        let Some(filter) = browse::decision_filter(request.into_inner(), caller)? else {
            return Ok(Response::new(v1::PairsResponse::default()));
        };
        let decisions = self.context.store.decisions(&filter).await.map_err(store_error)?;
        let decisions = self.decisions(&decisions, caller).await.map_err(store_error)?;
        Ok(Response::new(v1::PairsResponse { decisions }))
    }

    async fn explain(
        &self,
        request: Request<v1::ExplainRequest>,
    ) -> Result<Response<v1::ExplainResponse>, Status> {
        let caller = caller(&request);
        let text = request.into_inner().job_id;
        let id: SlurmJobId = text.parse().map_err(|error| Status::invalid_argument(format!("{error}")))?;
        let rows = self.queue_rows(caller).await.map_err(store_error)?;
        let row = rows.into_iter().find(|row| row.job_id == text);
        let store = self.context.store.as_ref();
        let found = explain::explain(store, id, row, caller).await.map_err(store_error)?;
        let missing = || v1::ExplainResponse { found: false, ..v1::ExplainResponse::default() };
        Ok(Response::new(found.unwrap_or_else(missing)))
    }

    async fn job(&self, request: Request<v1::JobRequest>) -> Result<Response<v1::JobResponse>, Status> {
        let caller = caller(&request);
        let text = request.into_inner().job_id;
        let id: SlurmJobId = text.parse().map_err(|error| Status::invalid_argument(format!("{error}")))?;
        let store = self.context.store.as_ref();
        let record = store.job(id).await.map_err(store_error)?.filter(|record| caller.may_see(record.uid));
        let Some(record) = record else {
            return Ok(Response::new(v1::JobResponse { found: false, ..v1::JobResponse::default() }));
        };
        let rows = self.queue_rows(caller).await.map_err(store_error)?;
        let row = rows.into_iter().find(|row| row.job_id == text);
        let now = self.context.now();
        Ok(Response::new(job::job(store, record, row, caller, now).await.map_err(store_error)?))
    }

    async fn account(
        &self,
        request: Request<v1::AccountRequest>,
    ) -> Result<Response<v1::AccountResponse>, Status> {
        let caller = caller(&request);
        let (filter, group_by) = listing::run_filter(request.into_inner(), caller)?;
        let mut accounts = Accounts::new(group_by);
        for part in filter.parts(ACCOUNT_PART) {
            let runs = self.context.store.accounted_runs(&part).await.map_err(store_error)?;
            accounts.extend(&runs);
        }
        let rows = accounts.rows().map(listing::account_row);
        Ok(Response::new(v1::AccountResponse { rows: rows.collect() }))
    }

    async fn profiles(
        &self,
        request: Request<v1::ProfilesRequest>,
    ) -> Result<Response<v1::ProfilesResponse>, Status> {
        let caller = caller(&request);
        let v1::ProfilesRequest { workload, user } = request.into_inner();
        let own = own_user_name(&self.context, caller);
        let visible = |key: &str| {
            caller.is_operator || own.as_ref().is_some_and(|own| key.starts_with(&format!("{own}/")))
        };
        let profiles = self.context.store.profiles().await.map_err(store_error)?;
        let profile_json = profiles
            .into_iter()
            .map(|stored| stored.profile)
            .filter(|profile| visible(profile.workload.as_str()))
            .filter(|profile| workload.is_empty() || profile.workload.as_str() == workload)
            .filter(|profile| user.is_empty() || profile.workload.as_str().starts_with(&format!("{user}/")))
            .filter_map(|profile| serde_json::to_string(&profile).ok())
            .collect();
        Ok(Response::new(v1::ProfilesResponse { profile_json }))
    }

    async fn models(
        &self,
        request: Request<v1::ModelsRequest>,
    ) -> Result<Response<v1::ModelsResponse>, Status> {
        let models = self.context.store.models(request.into_inner().limit).await.map_err(store_error)?;
        Ok(Response::new(v1::ModelsResponse { models: models.into_iter().map(listing::model).collect() }))
    }

    async fn dry_run(
        &self,
        request: Request<v1::DryRunRequest>,
    ) -> Result<Response<v1::DryRunResponse>, Status> {
        if !caller(&request).is_operator {
            return Err(Status::permission_denied(
                "only operators see everybody's jobs; ask as root or SlurmUser",
            ));
        }
        let dry_run = self.engine.dry_run().await.map_err(|error| status::from_tick(&error))?;
        let (view, plan) = dry_run.ok_or_else(|| Status::unavailable("Slurm's queue was not read yet"))?;
        let json = |error: serde_json::Error| Status::internal(error.to_string());
        Ok(Response::new(v1::DryRunResponse {
            plan_json: serde_json::to_string(&plan).map_err(json)?,
            view_json: serde_json::to_string(&view).map_err(json)?,
        }))
    }

    async fn status(&self, _: Request<v1::StatusRequest>) -> Result<Response<StatusResponse>, Status> {
        let context = &self.context;
        let miss_count = context.store.event_count("missed").await.map_err(store_error)?;
        let revision = context.store.revision().await.map_err(store_error)?.0;
        let agents = context.agents.all().into_iter().map(|(node, agent)| v1::AgentStatus {
            node: node.to_string(),
            connected: agent.is_connected,
            last_seen_at_seconds: agent.last_seen_at.seconds(),
            clock_skew_seconds: agent.clock_skew_seconds,
            version: agent.version,
            devices: agent.devices.into_iter().map(Into::into).collect(),
            conditions: agent.conditions.into_values().map(Into::into).collect(),
        });
        let board = context.board();
        Ok(Response::new(StatusResponse {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            mode: context.settings.mode.as_str().to_owned(),
            now_seconds: context.now().seconds(),
            slurm_version: board.slurm_version.map(|version| version.to_string()).unwrap_or_default(),
            slurm_refusal: board
                .slurm_version
                .and_then(pillion_slurm::SlurmVersion::refusal)
                .unwrap_or_default(),
            last_scan_at_seconds: board.scan.as_ref().map_or(0.0, |scan| scan.at.seconds()),
            revision,
            agents: agents.collect(),
            database: self.database.clone(),
            miss_count,
            violation_count: board.violation_count,
            dropped_line_count: board.dropped_line_count,
            pool_partitions: context.settings.pool.clone(),
            bound_seconds: context.settings.bound.as_secs(),
        }))
    }

    async fn cluster(
        &self,
        request: Request<v1::ClusterRequest>,
    ) -> Result<Response<v1::ClusterResponse>, Status> {
        let caller = caller(&request);
        Ok(Response::new(browse::cluster(&self.context, request.into_inner(), caller).await?))
    }

    async fn heatmap(
        &self,
        request: Request<v1::HeatmapRequest>,
    ) -> Result<Response<v1::HeatmapResponse>, Status> {
        let caller = caller(&request);
        let Some(filter) = browse::heat_filter(request.into_inner(), caller) else {
            return Ok(Response::new(v1::HeatmapResponse::default()));
        };
        let heat = self.context.store.heat(&filter).await.map_err(store_error)?;
        Ok(Response::new(browse::heatmap(heat)))
    }

    async fn decided(
        &self,
        request: Request<v1::DecidedRequest>,
    ) -> Result<Response<v1::DecidedResponse>, Status> {
        let caller = caller(&request);
        let id = DecisionId(request.into_inner().decision_id);
        let store = self.context.store.as_ref();
        Ok(Response::new(browse::decided(store, id, caller).await.map_err(store_error)?))
    }

    async fn poke(&self, _: Request<v1::PokeRequest>) -> Result<Response<v1::PokeResponse>, Status> {
        self.context.nudges.watch.notify_one();
        Ok(Response::new(v1::PokeResponse {}))
    }
}

/// The name of a calling user, from his jobs in the last scan.
fn own_user_name(context: &Context, caller: Caller) -> Option<String> {
    let scan = context.board().scan.clone()?;
    scan.jobs.values().find(|job| Some(job.uid) == caller.uid).map(|job| job.user.clone())
}
