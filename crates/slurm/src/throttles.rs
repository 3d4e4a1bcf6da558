//! How many tasks of an array may run at once, which `squeue -r` does not show: asked of `scontrol` beside the queue.

use crate::parse::scontrol;
use crate::process::{Runner, nonce};
use crate::types::SlurmError;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// Arrays that are asked for in one call.
const ARRAYS_PER_CALL: usize = 200;
/// How long the throttle of an array is believed before it is asked for again.
const FRESH: Duration = Duration::from_mins(1);

/// What was answered of arrays, and when.
#[derive(Debug, Default)]
pub(crate) struct Throttles {
    known: BTreeMap<u32, (Instant, Option<u32>)>,
    /// Why they could not be asked for last, so that it is said once and not at each look.
    failure: Option<String>,
}

impl Throttles {
    /// Asks for these arrays, each at most once a minute and all of them in few calls; forgets others.
    pub(crate) async fn ask(&mut self, runner: &Runner, arrays: &BTreeSet<u32>) {
        for some in self.due(arrays, Instant::now()).chunks(ARRAYS_PER_CALL) {
            let nonce = nonce();
            let lines = scontrol::throttle_questions(some, &nonce);
            // The option is the program's: among its own commands `show job -o 7` has a word too many.
            let answer = runner.ask_lines("scontrol", &["-o"], &lines).await;
            self.tell(answer.as_ref().err());
            // What was known stands, and it is asked again at the next scan; so it is of an array that ended meanwhile.
            let Ok(text) = answer else { break };
            let (found, asked_at) = (scontrol::array_throttles(&text, some, &nonce), Instant::now());
            self.known.extend(found.into_iter().map(|(array, throttle)| (array, (asked_at, throttle))));
        }
    }

    /// Those of them of which nothing is known, or only what may have changed: until it is answered anew, that stands. Forgets others.
    fn due(&mut self, arrays: &BTreeSet<u32>, now: Instant) -> Vec<u32> {
        self.known.retain(|array, _| arrays.contains(array));
        let is_fresh = |array: &u32| {
            self.known.get(array).is_some_and(|(asked_at, _)| now.duration_since(*asked_at) < FRESH)
        };
        arrays.iter().copied().filter(|array| !is_fresh(array)).collect()
    }

    /// As it was answered; `None` where there is none, or nobody knows.
    pub(crate) fn of(&self, array: u32) -> Option<u32> {
        self.known.get(&array).and_then(|(_, throttle)| *throttle)
    }

    /// Says that they are not known, once for each cause, and that they are again.
    fn tell(&mut self, error: Option<&SlurmError>) {
        let why = error.map(ToString::to_string);
        if self.failure == why {
            return;
        }
        if let Some(why) = &why {
            tracing::warn!(error = %why, "how many tasks of an array may run at once is not known");
        } else {
            tracing::info!("how many tasks of an array may run at once is known again");
        }
        self.failure = why;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As it was: forgotten before it was asked again, so that a call that failed let the whole array through.
    #[test]
    fn a_throttle_stands_until_it_is_answered_anew() {
        let mut throttles = Throttles::default();
        let arrays = BTreeSet::from([7, 8]);
        let now = Instant::now();
        assert_eq!(throttles.due(&arrays, now), [7, 8]);
        throttles.known.insert(7, (now, Some(1)));
        assert_eq!(throttles.due(&arrays, now), [8]);
        assert_eq!((throttles.due(&arrays, now + FRESH), throttles.of(7)), (vec![7, 8], Some(1)));
        assert_eq!(throttles.due(&BTreeSet::from([8]), now), [8]);
        assert_eq!(throttles.of(7), None, "it has ended");
    }
}
