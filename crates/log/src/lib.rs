//! The log of both daemons, one line an event whatever stands in it: a name from outside that has an end of line in it makes no
//! second line, and no terminal obeys one that shows the log. Must not know what is logged, nor by whom.

use pillion_core::text::shown;
use std::io::{self, Write};
use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt as _;

/// The longest line.
const LINE_CHARS_MAX: usize = 8_192;

/// Logs to standard error from now on: at the levels that this variable of the environment names, else at these.
pub fn start(variable: &str, otherwise: &str) {
    let filter = EnvFilter::try_from_env(variable).unwrap_or_else(|_| EnvFilter::new(otherwise));
    subscriber(filter, io::stderr).init();
}

/// Events that pass the filter, each as one line.
fn subscriber<W: Write + 'static>(
    filter: EnvFilter,
    writer: impl Fn() -> W + Send + Sync + 'static,
) -> impl Subscriber + Send + Sync {
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || OneLine(writer()))
        // Colours would be written out as what they are.
        .with_ansi(false)
        .finish()
}

/// Writes each event as one line.
struct OneLine<W>(W);

impl<W: Write> Write for OneLine<W> {
    /// An event comes whole, with the end of its line.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = shown(text.strip_suffix('\n').unwrap_or(&text), LINE_CHARS_MAX);
        self.0.write_all(format!("{line}\n").as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// As it was tried: a node whose name had an end of line and an escape sequence in it.
    #[test]
    fn a_name_forges_no_line() {
        let kept = Kept::default();
        let writer = kept.clone();
        let log = subscriber(EnvFilter::new("info"), move || writer.clone());
        tracing::subscriber::with_default(log, || {
            tracing::info!(node = %"n1\n2026-11-24T00:00:00Z ERROR forged\x1b[2J", "agent attached");
            tracing::info!("the next");
            tracing::debug!("not asked for");
        });
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(!text.contains('\x1b') && text.contains("\\u{1b}[2J"), "{text}");
    }
}
