//! What each candidate is worth, known no better than the choice needs. Screening costs one estimate; an evaluation
//! tries all caps and costs tens. Where there are too many candidates for that, only those are evaluated that could still
//! change the choice. Must not choose.

use super::evaluation::Appraisal;
use super::evaluator::{Evaluator, UncappedPair};
use crate::planner::classes::PlanContext;
use crate::planner::index::{CandidateIndex, ClassIndex, DeviceIndex, KindIndex};
use crate::planner::tries::TryKey;
use rustc_hash::FxHashMap;
use typed_index_collections::TiVec;

/// Fewer than this are not worth another thread.
const PARALLEL_MIN: usize = 256;
/// The largest table of numbers.
const TABLE_MAX: usize = 1 << 22;
/// More threads than this would mostly wait for memory.
const THREADS_MAX: usize = 8;

/// A candidate, by what is alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum CandidateKey {
    /// Two waiting jobs, by class, the lower first, on a device of this kind.
    Pair {
        /// The class that was seen first.
        lower: ClassIndex,
        /// The other, or the same.
        higher: ClassIndex,
        /// The kind of device.
        kind: KindIndex,
    },
    /// A waiting job, by class, beside what runs on this device.
    Join {
        /// The class of the one that comes.
        class: ClassIndex,
        /// The first device on which the same runs.
        device: DeviceIndex,
    },
}

/// All that were asked about, by number, over all rounds of one plan.
pub(crate) struct CandidateSet<'p, 'a> {
    pub(crate) evaluator: &'p Evaluator<'p, 'a>,
    numbers: Numbers,
    keys: TiVec<CandidateIndex, CandidateKey>,
    /// What is known of those that were screened; the others follow.
    appraisals: TiVec<CandidateIndex, Appraisal>,
    /// What an expected broken promise cost in the last choice: the next will hardly differ.
    pub(crate) risk_price: f64,
}

/// The number of each candidate, in tables where those are not too large.
struct Numbers {
    class_count: usize,
    /// By kind, lower class, higher class.
    pairs: Vec<u32>,
    /// By host, class.
    joins: Vec<u32>,
    /// By the first device on which the same runs.
    host_of: TiVec<DeviceIndex, u32>,
    others: FxHashMap<CandidateKey, CandidateIndex>,
}

/// Not numbered yet.
const NONE: u32 = u32::MAX;

impl CandidateKey {
    /// What it is worth at the price of one estimate.
    fn screen(&self, evaluator: &Evaluator<'_, '_>) -> Appraisal {
        match *self {
            Self::Pair { lower, higher, kind } => evaluator.screen_pair(lower, higher, kind),
            Self::Join { class, device } => evaluator.screen_join(class, device),
        }
    }

    /// What it is worth under the caps that suit it best.
    fn evaluate(&self, evaluator: &Evaluator<'_, '_>) -> Appraisal {
        let evaluation = match *self {
            Self::Pair { lower, higher, kind } => evaluator.pair(lower, higher, kind),
            Self::Join { class, device } => evaluator.join(class, device),
        };
        Appraisal::of(&evaluation)
    }

    /// The two whom screening would estimate; `None` where it estimates nobody, or more than two.
    fn uncapped_pair(&self, evaluator: &Evaluator<'_, '_>) -> Option<UncappedPair> {
        match *self {
            Self::Pair { lower, higher, kind } => evaluator.uncapped_of_pair(lower, higher, kind),
            Self::Join { class, device } => evaluator.uncapped_of_join(class, device),
        }
    }
}

/// A table of so many rows by class; of no cells where it would be too large.
fn table(row_count: usize, class_count: usize) -> Vec<u32> {
    let size = row_count.saturating_mul(class_count);
    vec![NONE; if size <= TABLE_MAX { size } else { 0 }]
}

impl Numbers {
    fn new(context: &PlanContext<'_>) -> Self {
        let class_count = context.classes.len();
        let mut host_of: TiVec<DeviceIndex, u32> = vec![NONE; context.alike.len()].into();
        let mut host_count = 0;
        for (device, alike) in context.alike.iter_enumerated() {
            if device == *alike && !context.devices[device].tenants.is_empty() {
                host_of[device] = host_count;
                host_count += 1;
            }
        }
        Self {
            class_count,
            pairs: table(context.places.kind_count() * class_count, class_count),
            joins: table(host_count as usize, class_count),
            host_of,
            others: FxHashMap::default(),
        }
    }

    /// Its number; `next` if it has none yet.
    fn of(&mut self, key: CandidateKey, next: CandidateIndex) -> CandidateIndex {
        let cell = match key {
            CandidateKey::Pair { lower, higher, kind } => self.pairs.get_mut(
                (usize::from(kind) * self.class_count + usize::from(lower)) * self.class_count
                    + usize::from(higher),
            ),
            CandidateKey::Join { class, device } => {
                self.joins.get_mut(self.host_of[device] as usize * self.class_count + usize::from(class))
            }
        };
        let Some((cell, new)) = cell.zip(u32::try_from(usize::from(next)).ok()) else {
            return *self.others.entry(key).or_insert(next);
        };
        if *cell == NONE {
            *cell = new;
        }
        CandidateIndex::from(*cell as usize)
    }
}

impl<'p, 'a> CandidateSet<'p, 'a> {
    pub(crate) fn new(evaluator: &'p Evaluator<'p, 'a>) -> Self {
        Self {
            evaluator,
            numbers: Numbers::new(evaluator.context),
            keys: TiVec::new(),
            appraisals: TiVec::new(),
            risk_price: 0.0,
        }
    }

