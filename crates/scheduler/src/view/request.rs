//! What jobs ask for, as plans take it: types of GPUs by their names, and slowdowns.

use pillion_core::SlowdownRatio;
use pillion_core::mark::Mark;
use std::collections::BTreeMap;

/// Every name under which users may ask for a device model: its own, and those that the site gave it. The heartbeat tells
/// lua the same names, or jobs would be taken in that no device ever matches.
pub fn gpu_type_names(model: &str, given: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let given = given.get(model).into_iter().flatten();
    given.map(String::as_str).filter(|name| *name != model).chain([model]).map(str::to_owned).collect()
}

/// `gpu:a100:1` asks for `a100`, `gpu:1` for any.
pub(super) fn asked_gpu_type(original_gres: &str) -> Option<String> {
    let mut parts = original_gres.split(':').skip(1);
    let (first, second) = (parts.next()?, parts.next());
    second.map(|_| first.to_owned()).or_else(|| first.parse::<u32>().is_err().then(|| first.to_owned()))
}

/// A promise as it was stored, in the range that promises have.
pub(super) fn promise(ratio: f64) -> SlowdownRatio {
    SlowdownRatio::try_promise(ratio.clamp(1.0, SlowdownRatio::PROMISE_MAX)).expect("clamped into the range")
}

/// What a job is promised: what its user asked for, else the site's; nothing where he submitted it as a guest.
pub(super) fn promise_of(mark: &Mark, of_site: SlowdownRatio) -> SlowdownRatio {
    match mark.slowdown_ratio_max {
        Some(asked) => promise(asked),
        None if mark.as_guest => promise(SlowdownRatio::PROMISE_MAX),
        None => of_site,
    }
}
