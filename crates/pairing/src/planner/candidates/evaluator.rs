//! Who is asked what candidates would be like. It knows what is alike in one plan, and remembers what was found out about
//! it; how that is found out stands in the files beside this one.

use super::evaluation::Evaluation;
use super::worth::{self, TypicalRun};
use crate::model::{SpeedEstimate, Terms};
use crate::planner::classes::PlanContext;
use crate::planner::index::{ClassIndex, DeviceIndex, KindIndex, ProfileIndex};
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// A model of device, a card's mode, and each tenant's profile and cap.
type PredictionKey = (KindIndex, Option<u8>, Vec<(ProfileIndex, u64)>);

/// Two without caps: the kind of device, and their profiles, the lower first.
pub(super) type UncappedPair = (KindIndex, ProfileIndex, ProfileIndex);

/// How fast two are without caps. What made it is left out: there may be a hundred thousand of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Uncapped {
    speed_fraction: f64,
    speed_fraction_deviation: f64,
    speed_fraction_low: f64,
    speed_fraction_high: f64,
    has_heavy_tail: bool,
}

impl Uncapped {
    fn with_terms(self, terms: &Arc<Terms>) -> SpeedEstimate {
        let Self {
            speed_fraction,
            speed_fraction_deviation,
            speed_fraction_low,
            speed_fraction_high,
            has_heavy_tail,
        } = self;
        let terms = Arc::clone(terms);
        SpeedEstimate {
            speed_fraction,
            speed_fraction_deviation,
            has_heavy_tail,
            speed_fraction_low,
            speed_fraction_high,
            terms,
        }
    }
}

impl From<SpeedEstimate> for Uncapped {
    fn from(estimate: SpeedEstimate) -> Self {
        Self {
            speed_fraction: estimate.speed_fraction,
            speed_fraction_deviation: estimate.speed_fraction_deviation,
            speed_fraction_low: estimate.speed_fraction_low,
            speed_fraction_high: estimate.speed_fraction_high,
            has_heavy_tail: estimate.has_heavy_tail,
        }
    }
}

/// What is known of two without caps, in the order of their profiles.
#[derive(Debug, Clone)]
pub(super) enum UncappedAnswer<E> {
    /// How fast they are.
    Speeds(E),
    /// So slow that no promise is kept and no caps could help.
    Hopeless,
    /// Nothing can be said.
    Unknown,
}

/// The answers for all that were asked about.
#[derive(Debug, Clone, Default)]
pub(super) struct UncappedEstimates {
    /// Where the speeds of each stand.
    places: FxHashMap<UncappedPair, UncappedAnswer<u32>>,
    speeds: Vec<[Uncapped; 2]>,
}

/// Says what candidates would be like, and remembers it, so that nothing is estimated twice.
pub(crate) struct Evaluator<'p, 'a> {
    pub(crate) context: &'p PlanContext<'a>,
    /// How long a run usually takes.
    pub(super) typical: TypicalRun,
    pub(super) found: Found,
}

/// Estimates and evaluations of one plan.
#[derive(Default)]
pub(super) struct Found {
    pub(super) predictions: RefCell<FxHashMap<PredictionKey, Option<Rc<Vec<SpeedEstimate>>>>>,
    pub(super) pairs: RefCell<FxHashMap<(ClassIndex, ClassIndex, KindIndex), Rc<Evaluation>>>,
    pub(super) joins: RefCell<FxHashMap<(ClassIndex, DeviceIndex), Rc<Evaluation>>>,
    pub(super) uncapped: RefCell<Arc<UncappedEstimates>>,
    /// What made estimates of which it is not said.
    no_terms: Arc<Terms>,
    /// By kind, who fits in a quarter of a card.
    pub(super) quarter_joiners: RefCell<FxHashMap<KindIndex, Rc<[ClassIndex]>>>,
}

impl<'p, 'a> Evaluator<'p, 'a> {
    /// One that knows nothing yet.
    pub(crate) fn new(context: &'p PlanContext<'a>) -> Self {
        Self { context, typical: worth::typical_run(context.view), found: Found::default() }
    }

    /// How to make another that knows the estimates without caps, on another thread: what it finds besides is its own.
    pub(super) fn fork(&self) -> impl Fn() -> Self + Sync + use<'p, 'a> {
        let (context, typical) = (self.context, self.typical);
        let uncapped = Arc::clone(&self.found.uncapped.borrow());
        move || {
            let found = Found { uncapped: RefCell::new(Arc::clone(&uncapped)), ..Found::default() };
            Self { context, typical, found }
        }
    }

    /// Whether these were estimated.
    pub(super) fn has_uncapped(&self, pair: &UncappedPair) -> bool {
        self.found.uncapped.borrow().places.contains_key(pair)
    }

    /// What is known of these, if they were estimated.
    pub(super) fn uncapped(&self, pair: &UncappedPair) -> Option<UncappedAnswer<[SpeedEstimate; 2]>> {
        let uncapped = self.found.uncapped.borrow();
        Some(match uncapped.places.get(pair)? {
            UncappedAnswer::Unknown => UncappedAnswer::Unknown,
            UncappedAnswer::Hopeless => UncappedAnswer::Hopeless,
            UncappedAnswer::Speeds(place) => {
                let speeds = uncapped.speeds[*place as usize];
                UncappedAnswer::Speeds(speeds.map(|speed| speed.with_terms(&self.found.no_terms)))
            }
        })
    }

    /// From now on this is known too.
    pub(super) fn remember(&self, pairs: Vec<UncappedPair>, answers: Vec<UncappedAnswer<[Uncapped; 2]>>) {
        let mut uncapped = self.found.uncapped.borrow_mut();
        let UncappedEstimates { places, speeds } = Arc::make_mut(&mut uncapped);
        for (pair, answer) in pairs.into_iter().zip(answers) {
            let answer = match answer {
                UncappedAnswer::Unknown => UncappedAnswer::Unknown,
                UncappedAnswer::Hopeless => UncappedAnswer::Hopeless,
                UncappedAnswer::Speeds(both) => {
                    speeds.push(both);
                    UncappedAnswer::Speeds(u32::try_from(speeds.len() - 1).expect("far fewer than 2^32"))
                }
            };
            places.insert(pair, answer);
        }
    }

    /// Every candidate of two waiting jobs that was evaluated, by class (host, joiner) and kind, in one of both orders.
    pub(crate) fn evaluated_pairs(&self) -> Vec<((ClassIndex, ClassIndex, KindIndex), Rc<Evaluation>)> {
        let pairs = self.found.pairs.borrow();
        let once = pairs.iter().filter(|((host, joiner, _), _)| host <= joiner);
        let mut all: Vec<_> = once.map(|(key, evaluation)| (*key, Rc::clone(evaluation))).collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        all
    }

    /// Every candidate of a class with what runs on a device that was evaluated.
    pub(crate) fn evaluated_joins(&self) -> Vec<((ClassIndex, DeviceIndex), Rc<Evaluation>)> {
        let joins = self.found.joins.borrow();
        let mut all: Vec<_> = joins.iter().map(|(key, evaluation)| (*key, Rc::clone(evaluation))).collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        all
    }
}
