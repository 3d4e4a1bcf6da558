//! What runs in instances: how fast, who may come in, what is told of it, and MPS within one.

use super::bench::{Cutter, plain, speed, with_slices};
use crate::bench::Limits;
use crate::kernels::Workload;
use crate::life::program_for_all;
use crate::report::{Findings, Measured, table};
use crate::smi::Smi;
use crate::tenant::{Client, Tenant};
use pillion_core::mig::Slot;
use pillion_device::mechanism::mig::Instance;
use std::time::Duration;

const WATCH: Duration = Duration::from_secs(4);
/// How far a load of seven may be from the same load alone in its instance: walls are what instances are for.
const APART_FRACTION: f64 = 0.05;
/// Two users of no name: nobody's files are theirs.
const USERS: [u32; 2] = [64_001, 64_002];
/// Those that fill a GPU: the others are bound by something else.
const LOADS: [Workload; 3] = [Workload::Compute, Workload::Bandwidth, Workload::Launch];

/// Speeds in each size, of the whole GPU's, with nobody beside.
///
/// # Errors
/// A sentence.
pub fn alone(cutter: &mut Cutter, has_time: &dyn Fn() -> bool) -> Measured {
    let mut found = Findings::default();
    let mut slots = plain(&cutter.geometry()?);
    slots.reverse();
    let mut rows: Vec<Vec<String>> = LOADS.iter().map(|load| vec![load.name().to_owned()]).collect();
    let mut whole: Vec<Option<f64>> = vec![None; LOADS.len()];
    for slot in &slots {
        let instance = cutter.make(*slot)?;
        cutter.open_to_all(&instance)?;
        for ((load, row), whole) in LOADS.iter().zip(&mut rows).zip(&mut whole) {
            if !has_time() {
                found.skipped.push(format!("{} in {slot}: no time was left", load.name()));
                row.push("not measured".to_owned());
                continue;
            }
            let speed = speed(&cutter.client(&instance, *load), WATCH)?;
            let whole = *whole.get_or_insert(speed);
            row.push(format!("{:.3}", speed / whole));
        }
        cutter.destroy(&instance)?;
    }
    let heading: Vec<String> =
        ["of the largest".to_owned()].into_iter().chain(slots.iter().map(Slot::to_string)).collect();
    let heading: Vec<&str> = heading.iter().map(String::as_str).collect();
    found.text = table(&heading, rows);
    Ok(found)
}

/// Seven at once, each in an instance of its own, against one of them alone in its own.
///
/// # Errors
/// A sentence.
pub fn seven(cutter: &mut Cutter, has_time: &dyn Fn() -> bool) -> Measured {
    let geometry = cutter.geometry()?;
    let profile = with_slices(&geometry, 1)?;
    let starts = geometry.size(profile).map(|size| size.starts.clone()).unwrap_or_default();
    let instances: Vec<Instance> =
        starts.iter().map(|start| cutter.make(Slot { profile, start: *start })).collect::<Result<_, _>>()?;
    for instance in &instances {
        cutter.open_to_all(instance)?;
    }
    let (mut rows, mut found) = (Vec::new(), Findings::default());
    for load in LOADS {
        if !has_time() {
            found.skipped.push(format!("{}: no time was left", load.name()));
            continue;
        }
        let client = |instance: &Instance| cutter.client(instance, load);
        let first = instances.first().ok_or("no instance could be made")?;
        let alone = speed(&client(first), WATCH)?;
        let tenants: Vec<Tenant> =
            instances.iter().map(|it| Tenant::start(&client(it))).collect::<Result<_, _>>()?;
        // Each is watched by a thread of its own, so that all are watched in the same seconds.
        let watched: Vec<_> = tenants
            .into_iter()
            .map(|mut tenant| {
                std::thread::spawn(move || {
                    let speed = tenant.speed(WATCH);
                    tenant.leave();
                    speed
                })
            })
            .collect();
        let mut speeds = Vec::new();
        for thread in watched {
            speeds.push(thread.join().map_err(|_| "a client's watcher failed".to_owned())??);
        }
        let ratios: Vec<f64> = speeds.iter().map(|speed| speed / alone).collect();
        let is_apart = ratios.iter().any(|ratio| (ratio - 1.0).abs() > APART_FRACTION);
        // The host is no part of what is walled off.
        found.apart += usize::from(is_apart && load != Workload::Launch);
        rows.push(vec![load.name().to_owned(), ratios.len().to_string(), crate::stats::cell(&ratios)]);
    }
    found.text = table(&["load", "at once", "speed of each, of alone in its instance"], rows);
    Ok(found)
}

