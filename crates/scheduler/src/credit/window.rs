//! What the last samples of a shared device show together: pure. One sample may fall into a burst, and so may several; and who
//! makes a pause now and then is not better for it. So it is counted among the last samples, whether in a row or not. Compute
//! units must be beyond in their mean too, for a profile is a mean: who works half of the time is known so.

use super::excess::{ACTIVITY_MARGIN, Excess, Look, Of};
use pillion_core::JobStart;
use std::collections::VecDeque;

/// How many samples are looked at, one a second, and how many of them must show it.
const LOOKS_MAX: usize = 10;
pub(super) const BEYOND_MIN: usize = 5;

/// The last samples of a sharing: who was beyond his profile, and how far all were together.
#[derive(Debug, Clone, Default)]
pub(super) struct Window(VecDeque<(Option<JobStart>, Option<f64>)>);

impl Window {
    /// One more sample.
    pub(super) fn add(&mut self, look: &Look) {
        if self.0.len() >= LOOKS_MAX {
            self.0.pop_front();
        }
        self.0.push_back((look.excess.as_ref().map(|excess| excess.start), look.surplus));
    }

    /// Whether the last samples bear out what the newest of them shows.
    pub(super) fn bears_out(&self, excess: &Excess) -> bool {
        let count = self.0.iter().filter(|(start, _)| *start == Some(excess.start)).count();
        count >= BEYOND_MIN && (excess.of == Of::Memory || self.surplus_mean() > ACTIVITY_MARGIN)
    }

    fn surplus_mean(&self) -> f64 {
        let (count, sum) = self
            .0
            .iter()
            .filter_map(|(_, surplus)| *surplus)
            .fold((0.0, 0.0), |(count, sum), surplus| (count + 1.0, sum + surplus));
        if count > 0.0 { sum / count } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillion_core::{SlurmJobId, UserId};

    fn excess(job: u32, of: Of) -> Excess {
        let start = JobStart { job_id: SlurmJobId::plain(job), restart_count: 0 };
        Excess { start, uid: UserId(1001), of, detail: String::new() }
    }

    /// At which of these samples it is borne out first; each is how far the compute units in use are beyond the profiles.
    fn found(surpluses: impl IntoIterator<Item = f64>) -> Option<usize> {
        let mut window = Window::default();
        let mut looks = surpluses.into_iter().enumerate();
        looks.find_map(|(index, surplus)| {
            let excess = (surplus > ACTIVITY_MARGIN).then(|| excess(8, Of::Activity));
            let look = Look { excess, surplus: Some(surplus), newest: None };
            window.add(&look);
            look.excess.is_some_and(|excess| window.bears_out(&excess)).then_some(index + 1)
        })
    }

    fn cycle(heavy: usize, idle: usize, surplus_idle: f64) -> impl Iterator<Item = f64> {
        (0..1000).map(move |second| if second % (heavy + idle) < heavy { 0.6 } else { surplus_idle })
    }

    #[test]
    fn who_is_beyond_all_the_time_is_found_in_five_samples() {
        assert_eq!(found([0.6; 4]), None);
        assert_eq!(found([0.6; 5]), Some(5));
    }

    /// As it was tried: heavy for four seconds, idle for one, for ever.
    #[test]
    fn who_makes_a_pause_before_the_fifth_is_found_too() {
        assert_eq!(found(cycle(4, 1, -0.1)), Some(6));
        assert_eq!(found(cycle(3, 1, 0.2)), Some(6));
    }

    #[test]
    fn a_burst_now_and_then_is_none() {
        for (heavy, idle) in [(1, 1), (4, 6), (4, 30)] {
            assert_eq!(found(cycle(heavy, idle, -0.1)), None, "{heavy} of {}", heavy + idle);
        }
    }

    /// His profile says a half, for it is a mean: he is beyond it while he works, and not in the mean.
    #[test]
    fn who_works_half_of_the_time_as_his_profile_says_is_not_beyond_it() {
        let working = |second: usize| if second % 8 < 4 { 0.5 } else { -0.5 };
        assert_eq!(found((0..1000).map(working)), None);
    }

    #[test]
    fn memory_counts_by_the_samples_alone_and_of_each_by_himself() {
        let bears_out = |jobs: &[u32]| {
            let mut window = Window::default();
            for job in jobs {
                let excess = (*job > 0).then(|| excess(*job, Of::Memory));
                window.add(&Look { excess, surplus: Some(-0.2), newest: None });
            }
            window.bears_out(&excess(*jobs.last().unwrap(), Of::Memory))
        };
        assert!(bears_out(&[7, 0, 7, 0, 7, 0, 7, 0, 7]), "five of nine");
        assert!(!bears_out(&[7, 0, 0, 7, 0, 0, 7, 0, 0, 7]), "four of ten");
        assert!(!bears_out(&[7, 0, 0, 0, 0, 0, 7, 7, 7, 0, 7]), "the first is over");
        assert!(!bears_out(&[8, 8, 8, 8, 7]), "nobody answers for another");
    }
}
