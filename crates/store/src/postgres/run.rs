//! Table `job_run`: each start of a job on a device, as its agent summarised it.

use super::convert::{Place, Timestamp, bigint, integer, integer_limit, text, timestamp, unix_time};
use super::tx::Access::{Read, Write};
use super::tx::TxError;
use super::unreadable::readable;
use super::{PgStore, decision, fault, job, unreadable};
use crate::{Lesson, MeasuredRun, ObservedRun, Runs, StoreError};
use async_trait::async_trait;
use pillion_core::report::{JobSummary, ProgressPart};
use pillion_core::{GresType, JobStart, NodeName};
use serde_json::{Value, json};
use sqlx::PgConnection;

#[async_trait]
impl Runs for PgStore {
    async fn unprofiled_runs(&self, limit: u32) -> Result<Vec<MeasuredRun>, StoreError> {
        self.open_runs(Open::Profile, limit).await
    }

    async fn pass_run(
        &self,
        start: JobStart,
        gres_type: &GresType,
        lesson: &Lesson,
    ) -> Result<(), StoreError> {
        self.run_tx("passing over a run", Write, |tx| {
            Box::pin(pass(tx.connection(), start, gres_type, lesson))
        })
        .await
    }

    async fn lesson(&self, start: JobStart) -> Result<Option<Lesson>, StoreError> {
        self.run_tx("reading a lesson", Read, |tx| Box::pin(lesson(tx.connection(), start))).await
    }

    async fn unjudged_runs(&self, limit: u32) -> Result<Vec<MeasuredRun>, StoreError> {
        self.open_runs(Open::Judge, limit).await
    }

    async fn summary(&self, start: JobStart) -> Result<Option<JobSummary>, StoreError> {
        self.run_tx("reading a summary", Read, |tx| Box::pin(summary(tx.connection(), start))).await
    }

    async fn summaries(&self, start: JobStart) -> Result<Vec<JobSummary>, StoreError> {
        self.run_tx("reading the summaries of a start", Read, |tx| {
            Box::pin(async move {
                let parts = parts(tx.connection(), &[start]).await?;
                Ok(parts.into_iter().map(|part| part.summary).collect())
            })
        })
        .await
    }
}

#[derive(Debug)]
struct RunRow {
    job_id: String,
    restart_count: i32,
    gres_type: String,
    started_at: Timestamp,
    ended_at: Timestamp,
    shared_seconds: f64,
    shared_device_seconds: Option<f64>,
    memory_bytes_peak: Option<i64>,
    process_count_peak: i64,
    process_memory_bytes_peak: Option<i64>,
    energy_joules: Option<f64>,
    solo_progress: Option<f64>,
    solo_seconds: f64,
    shared_progress: Option<f64>,
    shared_progress_seconds: f64,
    solo_means: Option<Value>,
    solo_sample_count: i64,
    neighbour_starts: Vec<String>,
    signs: Option<Value>,
    node: String,
    device_model: Option<String>,
    device_memory_bytes: Option<i64>,
}

impl TryFrom<RunRow> for JobSummary {
    type Error = StoreError;
    fn try_from(row: RunRow) -> Result<Self, StoreError> {
        let key = format!("{}+{} on {}", row.job_id, row.restart_count, row.gres_type);
        let place = Place { table: "job_run", row: &key };
        let start = JobStart {
            job_id: place.parse("job_id", &row.job_id)?,
            restart_count: place.number("restart_count", row.restart_count)?,
        };
        let neighbours = row.neighbour_starts.iter().map(|text| place.parse("neighbour_starts", text));
        Ok(Self {
            start,
            started_at: unix_time(row.started_at),
            ended_at: unix_time(row.ended_at),
            shared_seconds: row.shared_seconds,
            shared_device_seconds: row.shared_device_seconds,
            memory_bytes_peak: place.number_opt("memory_bytes_peak", row.memory_bytes_peak)?,
            process_count_peak: place.number("process_count_peak", row.process_count_peak)?,
            process_memory_bytes_peak: place
                .number_opt("process_memory_bytes_peak", row.process_memory_bytes_peak)?,
            energy_joules: row.energy_joules,
            solo: ProgressPart { progress: row.solo_progress, seconds: row.solo_seconds },
            shared: ProgressPart { progress: row.shared_progress, seconds: row.shared_progress_seconds },
            solo_means: row.solo_means.map(|value| place.json("solo_means", value)).transpose()?,
            solo_sample_count: place.number("solo_sample_count", row.solo_sample_count)?,
            neighbours: neighbours.collect::<Result<_, _>>()?,
            signs: row.signs.map(|value| place.json("signs", value)).transpose()?,
            gres_type: GresType::new(row.gres_type),
        })
    }
}