/// Whether an instance is one user's alone by its files: the first is let in, the second is not.
///
/// # Errors
/// A sentence: why nothing can be tried.
pub fn walls(cutter: &mut Cutter) -> Measured {
    let profile = with_slices(&cutter.geometry()?, 1)?;
    let instance = cutter.make(Slot { profile, start: 0 })?;
    let program = program_for_all(cutter.work())?;
    let enters = |cutter: &Cutter, uid: u32| -> Result<(), String> {
        let client = Client {
            other_user: Some((uid, program.clone())),
            ..cutter.client(&instance, Workload::Compute)
        };
        let mut tenant = Tenant::start(&client)?;
        let ran = tenant.run_on(Duration::from_millis(300));
        tenant.leave();
        ran
    };
    let mut rows = Vec::new();
    let mut apart = 0;
    let mut tell = |what: &str, came: Result<(), String>, should: bool| {
        apart += usize::from(came.is_ok() != should);
        let came = came.map_or_else(|reason| format!("is kept out: {reason}"), |()| "comes in".to_owned());
        let verdict = if should { "he should" } else { "he should not" };
        rows.push(vec![what.to_owned(), came, verdict.to_owned()]);
    };
    cutter.open_to_all(&instance)?;
    tell("open to all: the second user", enters(cutter, USERS[1]), true);
    cutter.give(&instance, USERS[0])?;
    tell("given to the first: the first", enters(cutter, USERS[0]), true);
    tell("given to the first: the second", enters(cutter, USERS[1]), false);
    tell("after that: the first again", enters(cutter, USERS[0]), true);
    cutter.give(&instance, USERS[1])?;
    tell("given to the second: the first", enters(cutter, USERS[0]), false);
    tell("given to the second: the second", enters(cutter, USERS[1]), true);
    cutter.destroy(&instance)?;
    Ok((table(&["who tries", "what comes of it", "by the files"], rows), apart).into())
}

/// What GPM tells of an instance, by nvidia-smi: our own readings have none of instances yet.
///
/// # Errors
/// A sentence.
pub fn gpm(cutter: &mut Cutter, smi: &Smi) -> Measured {
    let profile = with_slices(&cutter.geometry()?, 2)?;
    let instance = cutter.make(Slot { profile, start: 0 })?;
    cutter.open_to_all(&instance)?;
    let mut tenant = Tenant::start(&cutter.client(&instance, Workload::Compute))?;
    let printed = smi.gpm_of_instances();
    tenant.run_on(Duration::from_millis(300))?;
    tenant.leave();
    cutter.destroy(&instance)?;
    let text = printed?;
    let id = instance.gpu_instance_id;
    Ok((
        format!("A client fills GPU instance {id}, a {}.\n\n```\n{}\n```\n", instance.slot, text.trim_end()),
        0,
    )
        .into())
}

/// Two clients under MPS within an instance of three slices, each alone first.
///
/// # Errors
/// A sentence: what did not work.
pub fn mps(cutter: &mut Cutter) -> Measured {
    let profile = with_slices(&cutter.geometry()?, 3)?;
    let instance = cutter.make(Slot { profile, start: 0 })?;
    cutter.open_to_all(&instance)?;
    let mut bench = cutter.mps(&instance)?;
    bench.start()?;
    let measured = under_mps(&mut bench);
    let stopped = bench.stop();
    let (mut rows, mut apart) = measured?;
    apart += usize::from(stopped.is_err());
    rows.push(vec![
        "the daemon ends".to_owned(),
        stopped.map_or_else(|reason| reason, |()| "yes".to_owned()),
    ]);
    let refusals = cutter.destroy(&instance)?;
    rows.push(vec!["refused before the instance went".to_owned(), refusals.to_string()]);
    Ok((table(&["MPS in an instance", "value"], rows), apart).into())
}

fn under_mps(bench: &mut crate::bench::Bench) -> Result<(Vec<Vec<String>>, usize), String> {
    let mut rows = Vec::new();
    let row = |what: &str, value: String| vec![what.to_owned(), value];
    let mut alone = bench.tenant(Workload::Compute, Limits::default())?;
    bench.has_client(&alone)?;
    let speed = alone.speed(WATCH)?;
    rows.push(row("multiprocessors of a client", alone.facts.multiprocessors.to_string()));
    alone.leave();
    let mut capped = bench.tenant(Workload::Compute, Limits::cap(50))?;
    rows.push(row("at a cap of half: multiprocessors", capped.facts.multiprocessors.to_string()));
    rows.push(row("at a cap of half: speed, of alone", format!("{:.3}", capped.speed(WATCH)? / speed)));
    capped.leave();
    let mut both = [
        bench.tenant(Workload::Compute, Limits::cap(50))?,
        bench.tenant(Workload::Compute, Limits::cap(50))?,
    ];
    for tenant in &both {
        bench.has_client(tenant)?;
    }
    let speeds = [both[0].speed(WATCH)?, both[1].speed(WATCH)?];
    rows.push(row(
        "two at half each: speeds, of alone",
        speeds.map(|it| format!("{:.3}", it / speed)).join(" and "),
    ));
    both.into_iter().for_each(Tenant::leave);
    Ok((rows, 0))
}
