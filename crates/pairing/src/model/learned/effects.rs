//! What may make a tenant faster or slower than the prior says, as columns of a linear model: how easily its workload is
//! hurt, how hard each neighbour presses, the same for their families and for their solo profiles, and this very
//! combination. Two regimes, tenants kept apart by caps and tenants on the same compute units, have effects of their
//! own: what is seen in one tells little of the other.

use super::features::{DIRECTIONS, Point, SIZE};
use super::prior::{self, Expected};
use serde::{Deserialize, Serialize};

/// With the size of one, of the other, and of both.
const SIZE_SLOPES: u32 = 3;

/// So many effects two tenants have on each other, about.
const EFFECTS_USUAL: usize = 64;

/// A kind of effect; all columns of one kind have one variance, which is learnt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// All pairings alike.
    All,
    /// How easily this workload is hurt.
    Victim,
    /// How hard this workload presses.
    Aggressor,
    /// How easily this family is hurt.
    VictimFamily,
    /// How hard this family presses.
    AggressorFamily,
    /// This family beside that one.
    Families,
    /// This family beside that one, by how large the workloads are of their families.
    FamilySizes,
    /// Beside its own family: what is alike wants the same, of the device or of the host.
    Alike,
    /// Beside its own family, for this family.
    AlikeFamily,
    /// How far this workload gets its way where it meets others on the same units: what one wins the other loses.
    Strength,
    /// The same for this family.
    FamilyStrength,
    /// The same for workloads that use so much, of the units or of memory.
    UseStrength,
    /// How easily workloads with such a profile are hurt.
    VictimProfile,
    /// How hard workloads with such a profile press.
    AggressorProfile,
    /// Such a profile beside such another.
    Profiles,
    /// What this workload makes of a wider or a tighter cap.
    VictimCap,
    /// What workloads with such a profile make of a cap.
    ProfileCap,
    /// By how much this workload's speeds alone, where they vary, were measured too high or too low.
    Solo,
    /// This very combination.
    Pair,
}

/// Who keeps tenants apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Regime {
    /// Caps that sum to one at most.
    Apart,
    /// On the same compute units: without caps, or with caps that sum to more than one.
    Together,
}

/// One kind in one regime.
pub(super) type Group = (Kind, Regime);

impl Kind {
    /// The standard deviation that is expected of an effect before anything was seen, of the doubt. On shared units it is
    /// strength that counts, and what is particular about two workloads.
    fn expected_deviation(self, regime: Regime) -> f64 {
        let (apart, together) = match self {
            Self::All | Self::Alike | Self::AlikeFamily => (0.08, 0.08),
            Self::Victim | Self::Aggressor | Self::VictimFamily | Self::AggressorFamily => (0.06, 0.03),
            Self::Families => (0.05, 0.025),
            Self::FamilySizes => (0.05, 0.05),
            Self::Strength => (0.15, 0.15),
            Self::FamilyStrength | Self::UseStrength => (0.1, 0.1),
            // Its amount is a standard deviation already.
            Self::Solo => (1.0, 1.0),
            Self::Pair => (0.04, 0.08),
            // Spread over several directions.
            Self::VictimProfile | Self::AggressorProfile | Self::VictimCap | Self::ProfileCap => {
                (0.03, 0.015)
            }
            Self::Profiles => (0.015, 0.0075),
        };
        match regime {
            Regime::Apart => apart,
            Regime::Together => together,
        }
    }
    /// The variance that is expected of an effect before anything was seen.
    pub(super) fn expected_variance(self, regime: Regime) -> f64 {
        self.expected_deviation(regime).powi(2)
    }
    /// Whether it holds for more than the workload that it was seen of: what one wins, another loses.
    pub(super) fn is_shared(self) -> bool {
        !matches!(self, Self::Victim | Self::VictimCap | Self::Solo | Self::Pair)
    }
}

/// A column: a group, and which of its effects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Column(pub(super) Group, pub(super) u32, pub(super) u32);

impl Column {
    pub(super) fn group(&self) -> Group {
        self.0
    }
    /// The two families, the one that feels it first, of which it is what is particular about them.
    pub(super) fn families(&self) -> Option<(u32, u32)> {
        match self.0.0 {
            Kind::Families => Some((self.1, self.2)),
            Kind::FamilySizes => Some((self.1, self.2 / SIZE_SLOPES)),
            _ => None,
        }
    }
}

/// A workload or a family by its number; workloads that were never seen have none.
pub(super) type Number = Option<u32>;

/// One tenant, as effects see it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Actor {
    pub(super) workload: Number,
    /// Absent = it has none; what it does is its own.
    pub(super) family: Option<Number>,
    pub(super) point: Point,
}

impl Actor {
    fn is_alike(&self, other: &Self) -> bool {
        matches!((self.family, other.family), (Some(Some(own)), Some(Some(other))) if own == other)
            || (self.workload.is_some() && self.workload == other.workload)
    }
}

