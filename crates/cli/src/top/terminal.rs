//! The terminal itself: the other screen, raw keys, and back again on every way out, a panic included.

use super::frame;
use super::state::{Key, Size, State};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::io;
use std::time::Duration;
use tokio::sync::mpsc;

/// How long a poll for keys lasts before it is seen that nobody wants any.
const POLL_PERIOD: Duration = Duration::from_millis(100);

/// What the terminal reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    Key(Key),
    Resize,
}

/// The terminal while `top` has it. Dropped, it is as it was before.
#[derive(Debug)]
pub(super) struct Screen(DefaultTerminal);

impl Screen {
    pub(super) fn open() -> io::Result<Self> {
        ratatui::try_init().map(Self).inspect_err(|_| ratatui::restore())
    }

    pub(super) fn size(&self) -> io::Result<Size> {
        let size = self.0.size()?;
        Ok(Size { width: size.width, height: size.height })
    }

    pub(super) fn draw(&mut self, state: &State) -> io::Result<()> {
        self.0.draw(|area| frame::draw(area, state)).map(drop)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// The size of the terminal; `None`: standard output is none.
pub(super) fn size() -> Option<Size> {
    use std::io::IsTerminal as _;
    let (width, height) = io::stdout().is_terminal().then(ratatui::crossterm::terminal::size)?.ok()?;
    // One row is left for the prompt.
    Some(Size { width, height: height.saturating_sub(1) })
}

/// Keys and changes of size, read by a thread that ends when nobody listens. The list ends where the terminal is gone.
pub(super) fn inputs() -> mpsc::Receiver<Input> {
    let (send, inputs) = mpsc::channel(64);
    std::thread::spawn(move || {
        while !send.is_closed() {
            match event::poll(POLL_PERIOD) {
                Ok(false) => continue,
                Ok(true) => {}
                Err(_) => return,
            }
            let Ok(event) = event::read() else { return };
            if let Some(input) = input(&event)
                && send.blocking_send(input).is_err()
            {
                return;
            }
        }
    });
    inputs
}

fn input(event: &Event) -> Option<Input> {
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => key_of(key).map(Input::Key),
        Event::Resize(..) => Some(Input::Resize),
        _ => None,
    }
}

fn key_of(key: &KeyEvent) -> Option<Key> {
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(match key.code {
        KeyCode::Char('c') if is_control => Key::Quit,
        KeyCode::Char('q') | KeyCode::Esc => Key::Quit,
        KeyCode::Up | KeyCode::Char('k') => Key::Up,
        KeyCode::Down | KeyCode::Char('j') => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown | KeyCode::Char(' ') => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Tab => Key::Tab,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_known_by_more_than_one_name() {
        let press = |code, modifiers| input(&Event::Key(KeyEvent::new(code, modifiers)));
        assert_eq!(press(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Input::Key(Key::Quit)));
        assert_eq!(press(KeyCode::Char('c'), KeyModifiers::NONE), None);
        assert_eq!(press(KeyCode::Char('q'), KeyModifiers::NONE), Some(Input::Key(Key::Quit)));
        assert_eq!(press(KeyCode::Char('j'), KeyModifiers::NONE), press(KeyCode::Down, KeyModifiers::NONE));
        assert_eq!(input(&Event::Resize(1, 1)), Some(Input::Resize));
        let released =
            KeyEvent { kind: KeyEventKind::Release, ..KeyEvent::new(KeyCode::Up, KeyModifiers::NONE) };
        assert_eq!(input(&Event::Key(released)), None);
    }
}
