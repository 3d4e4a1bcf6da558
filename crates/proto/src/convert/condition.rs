//! `DeviceCondition` and `DeviceFault`.

use super::field::{self, InvalidField};
use super::metric;
use crate::v1 as wire;
use pillion_core::GresType;
use pillion_core::health::{DeviceCondition, DeviceFault, FaultKind};
use pillion_core::mig::{Geometry, Slot};
use pillion_core::text::quoted;

/// A condition that cannot be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("invalid condition of device '{gres_type}'")]
pub struct InvalidCondition {
    /// Which, as it was written.
    pub gres_type: String,
    /// What is wrong with it.
    pub source: InvalidField,
}

impl TryFrom<wire::DeviceCondition> for DeviceCondition {
    type Error = InvalidCondition;
    fn try_from(wire: wire::DeviceCondition) -> Result<Self, InvalidCondition> {
        let wire::DeviceCondition { gres_type, faults, sources, instances_empty } = wire;
        let checked = || -> Result<Self, InvalidField> {
            Ok(Self {
                gres_type: GresType::new(field::name("gres_type", gres_type.clone())?),
                faults: field::few("faults", faults, field::TENANTS_MAX)?
                    .into_iter()
                    .map(checked_fault)
                    .collect::<Result<_, _>>()?,
                sources: metric::known_sources(sources),
                instances_empty: field::few(
                    "instances_empty",
                    instances_empty,
                    usize::from(Geometry::MEMORY_SLICES_MAX),
                )?
                .iter()
                .map(|slot| slot.parse::<Slot>())
                .collect::<Result<_, _>>()?,
            })
        };
        checked().map_err(|source| InvalidCondition { gres_type: quoted(&gres_type), source })
    }
}

fn checked_fault(wire: wire::DeviceFault) -> Result<DeviceFault, InvalidField> {
    let wire::DeviceFault { kind, detail, since_seconds } = wire;
    Ok(DeviceFault {
        kind: kind.parse().unwrap_or(FaultKind::Other),
        detail: field::words(&detail),
        since: field::time("since_seconds", since_seconds)?,
    })
}

impl From<DeviceCondition> for wire::DeviceCondition {
    fn from(condition: DeviceCondition) -> Self {
        let DeviceCondition { gres_type, faults, sources, instances_empty } = condition;
        Self {
            gres_type: gres_type.0.into(),
            faults: faults
                .into_iter()
                .map(|DeviceFault { kind, detail, since }| wire::DeviceFault {
                    kind: kind.to_string(),
                    detail,
                    since_seconds: since.seconds(),
                })
                .collect(),
            sources: metric::grouped_sources(&sources),
            instances_empty: instances_empty.into_iter().map(String::from).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_that_a_newer_agent_knows_is_shown_and_closes_nothing() {
        let fault =
            |kind: &str| wire::DeviceFault { kind: kind.into(), detail: "d".into(), since_seconds: 1.0 };
        let condition = |kind: &str| {
            let wire = wire::DeviceCondition {
                gres_type: "g0".into(),
                faults: vec![fault(kind)],
                ..Default::default()
            };
            DeviceCondition::try_from(wire).expect("valid")
        };
        let unknown = condition("on-fire");
        assert_eq!((unknown.faults[0].kind, unknown.closed_by()), (FaultKind::Other, None));
        assert!(condition("gone").closed_by().is_some_and(|fault| fault.kind == FaultKind::Gone));
    }
}
