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
use tokio_util::sync::CancellationToken;

/// How long a page may take, and how many are made at once.
const DURATION_MAX: Duration = Duration::from_secs(10);
const CONCURRENCY_MAX: usize = 16;

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
    let router: Router = pillion_web::router(service, limits)
        .layer(middleware::from_fn_with_state(Arc::new(operators), identify));
    axum::serve(listener, router.into_make_service_with_connect_info::<Ends>())
        .with_graceful_shutdown(stop.cancelled_owned())
        .await
}

/// Puts the viewer into the request.
async fn identify(State(operators): State<Arc<Operators>>, mut request: Request, next: Next) -> Response {
    let ends = request.extensions().get::<ConnectInfo<Ends>>().map(|info| info.0);
    // The kernel's table may be long, and is read from a file.
    let viewer = tokio::task::spawn_blocking(move || viewer(&operators, ends)).await.unwrap_or_default();
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