impl TryFrom<RunRow> for ObservedRun {
    type Error = StoreError;
    fn try_from(mut row: RunRow) -> Result<Self, StoreError> {
        let (node, device_model) = (NodeName::new(&row.node), row.device_model.take().unwrap_or_default());
        let place = Place { table: "device", row: node.as_str() };
        let device_memory_bytes =
            place.number::<u64>("memory_bytes", row.device_memory_bytes.unwrap_or(0))?;
        Ok(Self { summary: JobSummary::try_from(row)?, node, device_model, device_memory_bytes })
    }
}

/// An agent that lost its journal may report a start again, under another journal: the first one counts.
pub(super) async fn insert(
    conn: &mut PgConnection,
    node: &NodeName,
    run: &JobSummary,
) -> Result<(), TxError> {
    let neighbours: Vec<String> = run.neighbours.iter().map(ToString::to_string).collect();
    sqlx::query!(
        "insert into job_run (job_id, restart_count, gres_type, node, started_at, ended_at, shared_seconds,
            memory_bytes_peak, process_count_peak, energy_joules, solo_progress, solo_seconds, shared_progress,
            shared_progress_seconds, solo_means, solo_sample_count, neighbour_starts, signs,
            shared_device_seconds, process_memory_bytes_peak)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)
        on conflict on constraint job_run_start_key do nothing",
        run.start.job_id.to_string(),
        integer(run.start.restart_count),
        run.gres_type.as_str(),
        node.as_str(),
        timestamp(run.started_at),
        timestamp(run.ended_at),
        run.shared_seconds,
        run.memory_bytes_peak.map(bigint),
        i64::from(run.process_count_peak),
        run.energy_joules,
        run.solo.progress,
        run.solo.seconds,
        run.shared.progress,
        run.shared.seconds,
        run.solo_means.as_ref().map(|means| json!(means)),
        i64::from(run.solo_sample_count),
        &neighbours,
        run.signs.as_ref().map(|signs| json!(signs)),
        run.shared_device_seconds,
        run.process_memory_bytes_peak.map(bigint),
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// The summary of a start; with several devices, that of the first.
pub(super) async fn summary(conn: &mut PgConnection, start: JobStart) -> Result<Option<JobSummary>, TxError> {
    let row = sqlx::query_as!(
        RunRow,
        r#"select job_id, restart_count, gres_type, started_at, ended_at, shared_seconds, shared_device_seconds, memory_bytes_peak,
            process_count_peak, process_memory_bytes_peak, energy_joules, solo_progress, solo_seconds, shared_progress,
            shared_progress_seconds, solo_means, solo_sample_count, neighbour_starts, signs, node, null::text as device_model, null::bigint as device_memory_bytes
        from job_run where job_id = $1 and restart_count = $2 order by gres_type limit 1"#,
        start.job_id.to_string(),
        integer(start.restart_count),
    )
    .fetch_optional(conn)
    .await?;
    Ok(readable(row.map(JobSummary::try_from).into_iter())?.pop())
}

/// Rows of `job_run`, as `run`, each with its `device`; the pieces are what follows the columns. A macro, since sqlx checks literals.
macro_rules! run_rows {
    ([$($piece:literal)+], $($argument:expr),+ $(,)?) => {
        sqlx::query_as!(
            RunRow,
            r#"select run.job_id, run.restart_count, run.gres_type, run.started_at, run.ended_at, run.shared_seconds, run.shared_device_seconds,
                run.memory_bytes_peak, run.process_count_peak, run.process_memory_bytes_peak, run.energy_joules,
                run.solo_progress, run.solo_seconds,
                run.shared_progress, run.shared_progress_seconds, run.solo_means, run.solo_sample_count,
                run.neighbour_starts, run.signs, run.node, device.device_model as "device_model?",
                device.memory_bytes as "device_memory_bytes?"
            "# $(+ $piece)+,
            $($argument),+
        )
    };
}

