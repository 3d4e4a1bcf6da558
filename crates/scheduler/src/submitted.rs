//! Hears of submissions at once: `pillion.lua` writes a byte into a file beside the heartbeat for every job that it sends to wait for
//! us, and the queue is looked at then. Without it a job would wait for the next scan though devices stand idle.
//!
//! Only a hint. The file belongs to the scheduler's user, which is slurmctld's too, and nobody else may write it; who writes without
//! end makes us look for a tenth of the time at most, as whoever pokes does (`reconcilers`). Where it cannot be heard, the scans go on
//! as ever.

use crate::context::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::retry_on_intr;
use std::io;
use std::os::fd::OwnedFd;
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
/// How long a stop may take.
const STOP_LOOKED_AT_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// Listens until `stop`. `path`: the file, which is made.
pub async fn listen(path: PathBuf, context: Arc<Context>, stop: CancellationToken) {
    let mut last_error = None;
    while !stop.is_cancelled() {
        let (file, told, until) = (path.clone(), Arc::clone(&context), stop.clone());
        let heard = tokio::task::spawn_blocking(move || hear(&file, &told, &until)).await;
        let text = match heard {
            Ok(Ok(())) => "it was taken away".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        if !stop.is_cancelled() && last_error.as_ref() != Some(&text) {
            warn!(path = %path.display(), error = text, "submissions are heard of at the next scan only");
        }
        last_error = Some(text);
        tokio::select! { () = stop.cancelled() => return, () = tokio::time::sleep(TRIED_AGAIN_AFTER) => {} }
    }
}

/// Nudges the watcher at every write, until `stop` or until the file is gone.
fn hear(path: &Path, context: &Context, stop: &CancellationToken) -> io::Result<()> {
    let events = watched(path)?;
    let mut bytes = [0_u8; 4096];
    while !stop.is_cancelled() && path.exists() {
        let mut waits = [PollFd::new(&events, PollFlags::IN)];
        // The end of a child of ours is a signal, which any thread may get.
        if retry_on_intr(|| poll(&mut waits, Some(&STOP_LOOKED_AT_EVERY)))? > 0 {
            // Several writes since the last look are one.
            rustix::io::read(&events, &mut bytes)?;
            context.nudges.watch.notify_one();
        }
    }
    Ok(())
}

/// The file's events. It is made where it is not there, and empty: what is written is always its first byte.
fn watched(path: &Path) -> io::Result<OwnedFd> {
    std::fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(path)?;
    let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
    inotify::add_watch(
        &events,
        path,
        WatchFlags::CLOSE_WRITE | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF,
    )?;
    Ok(events)
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
        let (context, stop) = (testing::context(), CancellationToken::new());
        let (file, told, until) = (path.clone(), Arc::clone(&context), stop.clone());
        let hearing = tokio::task::spawn_blocking(move || hear(&file, &told, &until));
        while !path.exists() {
            tokio::task::yield_now().await;
        }
        std::fs::remove_file(&path).unwrap();
        // Taken away before it was listened to, it is missing.
        let ended = hearing.await.unwrap().map_err(|error| error.kind());
        assert!(matches!(ended, Ok(()) | Err(io::ErrorKind::NotFound)), "{ended:?}");
        assert!(hear(&directory.path().join("none").join(FILE_NAME), &context, &stop).is_err());
    }
}
