//! An answer on its way to who asked: handed over in pieces as he reads, and given up where he does not. While it is on its way
//! its place in its user's line is taken, so that he has few of them. HTTP/2 itself keeps no more of it than a piece: how much
//! may be sent is the reader's to say, and he may say nothing.

use super::Own;
use hyper::body::{Body as _, Bytes, Frame};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::Response;
use tracing::debug;

/// How long nothing of an answer may be taken, and how long all of it may take.
const STALLED_MAX: Duration = Duration::from_secs(20);
const UNDER_WAY_MAX: Duration = Duration::from_mins(2);
/// What is handed over at once; a copy, so that a piece that waits does not keep the whole.
const PIECE_BYTES_MAX: usize = 16 << 10;

/// The same response, which holds its place until it was read or given up.
pub(super) fn under_way(response: Response<Body>, own: Own) -> Response<Body> {
    if response.body().is_end_stream() {
        return response;
    }
    response.map(|body| Body::new(Answer::new(body, own)))
}

struct Answer {
    kept: Arc<Mutex<Kept>>,
    watching: JoinHandle<()>,
}

/// What is left of an answer.
struct Kept {
    /// Where more of it comes from; `None`: there is no more.
    body: Option<Body>,
    /// What came of it and was not taken yet.
    rest: Bytes,
    own: Option<Own>,
    taken_at: Instant,
    is_given_up: bool,
}

impl Answer {
    fn new(body: Body, own: Own) -> Self {
        let kept = Kept {
            body: Some(body),
            rest: Bytes::new(),
            own: Some(own),
            taken_at: Instant::now(),
            is_given_up: false,
        };
        let kept = Arc::new(Mutex::new(kept));
        Self { watching: tokio::spawn(watch(Arc::clone(&kept))), kept }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

/// Who sends it is not woken before its reader lets him send: so it is looked after from here.
async fn watch(kept: Arc<Mutex<Kept>>) {
    let until = Instant::now() + UNDER_WAY_MAX;
    loop {
        let over_at = until.min(lock(&kept).taken_at + STALLED_MAX);
        if Instant::now() >= over_at {
            lock(&kept).give_up();
            return;
        }
        sleep_until(over_at).await;
    }
}

fn lock(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kept {
    fn give_up(&mut self) {
        if self.own.is_some() {
            debug!("an answer is given up that nobody reads");
        }
        (self.body, self.rest, self.own, self.is_given_up) = (None, Bytes::new(), None, true);
    }

    fn piece(&mut self) -> Option<Bytes> {
        if self.rest.is_empty() {
            return None;
        }
        let length = self.rest.len().min(PIECE_BYTES_MAX);
        let piece = Bytes::copy_from_slice(&self.rest[..length]);
        self.rest = self.rest.slice(length..);
        self.taken_at = Instant::now();
        Some(piece)
    }
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let mut kept = lock(&self.kept);
        loop {
            if kept.is_given_up {
                return Poll::Ready(Some(Err(Status::deadline_exceeded("nobody read the answer"))));
            }
            if let Some(piece) = kept.piece() {
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            let Some(body) = kept.body.as_mut() else { return Poll::Ready(None) };
            let frame = ready!(Pin::new(body).poll_frame(context));
            kept.taken_at = Instant::now();
            match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => kept.rest = data,
                // What stands behind it.
                Some(Ok(Err(frame))) => return Poll::Ready(Some(Ok(frame))),
                Some(Err(status)) => return Poll::Ready(Some(Err(status))),
                None => {
                    (kept.body, kept.own) = (None, None);
                    return Poll::Ready(None);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::auth::Caller;
    use crate::grpc::fair::{CALLS_OF_USER_MAX, Fair, Turns};
    use pillion_core::UserId;
    use std::convert::Infallible;
    use std::future::poll_fn;
    use tonic::codegen::Service as _;
    use tonic::codegen::http::Request;

    const SECOND: Duration = Duration::from_secs(1);
    /// As slowly as one may read.
    const SLOWLY: Duration = Duration::from_secs(18);

    fn user(uid: u32) -> Caller {
        Caller { uid: Some(UserId(uid)), is_operator: false }
    }

    async fn answer(turns: &Arc<Turns>, text: &str) -> Answer {
        let turn = Arc::clone(turns).take(user(1)).await.expect("a turn");
        Answer::new(Body::new(text.to_owned()), turn.made())
    }

    async fn next(answer: &mut Answer) -> Option<Result<Bytes, Status>> {
        let frame = poll_fn(|context| Pin::new(&mut *answer).poll_frame(context)).await;
        frame.map(|frame| frame.map(|frame| frame.into_data().expect("data")))
    }

    #[tokio::test(start_paused = true)]
    async fn who_reads_slowly_gets_it_whole_in_pieces() {
        let (turns, text) = (Arc::new(Turns::default()), "abc".repeat(30_000));
        let (mut answer, mut read) = (answer(&turns, &text).await, Vec::new());
        while let Some(piece) = next(&mut answer).await {
            let piece = piece.unwrap();
            assert!(piece.len() <= PIECE_BYTES_MAX);
            read.extend_from_slice(&piece);
            tokio::time::sleep(SLOWLY).await;
        }
        assert!(read == text.as_bytes(), "{} of {} bytes", read.len(), text.len());
        assert!(turns.is_nobody_there(), "his place is free");
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_reads_is_given_up_and_nothing_of_it_is_kept() {
        let (turns, text) = (Arc::new(Turns::default()), "abc".repeat(30_000));
        let mut stalled = answer(&turns, &text).await;
        assert!(next(&mut stalled).await.unwrap().is_ok());
        tokio::time::sleep(STALLED_MAX + SECOND).await;
        assert!(lock(&stalled.kept).body.is_none() && lock(&stalled.kept).rest.is_empty());
        assert!(turns.is_nobody_there());
        let status = next(&mut stalled).await.unwrap().unwrap_err();
        assert_eq!(status.code(), tonic::Code::DeadlineExceeded);
        // A piece now and then is no reading.
        let (mut trickling, begun) = (answer(&turns, &"abc".repeat(300_000)).await, Instant::now());
        while next(&mut trickling).await.unwrap().is_ok() {
            tokio::time::sleep(SLOWLY).await;
        }
        assert!(begun.elapsed() <= UNDER_WAY_MAX + STALLED_MAX, "{:?}", begun.elapsed());
    }

    /// As it was tried: a thousand answers that nobody read, each of them kept.
    #[tokio::test(start_paused = true)]
    async fn a_user_has_few_answers_that_he_does_not_read_and_keeps_nobody_waiting() {
        let turns = Arc::new(Turns::default());
        let large =
            |_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::new("x".repeat(100_000)))) };
        let service = Fair::new(tower::service_fn(large), Arc::clone(&turns));
        let ask = |uid: u32| {
            let (mut service, mut request) = (service.clone(), Request::new(Body::empty()));
            request.extensions_mut().insert(user(uid));
            async move { service.call(request).await }
        };
        let mut unread = Vec::new();
        for _ in 0..CALLS_OF_USER_MAX {
            unread.push(ask(1).await.unwrap());
        }
        let (begun, next) = (Instant::now(), ask(1));
        assert!(ask(2).await.is_ok() && begun.elapsed() < SECOND, "another is served at once");
        assert!(next.await.is_ok());
        assert!(begun.elapsed() >= STALLED_MAX, "his own wait until one of his is read or given up");
    }
}