/// All that was reported of these starts, each device by itself.
pub(super) async fn parts(conn: &mut PgConnection, starts: &[JobStart]) -> Result<Vec<ObservedRun>, TxError> {
    let ids: Vec<String> = starts.iter().map(|start| start.job_id.to_string()).collect();
    let counts: Vec<i32> = starts.iter().map(|start| integer(start.restart_count)).collect();
    let rows = run_rows!(
        ["from unnest($1::text[], $2::integer[]) as asked (job_id, restart_count)
        join job_run as run on run.job_id = asked.job_id and run.restart_count = asked.restart_count
        left join device on device.node = run.node and device.gres_type = run.gres_type
        order by run.job_id, run.restart_count, run.gres_type"],
        &ids,
        &counts,
    )
    .fetch_all(conn)
    .await?;
    Ok(readable(rows.into_iter().map(ObservedRun::try_from))?)
}

/// The runs whose flag (a column of `job_run`) is still false, once their end is certain.
macro_rules! open_runs {
    ($flag:literal, $conn:expr, $limit:expr) => {
        run_rows!(
            ["from job_run as run
            join device on device.node = run.node and device.gres_type = run.gres_type
            join job on job.job_id = run.job_id
            where not run." $flag "
                and (job.restart_count > run.restart_count
                    or (job.restart_count = run.restart_count and job.ended_at is not null))
            order by run.ended_at, run.job_id, run.restart_count, run.gres_type limit $1"],
            integer_limit($limit),
        )
        .fetch_all($conn)
    };
}

/// Runs that something is still to be done with.
#[derive(Debug, Default)]
struct OpenRuns {
    runs: Vec<MeasuredRun>,
    /// Those that cannot be read, or whose job or decision cannot.
    unreadable: Vec<Unreadable>,
}

/// A run that cannot be read: as it stands in the table, and why.
#[derive(Debug)]
struct Unreadable {
    job_id: String,
    restart_count: i32,
    gres_type: String,
    why: String,
}

impl RunRow {
    fn unreadable(&self, why: String) -> Unreadable {
        let Self { job_id, restart_count, gres_type, .. } = self;
        let (job_id, gres_type) = (job_id.clone(), gres_type.clone());
        Unreadable { job_id, restart_count: *restart_count, gres_type, why }
    }
}

/// What is still to be done with a run.
#[derive(Debug, Clone, Copy)]
pub(super) enum Open {
    /// To be profiled and accounted. Both are done at once; the release before did not account.
    Profile,
    /// To be judged.
    Judge,
}

impl PgStore {
    /// Runs that this is still to be done with, oldest first, with the job and the decision of each; those that cannot be read
    /// are marked as done with.
    pub(super) async fn open_runs(&self, open: Open, limit: u32) -> Result<Vec<MeasuredRun>, StoreError> {
        let action = match open {
            Open::Profile => "reading unprofiled runs",
            Open::Judge => "reading unjudged runs",
        };
        let OpenRuns { runs, unreadable } =
            self.run_tx(action, Read, |tx| Box::pin(read_open(tx.connection(), open, limit))).await?;
        let unreadable = unreadable.as_slice();
        if !unreadable.is_empty() {
            let action = "passing over runs";
            self.run_tx(action, Write, |tx| Box::pin(pass_unreadable(tx.connection(), open, unreadable)))
                .await?;
        }
        Ok(runs)
    }
}

async fn read_open(conn: &mut PgConnection, open: Open, limit: u32) -> Result<OpenRuns, TxError> {
    let rows = match open {
        Open::Profile => open_runs!("is_accounted", &mut *conn, limit).await?,
        Open::Judge => open_runs!("is_judged", &mut *conn, limit).await?,
    };
    measured(conn, rows).await
}

async fn measured(conn: &mut PgConnection, rows: Vec<RunRow>) -> Result<OpenRuns, TxError> {
    let ids: Vec<String> = rows.iter().map(|row| row.job_id.clone()).collect();
    let jobs = job::jobs(conn, &ids).await?;
    let requeues = fault::requeues_of(conn, &ids).await?;
    let mut open = OpenRuns::default();
    let mut read = Vec::with_capacity(rows.len());
    for row in rows {
        let key = row.unreadable(String::new());
        match ObservedRun::try_from(row) {
            Ok(told) => read.push((key, told)),
            Err(error) => {
                unreadable::found(&error);
                open.unreadable.push(Unreadable { why: error.to_string(), ..key });
            }
        }
    }
    let starts: Vec<JobStart> = read.iter().map(|(_, told)| told.summary.start).collect();
    let decisions = decision::ran_under(conn, &starts).await?;
    for (key, told) in read {
        let ObservedRun { node, summary, device_model, device_memory_bytes } = told;
        let job = jobs.get(&summary.start.job_id).cloned().ok_or("its job cannot be read");
        let decision = match decisions.get(&summary.start).cloned() {
            Some(None) => Err("its decision cannot be read"),
            known => Ok(known.flatten()),
        };
        let requeue = requeues.get(&summary.start).copied();
        match job.and_then(|job| Ok((job, decision?))) {
            Ok((job, decision)) => open.runs.push(MeasuredRun {
                summary,
                node,
                device_model,
                device_memory_bytes,
                job,
                decision,
                requeue,
            }),
            Err(why) => open.unreadable.push(Unreadable { why: why.to_owned(), ..key }),
        }
    }
    Ok(open)
}

/// Marks runs that cannot be read as done with, and says why: the oldest open ones are read, and these would always be
/// among them.
async fn pass_unreadable(conn: &mut PgConnection, open: Open, runs: &[Unreadable]) -> Result<(), TxError> {
    for Unreadable { job_id, restart_count, gres_type, why } in runs {
        match open {
            Open::Profile => {
                pass_row(conn, job_id, *restart_count, gres_type, &Lesson::nothing(why.as_str())).await?;
            }
            Open::Judge => {
                sqlx::query!(
                    "update job_run set is_judged = true where job_id = $1 and restart_count = $2 and gres_type = $3",
                    job_id,
                    restart_count,
                    gres_type,
                )
                .execute(&mut *conn)
                .await?;
            }
        }
    }
    Ok(())
}

/// Marks a run as done with that makes neither a profile nor an account.
pub(super) async fn pass(
    conn: &mut PgConnection,
    start: JobStart,
    gres_type: &GresType,
    lesson: &Lesson,
) -> Result<(), TxError> {
    let (job_id, restart_count) = (start.job_id.to_string(), integer(start.restart_count));
    pass_row(conn, &job_id, restart_count, gres_type.as_str(), lesson).await
}

async fn pass_row(
    conn: &mut PgConnection,
    job_id: &str,
    restart_count: i32,
    gres_type: &str,
    lesson: &Lesson,
) -> Result<(), TxError> {
    sqlx::query!(
        "update job_run set is_profiled = true, is_accounted = true, lesson_kind = $4, lesson_detail = $5
        where job_id = $1 and restart_count = $2 and gres_type = $3 and not is_accounted",
        job_id,
        restart_count,
        gres_type,
        lesson.kind.to_string(),
        &*text(&lesson.detail),
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// How far a run came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Done {
    /// It is part of its workload's profile, or of no use for it.
    pub(super) is_profiled: bool,
    /// It is accounted.
    pub(super) is_accounted: bool,
}

/// Marks a run as profiled and accounted; returns what it was before.
pub(super) async fn mark_profiled(
    conn: &mut PgConnection,
    start: JobStart,
    gres_type: &GresType,
    lesson: &Lesson,
) -> Result<Done, TxError> {
    let before = sqlx::query_as!(
        Done,
        "select is_profiled, is_accounted from job_run where job_id = $1 and restart_count = $2 and gres_type = $3",
        start.job_id.to_string(),
        integer(start.restart_count),
        gres_type.as_str(),
    )
    .fetch_optional(&mut *conn)
    .await?;
    let before = before.ok_or_else(|| StoreError::Missing(format!("the run of {start} on {gres_type}")))?;
    sqlx::query!(
        "update job_run set is_profiled = true, is_accounted = true, lesson_kind = $4, lesson_detail = $5
        where job_id = $1 and restart_count = $2 and gres_type = $3 and not (is_profiled and is_accounted)",
        start.job_id.to_string(),
        integer(start.restart_count),
        gres_type.as_str(),
        lesson.kind.to_string(),
        &*text(&lesson.detail),
    )
    .execute(conn)
    .await?;
    Ok(before)
}

/// What a start taught; with several devices, on the first.
pub(super) async fn lesson(conn: &mut PgConnection, start: JobStart) -> Result<Option<Lesson>, TxError> {
    let row = sqlx::query!(
        "select lesson_kind, lesson_detail from job_run where job_id = $1 and restart_count = $2
        order by gres_type limit 1",
        start.job_id.to_string(),
        integer(start.restart_count),
    )
    .fetch_optional(conn)
    .await?;
    let place = Place { table: "job_run", row: &start.to_string() };
    let Some((kind, detail)) = row.and_then(|row| Some((row.lesson_kind?, row.lesson_detail))) else {
        return Ok(None);
    };
    Ok(Some(Lesson { kind: place.parse("lesson_kind", &kind)?, detail }))
}
