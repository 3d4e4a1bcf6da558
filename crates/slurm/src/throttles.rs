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
        self.known.retain(|array, (asked_at, _)| arrays.contains(array) && asked_at.elapsed() < FRESH);
        let unknown: Vec<u32> =
            arrays.iter().copied().filter(|array| !self.known.contains_key(array)).collect();
        for some in unknown.chunks(ARRAYS_PER_CALL) {
            let nonce = nonce();
            let lines = scontrol::throttle_questions(some, &nonce);
            // The option is the program's: among its own commands `show job -o 7` has a word too many.
            let answer = runner.ask_lines("scontrol", &["-o"], &lines).await;
            self.tell(answer.as_ref().err());
            // Nothing is known, and it is asked again at the next scan; so it is of an array that ended meanwhile.
            let Ok(text) = answer else { break };
            let (found, asked_at) = (scontrol::array_throttles(&text, some, &nonce), Instant::now());
            self.known.extend(found.into_iter().map(|(array, throttle)| (array, (asked_at, throttle))));
        }
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
