//! What `top` knows and where it looks: a function of answers and keys. No terminal, no clock, no socket.

use pillion_api::{AccountRow, TopRequest, TopResponse};

/// Which list the arrow keys move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pane {
    #[default]
    Devices,
    /// The jobs that wait.
    Jobs,
}

/// A key that means something here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// One row up.
    Up,
    /// One row down.
    Down,
    /// A page up.
    PageUp,
    /// A page down.
    PageDown,
    /// The first row.
    Home,
    /// The last row.
    End,
    /// The other list.
    Tab,
    Quit,
}

/// How large the terminal is, in cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub width: u16,
    pub height: u16,
}

/// How many rows each part of the screen has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rows {
    /// Devices, without their heading.
    pub devices: u16,
    /// Waiting jobs, without their heading.
    pub jobs: u16,
}

/// Lines at the top, and the headings of both lists with the empty line between them.
pub(super) const HEAD_ROWS: u16 = 3;
pub(super) const HEADING_ROWS: u16 = 3;
/// The last line, which says what the keys do.
pub(super) const FOOT_ROWS: u16 = 1;
/// Of the rows that are left, the jobs have a third at most, and never more than this.
const JOB_ROWS_MAX: u16 = 12;

impl Size {
    /// How the lists share it.
    pub fn rows(self) -> Rows {
        let left = self.height.saturating_sub(HEAD_ROWS + HEADING_ROWS + FOOT_ROWS);
        let jobs = (left / 3).min(JOB_ROWS_MAX);
        Rows { devices: left - jobs, jobs }
    }
}

/// All that a frame is drawn from.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct State {
    /// The last answer.
    pub overview: Option<TopResponse>,
    /// What was gained today.
    pub gains: Option<AccountRow>,
    /// Why nothing new comes, and for how many seconds by now.
    pub trouble: Option<(String, u64)>,
    /// Which list the keys move.
    pub pane: Pane,
    /// The first device on the screen.
    pub first_device: u32,
    /// The first waiting job on the screen.
    pub first_job: u32,
    /// Whether colours may be used.
    pub has_colour: bool,
}

impl State {
    /// What to ask for: the rows on the screen and no more.
    pub fn request(&self, size: Size) -> TopRequest {
        let rows = size.rows();
        TopRequest {
            device_offset: self.first_device,
            device_limit: u32::from(rows.devices),
            job_offset: self.first_job,
            job_limit: u32::from(rows.jobs),
        }
    }

    /// Takes a key. `false`: it is over.
    pub fn press(&mut self, key: Key, size: Size) -> bool {
        let rows = size.rows();
        let page = match self.pane {
            Pane::Devices => i64::from(rows.devices),
            Pane::Jobs => i64::from(rows.jobs),
        };
        match key {
            Key::Quit => return false,
            Key::Tab => {
                self.pane = if self.pane == Pane::Devices { Pane::Jobs } else { Pane::Devices };
            }
            Key::Up => self.scroll(-1, size),
            Key::Down => self.scroll(1, size),
            Key::PageUp => self.scroll(-page, size),
            Key::PageDown => self.scroll(page, size),
            Key::Home => self.scroll(i64::MIN, size),
            Key::End => self.scroll(i64::MAX, size),
        }
        true
    }

    /// Takes an answer. Where the lists are shorter by now, or the terminal larger, the screen moves up.
    pub fn show(&mut self, overview: TopResponse, size: Size) {
        self.overview = Some(overview);
        self.trouble = None;
        self.fit(size);
    }

    /// Keeps the lists on the screen after the terminal changed.
    pub fn fit(&mut self, size: Size) {
        let (devices, jobs) = self.last_firsts(size);
        self.first_device = self.first_device.min(devices);
        self.first_job = self.first_job.min(jobs);
    }

    /// Where each list begins when its last row is on the screen.
    fn last_firsts(&self, size: Size) -> (u32, u32) {
        let rows = size.rows();
        let (devices, jobs) = self
            .overview
            .as_ref()
            .map_or((0, 0), |it| (it.counts.unwrap_or_default().devices, it.waiting_count));
        (devices.saturating_sub(u32::from(rows.devices)), jobs.saturating_sub(u32::from(rows.jobs)))
    }

    fn scroll(&mut self, by: i64, size: Size) {
        let (devices, jobs) = self.last_firsts(size);
        let (first, last) = match self.pane {
            Pane::Devices => (&mut self.first_device, devices),
            Pane::Jobs => (&mut self.first_job, jobs),
        };
        let to = i64::from(*first).saturating_add(by).clamp(0, i64::from(last));
        *first = u32::try_from(to).unwrap_or(last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillion_api::TopCounts;

    const SIZE: Size = Size { width: 100, height: 37 };

    fn overview(devices: u32, waiting_count: u32) -> TopResponse {
        let counts = Some(TopCounts { devices, ..TopCounts::default() });
        TopResponse { counts, waiting_count, ..TopResponse::default() }
    }

    #[test]
    fn no_more_is_asked_for_than_fits_on_the_screen() {
        let mut state = State::default();
        state.show(overview(8000, 500), SIZE);
        let request = state.request(SIZE);
        assert_eq!((request.device_offset, request.device_limit, request.job_limit), (0, 20, 10));
        assert_eq!(Size { width: 10, height: 3 }.rows(), Rows { devices: 0, jobs: 0 });
        assert_eq!(Size { width: 10, height: 400 }.rows().jobs, JOB_ROWS_MAX);
    }

    #[test]
    fn keys_move_one_list_and_stay_inside_it() {
        let mut state = State::default();
        state.show(overview(8000, 15), SIZE);
        for (key, expected) in [
            (Key::Up, 0),
            (Key::Down, 1),
            (Key::PageDown, 21),
            (Key::PageUp, 1),
            (Key::End, 7980),
            (Key::Down, 7980),
            (Key::Home, 0),
        ] {
            assert!(state.press(key, SIZE));
            assert_eq!((state.first_device, state.first_job), (expected, 0), "{key:?}");
        }
        assert!(state.press(Key::Tab, SIZE) && state.press(Key::PageDown, SIZE));
        assert_eq!((state.first_device, state.first_job), (0, 5), "the last row stands at the foot");
        assert!(!state.press(Key::Quit, SIZE));
    }

    #[test]
    fn the_screen_stays_on_the_lists_when_they_shrink_and_it_grows() {
        let mut state = State { first_device: 7980, ..State::default() };
        state.show(overview(100, 0), SIZE);
        assert_eq!(state.first_device, 80);
        state.fit(Size { height: 97, ..SIZE });
        assert_eq!(state.first_device, 22);
    }

    #[test]
    fn an_answer_ends_the_trouble() {
        let mut state = State { trouble: Some(("not responding".to_owned(), 7)), ..State::default() };
        state.show(overview(1, 0), SIZE);
        assert_eq!(state.trouble, None);
    }
}
