//! What a replay says: every figure with how low it may be, and how far all of it may be believed.

mod confidence;
mod html;
#[cfg(test)]
mod tests;
mod waste;

pub use confidence::{Confidence, KeyRepetition, Measure};
pub use html::html;
pub use waste::{Band, Waste};

use crate::jobs::KeyKind;
use crate::options::Order;
use crate::read::ReadTally;
use crate::replay::{Replay, seconds};
use crate::scenario::{ALIKE_SECONDS, Outcome, Waits};
use crate::statistics::{Estimate, percentile};
use serde::Serialize;
use std::collections::BTreeMap;

/// Simulated and real median waits that are further apart, over the real one, say nothing of waits.
pub const WAIT_ERROR_MAX: f64 = 0.25;
/// A real median that is shorter counts as this: a minute apart is near, however short both are.
pub const WAIT_LEAST_SECONDS: f64 = 240.0;

/// How many users are named of those who wait longer.
const NAMED_MAX: usize = 5;

/// The whole answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// What was read.
    pub input: Input,
    /// How GPUs were used.
    pub waste: Waste,
    /// The queue without Pillion, as it was and as it is simulated.
    pub queue: Queue,
    /// By size of the pool and share of the users.
    pub settings: Vec<SettingReport>,
    /// How far all of this may be believed.
    pub confidence: Confidence,
}

/// Rows of a cause.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Counted {
    /// Which.
    pub cause: String,
    /// How many.
    pub count: u64,
    /// The cause says itself what is counted.
    #[serde(skip)]
    is_named: bool,
}

impl Counted {
    fn new(cause: &str, count: u64) -> Self {
        Self { cause: cause.to_owned(), count, is_named: false }
    }

    /// In words: how many of that noun, unless it is known of what, and why.
    pub fn of(&self, noun: &str) -> String {
        let Self { cause, count, is_named } = self;
        match (is_named, count) {
            (true, _) => format!("{count} {cause}"),
            (false, 1) => format!("1 {noun} {cause}"),
            (false, _) => format!("{count} {noun}s {cause}"),
        }
    }
}

/// What was read, and what of it is replayed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Input {
    /// Rows behind the first line.
    pub rows: u64,
    /// Rows that were dropped, by cause.
    pub rows_dropped: Vec<Counted>,
    /// Jobs that are no part of it, by cause.
    pub jobs_set_aside: Vec<Counted>,
    /// Jobs that are replayed.
    pub jobs: usize,
    /// Their users.
    pub users: usize,
    /// GPUs of the nodes.
    pub gpus: u64,
    /// Nodes with GPUs.
    pub nodes: usize,
    /// From the first start.
    pub since_seconds: f64,
    /// To the last end.
    pub until_seconds: f64,
    /// GPU-hours of all of them.
    pub gpu_hours: f64,
    /// GPU-hours of jobs of one GPU: others are not shared.
    pub one_gpu_hours: f64,
    /// GPU-hours of jobs of several GPUs, as many on each of their nodes: they can be in the pool, and have them whole.
    pub wide_gpu_hours: f64,
    /// Types of GPU whose memory nobody knows: nobody shares them here.
    pub gpu_types_without_memory: Vec<String>,
    /// Whether workloads of one name are told apart by their command lines.
    pub has_submit_lines: bool,
}

impl Input {
    /// Which part of all these GPU-hours are.
    pub fn part_of_all(&self, gpu_hours: f64) -> f64 {
        gpu_hours / self.gpu_hours.max(1e-9)
    }
}

/// Waits without Pillion.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Queue {
    /// By what jobs are served in the simulation.
    pub order: Order,
    /// As they were.
    pub history: Waits,
    /// As they are simulated.
    pub simulated: Waits,
    /// How far the simulated median is from the real one, over the real one (of four minutes at least).
    pub error_fraction: f64,
    /// Whether that is near enough to say anything of waits.
    pub is_near: bool,
}

