//! Runs that came to their end by themselves, as they are asked for to tell how a workload scales: of observed partitions, and of the
//! pool. The newest first over both, in one list or page after page.

use super::PgStore;
use super::convert::{Place as Row, Timestamp, bigint, integer_limit, unix_time};
use super::observed::{job_of, with_runs};
use super::run;
use super::tx::Access::Browse;
use super::tx::TxError;
use super::unreadable::readable;
use crate::{HeldDevice, ObservedRun, ScalingFilter, ScalingRun, StoreError};
use pillion_core::workload::on_any;
use pillion_core::{JobStart, NodeName, UnixTime, WorkloadKey};
use sqlx::PgConnection;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// What one device is booked as.
const WHOLE_SHARDS: u32 = 100;

/// Where a run stands among all, the newest first. A list goes on behind it.
#[derive(Debug, Clone, PartialEq)]
struct Place {
    ended_at: Timestamp,
    job_id: String,
    restart_count: i32,
}

impl Place {
    /// By what it is ordered, as the database orders it.
    fn rank(&self) -> (Reverse<Timestamp>, &str, i32) {
        (Reverse(self.ended_at), &self.job_id, self.restart_count)
    }
}

/// Runs in their order, each with its place; and behind which place there may be more.
struct Page {
    runs: Vec<(Place, ScalingRun)>,
    end: Option<Place>,
}

/// What pages alone ask.
impl PgStore {
    /// The newest completed starts with all parts of them that were reported, the newest first.
    ///
    /// # Errors
    /// [`StoreError`] while the database does not respond.
    pub async fn scaling(&self, filter: &ScalingFilter) -> Result<Vec<ScalingRun>, StoreError> {
        let page = self.scaling_behind(filter, None).await?;
        let most = usize::try_from(filter.limit).unwrap_or(usize::MAX);
        Ok(page.runs.into_iter().map(|(_, run)| run).take(most).collect())
    }

    /// Hands over all of them, some `filter.limit` at once: of years there are more than should be in memory. Each page is of a moment
    /// of its own; what ends meanwhile is newer than all that is still to come.
    ///
    /// # Errors
    /// [`StoreError`] while the database does not respond.
    pub async fn each_scaling(
        &self,
        filter: &ScalingFilter,
        mut take: impl FnMut(&ScalingRun) + Send,
    ) -> Result<(), StoreError> {
        let mut behind = None;
        loop {
            let page = self.scaling_behind(filter, behind.as_ref()).await?;
            page.runs.iter().for_each(|(_, run)| take(run));
            behind = page.end;
            if behind.is_none() {
                return Ok(());
            }
        }
    }

    async fn scaling_behind(
        &self,
        filter: &ScalingFilter,
        behind: Option<&Place>,
    ) -> Result<Page, StoreError> {
        self.run_tx("listing completed runs", Browse, |tx| Box::pin(page(tx.connection(), filter, behind)))
            .await
    }
}

/// Of both kinds together as far as both were read: what one of them has behind its end may come before what the other has there.
async fn page(
    conn: &mut PgConnection,
    filter: &ScalingFilter,
    behind: Option<&Place>,
) -> Result<Page, TxError> {
    let pages = [observed(conn, filter, behind).await?, of_pool(conn, filter, behind).await?];
    let ends = pages.iter().filter_map(|page| page.end.clone());
    let end = ends.min_by(|one, other| one.rank().cmp(&other.rank()));
    let mut runs: Vec<_> = pages.into_iter().flat_map(|page| page.runs).collect();
    runs.retain(|(place, _)| end.as_ref().is_none_or(|end| place.rank() <= end.rank()));
    runs.sort_by(|(one, _), (other, _)| one.rank().cmp(&other.rank()));
    Ok(Page { runs, end })
}

/// Where a list of at most so many ends that may go on. Also by rows that cannot be read: they have a place.
fn end_of(places: &[Place], limit: u32) -> Option<Place> {
    places.last().filter(|_| places.len() as u64 >= u64::from(limit)).cloned()
}

async fn observed(
    conn: &mut PgConnection,
    filter: &ScalingFilter,
    behind: Option<&Place>,
) -> Result<Page, TxError> {
    let ScalingFilter { uid, workload, since, until, limit } = filter;
    let rows = sqlx::query!(
        r#"select job_id, restart_count, ended_at as "ended_at!", body from observed_job
        where ended_at is not null and body ->> 'ending' = 'Completed'
            and ($1::bigint is null or (body ->> 'uid')::bigint = $1)
            and ($2::text is null or body ->> 'workload' = $2)
            and ($3::float8 is null or ended_at >= to_timestamp($3))
            and ($4::float8 is null or ended_at < to_timestamp($4))
            and ($5::timestamptz is null or ended_at <= $5 and
                (ended_at < $5 or (job_id collate "C", restart_count) > ($6, $7)))
        order by ended_at desc, job_id collate "C", restart_count limit $8"#,
        uid.map(|uid| bigint(uid.0.into())),
        workload.as_ref().map(WorkloadKey::as_str),
        since.map(UnixTime::seconds),
        until.map(UnixTime::seconds),
        behind.map(|place| place.ended_at),
        behind.map(|place| place.job_id.as_str()),
        behind.map(|place| place.restart_count),
        integer_limit(*limit),
    )
    .fetch_all(&mut *conn)
    .await?;
    let (mut places, mut bodies) = (Vec::with_capacity(rows.len()), Vec::with_capacity(rows.len()));
    for row in rows {
        places.push(Place { ended_at: row.ended_at, job_id: row.job_id, restart_count: row.restart_count });
        bodies.push(row.body);
    }
    let end = end_of(&places, *limit);
    let read = bodies.into_iter().zip(places).map(|(body, place)| Ok((job_of(body)?, place)));
    let (jobs, places): (Vec<_>, Vec<_>) = readable(read)?.into_iter().unzip();
    let runs = with_runs(conn, jobs).await?.into_iter().zip(places);
    let runs = runs.filter_map(|((job, parts), place)| Some((place, ScalingRun::observed(job, parts)?)));
    Ok(Page { runs: runs.collect(), end })
}

