//! The queue, from one `squeue` call whose format is chosen here.
//!
//! No field holds text that a user wrote. The one that others may fill (`admin_comment`: Slurm does not check it, other
//! tools write it) stands last, and every record is fenced by a separator with a nonce of this call, which no text
//! stored before can contain:
//!
//! ```text
//! 33_2;NONCE;41;PENDING; .. ;0;NONCE;any bytes, newlines too;NONCE.
//! ```
//!
//! So a newline or a forged line in a comment stays inside that comment: it can neither make a job nor hide one. Records
//! that still do not parse whole are dropped and counted. `queue` reads them one after the other.

use super::{epoch, gres_request, is_null, memory_mib, or_empty, state, time_limit_seconds, tres};
use crate::nodeset::{self, number};
use crate::types::{Job, JobState};
use compact_str::CompactString;
use pillion_core::mark::Mark;
use pillion_core::{NodeName, SlurmJobId, UserId};
use std::collections::BTreeMap;

/// Fields between the job's id and its admin comment, in order.
const FIELDS: [&str; 28] = [
    "JobID",
    "State",
    "Reason",
    "UserID",
    "UserName",
    "Account",
    "Partition",
    "QOS",
    "PriorityLong",
    "SubmitTime",
    "EligibleTime",
    "StartTime",
    "EndTime",
    "TimeLimit",
    "tres-per-node",
    "tres-per-job",
    "tres-per-socket",
    "tres-per-task",
    "NodeList",
    "ReqNodes",
    "ExcNodes",
    "Feature",
    "NumCPUs",
    "tres-alloc",
    "Reservation",
    "Dependency",
    "exit_code",
    "RestartCnt",
];

/// What stands after the id and before the comment, and what ends a record: two texts, or a comment that begins with a
/// newline would end its record at its own beginning. `nonce`: letters and digits that no stored text can know.
pub(super) fn fences(nonce: &str) -> (String, String) {
    (format!(";{nonce};"), format!(";{nonce}."))
}

/// How the excluded nodes are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Excluded {
    /// As the field `ExcNodes` of the record, which squeue has since 24.05.
    Within,
    /// By `-o %x`, in a call of their own: all that squeue 23.11 has. Their place in the record stays empty.
    Apart,
}

/// The value of `-O`. A suffix without a width (`:;`) prints a field whole, however long it is.
pub(crate) fn format_option(nonce: &str, excluded: Excluded) -> String {
    let (fence, end) = fences(nonce);
    let fields = FIELDS.join(":;,");
    let fields = match excluded {
        Excluded::Within => fields,
        Excluded::Apart => fields.replace(":;,ExcNodes:;", ":;;"),
    };
    format!("JobArrayID:{fence},{fields}:{fence},admin_comment:{end}")
}

/// The value of `-o` that asks for excluded nodes alone. A letter without a width prints its field whole, and what follows up to
/// the next `%` stands behind it (`src/squeue/opts.c`, `parse_format`).
pub(crate) fn excluded_format_option(nonce: &str) -> String {
    let (fence, end) = fences(nonce);
    format!("%i{fence}%A{fence}%x{end}")
}

/// Reads what `squeue -r -h -o` printed with `excluded_format_option` of the same `nonce`. A record that does not parse whole
/// says nothing, and neither do two of one job.
pub(crate) fn excluded_nodes(text: &str, nonce: &str) -> BTreeMap<SlurmJobId, Vec<NodeName>> {
    let fence = fences(nonce).0;
    let read = |record| {
        let (name, inner_id, nodes) = parts(record, &fence)?;
        Some((job_id(name, number_u32(inner_id)?)?, nodeset::expand(nodes).ok()?))
    };
    once(records(text, nonce).filter_map(read))
}

/// The value of `-O` that asks for names: what users wrote, and so fenced as comments are, with nothing else beside them.
pub(crate) fn names_format_option(nonce: &str) -> String {
    let (fence, end) = fences(nonce);
    format!("JobArrayID:{fence},Name:{end}")
}

/// The value of `-O` that asks for numbers of nodes.
pub(crate) fn node_counts_format_option(nonce: &str) -> String {
    let (fence, end) = fences(nonce);
    format!("JobArrayID:{fence},NumNodes:{end}")
}

/// Reads what `squeue -r -h -O` printed with `node_counts_format_option` of the same `nonce`. Of a range (`2-4`) the least counts.
pub fn node_counts(text: &str, nonce: &str) -> BTreeMap<SlurmJobId, u32> {
    let least = |count: &str| count.split('-').next().and_then(number_u32);
    names(text, nonce).into_iter().filter_map(|(id, count)| Some((id, least(&count)?))).collect()
}

/// Reads what `squeue -r -h -O` printed with `names_format_option` of the same `nonce`. A record that does not parse whole
/// is no name, and a job that has two has none.
pub fn names(text: &str, nonce: &str) -> BTreeMap<SlurmJobId, String> {
    let fence = fences(nonce).0;
    let read = |record: &str| {
        let (id, name) = record.split_once(fence.as_str())?;
        Some((id.parse().ok()?, name.to_owned()))
    };
    once(records(text, nonce).filter_map(read))
}

/// The records of an answer that are there whole: what stands after the last end of one is none.
fn records<'t>(text: &'t str, nonce: &str) -> impl Iterator<Item = &'t str> {
    let end = format!("{}\n", fences(nonce).1);
    let mut rest = text;
    std::iter::from_fn(move || {
        let (record, after) = rest.split_once(end.as_str())?;
        rest = after;
        Some(record)
    })
}

