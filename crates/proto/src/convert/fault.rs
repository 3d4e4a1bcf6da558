//! `FaultSigns`.

use super::field::{self, InvalidField};
use crate::v1 as wire;
use pillion_core::fault::{FaultSigns, MemorySample, XidSeen};

pub(super) fn checked_signs(wire: wire::FaultSigns) -> Result<FaultSigns, InvalidField> {
    let wire::FaultSigns { memory, process_bytes_limit, stderr, xids, was_over_limit } = wire;
    Ok(FaultSigns {
        memory: memory
            .into_iter()
            .take(field::NEIGHBOURS_MAX)
            .map(checked_sample)
            .collect::<Result<_, _>>()?,
        process_bytes_limit,
        was_over_limit,
        // A class that a newer agent knows tells us as little as none.
        stderr: stderr.parse().ok(),
        xids: xids.into_iter().take(field::NEIGHBOURS_MAX).map(checked_xid).collect::<Result<_, _>>()?,
    })
}

fn checked_sample(wire: wire::MemoryLook) -> Result<MemorySample, InvalidField> {
    let wire::MemoryLook { at_seconds, bytes, bytes_used, process_bytes_max } = wire;
    Ok(MemorySample { at: field::time("at_seconds", at_seconds)?, bytes, bytes_used, process_bytes_max })
}

fn checked_xid(wire: wire::XidSeen) -> Result<XidSeen, InvalidField> {
    let wire::XidSeen { at_seconds, code, is_own } = wire;
    Ok(XidSeen { at: field::time("at_seconds", at_seconds)?, code, is_own })
}

impl From<FaultSigns> for wire::FaultSigns {
    fn from(signs: FaultSigns) -> Self {
        let FaultSigns { memory, process_bytes_limit, was_over_limit, stderr, xids } = signs;
        Self {
            memory: memory
                .into_iter()
                .map(|MemorySample { at, bytes, bytes_used, process_bytes_max }| wire::MemoryLook {
                    at_seconds: at.seconds(),
                    bytes,
                    bytes_used,
                    process_bytes_max,
                })
                .collect(),
            process_bytes_limit,
            was_over_limit,
            stderr: stderr.map(|words| words.to_string()).unwrap_or_default(),
            xids: xids
                .into_iter()
                .map(|XidSeen { at, code, is_own }| wire::XidSeen { at_seconds: at.seconds(), code, is_own })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_a_newer_agent_knows_are_as_good_as_unread() {
        let signs =
            |stderr: &str| wire::FaultSigns { stderr: stderr.to_owned(), ..wire::FaultSigns::default() };
        for text in ["", "shouted"] {
            assert_eq!(checked_signs(signs(text)).expect("valid").stderr, None, "{text}");
        }
    }

    #[test]
    fn a_time_that_is_none_is_refused() {
        let sample = wire::MemoryLook { at_seconds: f64::NAN, ..wire::MemoryLook::default() };
        assert!(
            checked_signs(wire::FaultSigns { memory: vec![sample], ..wire::FaultSigns::default() }).is_err()
        );
    }
}