/// Waits of some jobs in both simulations; means over the draws of the median and of the 95th percentile.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct WaitPair {
    /// Without Pillion.
    pub exclusive: Waits,
    /// With it, the median.
    pub median_seconds: Estimate,
    /// With it, the 95th percentile.
    pub p95_seconds: Estimate,
}

/// Waits of all.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WaitReport {
    /// Of the jobs that share.
    pub managed: WaitPair,
    /// Of all others.
    pub others: WaitPair,
    /// Of all.
    pub all: WaitPair,
    /// Users that wait less on average, by more than a minute.
    pub users_gain: Estimate,
    /// Users that wait longer.
    pub users_lose: Estimate,
    /// Those who wait less most, in the mean over the draws.
    pub gainers: Vec<Gainer>,
    /// Those who wait longer most.
    pub losers: Vec<Loser>,
}

/// A user who waits less.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gainer {
    /// As the file names him.
    pub user: String,
    /// How much less, on average over his jobs.
    pub wait_seconds_less: f64,
    /// Its low and high; below 0 he waits longer.
    pub wait_seconds_less_low: f64,
    /// See there.
    pub wait_seconds_less_high: f64,
}

/// A user who waits longer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Loser {
    /// As the file names him.
    pub user: String,
    /// How much longer, on average over his jobs.
    pub wait_seconds_more: f64,
    /// Its low and high; below 0 he waits less.
    pub wait_seconds_more_low: f64,
    /// See there.
    pub wait_seconds_more_high: f64,
}

impl Gainer {
    fn new((user, less): (String, Estimate)) -> Self {
        let Estimate { low, expected, high } = less;
        Self { user, wait_seconds_less: expected, wait_seconds_less_low: low, wait_seconds_less_high: high }
    }
    /// How much less he waits, in seconds.
    pub const fn by(&self) -> Estimate {
        let Self {
            wait_seconds_less: expected,
            wait_seconds_less_low: low,
            wait_seconds_less_high: high,
            ..
        } = *self;
        Estimate { low, expected, high }
    }
}

impl Loser {
    fn new((user, more): (String, Estimate)) -> Self {
        let Estimate { low, expected, high } = more;
        Self { user, wait_seconds_more: expected, wait_seconds_more_low: low, wait_seconds_more_high: high }
    }
    /// How much longer he waits, in seconds.
    pub const fn by(&self) -> Estimate {
        let Self {
            wait_seconds_more: expected,
            wait_seconds_more_low: low,
            wait_seconds_more_high: high,
            ..
        } = *self;
        Estimate { low, expected, high }
    }
}

/// One size of the pool at one share of the users.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SettingReport {
    /// Nodes of the pool, of all.
    pub pool_fraction: f64,
    /// Its GPUs.
    pub pool_gpus: u32,
    /// The share of the users whose jobs share.
    pub adoption_fraction: f64,
    /// Jobs that are Pillion's.
    pub managed_jobs: Estimate,
    /// GPU-hours that these hold without it.
    pub managed_gpu_hours: Estimate,
    /// GPU-hours saved: what a GPU for each of them holds, less what they hold together.
    pub gpu_hours_saved: Estimate,
    /// The same as GPUs, all the time.
    pub gpus_saved: Estimate,
    /// Kilowatt-hours; absent where no power is known.
    pub energy_kilowatt_hours_saved: Option<Estimate>,
    /// Where that comes from, or what is missing.
    pub energy_source: String,
    /// What that is worth at the site's price; absent where it gave none.
    pub price_saved: Option<Estimate>,
    /// Kilograms of carbon dioxide; absent where either is not known.
    pub carbon_kilograms_saved: Option<Estimate>,
    /// How often jobs came together.
    pub groups: Estimate,
    /// Jobs that were beside others under a promise, each time it came to be.
    pub promises: Estimate,
    /// Of these, how many are expected to be slower than promised, by what was published of jobs as busy: the sum of 1 - P(kept).
    pub promises_at_risk: Estimate,
    /// The same as the planner itself believed when it let them share.
    pub promises_at_risk_as_planned: Estimate,
    /// Of these, how many were in what was drawn.
    pub promises_broken: Estimate,
    /// The slowdown that one of a hundred jobs that shared exceeds.
    pub slowdown_ratio_p99: Estimate,
    /// Groups whose memory together was more than the device has: all of them start again.
    pub out_of_memory: Estimate,
    /// Groups within a tenth of it.
    pub near_out_of_memory: Estimate,
    /// Jobs that sharing slowed beyond their time limit.
    pub time_limit_hits: Estimate,
    /// Jobs that find no node any more, for the pool has it.
    pub stranded_jobs: Estimate,
    /// Waits; absent where the simulator is too far from history to say anything.
    pub waits: Option<WaitReport>,
}

