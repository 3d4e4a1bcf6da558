use super::*;
use pillion_core::device::Mechanism;

fn tile(mechanism: Mechanism) -> DeviceDescription {
    DeviceDescription { mechanism, ..pillion_test_kit::tile(3) }
}

fn mode_held(mechanism: Mechanism, error: DeviceError) -> Option<(u32, String)> {
    Refusal::of(&tile(mechanism), &error.into()).mode_held
}

#[test]
fn a_mode_is_held_by_who_uses_the_card_and_by_nothing_else() {
    let reason = || "processes [7]".to_owned();
    let busy = || DeviceError::Busy { index: 0, reason: reason() };
    assert_eq!(mode_held(Mechanism::Ccs, busy()), Some((3, reason())), "of the share's own device");
    assert_eq!(mode_held(Mechanism::Mps, busy()), None);
    let not_ready = DeviceError::NotReady { index: 3, reason: reason() };
    assert_eq!(mode_held(Mechanism::Ccs, not_ready), None);
    let refused = DeviceError::Refused { index: 3, reason: reason() };
    assert_eq!(mode_held(Mechanism::Ccs, refused), None);
}