/// One row of the linear model: which effects a tenant feels, and how much of each.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Effects {
    /// Effects that a column stands for.
    pub(super) known: Vec<(Column, f64)>,
    /// Squared amounts of effects of workloads and families that were never seen, by group.
    pub(super) unseen: Vec<(Group, f64)>,
    /// This combination's own effect, by regime.
    pub(super) pair: [f64; 2],
}

impl Effects {
    fn add(&mut self, kind: Kind, regime: Regime, place: Option<(u32, u32)>, amount: f64) {
        if amount == 0.0 {
            return;
        }
        let group = (kind, regime);
        match place {
            Some((a, b)) => self.known.push((Column(group, a, b), amount)),
            None => self.unseen.push((group, amount * amount)),
        }
    }

    /// The effects on one tenant of its neighbours.
    pub(super) fn on(own: &Actor, others: &[&Actor], expected: &Expected) -> Self {
        let known = Vec::with_capacity(EFFECTS_USUAL);
        let mut effects = Self { known, ..Self::default() };
        let regimes = [(Regime::Apart, 1.0 - expected.overlap), (Regime::Together, expected.overlap)];
        for (at, (regime, amount)) in regimes.into_iter().enumerate() {
            effects.pair[at] = amount;
            effects.add(Kind::All, regime, Some((0, 0)), amount);
            effects.add(Kind::Victim, regime, own.workload.map(|own| (own, 0)), amount);
            if let Some(family) = own.family {
                effects.add(Kind::VictimFamily, regime, family.map(|own| (own, 0)), amount);
            }
            effects.add_point(Kind::VictimProfile, regime, &own.point, amount);
            for other in others {
                effects.add(Kind::Aggressor, regime, other.workload.map(|other| (other, 0)), amount);
                if let Some(family) = other.family {
                    effects.add(Kind::AggressorFamily, regime, family.map(|other| (other, 0)), amount);
                }
                effects.add_families(regime, own, other, amount);
                if own.is_alike(other) {
                    effects.add(Kind::Alike, regime, Some((0, 0)), amount);
                    if let Some(family) = own.family {
                        effects.add(Kind::AlikeFamily, regime, family.map(|own| (own, 0)), amount);
                    }
                }
                effects.add_point(Kind::AggressorProfile, regime, &other.point, amount);
                effects.add_products(regime, &own.point, &other.point, amount);
            }
        }
        effects.add_strengths(own, others, expected);
        let of_solo = expected.solo_deviation / expected.doubt;
        effects.add(Kind::Solo, Regime::Apart, own.workload.map(|own| (own, 0)), of_solo);
        if expected.cap < 1.0 {
            let wider = expected.cap - 0.5;
            effects.add(Kind::VictimCap, Regime::Apart, own.workload.map(|own| (own, 0)), wider);
            effects.add_point(Kind::ProfileCap, Regime::Apart, &own.point, wider);
        }
        effects
    }

    /// What is particular about two families, and how it changes with the sizes of both.
    fn add_families(&mut self, regime: Regime, own: &Actor, other: &Actor, amount: f64) {
        let Some((families, others)) = own.family.zip(other.family) else { return };
        let families = families.zip(others);
        self.add(Kind::Families, regime, families, amount);
        let (size, neighbour) = (own.point[SIZE], other.point[SIZE]);
        for (at, slope) in (0..SIZE_SLOPES).zip([size, neighbour, size * neighbour]) {
            let place = families.map(|(own, other)| (own, other * SIZE_SLOPES + at));
            self.add(Kind::FamilySizes, regime, place, amount * slope);
        }
    }

    /// Who wins on shared units: where it is open, a difference of strengths is felt most.
    fn add_strengths(&mut self, own: &Actor, others: &[&Actor], expected: &Expected) {
        let share = expected.overlap * prior::contest(expected.speed_fraction) / expected.doubt;
        let sides = std::iter::once((own, share)).chain(others.iter().map(|other| (*other, -share)));
        for (actor, amount) in sides {
            self.add(Kind::Strength, Regime::Together, actor.workload.map(|workload| (workload, 0)), amount);
            if let Some(family) = actor.family {
                let place = family.map(|family| (family, 0));
                self.add(Kind::FamilyStrength, Regime::Together, place, amount);
            }
            for (at, strength) in (0_u32..).zip(&actor.point[DIRECTIONS..SIZE]) {
                self.add(Kind::UseStrength, Regime::Together, Some((at, 0)), amount * strength);
            }
        }
    }

    fn add_point(&mut self, kind: Kind, regime: Regime, point: &Point, amount: f64) {
        for (at, coordinate) in (0_u32..).zip(&point[..DIRECTIONS]) {
            self.add(kind, regime, Some((at, 0)), amount * coordinate);
        }
    }

    fn add_products(&mut self, regime: Regime, own: &Point, other: &Point, amount: f64) {
        for (a, left) in (0_u32..).zip(&own[..DIRECTIONS]) {
            for (b, right) in (0_u32..).zip(&other[..DIRECTIONS]) {
                self.add(Kind::Profiles, regime, Some((a, b)), amount * left * right);
            }
        }
    }
}

const _: () = assert!(SIZE < 16, "products of directions are columns");
