//! What goes wrong, as a page with one sentence.

use axum::http::StatusCode;
use tonic::{Code, Status};

/// Why there is no page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) sentence: String,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, sentence: impl Into<String>) -> Self {
        Self { status, sentence: sentence.into() }
    }

    /// Something that is not there, or not for this viewer: which of the two is not told.
    pub(crate) fn missing(what: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("There is no {what}, or it is not yours to see."))
    }

    /// A filter that cannot be read.
    pub(crate) fn filter(sentence: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, sentence)
    }
}

impl From<Status> for Problem {
    fn from(status: Status) -> Self {
        let code = match status.code() {
            Code::NotFound => StatusCode::NOT_FOUND,
            Code::PermissionDenied | Code::Unauthenticated => StatusCode::FORBIDDEN,
            Code::InvalidArgument => StatusCode::BAD_REQUEST,
            Code::Unavailable | Code::Aborted | Code::DeadlineExceeded => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        // What the database says is for the log, not for whoever looks.
        let sentence = if code.is_server_error() {
            "The scheduler could not answer; its log says why. Try again in a moment.".to_owned()
        } else {
            status.message().to_owned()
        };
        Self::new(code, sentence)
    }
}
