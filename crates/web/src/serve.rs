//! The router: reads only, in bounded time, a bounded number at once, with headers that let a browser load nothing else.

use crate::address::{Filters, Page};
use crate::frame::{ICON, Sheet, framed, refused};
use crate::pages::{self, Ask};
use crate::problem::Problem;
use crate::viewer::Viewer;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use pillion_api::operator_service_server::OperatorService;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

const STYLE: &str = include_str!("style.css");

/// On every answer: nothing may be loaded from elsewhere, run, framed or kept.
const HEADERS: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; base-uri 'none'; \
         frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// How much is given to those who look.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How long one page may take.
    pub duration: Duration,
    /// How many are made at once, half of them for one viewer; who comes beyond waits for as long as a page may take.
    pub concurrency: usize,
    /// Whether the address that a browser asks for may be any name. Otherwise it must be this machine's own: a foreign page
    /// whose name was made to point here is refused.
    pub any_host: bool,
}

struct Site {
    service: Arc<dyn OperatorService>,
    places: Places,
    limits: Limits,
}

/// How many pages are made at once, of everybody and of one viewer.
struct Places {
    count: usize,
    all: Semaphore,
    /// Of each viewer who looks now, by his name; of those that nobody knows together.
    of_viewers: Mutex<BTreeMap<Option<String>, Arc<Semaphore>>>,
}

impl Places {
    const fn new(count: usize) -> Self {
        Self { count, all: Semaphore::const_new(count), of_viewers: Mutex::new(BTreeMap::new()) }
    }

    /// A place to make a page: behind the viewer's own, so that nobody waits for another's line.
    async fn take(&self, viewer: &Viewer) -> Option<(OwnedSemaphorePermit, SemaphorePermit<'_>)> {
        let own = {
            let mut viewers = self.of_viewers.lock().unwrap_or_else(PoisonError::into_inner);
            viewers.retain(|_, places| Arc::strong_count(places) > 1);
            let count = self.count.div_ceil(2);
            Arc::clone(viewers.entry(viewer.name.clone()).or_insert_with(|| Arc::new(Semaphore::new(count))))
        };
        let own = own.acquire_owned().await.ok()?;
        Some((own, self.all.acquire().await.ok()?))
    }
}

/// The page, over the operators' service. Whoever serves it puts a [`Viewer`] into the extensions of each request; without
/// one the viewer is nobody.
pub fn router(service: Arc<dyn OperatorService>, limits: Limits) -> Router {
    let site = Site { service, places: Places::new(limits.concurrency), limits };
    Router::new().fallback(answer).with_state(Arc::new(site))
}

async fn answer(State(site): State<Arc<Site>>, request: Request) -> Response {
    // What a reader may send along is not looked at.
    let (request, _body) = request.into_parts();
    let mut response = match request.method {
        Method::GET | Method::HEAD => page(&site, &request).await,
        _ => {
            let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, "This page can only be read.");
            let mut response = shown(Err(problem), None, &Filters::default(), &Viewer::default());
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            response
        }
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

async fn page(site: &Site, request: &Parts) -> Response {
    let viewer = request.extensions.get::<Viewer>().cloned().unwrap_or_default();
    // Whom the kernel knows has rights that a foreign page, under a name that was bound to this machine, must not use.
    let any_host = site.limits.any_host && viewer.name.is_none();
    if !any_host && !names_this_machine(&request.headers) {
        let sentence = "This page answers to the name of this machine only: localhost, 127.0.0.1 or [::1].";
        let problem = Problem::new(StatusCode::MISDIRECTED_REQUEST, sentence);
        return shown(Err(problem), None, &Filters::default(), &Viewer::default());
    }
    let page = Page::parse(request.uri.path());
    let filters = Filters::parse(request.uri.query().unwrap_or_default());
    let (Some(page), Some(filters)) = (page, filters) else {
        let problem = Problem::new(StatusCode::NOT_FOUND, "There is no page at this address.");
        return shown(Err(problem), None, &Filters::default(), &viewer);
    };
    match page {
        Page::Style => return text("text/css; charset=utf-8", STYLE),
        Page::Icon => return text("image/svg+xml", ICON),
        _ => {}
    }
    let Ok(Some(_place)) = tokio::time::timeout(site.limits.duration, site.places.take(&viewer)).await else {
        let problem =
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "Too many look at once; try again in a moment.");
        return shown(Err(problem), Some(&page), &filters, &viewer);
    };
    let ask = Ask { service: site.service.as_ref(), viewer: &viewer, filters: &filters };
    let sheet =
        tokio::time::timeout(site.limits.duration, pages::sheet(&ask, &page)).await.unwrap_or_else(|_| {
            let sentence = "This took too long; narrow the filters, or try again in a moment.";
            Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, sentence))
        });
    shown(sheet, Some(&page), &filters, &viewer)
}

fn text(content_type: &'static str, body: &'static str) -> Response {
    ([(header::CONTENT_TYPE, content_type)], body).into_response()
}

fn shown(sheet: Result<Sheet, Problem>, page: Option<&Page>, filters: &Filters, viewer: &Viewer) -> Response {
    let (status, sheet) = match sheet {
        Ok(sheet) => (StatusCode::OK, sheet),
        Err(problem) => {
            tracing::debug!(status = problem.status.as_u16(), problem.sentence, "no page");
            (problem.status, refused(&problem))
        }
    };
    let body = framed(&sheet, page, filters, viewer).into_string();
    (status, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], body).into_response()
}

/// Whether the browser asked for this machine by a name that nobody else can give to it.
fn names_this_machine(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_asks_for_many_pages_at_once_takes_half_of_the_places_and_no_more() {
        let places = Places::new(4);
        let viewer = |name: &str| Viewer { name: Some(name.to_owned()), ..Viewer::default() };
        let (busy, other) = (viewer("busy"), viewer("other"));
        let waits = Duration::from_secs(1);
        let mut held = vec![places.take(&busy).await, places.take(&busy).await];
        assert!(tokio::time::timeout(waits, places.take(&busy)).await.is_err(), "his third waits");
        for _ in 0..2 {
            let place = tokio::time::timeout(waits, places.take(&other)).await;
            held.push(place.expect("another viewer's own half"));
        }
        let nobody = tokio::time::timeout(waits, places.take(&Viewer::default())).await;
        assert!(nobody.is_err(), "four in all");
        held.clear();
        assert!(tokio::time::timeout(waits, places.take(&busy)).await.is_ok());
    }

    #[test]
    fn only_names_of_this_machine_pass() {
        let host =
            |name: &'static str| [(header::HOST, HeaderValue::from_static(name))].into_iter().collect();
        for name in ["localhost", "LOCALHOST:6821", "127.0.0.1:6821", "127.0.0.2", "[::1]:6821"] {
            assert!(names_this_machine(&host(name)), "{name}");
        }
        for name in ["", "evil.example:6821", "10.0.0.1", "localhost.evil.example", "[2001:db8::1]:80"] {
            assert!(!names_this_machine(&host(name)), "{name}");
        }
    }
}