/// GPU-hours of these. A sum over nobody is -0 in Rust, which nobody wants to read.
fn gpu_hours<'j>(jobs: impl Iterator<Item = &'j crate::jobs::Job>) -> f64 {
    jobs.map(crate::jobs::Job::gpu_hours).fold(0.0, |sum, hours| sum + hours)
}

impl Replay {
    /// What the outcomes come to. They must be of [`Replay::tasks`], in their order.
    pub fn report(&self, tally: &ReadTally, outcomes: &[Outcome]) -> Report {
        let queue = self.queue_report();
        let mut settings: Vec<Vec<&Outcome>> = Vec::new();
        for outcome in outcomes {
            match settings.last_mut() {
                Some(same)
                    if same[0].task.pool == outcome.task.pool
                        && same[0].task.adoption == outcome.task.adoption =>
                {
                    same.push(outcome);
                }
                _ => settings.push(vec![outcome]),
            }
        }
        let of_setting = settings.iter().map(|draws| self.setting_report(draws, queue.is_near));
        Report {
            input: self.input(tally),
            waste: waste::waste(self),
            settings: of_setting.collect(),
            confidence: confidence::confidence(self, &queue),
            queue,
        }
    }

    fn input(&self, tally: &ReadTally) -> Input {
        let (since, until) = self.span();
        let jobs = || self.jobs.iter().map(|job| self.of(*job));
        let users: std::collections::BTreeSet<u32> = jobs().map(|job| job.user).collect();
        let mut set_aside: Vec<Counted> =
            tally.set_aside.iter().map(|(why, count)| Counted::new(why.text(), *count)).collect();
        if self.misfit_count > 0 {
            set_aside.push(Counted::new("that none of the nodes could run", self.misfit_count as u64));
        }
        let mut dropped: Vec<Counted> =
            tally.dropped.iter().map(|(why, count)| Counted::new(why.text(), *count)).collect();
        for (count, cause) in [
            (tally.summaries_unread, "whose summary of jobstats cannot be unpacked (the jobs stay)"),
            (tally.telemetry_rows_dropped, "of the telemetry with a number that is none"),
            (tally.scripts_dropped, "of scripts that are longer than any is, or of no job"),
        ] {
            if count > 0 {
                dropped.push(Counted::new(cause, count));
            }
        }
        let besides = tally.besides.iter();
        dropped
            .extend(besides.map(|(cause, count)| Counted { is_named: true, ..Counted::new(cause, *count) }));
        Input {
            rows: tally.rows,
            rows_dropped: dropped,
            jobs_set_aside: set_aside,
            jobs: self.jobs.len(),
            users: users.len(),
            gpus: self.nodes().iter().map(|node| u64::from(node.gpus)).sum(),
            nodes: self.nodes().len(),
            since_seconds: seconds(since),
            until_seconds: seconds(until),
            gpu_hours: gpu_hours(jobs()),
            one_gpu_hours: gpu_hours(jobs().filter(|job| job.gpus == 1)),
            wide_gpu_hours: gpu_hours(
                jobs().filter(|job| job.gpus > 1 && job.gpus.is_multiple_of(job.nodes)),
            ),
            gpu_types_without_memory: self.types_without_memory(),
            has_submit_lines: self.accounting.has_submit_lines,
        }
    }

