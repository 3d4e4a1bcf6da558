//! MIG on a real GPU, in twenty minutes: whether what the agent's code believes of it is so. `tests/gpu mig` runs it.
//!
//! The questions that decide something come first: whether the mode changes under an open library, and whether the files of
//! capabilities are a wall. A GPU before Hopper has to be in MIG mode already. What was there before is there afterwards.

pub mod bench;
pub mod cuts;
pub mod loads;

use crate::report::{Measured, Verdict, verdict};
use crate::sections::{Failure, Parts, ReportArguments, Run, finish};
use bench::Cutter;

/// One part of the plan.
type Part = fn(&mut Cutter, &Parts, &dyn Fn() -> bool) -> Measured;

/// In their order, each with its heading.
const PLAN: [(&str, Part); 8] = [
    ("MIG: sizes as the driver tells them", |cutter, parts, _| {
        cuts::sizes(cutter, &parts.results.device_model)
    }),
    ("MIG: an instance is one user's alone", |cutter, _, _| loads::walls(cutter)),
    ("MIG: made and taken away", |cutter, _, has_time| cuts::times(cutter, has_time)),
    ("MIG: taken away right after a kill", |cutter, _, has_time| cuts::after_kill(cutter, has_time)),
    ("MIG: speed in each size", |cutter, _, has_time| loads::alone(cutter, has_time)),
    ("MIG: seven at once", |cutter, _, has_time| loads::seven(cutter, has_time)),
    ("MIG: what GPM tells of an instance", |cutter, parts, _| loads::gpm(cutter, &parts.smi)),
    ("MIG: MPS within three slices", |cutter, _, _| loads::mps(cutter)),
];

/// Runs the plan on the first GPU.
///
/// # Errors
/// [`Failure`]: there is no GPU, or no file can be written.
pub fn report(arguments: &ReportArguments) -> Result<Verdict, Failure> {
    let mut parts = Parts::open(arguments)?;
    let before = parts.smi.settings();
    let mut run = Run::begin(arguments, &parts.smi);
    let library = arguments.library.clone();
    let mut cutter = match Cutter::open(library, &parts.smi.uuid, &arguments.control, &arguments.work) {
        Ok(cutter) => cutter,
        Err(reason) => return Err(Failure::Skipped(format!("the GPU is not cut: {reason}"))),
    };
    run.section(&mut parts, "MIG: the mode, with the library open", Ok(()), |_, _| {
        cuts::toggle(&mut cutter)
    })?;
    let possible = cutter.turn_on();
    for (title, part) in PLAN {
        run.section(&mut parts, title, possible.clone(), |parts, has_time| {
            let measured = part(&mut cutter, parts, has_time);
            // What a part that broke off has left would be in the way of the next.
            cutter.sweep()?;
            measured
        })?;
    }
    run.begin_last();
    run.section(&mut parts, "MIG: as it was before", Ok(()), |_, _| {
        let is_swept = cuts::is_swept(&mut cutter);
        cutter.undo()?;
        Ok(("No instance is left, and the mode is as it was.\n".to_owned(), usize::from(!is_swept)).into())
    })?;
    let verdict = verdict(&run.sections);
    finish(run, &mut parts, &before)?;
    Ok(verdict)
}
