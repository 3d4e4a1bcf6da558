//! `pillion top`: the pool, live. Asks the operator service once a second for the rows on the screen and no others.
//!
//! ```text
//! keys (thread) ─► loop ─► state ─► frame ─► terminal
//!                   ▲ └─► what is on the screen ─► asker ─► scheduler
//!                   └────────────── answers ◄───────┘
//! ```

mod asker;
pub mod frame;
pub mod state;
mod terminal;

use crate::args::TopArgs;
use crate::client::Target;
use crate::error::CliError;
use asker::{Asker, News};
use pillion_api::TopRequest;
use pillion_core::{Clock, UnixTime};
use state::{Size, State};
use std::io::{IsTerminal as _, Write as _};
use terminal::{Input, Screen};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

/// What a frame on a pipe is as large as.
const PIPE: Size = Size { width: 120, height: 40 };

/// Runs the command.
///
/// # Errors
/// [`CliError::Usage`] without a terminal, [`CliError::Print`] where the terminal fails; with `--once` as
/// [`crate::client::answer`].
pub async fn run(args: &TopArgs, address: &Target, clock: &dyn Clock) -> Result<(), CliError> {
    let has_colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    if args.once {
        return once(address, clock).await;
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(CliError::Usage("top needs a terminal; for a pipe write --once".to_owned()));
    }
    let mut screen = Screen::open().map_err(CliError::Print)?;
    let state = State { has_colour, ..State::default() };
    let outcome = watch_pool(&mut screen, state, address, clock).await;
    drop(screen);
    outcome.map_err(CliError::Print)
}

/// One frame as text, at most as large as the terminal where there is one.
async fn once(address: &Target, clock: &dyn Clock) -> Result<(), CliError> {
    let size = terminal::size().unwrap_or(PIPE);
    let mut state = State::default();
    let mut asker = Asker::new(address.clone());
    state.show(asker.overview(state.request(size)).await?, size);
    state.gains = asker.gains(clock.now()).await?;
    let text = frame::page(&state, size);
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(CliError::Print(error)),
        _ => Ok(()),
    }
}

async fn watch_pool(
    screen: &mut Screen,
    mut state: State,
    address: &Target,
    clock: &dyn Clock,
) -> std::io::Result<()> {
    let (mut term, mut hup) = (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
    let (mut int, mut quit) = (signal(SignalKind::interrupt())?, signal(SignalKind::quit())?);
    let mut keys = terminal::inputs();
    let (wanted, to_ask) = watch::channel(state.request(screen.size()?));
    let (news, mut answers) = mpsc::channel(4);
    let asking = tokio::spawn(asker::ask_on(Asker::new(address.clone()), to_ask, news));
    let mut not_responding_since: Option<UnixTime> = None;
    loop {
        screen.draw(&state)?;
        let size = screen.size()?;
        tokio::select! {
            _ = term.recv() => break,
            _ = hup.recv() => break,
            _ = int.recv() => break,
            _ = quit.recv() => break,
            input = keys.recv() => match input {
                Some(Input::Key(key)) if state.press(key, size) => {}
                Some(Input::Resize) => state.fit(size),
                // A terminal that is gone gives no keys any more.
                Some(Input::Key(_)) | None => break,
            },
            answer = answers.recv() => match answer {
                None => break,
                Some(News::Overview(overview)) => {
                    not_responding_since = None;
                    state.show(overview, size);
                }
                Some(News::Gains(gains)) => state.gains = gains,
                Some(News::Trouble(why)) => {
                    let now = clock.now();
                    let since = *not_responding_since.get_or_insert(now);
                    state.trouble = Some((why, UnixTime::from_seconds(now.seconds_since(since)).epoch()));
                }
            },
        }
        ask_for(&wanted, state.request(size));
    }
    asking.abort();
    Ok(())
}

/// Tells the asker what is on the screen now, where that has changed.
fn ask_for(wanted: &watch::Sender<TopRequest>, request: TopRequest) {
    wanted.send_if_modified(|before| {
        let is_new = *before != request;
        *before = request;
        is_new
    });
}