/// What there is once of each job: of two, neither is believed.
fn once<T>(records: impl Iterator<Item = (SlurmJobId, T)>) -> BTreeMap<SlurmJobId, T> {
    let mut found: BTreeMap<SlurmJobId, Option<T>> = BTreeMap::new();
    for (id, value) in records {
        found.entry(id).and_modify(|known| *known = None).or_insert(Some(value));
    }
    found.into_iter().filter_map(|(id, value)| Some((id, value?))).collect()
}

/// Reads what `squeue -h -O Requeue:` printed of one job.
pub fn allows_requeue(text: &str) -> Option<bool> {
    match text.trim() {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

/// A record without its fences: name, fields and comment.
pub(super) type Parts<'a> = (&'a str, &'a str, &'a str);

pub(super) fn parts<'a>(record: &'a str, fence: &str) -> Option<Parts<'a>> {
    let (name, rest) = record.split_once(fence)?;
    let (middle, comment) = rest.split_once(fence)?;
    Some((name, middle, comment))
}

pub(super) fn parse_record((name, middle, comment): Parts<'_>) -> Option<Job> {
    if name.chars().chain(middle.chars()).any(char::is_control) {
        return None;
    }
    let fields: [&str; 28] = middle.split(';').collect::<Vec<_>>().try_into().ok()?;
    let comment = if comment == "(null)" { "" } else { comment };
    let id = job_id(name, number_u32(fields[0])?)?;
    Some(Job { id, mark: Mark::parse(comment), ..job_of(&fields)? })
}

/// A job from its fields; the id is filled in by the caller.
fn job_of(fields: &[&str; 28]) -> Option<Job> {
    let [
        inner_id,
        job_state,
        reason,
        uid,
        user,
        account,
        partition,
        qos,
        priority,
        submitted,
        eligible,
        start,
        end,
        time_limit,
        per_node,
        per_job,
        per_socket,
        per_task,
        nodes,
        required_nodes,
        excluded_nodes,
        features,
        cpus,
        tres_all,
        reservation,
        dependency,
        exit,
        restart_count,
    ] = *fields;
    let job_state = state::job_state(job_state);
    let waits = job_state == JobState::Pending;
    let inner_id = number_u32(inner_id)?;
    Some(Job {
        id: SlurmJobId::plain(inner_id),
        restart_count: number_u32(restart_count)?,
        inner_id,
        reason: if waits { state::reason(reason, or_empty(account)) } else { crate::ReasonKind::None },
        uid: UserId(number_u32(uid)?),
        user: or_empty(user).into(),
        account: or_empty(account).into(),
        partition: or_empty(partition).into(),
        qos: or_empty(qos).into(),
        priority: some_number(priority)?,
        submitted_at: epoch(submitted)??,
        eligible_at: epoch(eligible)?,
        // For a waiting job squeue prints the start that backfill expects: a guess, not a fact.
        started_at: epoch(start)?.filter(|_| !waits),
        ended_at: epoch(end)?.filter(|_| !waits),
        time_limit_seconds: time_limit_seconds(time_limit)?,
        gres: all_gres([per_node, per_job, per_socket, per_task]),
        nodes: nodeset::expand(nodes).ok()?,
        required_nodes: nodeset::expand(required_nodes).ok()?,
        excluded_nodes: nodeset::expand(excluded_nodes).ok()?,
        features: or_empty(features).into(),
        cpus: cpu_count(tres_all, cpus)?,
        memory_mib: memory_mib_per_node(tres_all)?,
        reservation: or_empty(reservation).into(),
        has_dependency: !is_null(dependency),
        array_throttle: None,
        exit: if matches!(job_state, JobState::Ended(_)) { Some(exit_status(exit)?) } else { None },
        mark: Ok(None),
        state: job_state,
    })
}

/// `33`, `33_2`, or a het component `47+1`, which is updated by its own job id.
pub(super) fn job_id(name: &str, inner_id: u32) -> Option<SlurmJobId> {
    match name.split_once('+') {
        None => name.parse().ok(),
        Some((leader, offset)) => {
            number_u32(leader)?;
            number_u32(offset)?;
            Some(SlurmJobId::plain(inner_id))
        }
    }
}

/// The request a node, and with it what was asked for per job, socket or task, as it was written: a whole GPU in the
/// pool must be seen, whichever option asked for it.
fn all_gres(requests: [&str; 4]) -> CompactString {
    let parts = requests.iter().map(|request| gres_request(request)).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(",").into()
}

/// `tres-alloc` is what is booked, or asked for while the job waits; memory per CPU or GPU is multiplied out in it.
fn memory_mib_per_node(tres_all: &str) -> Option<u64> {
    let node_count = tres(tres_all, "node").map_or(Some(1), number).filter(|count| *count > 0)?;
    tres(tres_all, "mem").map_or(Some(0), memory_mib).map(|mib| mib.div_ceil(node_count))
}

fn cpu_count(tres_all: &str, cpus: &str) -> Option<u32> {
    // NumCPUs may be a range while the job waits.
    number_u32(tres(tres_all, "cpu").unwrap_or_else(|| cpus.split('-').next().unwrap_or_default()))
}

fn exit_status(text: &str) -> Option<(u32, u32)> {
    let (status, signal) = text.split_once(':')?;
    Some((number_u32(status)?, number_u32(signal)?))
}

fn some_number(text: &str) -> Option<u64> {
    number(text).filter(|_| !text.is_empty())
}

pub(super) fn number_u32(text: &str) -> Option<u32> {
    some_number(text).and_then(|value| u32::try_from(value).ok())
}

#[cfg(test)]
#[path = "squeue_tests.rs"]
mod tests;
