//! Who is asked what candidates would be like. It knows what is alike in one plan, and remembers what was found out about
//! it; how that is found out stands in the files beside this one.

use super::evaluation::Evaluation;
use super::worth::{self, TypicalRun};
use crate::model::SpeedEstimate;
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

/// How fast two are without caps, in the order of their profiles; absent = nothing can be said. Terms are left out: there
/// may be a hundred thousand of them.
pub(super) type UncappedEstimates = Arc<FxHashMap<UncappedPair, Option<[SpeedEstimate; 2]>>>;

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
    pub(super) uncapped: RefCell<UncappedEstimates>,
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
        self.found.uncapped.borrow().contains_key(pair)
    }

    /// From now on this is known too.
    pub(super) fn remember(&self, answers: impl Iterator<Item = (UncappedPair, Option<[SpeedEstimate; 2]>)>) {
        Arc::make_mut(&mut self.found.uncapped.borrow_mut()).extend(answers);
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
