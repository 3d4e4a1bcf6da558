//! Serves the web page (`pillion-web`) over the operators' service: who looks is told apart here, and sees what the command
//! line would show him. Off unless `[web] listen_address` names an address.

mod listen;

use crate::grpc::auth::Operators;
use crate::grpc::operator::OperatorServer;
use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use listen::{Bounds, Ends};
use pillion_core::UserId;
use pillion_doors::owner;
use pillion_web::{Limits, Viewer};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// How long a page may take, and how many are made at once.
const DURATION_MAX: Duration = Duration::from_secs(10);
const CONCURRENCY_MAX: usize = 4;
/// How many look at once into the kernel's table, which may be long.
const LOOKUPS_MAX: usize = 4;
/// What is given to connections: a browser opens six, and comes again where one of its was closed.
const BOUNDS: Bounds = Bounds {
    connections: 64,
    head_duration: Duration::from_secs(5),
    connection_duration: Duration::from_mins(1),
    farewell: Duration::from_secs(2),
};

/// Serves the page until `stop` is cancelled. `allow_remote`: whether other machines may reach it, and by any name.
pub async fn serve(
    listener: TcpListener,
    service: Arc<OperatorServer>,
    operators: Operators,
    allow_remote: bool,
    stop: CancellationToken,
) {
    let limits = Limits { duration: DURATION_MAX, concurrency: CONCURRENCY_MAX, any_host: allow_remote };
    let router: Router = pillion_web::router(service, limits).layer(middleware::from_fn_with_state(
        Arc::new(Door { operators, lookups: Semaphore::new(LOOKUPS_MAX) }),
        identify,
    ));
    listen::listen(listener, router, BOUNDS, stop).await;
}

/// Tells who looks.
struct Door {
    operators: Operators,
    lookups: Semaphore,
}

/// Puts the viewer into the request.
async fn identify(State(door): State<Arc<Door>>, mut request: Request, next: Next) -> Response {
    let ends = request.extensions().get::<Ends>().copied();
    let viewer = {
        let _lookup = door.lookups.acquire().await;
        let door = Arc::clone(&door);
        // The table is read from a file.
        tokio::task::spawn_blocking(move || viewer(&door.operators, ends)).await.unwrap_or_default()
    };
    request.extensions_mut().insert(viewer);
    next.run(request).await
}

/// Who looks: nobody knows it of other machines.
fn viewer(operators: &Operators, ends: Option<Ends>) -> Viewer {
    let owner = ends.and_then(|Ends { peer, local }| owner(peer, local)).map(UserId);
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
