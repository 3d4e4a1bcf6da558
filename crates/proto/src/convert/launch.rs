//! `Launch`.

use super::field::{self, InvalidField};
use crate::v1 as wire;
use pillion_core::option;
use pillion_core::report::Launch;
use pillion_core::text::quoted;
use pillion_core::{DecisionId, GresType};

/// A launch that cannot be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("invalid launch of job '{job_id}'")]
pub struct InvalidLaunch {
    /// Which, as it was written.
    pub job_id: String,
    /// What is wrong with it.
    pub source: InvalidField,
}

impl TryFrom<wire::Launch> for Launch {
    type Error = InvalidLaunch;
    fn try_from(wire: wire::Launch) -> Result<Self, InvalidLaunch> {
        let wire::Launch {
            at_seconds,
            job_id,
            restart_count,
            step_id,
            decision_id,
            gres_types,
            profile_name,
        } = wire;
        let checked = || -> Result<Self, InvalidField> {
            Ok(Self {
                at: field::time("at_seconds", at_seconds)?,
                start: field::start(&job_id, restart_count)?,
                step_id,
                decision_id: decision_id.map(DecisionId),
                gres_types: field::few("gres_types", gres_types, field::DEVICES_MAX)?
                    .into_iter()
                    .map(|gres_type| field::name("gres_types", gres_type).map(GresType::new))
                    .collect::<Result<_, _>>()?,
                profile_name: Some(profile_name).filter(|name| option::is_profile_name(name)),
            })
        };
        checked().map_err(|source| InvalidLaunch { job_id: quoted(&job_id), source })
    }
}

impl From<Launch> for wire::Launch {
    fn from(launch: Launch) -> Self {
        let Launch { at, start, step_id, decision_id, gres_types, profile_name } = launch;
        Self {
            at_seconds: at.seconds(),
            job_id: start.job_id.to_string(),
            restart_count: start.restart_count,
            step_id,
            decision_id: decision_id.map(|id| id.0),
            gres_types: gres_types.into_iter().map(|gres_type| gres_type.0.into()).collect(),
            profile_name: profile_name.unwrap_or_default(),
        }
    }
}