    fn types_without_memory(&self) -> Vec<String> {
        let numbers: std::collections::BTreeSet<u32> =
            self.nodes().iter().map(|node| node.gpu_type.unwrap_or(self.untyped)).collect();
        let names = numbers.into_iter().map(|number| self.accounting.gpu_types.text(number).to_owned());
        names.filter(|name| self.gpu_memory.bytes(name).is_none()).collect()
    }

    fn queue_report(&self) -> Queue {
        let history = Waits::of(&self.waits(|job, _| job.started_at));
        let simulated = Waits::of(&self.waits(|_, at| self.exclusive[at]));
        let apart = (simulated.median_seconds - history.median_seconds).abs();
        let error_fraction = apart / history.median_seconds.max(WAIT_LEAST_SECONDS);
        let is_near = error_fraction <= WAIT_ERROR_MAX;
        Queue { order: self.order, history, simulated, error_fraction, is_near }
    }

    fn setting_report(&self, draws: &[&Outcome], has_waits: bool) -> SettingReport {
        let of = |figure: &dyn Fn(&Outcome) -> f64| {
            Estimate::of(&draws.iter().map(|draw| figure(draw)).collect::<Vec<f64>>())
        };
        let counts = |figure: &dyn Fn(&Outcome) -> f64| {
            Estimate::of_counts(&draws.iter().map(|draw| figure(draw)).collect::<Vec<f64>>())
        };
        let (since, until) = self.span();
        let span_hours = (seconds(until) - seconds(since)) / 3600.0;
        let saved = of(&Outcome::saved_hours);
        let (energy, energy_source) = self.energy(draws);
        let grams = self.options.carbon.as_ref().map(|carbon| carbon.mean(since, until));
        let nodes = self.pool_nodes(draws[0].task.pool).len();
        SettingReport {
            pool_fraction: count(nodes) / count(self.nodes().len()),
            pool_gpus: draws[0].pool_gpus,
            adoption_fraction: draws[0].task.adoption.value(),
            managed_jobs: counts(&|draw| count(draw.managed_count)),
            managed_gpu_hours: counts(&|draw| draw.pool.solo_hours),
            gpu_hours_saved: saved,
            gpus_saved: saved.times(1.0 / span_hours.max(1.0)),
            energy_kilowatt_hours_saved: energy,
            energy_source,
            price_saved: self.options.price_per_gpu_hour.map(|price| saved.times(price)),
            carbon_kilograms_saved: energy.zip(grams).map(|(energy, grams)| energy.times(grams / 1000.0)),
            groups: counts(&|draw| count(draw.pool.groups)),
            promises: counts(&|draw| count(draw.pool.tenancies)),
            promises_at_risk: counts(&|draw| draw.pool.risk_foretold_sum),
            promises_at_risk_as_planned: counts(&|draw| draw.pool.risk_sum),
            promises_broken: counts(&|draw| count(draw.pool.broken)),
            slowdown_ratio_p99: of(&|draw| percentile(&draw.pool.slowdowns, 0.99).max(1.0)).at_least(1.0),
            out_of_memory: counts(&|draw| count(draw.pool.out_of_memory)),
            near_out_of_memory: counts(&|draw| count(draw.pool.near_out_of_memory)),
            time_limit_hits: counts(&|draw| count(draw.pool.limit_hits)),
            stranded_jobs: counts(&|draw| count(draw.stranded_count)),
            waits: has_waits.then(|| self.wait_report(draws)),
        }
    }

    /// What a GPU at rest draws, for the hours that were saved.
    fn energy(&self, draws: &[&Outcome]) -> (Option<Estimate>, String) {
        let of = |rest_watts: &dyn Fn(&Outcome) -> f64| {
            let draws = draws.iter().map(|draw| draw.saved_hours() * rest_watts(draw) / 1000.0);
            Estimate::of(&draws.collect::<Vec<f64>>())
        };
        if let Some(watts) = self.options.idle_watts {
            let source =
                format!("GPU-hours saved, times the {watts} W that a GPU draws at rest by --idle-watts");
            return (Some(of(&|_| watts)), source);
        }
        let shared: f64 = draws.iter().map(|draw| draw.pool.shared_hours).sum();
        let known: f64 = draws.iter().map(|draw| draw.pool.power_known_hours).sum();
        if known <= 0.0 {
            return (
                None,
                "no power is known: give --idle-watts, or power_watts_mean in --telemetry".to_owned(),
            );
        }
        // Where power is not known, none is saved.
        let energy = of(&|draw| draw.pool.rest_watt_hours / draw.pool.shared_hours.max(1e-9));
        let source = format!(
            "GPU-hours saved, times what a GPU draws at rest: 30 % of the least that one of those who share it draws, which telemetry \
             tells of {:.0} % of the shared hours; of the others nothing is counted",
            100.0 * known / shared.max(1e-9)
        );
        (Some(energy), source)
    }

