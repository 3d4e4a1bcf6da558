//! Memory by job under MPS: two clients that hold known amounts, each a job of its own to the agent's sampler, beside
//! nvidia-smi and beside what they hold.

use crate::bench::{Bench, Limits};
use crate::kernels::Workload;
use crate::ours::Ours;
use crate::report::{Measured, table};
use crate::smi::Smi;
use crate::tenant::{Client, Tenant};
use pillion_agent::procfs::{ProcFs, ProcessId};
use pillion_agent::progress::ProgressFiles;
use pillion_agent::sampler::{Attribution, Sampler, SamplerState, SamplerTools};
use pillion_agent::tracker::Registration;
use pillion_core::device::DeviceDescription;
use pillion_core::report::ReportBody;
use pillion_core::{JobStart, SlurmJobId, UnixTime, UserId};
use pillion_device::DeviceState;
use std::collections::BTreeMap;
use std::path::Path;

const MIB: u64 = 1 << 20;
/// How far values may be apart.
const TOLERANCE_BYTES: u64 = 64 * MIB;
/// What the two clients hold beyond their workload, which is the same.
const HELD_BYTES: [u64; 2] = [1 << 30, 3 << 30];

/// What is known of one client.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Held {
    /// Beyond its workload: what we know.
    known: u64,
    /// As NVML tells of its process.
    process: Option<u64>,
    /// As the sampler sums its job up.
    job: Option<u64>,
    /// As nvidia-smi tells of its process.
    smi: Option<u64>,
}

/// Reads two clients. `directory`: where the sampler may keep files.
///
/// # Errors
/// A sentence: why there is no daemon, no client or no reading.
pub fn measure(bench: &mut Bench, ours: &mut Ours, smi: &Smi, directory: &Path) -> Measured {
    bench.start()?;
    let read = both(bench, ours, smi, directory);
    bench.stop()?;
    let (rows, apart) = rows(&read?);
    let text = table(&["memory of a client", "bytes", "of", "bytes", "apart by MiB", ""], rows);
    let text = format!("At most {} MiB apart.\n\n{text}", TOLERANCE_BYTES / MIB);
    Ok((text, apart).into())
}

fn both(bench: &mut Bench, ours: &mut Ours, smi: &Smi, directory: &Path) -> Result<[Held; 2], String> {
    let client =
        |held_bytes| Client { held_bytes, ..bench.client(Workload::ComputeSmall, Limits::default()) };
    let clients = HELD_BYTES.map(client);
    let tenants = [Tenant::start(&clients[0])?, Tenant::start(&clients[1])?];
    for tenant in &tenants {
        bench.has_client(tenant)?;
    }
    let state = ours.state()?;
    let listed: BTreeMap<u32, Option<f64>> = smi.processes().into_iter().collect();
    let jobs = by_job(&ours.device, &state, &tenants, directory)?;
    let mut read = [Held::default(); 2];
    for (index, (read, tenant)) in read.iter_mut().zip(&tenants).enumerate() {
        let mine = state.processes.iter().find(|process| process.pid == tenant.pid());
        let mebibytes = listed.get(&tenant.pid()).copied().flatten();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of MiB")]
        let smi = mebibytes.map(|mebibytes| mebibytes as u64 * MIB);
        *read = Held {
            known: HELD_BYTES[index],
            process: mine.and_then(|process| process.memory_bytes),
            job: jobs.get(&job(index)).copied(),
            smi,
        };
    }
    for tenant in tenants {
        tenant.leave();
    }
    Ok(read)
}

fn job(index: usize) -> SlurmJobId {
    SlurmJobId::plain(u32::try_from(index).unwrap_or_default() + 1)
}

/// What the agent's sampler tells of each client as a job of its own: by the tree of its processes, as on a node.
fn by_job(
    device: &DeviceDescription,
    state: &DeviceState,
    tenants: &[Tenant],
    directory: &Path,
) -> Result<BTreeMap<SlurmJobId, u64>, String> {
    let processes = ProcFs::new("/proc");
    let progress_files = ProgressFiles::new(directory).map_err(|error| error.to_string())?;
    let tools = SamplerTools {
        devices: vec![device.clone()],
        proc: processes.clone(),
        attribution: Attribution::Told(progress_files),
        period_seconds: 1.0,
    };
    let (mut sampler, at) = (Sampler::new(tools, SamplerState::default()), UnixTime::from_epoch(1));
    for (index, tenant) in tenants.iter().enumerate() {
        let stat = processes.stat(tenant.pid()).ok_or("a client ended by itself")?;
        sampler.register(Registration {
            start: JobStart { job_id: job(index), restart_count: 0 },
            inner_job_id: None,
            uid: UserId(rustix::process::geteuid().as_raw()),
            gres_types: vec![device.gres_type.clone()],
            root: ProcessId { pid: tenant.pid(), start_ticks: stat.start_ticks },
            at,
        });
    }
    let found = sampler.sample(at, vec![(device.index, Ok(state.clone()))]);
    let devices = found.reports.into_iter().filter_map(|report| match report {
        ReportBody::Samples(told) => Some(told.samples),
        _ => None,
    });
    let uses = devices.flatten().flat_map(|device| device.tenants);
    Ok(uses.filter_map(|its| Some((its.job_id, its.memory_bytes?))).collect())
}

