//! The connection to the scheduler: a Unix socket by default, or `http://host:port`. Every call has one deadline; nothing
//! is retried here, for a person at a terminal or the next poke is the retry.

use crate::error::CliError;
use hyper_util::rt::TokioIo;
use pillion_proto::v1::operator_service_client::OperatorServiceClient;
use std::error::Error as _;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Response, Status};

/// How long a connection and a call may take.
pub const DEADLINE: Duration = Duration::from_secs(5);
/// A snapshot of a large cluster is larger than tonic's default of 4 MiB.
const ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Where the scheduler listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// `http://host:port`.
    Http(String),
}

impl FromStr for Address {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let allowed = "write unix:/path/to/socket or http://host:port";
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").filter(|rest| rest.starts_with('/')).unwrap_or(path);
            return if path.starts_with('/') {
                Ok(Self::Unix(path.into()))
            } else {
                Err(format!("'{text}' names no absolute path; {allowed}"))
            };
        }
        let uri: Uri = text.parse().map_err(|_| format!("'{text}' is no address; {allowed}"))?;
        match (uri.scheme_str(), uri.port_u16()) {
            (Some("http"), Some(_)) => Ok(Self::Http(text.to_owned())),
            _ => Err(format!("'{text}' is no address of a scheduler; {allowed}")),
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Http(url) => f.write_str(url),
        }
    }
}

/// The generated client over our connection.
pub type Operator = OperatorServiceClient<Channel>;

/// Connects.
///
/// # Errors
/// [`CliError::Unreachable`] when nobody accepts within [`DEADLINE`].
pub async fn connect(address: &Address) -> Result<Operator, CliError> {
    let unreachable = |why: String| CliError::Unreachable { address: address.to_string(), why };
    let opening = async {
        match address {
            Address::Http(url) => Endpoint::from_shared(url.clone())?.timeout(DEADLINE).connect().await,
            Address::Unix(path) => {
                let path = path.clone();
                // The host in it is never looked up; the connector below decides where it goes.
                Endpoint::from_static("http://pillion.invalid")
                    .timeout(DEADLINE)
                    .connect_with_connector(tower::service_fn(move |_: Uri| {
                        let path = path.clone();
                        async move { Ok::<_, std::io::Error>(TokioIo::new(UnixStream::connect(path).await?)) }
                    }))
                    .await
            }
        }
    };
    match tokio::time::timeout(DEADLINE, opening).await {
        Ok(Ok(channel)) => {
            Ok(OperatorServiceClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX))
        }
        Ok(Err(error)) => Err(unreachable(innermost(&error))),
        Err(_) => Err(unreachable(format!("no answer within {} s", DEADLINE.as_secs()))),
    }
}

/// Waits for one call and turns its status into one of our errors.
///
/// # Errors
/// What [`CliError`] says for the status.
pub async fn answer<T>(call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, CliError> {
    match tokio::time::timeout(DEADLINE, call).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(from_status(&status)),
        Err(_) => Err(CliError::TryLater(format!("no answer within {} s", DEADLINE.as_secs()))),
    }
}

fn from_status(status: &Status) -> CliError {
    let text =
        if status.message().is_empty() { status.code().to_string() } else { status.message().to_owned() };
    match status.code() {
        Code::InvalidArgument => CliError::Usage(text),
        Code::DataLoss => CliError::Data(text),
        Code::PermissionDenied
        | Code::Unauthenticated
        | Code::NotFound
        | Code::FailedPrecondition
        | Code::Unimplemented
        | Code::OutOfRange => CliError::Refused(text),
        _ => CliError::TryLater(text),
    }
}

/// The cause that tells: `transport error` says nothing, `No such file or directory` does.
fn innermost(error: &tonic::transport::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = cause.to_string();
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_sockets_or_http() {
        assert_eq!("unix:/run/a.sock".parse(), Ok(Address::Unix("/run/a.sock".into())));
        assert_eq!("unix:///run/a.sock".parse(), Ok(Address::Unix("/run/a.sock".into())));
        assert_eq!("http://head:7531".parse(), Ok(Address::Http("http://head:7531".to_owned())));
        for wrong in
            ["", "unix:", "unix:run/a", "head:7531", "https://head:7531", "http://head", "/run/a.sock"]
        {
            let message = wrong.parse::<Address>().expect_err(wrong);
            assert!(message.contains("write unix:/path"), "{message}");
        }
    }

    #[test]
    fn a_status_ends_with_the_exit_status_that_scripts_expect() {
        let code = |status: Status| from_status(&status).exit_status().code();
        assert_eq!(code(Status::invalid_argument("no such job id")), 64);
        assert_eq!(code(Status::unavailable("")), 75);
        assert_eq!(code(Status::deadline_exceeded("")), 75);
        assert_eq!(code(Status::permission_denied("operators only")), 1);
        assert_eq!(code(Status::data_loss("job.mark of row 7")), 65);
    }
}