    fn wait_report(&self, draws: &[&Outcome]) -> WaitReport {
        let pair = |of: fn(&Outcome) -> [Waits; 2]| {
            let list = |place: usize, figure: fn(Waits) -> f64| -> Vec<f64> {
                draws.iter().map(|draw| figure(of(draw)[place])).collect()
            };
            let mean = |values: Vec<f64>| values.iter().sum::<f64>() / count(values.len().max(1));
            WaitPair {
                exclusive: Waits {
                    median_seconds: mean(list(0, |waits| waits.median_seconds)),
                    p95_seconds: mean(list(0, |waits| waits.p95_seconds)),
                },
                median_seconds: Estimate::of_counts(&list(1, |waits| waits.median_seconds)),
                p95_seconds: Estimate::of_counts(&list(1, |waits| waits.p95_seconds)),
            }
        };
        let users = |figure: fn(&Outcome) -> usize| {
            Estimate::of_counts(&draws.iter().map(|draw| count(figure(draw))).collect::<Vec<f64>>())
        };
        let more = self.waits_more_of_users(draws);
        let less = more
            .iter()
            .map(|(user, more)| (user.clone(), more.negated()))
            .collect::<Vec<(String, Estimate)>>();
        WaitReport {
            managed: pair(|draw| draw.managed_waits),
            others: pair(|draw| draw.other_waits),
            all: pair(|draw| draw.all_waits),
            users_gain: users(|draw| draw.users_gain),
            users_lose: users(|draw| draw.users_lose),
            gainers: most(less).map(Gainer::new).collect(),
            losers: most(more).map(Loser::new).collect(),
        }
    }

    /// By how much longer each user waits, over the draws in which all of his queue is known; of one draw alone nothing is said.
    fn waits_more_of_users(&self, draws: &[&Outcome]) -> Vec<(String, Estimate)> {
        let mut of_user: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for (user, more) in draws.iter().flat_map(|draw| &draw.waits_more) {
            of_user.entry(*user).or_default().push(*more);
        }
        let known = of_user.into_iter().filter(|(_, more)| more.len() > 1);
        known.map(|(user, more)| (self.accounting.users.text(user).to_owned(), Estimate::of(&more))).collect()
    }

    /// How many GPU-hours of each workload there are, in how many runs, and what it is told by.
    pub(crate) fn by_workload(&self) -> BTreeMap<u32, (usize, f64, KeyKind)> {
        let mut workloads: BTreeMap<u32, (usize, f64, KeyKind)> = BTreeMap::new();
        for job in &self.jobs {
            let job = self.of(*job);
            let (runs, hours, _) = workloads.entry(job.workload).or_insert((0, 0.0, job.key));
            *runs += 1;
            *hours += job.gpu_hours();
        }
        workloads
    }
}

/// Those of whom it is most, of those of whom it is worth a word.
fn most(mut of_users: Vec<(String, Estimate)>) -> impl Iterator<Item = (String, Estimate)> {
    of_users.retain(|(_, seconds)| seconds.expected > ALIKE_SECONDS);
    of_users.sort_by(|a, b| b.1.expected.total_cmp(&a.1.expected));
    of_users.into_iter().take(NAMED_MAX)
}

#[expect(clippy::cast_precision_loss, reason = "a count of jobs")]
pub(crate) fn count(number: usize) -> f64 {
    number as f64
}