/// What is compared, and how many are too far apart. Contexts are of one size, so the difference of two clients is that of
/// what they hold.
fn rows(read: &[Held; 2]) -> (Vec<Vec<String>>, usize) {
    let difference = |of: fn(&Held) -> Option<u64>| Some(of(&read[1])?.abs_diff(of(&read[0])?));
    let mut compared = Vec::new();
    for client in read {
        compared.push(("NVML, by our backend", client.process, "nvidia-smi", client.smi));
        compared.push(("the sampler's sum of its job", client.job, "NVML, by our backend", client.process));
    }
    let held = read[1].known.abs_diff(read[0].known);
    compared.push(("the sampler: both, their difference", difference(|it| it.job), "held", Some(held)));
    let least = read.iter().map(|client| client.job.zip(Some(client.known)));
    let mut apart = 0;
    let mut rows: Vec<Vec<String>> = compared
        .into_iter()
        .map(|(what, ours, of, theirs)| {
            let verdict = verdict(ours, theirs);
            apart += usize::from(verdict.starts_with("APART"));
            let by = ours.zip(theirs).map(|(ours, theirs)| ours.abs_diff(theirs) / MIB);
            vec![what.to_owned(), cell(ours), of.to_owned(), cell(theirs), cell(by), verdict.to_owned()]
        })
        .collect();
    for (job, held) in least.flatten() {
        let is_enough = job >= held;
        apart += usize::from(!is_enough);
        let said = if is_enough { "holds it, and its context" } else { "APART: less than it holds" };
        let by = job.abs_diff(held) / MIB;
        rows.push(vec![
            "the sampler's sum of its job".to_owned(),
            job.to_string(),
            "held".to_owned(),
            held.to_string(),
            by.to_string(),
            said.to_owned(),
        ]);
    }
    (rows, apart)
}

fn verdict(ours: Option<u64>, theirs: Option<u64>) -> &'static str {
    match (ours, theirs) {
        (Some(ours), Some(theirs)) if ours.abs_diff(theirs) <= TOLERANCE_BYTES => "agree",
        (Some(_), Some(_)) => "APART",
        (Some(_), None) => "only the first",
        // What another can tell, we must tell, too.
        (None, Some(_)) => "APART: not told",
        (None, None) => "neither",
    }
}

fn cell(value: Option<u64>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTEXT: u64 = 300 * MIB;

    fn told(held: u64) -> Held {
        let bytes = Some(held + CONTEXT);
        Held { known: held, process: bytes, job: bytes, smi: bytes }
    }

    #[test]
    fn sixty_four_mebibytes_are_the_limit() {
        let well = HELD_BYTES.map(told);
        let (text, apart) = rows(&well);
        assert_eq!((text.len(), apart), (7, 0), "{text:?}");
        let mut off = well;
        off[0].smi = off[0].smi.map(|bytes| bytes + 65 * MIB);
        assert_eq!(rows(&off).1, 1);
        // One client's memory told as that of both: the job's sum, and the difference.
        let mut swapped = well;
        swapped[0].job = swapped[1].job;
        assert_eq!(rows(&swapped).1, 2);
    }

    #[test]
    fn what_is_missing_is_told_and_less_than_held_is_apart() {
        let mut dark = HELD_BYTES.map(told);
        for client in &mut dark {
            client.job = None;
        }
        assert_eq!(rows(&dark).1, 3, "both jobs and their difference");
        let mut less = HELD_BYTES.map(told);
        less[1] = Held { process: Some(MIB), job: Some(MIB), smi: Some(MIB), ..less[1] };
        assert_eq!(rows(&less).1, 2, "the difference, and less than it holds");
        assert_eq!(verdict(None, None), "neither");
        assert_eq!(verdict(Some(1), None), "only the first");
    }
}