    /// The number of two waiting jobs, by class.
    pub(crate) fn pair(&mut self, host: ClassIndex, joiner: ClassIndex, kind: KindIndex) -> CandidateIndex {
        self.number(CandidateKey::Pair { lower: host.min(joiner), higher: host.max(joiner), kind })
    }

    /// The number of a job, by class, that joins what runs on a device.
    pub(crate) fn join(&mut self, class: ClassIndex, device: DeviceIndex) -> CandidateIndex {
        self.number(CandidateKey::Join { class, device: self.evaluator.context.alike[device] })
    }

    fn number(&mut self, key: CandidateKey) -> CandidateIndex {
        let next = self.keys.next_key();
        let number = self.numbers.of(key, next);
        if number == next {
            self.keys.push(key);
        }
        number
    }

    /// Whether it was screened, and no caps would admit it.
    pub(crate) fn is_ruled_out(&self, number: CandidateIndex) -> bool {
        self.appraisals
            .get(number)
            .is_some_and(|appraisal| appraisal.weight.is_none() && appraisal.weight_bound.is_none())
    }

    /// What is known of a candidate; all must have been screened.
    pub(crate) fn known(&self, number: CandidateIndex) -> Appraisal {
        self.appraisals[number]
    }

    /// How many share in it.
    pub(crate) fn tenant_count(&self, number: CandidateIndex) -> usize {
        match self.keys[number] {
            CandidateKey::Pair { .. } => 2,
            CandidateKey::Join { device, .. } => self.evaluator.context.devices[device].tenants.len() + 1,
        }
    }

    /// Of which kind of trial a candidate is.
    pub(crate) fn try_key(&self, number: CandidateIndex) -> Option<TryKey> {
        match self.keys[number] {
            CandidateKey::Pair { lower, higher, kind } => self.evaluator.try_key_of_pair(lower, higher, kind),
            CandidateKey::Join { class, device } => self.evaluator.try_key_of_join(class, device),
        }
    }

    /// By class, what is worth most, or may be: at most `count` of all that are allowed.
    pub(crate) fn best(&self, count: usize) -> TiVec<ClassIndex, Vec<CandidateKey>> {
        let mut best: TiVec<ClassIndex, Vec<(f64, CandidateIndex)>> =
            vec![Vec::new(); self.evaluator.context.classes.len()].into();
        for (number, appraisal) in self.appraisals.iter_enumerated() {
            let Some(weight) = appraisal.weight.or(appraisal.weight_bound) else { continue };
            match self.keys[number] {
                CandidateKey::Pair { lower, higher, .. } => {
                    best[lower].push((weight, number));
                    if higher != lower {
                        best[higher].push((weight, number));
                    }
                }
                CandidateKey::Join { class, .. } => best[class].push((weight, number)),
            }
        }
        for heaviest in &mut best {
            heaviest.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
            heaviest.truncate(count);
        }
        let keys = best.iter().map(|all| all.iter().map(|(_, number)| self.keys[*number]).collect());
        keys.collect()
    }

    /// Screens all that are new.
    pub(crate) fn screen(&mut self) {
        let new = &self.keys.raw[self.appraisals.len()..];
        estimate_uncapped(self.evaluator, new);
        let found = in_parallel(self.evaluator, new, |evaluator, key| key.screen(evaluator));
        self.appraisals.extend(found);
    }

    /// Finds out what these are worth under the caps that suit them best.
    pub(crate) fn evaluate(&mut self, numbers: &[CandidateIndex]) {
        let keys = &self.keys;
        let found =
            in_parallel(self.evaluator, numbers, |evaluator, number| keys[*number].evaluate(evaluator));
        for (number, appraisal) in numbers.iter().zip(found) {
            self.appraisals[*number] = appraisal;
        }
    }
}

/// Estimates how fast those are without caps who could meet, each two once.
fn estimate_uncapped(evaluator: &Evaluator<'_, '_>, keys: &[CandidateKey]) {
    let mut pairs: Vec<UncappedPair> = keys.iter().filter_map(|key| key.uncapped_pair(evaluator)).collect();
    pairs.sort_unstable();
    pairs.dedup();
    pairs.retain(|pair| !evaluator.has_uncapped(pair));
    let answers = in_parallel(evaluator, &pairs, |evaluator, pair| evaluator.estimate_uncapped(*pair));
    evaluator.remember(pairs, answers);
}

/// Asks about all of them, in their order, on as many threads as there are cores. What one thread finds does not depend on
/// the others, so that the answer is the same however many there are.
fn in_parallel<T: Sync, A: Send>(
    evaluator: &Evaluator<'_, '_>,
    all: &[T],
    ask: impl Fn(&Evaluator<'_, '_>, &T) -> A + Sync,
) -> Vec<A> {
    if all.len() < PARALLEL_MIN {
        return asked(evaluator, all, &ask);
    }
    // Reads files of the kernel: not for a few.
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    if threads < 2 {
        return asked(evaluator, all, &ask);
    }
    let (own, others) = all.split_at(all.len().div_ceil(threads));
    let (fork, ask) = (&evaluator.fork(), &ask);
    std::thread::scope(|scope| {
        let parts = others.chunks(own.len());
        let helpers: Vec<_> = parts.map(|part| scope.spawn(move || asked(&fork(), part, ask))).collect();
        let mut found = asked(evaluator, own, ask);
        for helper in helpers {
            found.extend(helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        found
    })
}

fn asked<T, A>(
    evaluator: &Evaluator<'_, '_>,
    all: &[T],
    ask: &impl Fn(&Evaluator<'_, '_>, &T) -> A,
) -> Vec<A> {
    all.iter().map(|one| ask(evaluator, one)).collect()
}
