//! Turns: so many calls are served at once, and so few of them of one user that he cannot keep others waiting. Who comes
//! beyond that waits in his own line; the longest line is his alone too. An answer that is not read yet is one of them still
//! (`answer`). Behind `auth`, which tells who calls.

mod answer;
mod incoming;

pub(crate) use incoming::incoming;

use super::auth::Caller;
use pillion_core::UserId;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::server::NamedService;
use tower::Service;

/// How many calls are served at once, of everybody, of one operator and of one user.
const CALLS_MAX: usize = 48;
const CALLS_OF_OPERATOR_MAX: usize = 24;
const CALLS_OF_USER_MAX: usize = 4;
/// How many of one user may wait.
const LINE_LENGTH_MAX: usize = 64;

/// Whose line it is: of callers that nobody knows, all stand in one.
type Guest = (Option<UserId>, bool);

/// Who is served, and who waits.
pub(crate) struct Turns {
    all: Arc<Semaphore>,
    lines: Mutex<BTreeMap<Guest, Line>>,
}

struct Line {
    places: Arc<Semaphore>,
    /// Who is served or waits.
    length: usize,
}

impl Default for Turns {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(CALLS_MAX)), lines: Mutex::default() }
    }
}

/// A turn; over when it is dropped.
pub(crate) struct Turn {
    own: Own,
    _of_all: OwnedSemaphorePermit,
}

/// One of the few calls of its user, which nobody else waits for.
struct Own {
    _permit: OwnedSemaphorePermit,
    _place: Place,
}

impl Turn {
    /// The answer is made: whoever comes next may be served, and what is left is its user's matter.
    fn made(self) -> Own {
        self.own
    }
}

/// A place in a line.
struct Place {
    turns: Arc<Turns>,
    guest: Guest,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut lines = self.turns.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = lines.get_mut(&self.guest) {
            line.length -= 1;
            if line.length == 0 {
                lines.remove(&self.guest);
            }
        }
    }
}

impl Turns {
    /// Waits for a turn. `None`: his line is too long.
    pub(crate) async fn take(self: Arc<Self>, caller: Caller) -> Option<Turn> {
        let (place, own) = self.stand_in_line(caller)?;
        let own = own.acquire_owned().await.ok()?;
        // Behind his own line, so that nobody's line stands in the way of another's.
        let of_all = Arc::clone(&self.all).acquire_owned().await.ok()?;
        Some(Turn { own: Own { _permit: own, _place: place }, _of_all: of_all })
    }

    /// Whether nobody is served and nobody waits.
    #[cfg(test)]
    fn is_nobody_there(&self) -> bool {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    fn stand_in_line(self: &Arc<Self>, caller: Caller) -> Option<(Place, Arc<Semaphore>)> {
        let guest = (caller.uid, caller.is_operator);
        let served_max = if caller.is_operator { CALLS_OF_OPERATOR_MAX } else { CALLS_OF_USER_MAX };
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let line = lines
            .entry(guest)
            .or_insert_with(|| Line { places: Arc::new(Semaphore::new(served_max)), length: 0 });
        if line.length >= served_max + LINE_LENGTH_MAX {
            return None;
        }
        line.length += 1;
        let places = Arc::clone(&line.places);
        Some((Place { turns: Arc::clone(self), guest }, places))
    }
}

/// A service whose calls take turns.
#[derive(Clone)]
pub(crate) struct Fair<S> {
    service: S,
    turns: Arc<Turns>,
}

impl<S> Fair<S> {
    /// With these turns, which several services may have in common.
    pub(crate) const fn new(service: S, turns: Arc<Turns>) -> Self {
        Self { service, turns }
    }
}

impl<S: NamedService> NamedService for Fair<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for Fair<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let nobody = Caller { uid: None, is_operator: false };
        let caller = request.extensions().get::<Caller>().copied().unwrap_or(nobody);
        let turns = Arc::clone(&self.turns);
        // The one that was found ready serves; its copy is for the next call.
        let next = self.service.clone();
        let mut service = std::mem::replace(&mut self.service, next);
        Box::pin(async move {
            let Some(turn) = turns.take(caller).await else {
                let status =
                    Status::resource_exhausted("too many calls of yours wait; try again in a moment");
                return Ok(status.into_http());
            };
            let response = service.call(request).await?;
            Ok(answer::under_way(response, turn.made()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    fn user(uid: u32) -> Caller {
        Caller { uid: Some(UserId(uid)), is_operator: false }
    }

    #[tokio::test(start_paused = true)]
    async fn one_users_line_keeps_nobody_else_waiting() {
        let turns = Arc::new(Turns::default());
        let mut served = Vec::new();
        for _ in 0..CALLS_OF_USER_MAX {
            served.push(Arc::clone(&turns).take(user(1)).await.expect("a turn"));
        }
        let mut waiting: Vec<_> =
            (0..LINE_LENGTH_MAX).map(|_| tokio::spawn(Arc::clone(&turns).take(user(1)))).collect();
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(waiting.iter().all(|wait| !wait.is_finished()), "he waits");
        assert!(Arc::clone(&turns).take(user(1)).await.is_none(), "his line is long enough");
        for other in [user(2), Caller { uid: Some(UserId(0)), is_operator: true }] {
            let turn = timeout(Duration::from_secs(1), Arc::clone(&turns).take(other)).await;
            assert!(turn.is_ok_and(|turn| turn.is_some()), "and nobody else");
        }
        served.pop();
        let first = waiting.remove(0);
        assert!(timeout(Duration::from_secs(1), first).await.is_ok(), "in the order of the line");
        waiting.iter().for_each(tokio::task::JoinHandle::abort);
    }

    #[tokio::test]
    async fn a_line_that_is_over_is_forgotten() {
        let turns = Arc::new(Turns::default());
        for uid in 0..1_000 {
            drop(Arc::clone(&turns).take(user(uid)).await.expect("a turn"));
        }
        assert!(turns.is_nobody_there());
    }
}
