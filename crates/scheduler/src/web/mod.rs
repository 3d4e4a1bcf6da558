//! Serves the web page (`pillion-web`) over the operators' service: who looks is told apart here, and sees what the command
//! line would show him. Off unless `[web] listen_address` names an address.

mod peer;

use crate::grpc::auth::Operators;
use crate::grpc::operator::OperatorServer;
use axum::Router;
use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::serve::IncomingStream;
use pillion_core::UserId;
use pillion_web::{Limits, Viewer};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// How long a page may take, and how many are made at once.
const DURATION_MAX: Duration = Duration::from_secs(10);
const CONCURRENCY_MAX: usize = 4;
/// How many look at once into the kernel's table, which may be long.
const LOOKS_MAX: usize = 4;
/// How long those who are still served when the scheduler ends may keep it.
const FAREWELL: Duration = Duration::from_secs(2);

/// Both ends of a connection.
#[derive(Debug, Clone, Copy)]
struct Ends {
    peer: SocketAddr,
    local: Option<SocketAddr>,
}

impl Connected<IncomingStream<'_, TcpListener>> for Ends {
    fn connect_info(stream: IncomingStream<'_, TcpListener>) -> Self {
        Self { peer: *stream.remote_addr(), local: stream.io().local_addr().ok() }
    }
}

/// Serves the page until `stop` is cancelled. `allow_remote`: whether other machines may reach it, and by any name.
///
/// # Errors
/// What kept it from accepting connections.
pub async fn serve(
    listener: TcpListener,
    service: Arc<OperatorServer>,
    operators: Operators,
    allow_remote: bool,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let limits = Limits { duration: DURATION_MAX, concurrency: CONCURRENCY_MAX, any_host: allow_remote };
    let router: Router = pillion_web::router(service, limits).layer(middleware::from_fn_with_state(
        Arc::new(Door { operators, looks: Semaphore::new(LOOKS_MAX) }),
        identify,
    ));
    let served = axum::serve(listener, router.into_make_service_with_connect_info::<Ends>())
        .with_graceful_shutdown(stop.clone().cancelled_owned());
    let too_long = async {
        stop.cancelled().await;
        tokio::time::sleep(FAREWELL).await;
    };
    tokio::select! { ended = served => ended, () = too_long => Ok(()) }
}

/// Tells who looks.
struct Door {
    operators: Operators,
    looks: Semaphore,
}

/// Puts the viewer into the request.
async fn identify(State(door): State<Arc<Door>>, mut request: Request, next: Next) -> Response {
    let ends = request.extensions().get::<ConnectInfo<Ends>>().map(|info| info.0);
    let viewer = {
        let _look = door.looks.acquire().await;
        let door = Arc::clone(&door);
        // The table is read from a file.
        tokio::task::spawn_blocking(move || viewer(&door.operators, ends)).await.unwrap_or_default()
    };
    request.extensions_mut().insert(viewer);
    next.run(request).await
}

/// Who looks: nobody knows it of other machines.
fn viewer(operators: &Operators, ends: Option<Ends>) -> Viewer {
    let owner = ends.and_then(|Ends { peer, local }| peer::owner(peer, local?));
    let caller = operators.caller(owner.map(|uid| uid.0));
    let mut viewer = Viewer { name: owner.map(user_name), sees_all: caller.is_operator, ..Viewer::default() };
    viewer.extensions.insert(caller);
    viewer
}

/// A user's name where the machine's own file has it; of users that a directory knows, the uid.
fn user_name(uid: UserId) -> String {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let number = uid.0.to_string();
    let name = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == number).then(|| name.to_owned())
    });
    name.unwrap_or_else(|| format!("uid {number}"))
}
