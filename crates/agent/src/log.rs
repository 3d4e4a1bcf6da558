//! The log, one line an event whatever stands in it: names of devices and jobs, and what drivers and schedulers say, come from
//! outside, and no terminal obeys one that shows the log.

use pillion_core::text::OneLine;
use std::io::Write;
use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Logs to standard error, at the levels of `RUST_LOG`, else `info`.
pub fn start() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    subscriber(filter, std::io::stderr).init();
}

fn subscriber<W: Write + 'static>(
    filter: EnvFilter,
    writer: impl Fn() -> W + Send + Sync + 'static,
) -> impl Subscriber + Send + Sync + 'static {
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || OneLine::to(writer()))
        .with_ansi(false)
        .finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_a_driver_says_forges_no_line() {
        let kept = Kept::default();
        let writer = kept.clone();
        tracing::subscriber::with_default(subscriber(EnvFilter::new("info"), move || writer.clone()), || {
            tracing::warn!(error = %"gone\n2026-11-24T00:00:00Z ERROR forged\x1b[2J", "no device can be read");
            tracing::info!("the next");
        });
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(!text.contains('\x1b') && text.contains("\\u{1b}[2J"), "{text}");
    }
}
