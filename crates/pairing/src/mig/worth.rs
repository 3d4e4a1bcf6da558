//! What the work of each waiting job is worth: so much of the device's time as it will cost in the end, beside whom it can be.
//!
//! The best shape now is not the one that is fastest now: three light jobs together leave the middling ones, which only they
//! could accompany, to run alone. So work is priced as the whole queue would have it done: who finds company is cheap, who has
//! to run alone costs all of the device. These are the dual prices of covering all jobs' work by shapes in the least time, found
//! by raising, again and again, what was served least (Garg and Könemann).

use super::shapes::Shapes;

/// How often the best shape is served.
const ROUNDS: usize = 30;
/// How much less the work of a job is worth when all of it was served once.
const RATE: f64 = 0.2;

/// The worth of each job's work, the best shape's being 1. `speed`: of a job in a size, where it may have it; every job has the
/// whole device.
pub(super) fn of_work(
    empty: &Shapes,
    durations: &[f64],
    speed: impl Fn(usize, usize) -> Option<f64> + Copy,
) -> Vec<f64> {
    let mut worth = vec![1.0; durations.len()];
    for _ in 0..ROUNDS {
        let Some((_, jobs)) = best(empty, &worth, speed) else { return worth };
        // Until the first of them is done.
        let time = jobs.iter().filter_map(|(job, size)| Some(durations[*job] / speed(*job, *size)?));
        let time = time.fold(f64::INFINITY, f64::min);
        for (job, size) in jobs {
            let served = time * speed(job, size).unwrap_or(0.0) / durations[job];
            worth[job] *= (-RATE * served).exp();
        }
    }
    if let Some((most, _)) = best(empty, &worth, speed).filter(|(most, _)| *most > 0.0) {
        for worth in &mut worth {
            *worth /= most;
        }
    }
    worth
}

/// What the best shape is worth, and whom it serves.
fn best(
    empty: &Shapes,
    worth: &[f64],
    speed: impl Fn(usize, usize) -> Option<f64>,
) -> Option<(f64, Vec<(usize, usize)>)> {
    let filled = empty.fill(worth.len(), &[], |job, size| Some(speed(job, size)? * worth[job]));
    let best = filled.into_iter().flatten().max_by(|a, b| a.value.total_cmp(&b.value))?;
    (!best.jobs.is_empty()).then_some((best.value, best.jobs))
}
