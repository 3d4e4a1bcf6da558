//! `PrepareShare`, `RevokeShare` and `ShareResult`.

use super::field::{self, InvalidField};
use crate::v1 as wire;
use pillion_core::report::ShareResult;
use pillion_core::share::{InvalidSharing, Share, Sharing, SharingColumns};
use pillion_core::text::quoted;
use pillion_core::units::OutOfRange;
use pillion_core::{DecisionId, Fraction, GresType, GresTypes, JobStart, Shards, UserId};

/// A share that cannot be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("invalid share of job '{job_id}'")]
pub struct InvalidShare {
    /// Which, as it was written.
    pub job_id: String,
    /// What is wrong with it.
    pub source: InvalidField,
}

/// A revocation that cannot be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("invalid revocation")]
pub struct InvalidRevoke(#[from] pub InvalidField);

/// An answer that cannot be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("invalid answer to a share")]
pub struct InvalidShareResult(#[from] pub InvalidField);

impl TryFrom<wire::PrepareShare> for Share {
    type Error = InvalidShare;
    fn try_from(wire: wire::PrepareShare) -> Result<Self, InvalidShare> {
        let job_id = wire.job_id.clone();
        checked_share(wire).map_err(|source| InvalidShare { job_id: quoted(&job_id), source })
    }
}

fn checked_share(wire: wire::PrepareShare) -> Result<Share, InvalidField> {
    let wire::PrepareShare {
        decision_id,
        job_id,
        restart_count,
        uid,
        gres_type,
        mechanism,
        cap_fraction,
        ccs_mode,
        memory_limit_bytes,
        shards,
        mig_slot,
        is_session,
        process_memory_limit_bytes,
        is_plain,
    } = wire;
    let sharing = Sharing::try_from(SharingColumns {
        mechanism: Some(field::mechanism(&mechanism)?),
        cap_fraction: field::fraction("cap_fraction", cap_fraction)?,
        ccs_mode: ccs_mode
            .map(|mode| u8::try_from(mode).map_err(|_| InvalidSharing::Mode(mode)))
            .transpose()?,
        memory_limit_bytes: process_memory_limit_bytes.or(memory_limit_bytes),
        mig_slot: mig_slot.map(|slot| slot.parse()).transpose()?,
    })?;
    let shards = checked_shards(shards)?;
    Ok(Share {
        decision_id: DecisionId(decision_id),
        start: field::start(&job_id, restart_count)?,
        uid: UserId(uid),
        gres_types: checked_devices(&gres_type, sharing, shards)?,
        sharing,
        shards,
        memory_bytes: memory_limit_bytes.filter(|_| process_memory_limit_bytes.is_some()),
        is_session,
        is_plain,
    })
}

/// Whoever has several devices has all of each, or a set that is shared as one.
fn checked_devices(text: &str, sharing: Sharing, shards: Shards) -> Result<GresTypes, InvalidField> {
    let each = text.split(',').map(|one| field::name("gres_type", one.to_owned()).map(GresType::new));
    let all = GresTypes::try_new(each.collect::<Result<_, _>>()?)?;
    let mechanism = sharing.mechanism();
    let are_whole = !mechanism.is_set_up() && shards == Shards::ALL;
    if all.count() > 1 && !are_whole && !mechanism.takes_several() {
        return Err(InvalidField::PartsOfSeveral(quoted(text)));
    }
    Ok(all)
}

fn checked_shards(count: u32) -> Result<Shards, InvalidField> {
    u8::try_from(count).ok().and_then(|count| Shards::try_new(count).ok()).ok_or(InvalidField::Range {
        field: "shards",
        source: OutOfRange { value: f64::from(count), unit: "shard count", low: 1.0, high: 100.0 },
    })
}

impl From<Share> for wire::PrepareShare {
    fn from(share: Share) -> Self {
        let Share {
            decision_id,
            start,
            uid,
            gres_types,
            sharing,
            shards,
            memory_bytes,
            is_session,
            is_plain,
        } = share;
        let SharingColumns { mechanism: _, cap_fraction, ccs_mode, memory_limit_bytes, mig_slot } =
            sharing.into();
        Self {
            decision_id: decision_id.0,
            job_id: start.job_id.to_string(),
            restart_count: start.restart_count,
            uid: uid.0,
            gres_type: gres_types.to_string(),
            mechanism: sharing.mechanism().to_string(),
            cap_fraction: cap_fraction.map(Fraction::value),
            ccs_mode: ccs_mode.map(u32::from),
            memory_limit_bytes: memory_bytes.or(memory_limit_bytes),
            shards: u32::from(shards.count()),
            mig_slot: mig_slot.map(String::from),
            is_session,
            is_plain,
            process_memory_limit_bytes: memory_limit_bytes.filter(|_| memory_bytes.is_some()),
        }
    }
}

/// What a `RevokeShare` names.
pub(super) fn revoked(wire: wire::RevokeShare) -> Result<(DecisionId, JobStart), InvalidRevoke> {
    let wire::RevokeShare { decision_id, job_id, restart_count } = wire;
    Ok((DecisionId(decision_id), field::start(&job_id, restart_count)?))
}

impl TryFrom<wire::ShareResult> for ShareResult {
    type Error = InvalidShareResult;
    fn try_from(wire: wire::ShareResult) -> Result<Self, InvalidShareResult> {
        let wire::ShareResult { decision_id, job_id, restart_count, error, revoked } = wire;
        Ok(Self {
            decision_id: DecisionId(decision_id),
            start: field::start(&job_id, restart_count)?,
            error: Some(error).filter(|text| !text.is_empty()).map(|text| field::words(&text)),
            revoked,
        })
    }
}

impl From<ShareResult> for wire::ShareResult {
    fn from(result: ShareResult) -> Self {
        let ShareResult { decision_id, start, error, revoked } = result;
        Self {
            decision_id: decision_id.0,
            job_id: start.job_id.to_string(),
            restart_count: start.restart_count,
            error: error.unwrap_or_default(),
            revoked,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillion_core::SlurmJobId;

    /// An agent that knows nothing of the limit of each is told what all may have: no less than a process of it needs.
    #[test]
    fn an_earlier_agent_is_told_of_several_processes_what_all_may_have() {
        let share = Share {
            decision_id: DecisionId(1),
            start: JobStart { job_id: SlurmJobId::plain(7), restart_count: 0 },
            uid: UserId(1000),
            gres_types: GresType::new("g0").into(),
            sharing: Sharing::Mps { cap: None, memory_limit_bytes: Some(3 << 30) },
            shards: Shards::try_new(50).expect("in range"),
            memory_bytes: Some(12 << 30),
            is_session: false,
            is_plain: false,
        };
        let sent = wire::PrepareShare::from(share.clone());
        let limits = (sent.memory_limit_bytes, sent.process_memory_limit_bytes);
        assert_eq!(limits, (Some(12 << 30), Some(3 << 30)));
        assert_eq!(Share::try_from(sent.clone()), Ok(share.clone()));
        // From an earlier scheduler, and of one process: the limit of each is that of all.
        let earlier = wire::PrepareShare { process_memory_limit_bytes: None, ..sent };
        let read = Share::try_from(earlier).expect("valid");
        assert_eq!((read.sharing.memory_limit_bytes(), read.memory_bytes), (Some(12 << 30), None));
    }
}