struct PoolRow {
    job_id: String,
    restart_count: i32,
    user_name: String,
    workload: String,
    started_at: Timestamp,
    ended_at: Timestamp,
    node: String,
    node_count: Option<i64>,
    device_model: Option<String>,
    gres: String,
    is_of_a_part: bool,
}

/// Of jobs that were started again the last start is the one that completed. Whose shards are gone was taken out of the pool: it is
/// among the observed ones, or nobody's.
async fn of_pool(
    conn: &mut PgConnection,
    filter: &ScalingFilter,
    behind: Option<&Place>,
) -> Result<Page, TxError> {
    let ScalingFilter { uid, workload, since, until, limit } = filter;
    let rows = sqlx::query_as!(
        PoolRow,
        r#"select job.job_id, job.restart_count, job.user_name, job.workload, job.started_at as "started_at!",
            job.ended_at as "ended_at!", job.node as "node!", job.node_count, job.gres, (
                select min(device.device_model) from device where device.node = job.node
                having count(distinct device.device_model) = 1
            ) as device_model, exists (
                select 1 from pairing_member as member join pairing_decision as decision using (decision_id)
                where member.job_id = job.job_id and member.restart_count = job.restart_count
                    and member.started_at is not null and member.state <> 'undone'
                    and (member.cap_fraction < 1 or member.mig_slot is not null or decision.ccs_mode > 1)
            ) as "is_of_a_part!"
        from job
        where job.ending = 'completed' and job.ended_at is not null and job.started_at is not null and job.node is not null
            and job.gres like '%shard%'
            and ($1::bigint is null or job.uid = $1)
            and ($2::text is null or regexp_replace(job.workload, '^([^/]*/)[0-9]+x-', '\1') = $2)
            and ($3::float8 is null or job.ended_at >= to_timestamp($3))
            and ($4::float8 is null or job.ended_at < to_timestamp($4))
            and ($5::timestamptz is null or job.ended_at <= $5 and
                (job.ended_at < $5 or (job.job_id collate "C", job.restart_count) > ($6, $7)))
        order by job.ended_at desc, job.job_id collate "C", job.restart_count limit $8"#,
        uid.map(|uid| bigint(uid.0.into())),
        workload.as_ref().map(WorkloadKey::as_str),
        since.map(UnixTime::seconds),
        until.map(UnixTime::seconds),
        behind.map(|place| place.ended_at),
        behind.map(|place| place.job_id.as_str()),
        behind.map(|place| place.restart_count),
        integer_limit(*limit),
    )
    .fetch_all(&mut *conn)
    .await?;
    let places: Vec<Place> = rows.iter().map(PoolRow::place).collect();
    let end = end_of(&places, *limit);
    let read = rows.into_iter().zip(places).map(|(row, place)| Ok((place, ScalingRun::try_from(row)?)));
    let mut runs = readable(read)?;
    let starts: Vec<JobStart> = runs.iter().map(|(_, run)| run.start).collect();
    let mut parts: BTreeMap<JobStart, Vec<ObservedRun>> = BTreeMap::new();
    for part in run::parts(conn, &starts).await? {
        parts.entry(part.summary.start).or_default().push(part);
    }
    for (_, run) in &mut runs {
        run.parts = parts.remove(&run.start).unwrap_or_default();
    }
    Ok(Page { runs, end })
}

impl PoolRow {
    fn place(&self) -> Place {
        Place { ended_at: self.ended_at, job_id: self.job_id.clone(), restart_count: self.restart_count }
    }
}

impl TryFrom<PoolRow> for ScalingRun {
    type Error = StoreError;
    fn try_from(row: PoolRow) -> Result<Self, StoreError> {
        let place = Row { table: "job", row: &row.job_id };
        let node_count: Option<u32> = place.number_opt("node_count", row.node_count)?;
        let start = JobStart {
            job_id: place.parse("job_id", &row.job_id)?,
            restart_count: place.number("restart_count", row.restart_count)?,
        };
        // Slurm books the same list on each of its nodes.
        let booked: Vec<_> = pillion_slurm::shards(&row.gres).collect();
        let of_node = u32::try_from(booked.len()).unwrap_or(u32::MAX);
        let node = NodeName::new(row.node);
        Ok(Self {
            start,
            user: row.user_name,
            workload: on_any(&WorkloadKey::new(row.workload)),
            started_at: unix_time(row.started_at),
            ended_at: unix_time(row.ended_at),
            node_count,
            device_count: node_count.map(|nodes| of_node.saturating_mul(nodes)),
            device_model: row.device_model,
            has_whole_devices: !row.is_of_a_part && booked.iter().all(|(_, count)| *count == WHOLE_SHARDS),
            is_of_a_part: row.is_of_a_part,
            devices: booked
                .into_iter()
                .filter_map(|(gres_type, _)| Some(HeldDevice::new(node.clone(), gres_type?)))
                .collect(),
            parts: Vec::new(),
        })
    }
}
