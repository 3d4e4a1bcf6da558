//! Hears of submissions at once: `pillion.lua` writes a byte into a file beside the heartbeat for every job that it sends to wait for
//! us, and the queue is looked at then. Without it a job would wait for the next scan though devices stand idle.
//!
//! Only a hint. The file belongs to the scheduler's user, which is slurmctld's too, and nobody else may write it; who writes without
//! end makes us look for a tenth of the time at most, as whoever pokes does (`reconcilers`). Where it cannot be heard, the scans go on
//! as ever.

use crate::context::Context;
use futures::StreamExt as _;
use inotify::{EventMask, EventStream, Inotify, WatchMask};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// The file's name, known to `pillion.lua` too.
pub const FILE_NAME: &str = "submitted";
/// After it could not be listened to: a folder that was taken away is made again by somebody else.
const TRIED_AGAIN_AFTER: Duration = Duration::from_secs(10);
/// Room for many events at once; each is of a file that is watched by itself, so that none has a name.
const EVENTS_BYTES: usize = 4096;

/// Listens until `stop`. `path`: the file, which is made.
pub async fn listen(path: PathBuf, context: Arc<Context>, stop: CancellationToken) {
    let mut last_error = None;
    loop {
        let heard =
            tokio::select! { () = stop.cancelled() => return, heard = hear(&path, &context) => heard };
        let text = heard.map_or_else(|error| error.to_string(), |()| "it was taken away".to_owned());
        if last_error.as_ref() != Some(&text) {
            warn!(path = %path.display(), error = text, "submissions are heard of at the next scan only");
        }
        last_error = Some(text);
        tokio::select! { () = stop.cancelled() => return, () = tokio::time::sleep(TRIED_AGAIN_AFTER) => {} }
    }
}

/// Nudges the watcher at every write, until the file is gone.
async fn hear(path: &Path, context: &Context) -> io::Result<()> {
    let mut events = watched(path)?;
    while let Some(event) = events.next().await {
        if event?.mask.intersects(EventMask::DELETE_SELF | EventMask::MOVE_SELF | EventMask::IGNORED) {
            return Ok(());
        }
        context.nudges.watch.notify_one();
    }
    Ok(())
}

/// The file's events. It is made where it is not there, and empty: what is written is always its first byte.
fn watched(path: &Path) -> io::Result<EventStream<[u8; EVENTS_BYTES]>> {
    std::fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(path)?;
    let inotify = Inotify::init()?;
    inotify.watches().add(path, WatchMask::CLOSE_WRITE | WatchMask::DELETE_SELF | WatchMask::MOVE_SELF)?;
    inotify.into_event_stream([0; EVENTS_BYTES])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use std::os::unix::fs::PermissionsExt as _;

    async fn is_nudged(context: &Context) -> bool {
        tokio::time::timeout(Duration::from_secs(5), context.nudges.watch.notified()).await.is_ok()
    }

    /// As `pillion.lua` does it: never makes the file.
    fn submit(path: &Path) {
        use std::io::Write as _;
        std::fs::OpenOptions::new().write(true).open(path).unwrap().write_all(b"1").unwrap();
    }

    #[tokio::test]
    async fn each_submission_has_the_queue_looked_at() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE_NAME);
        let (context, stop) = (testing::context(), CancellationToken::new());
        let listening = tokio::spawn(listen(path.clone(), Arc::clone(&context), stop.clone()));
        while !path.exists() {
            tokio::task::yield_now().await;
        }
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        // The file is there a moment before anybody listens.
        for tries in 0.. {
            submit(&path);
            let heard =
                tokio::time::timeout(Duration::from_millis(50), context.nudges.watch.notified()).await;
            if heard.is_ok() {
                break;
            }
            assert!(tries < 200, "nobody listens");
        }
        for _ in 0..3 {
            submit(&path);
            assert!(is_nudged(&context).await);
        }
        assert_eq!(std::fs::read(&path).unwrap(), b"1", "it does not grow");
        stop.cancel();
        listening.await.unwrap();
    }

    #[tokio::test]
    async fn a_file_that_is_taken_away_is_an_end_and_no_loop() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE_NAME);
        let context = testing::context();
        let away = async {
            while !path.exists() {
                tokio::task::yield_now().await;
            }
            std::fs::remove_file(&path).unwrap();
        };
        let (heard, ()) =
            tokio::time::timeout(Duration::from_secs(5), async { tokio::join!(hear(&path, &context), away) })
                .await
                .expect("it ends");
        assert!(heard.is_ok(), "{heard:?}");
        assert!(hear(&directory.path().join("none").join(FILE_NAME), &context).await.is_err());
    }
}
