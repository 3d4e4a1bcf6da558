//! What the driver tells, the mode under our feet, and how long cuts take.

use super::bench::{Cutter, plain, with_slices};
use crate::kernels::Workload;
use crate::programs::{now, until};
use crate::report::{Findings, Measured, table};
use crate::stats::quantile;
use crate::tenant::Tenant;
use pillion_core::mig::{Slot, resolve};
use pillion_device::mechanism::mig::MigMode;
use pillion_device::nvidia::MigFiles;
use rustix::process::Signal;
use std::time::Duration;

/// How often each size is made and taken away.
const CUTS: usize = 50;
/// How often a client is killed.
const KILLS: usize = 20;
const PATIENCE: Duration = Duration::from_secs(10);

/// A number of milliseconds in a table.
fn milliseconds(seconds: f64) -> String {
    format!("{:.1}", seconds * 1e3)
}

fn p50_and_p99(seconds: &[f64]) -> [String; 2] {
    [0.5, 0.99].map(|part| quantile(seconds, part).map_or_else(|| "not measured".to_owned(), milliseconds))
}

/// Turns MIG on, off and on again while our readings go on. A GPU that was in the mode stays in it.
///
/// # Errors
/// A sentence: why it does not change.
pub fn toggle(cutter: &mut Cutter) -> Measured {
    let mut rows = vec![vec!["before".to_owned(), format!("{:?}", cutter.layout()?.mode), cutter.holders()]];
    let order: &[bool] = if cutter.was_on() { &[] } else { &[true, false, true] };
    let mut apart = 0;
    for is_on in order {
        let seconds = cutter.set_mode(*is_on)?;
        let expected = if *is_on { MigMode::On } else { MigMode::Off };
        let mode = cutter.layout()?.mode;
        let reads = match cutter.reads() {
            Ok(()) => "our readings come".to_owned(),
            Err(reason) => format!("NO READING: {reason}"),
        };
        apart += usize::from(mode != expected) + usize::from(reads.starts_with("NO"));
        rows.push(vec![format!("after {} ms", milliseconds(seconds)), format!("{mode:?}"), reads]);
    }
    let mut found: Findings = (table(&["when", "mode", "with the library open"], rows), apart).into();
    if cutter.was_on() {
        found.skipped.push("MIG was on, and is left on".to_owned());
    }
    Ok(found)
}

/// What the driver says of sizes and files, beside our table.
///
/// # Errors
/// A sentence.
pub fn sizes(cutter: &mut Cutter, model: &str) -> Measured {
    let geometry = cutter.geometry()?;
    let rows = geometry.sizes().iter().map(|size| {
        let mebibytes =
            size.memory_bytes.map_or_else(|| "not told".to_owned(), |bytes| (bytes >> 20).to_string());
        let numbers = [u32::from(size.memory_slices), u32::from(size.instances_max), size.sm_count];
        let starts = size.starts.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
        let mut row = vec![size.profile.to_string()];
        row.extend(numbers.iter().map(u32::to_string));
        row.extend([mebibytes, starts]);
        row
    });
    let table = table(&["size", "memory slices", "at most", "SMs", "MiB", "starts"], rows);
    let (_, differences) = resolve(Some(geometry), model);
    let otherwise = differences.iter().map(|it| format!("\nOtherwise than our table: {it}.\n"));
    let files = match MigFiles::default().why_not_kept() {
        None => "\nThe driver leaves device files alone.\n".to_owned(),
        Some(why) => format!("\nNo wall between users: {why}.\n"),
    };
    let text = [table].into_iter().chain(otherwise).chain([files]).collect::<String>();
    Ok((text, differences.len()).into())
}

/// How long it takes to make each size, and to take it away.
///
/// # Errors
/// A sentence: what could not be made or taken away.
pub fn times(cutter: &mut Cutter, has_time: &dyn Fn() -> bool) -> Measured {
    let mut rows = Vec::new();
    let mut found = Findings::default();
    for slot in plain(&cutter.geometry()?) {
        let (mut made, mut gone) = (Vec::new(), Vec::new());
        for _ in 0..CUTS {
            if !has_time() {
                found.skipped.push(format!("{slot}: no time was left after {} cuts", made.len()));
                break;
            }
            let begun = now();
            let instance = cutter.make(slot)?;
            made.push(begun.elapsed().as_secs_f64());
            let begun = now();
            cutter.destroy(&instance)?;
            gone.push(begun.elapsed().as_secs_f64());
        }
        let count = made.len().to_string();
        let [made, gone] = [p50_and_p99(&made), p50_and_p99(&gone)];
        rows.push([vec![slot.to_string(), count], made.to_vec(), gone.to_vec()].concat());
    }
    let heading = ["size", "cuts", "made, p50 ms", "p99", "taken away, p50 ms", "p99"];
    found.text = table(&heading, rows);
    Ok(found)
}

/// How long a driver refuses to take an instance away after its client was killed.
///
/// # Errors
/// A sentence: what did not work.
pub fn after_kill(cutter: &mut Cutter, has_time: &dyn Fn() -> bool) -> Measured {
    let profile = with_slices(&cutter.geometry()?, 1)?;
    let (mut seconds, mut refusals, mut under, mut seen) = (Vec::new(), 0, 0, 0);
    while seconds.len() < KILLS && has_time() {
        let instance = cutter.make(Slot { profile, start: 0 })?;
        cutter.open_to_all(&instance)?;
        let mut tenant = Tenant::start(&cutter.client(&instance, Workload::Compute))?;
        let inside = cutter.layout()?.instances;
        seen += usize::from(inside.iter().any(|it| it.pids.contains(&tenant.pid())));
        under += usize::from(!cutter.destroy_once(&instance)?);
        tenant.signal(Signal::KILL);
        let begun = now();
        tenant.ends(PATIENCE);
        refusals += cutter.destroy(&instance)?;
        seconds.push(begun.elapsed().as_secs_f64());
    }
    let count = seconds.len();
    let [p50, p99] = p50_and_p99(&seconds);
    let rows = [
        ("clients that were killed", count.to_string()),
        ("refused while a client was in it", format!("{under} of {count}")),
        ("the client was listed in its instance", format!("{seen} of {count}")),
        ("refused after the kill, in all", refusals.to_string()),
        ("from the kill until it was gone, p50 ms", p50),
        ("p99 ms", p99),
    ];
    let text = table(&["what", "value"], rows.map(|(what, value)| vec![what.to_owned(), value]));
    let mut found: Findings = (text, count - under).into();
    if seen < count {
        found
            .skipped
            .push("in a pid namespace of its own clients have other numbers than the driver's".to_owned());
    }
    Ok(found)
}

/// Whether nothing of ours is left after a while.
pub fn is_swept(cutter: &mut Cutter) -> bool {
    until(PATIENCE, || cutter.layout().is_ok_and(|layout| layout.instances.is_empty()))
}
