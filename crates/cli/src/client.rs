//! The connection to the scheduler: a Unix socket by default, or `https://host:port`, where both ends prove who they are
//! (`pillion-auth`). Every call has one deadline; nothing is retried here, for a person at a terminal or the next poke is the
//! retry.

use crate::address::{Address, shown};
use crate::args::Global;
use crate::config::Config;
use crate::error::CliError;
use hyper_util::rt::TokioIo;
use pillion_api::operator_service_client::OperatorServiceClient;
use pillion_auth::{AuthError, Claimant, Door, Prover};
use pillion_core::SystemClock;
use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Response, Status};

/// How long a connection and a call may take.
pub const DEADLINE: Duration = Duration::from_secs(5);
/// A snapshot of a large cluster is larger than tonic's default of 4 MiB.
const ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The scheduler to ask, and where it stands by what we prove who we are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    address: Address,
    config: Option<PathBuf>,
}

impl Target {
    /// As the command line names it.
    pub fn of(global: &Global) -> Self {
        Self { address: global.scheduler.clone(), config: global.config.clone() }
    }
}

/// The generated client over our connection.
pub type Operator = OperatorServiceClient<Channel>;

/// Connects.
///
/// # Errors
/// [`CliError::Unreachable`] when nobody accepts within [`DEADLINE`]; [`CliError::Unproven`] and [`CliError::Refused`] when
/// somebody does, and it is not known who.
pub async fn connect(target: &Target) -> Result<Operator, CliError> {
    let opening = async {
        match &target.address {
            Address::Unix(path) => over_unix(path).await,
            Address::Tcp(hosts) => over_tcp(hosts, target.config.as_deref()).await,
        }
    };
    let channel = tokio::time::timeout(DEADLINE, opening).await.unwrap_or_else(|_| {
        let why = format!("no answer within {} s", DEADLINE.as_secs());
        Err(CliError::Unreachable { address: target.address.to_string(), why })
    })?;
    Ok(OperatorServiceClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX))
}

async fn over_unix(path: &Path) -> Result<Channel, CliError> {
    let owned = path.to_owned();
    let connector = tower::service_fn(move |_: Uri| {
        let path = owned.clone();
        async move { Ok::<_, std::io::Error>(TokioIo::new(UnixStream::connect(path).await?)) }
    });
    // The host in it is never looked up; the connector decides where it goes.
    let endpoint = Endpoint::from_static("http://pillion.invalid").timeout(DEADLINE);
    endpoint.connect_with_connector(connector).await.map_err(|error| CliError::Unreachable {
        address: format!("unix:{}", path.display()),
        why: innermost(&error),
    })
}

async fn over_tcp(hosts: &[(String, u16)], config: Option<&Path>) -> Result<Channel, CliError> {
    let prover = Arc::new(Prover::new(&Config::auth(config)?, Arc::new(SystemClock)));
    let mut failed = None;
    for (host, port) in hosts {
        let door = Arc::new(Door::new(host.clone(), *port, Claimant::User, Arc::clone(&prover)));
        match door.channel(Door::endpoint().timeout(DEADLINE)).await {
            Ok(channel) => return Ok(channel),
            Err(error) => failed = Some(from_auth(error, shown(&(host.clone(), *port)))),
        }
    }
    Err(failed.unwrap_or_else(|| CliError::Usage("no scheduler is named".to_owned())))
}

fn from_auth(error: AuthError, address: String) -> CliError {
    match error {
        AuthError::Unreachable(why) => CliError::Unreachable { address, why },
        AuthError::Unavailable(why) => CliError::Unproven(why),
        AuthError::Denied(denial) => CliError::Refused(denial.to_string()),
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
    fn who_cannot_be_proven_now_may_try_again_and_who_is_denied_may_not() {
        let code = |error: AuthError| from_auth(error, "https://c:1".to_owned()).exit_status().code();
        assert_eq!(code(AuthError::Unavailable("MUNGE does not answer".into())), 75);
        assert_eq!(code(AuthError::Denied(pillion_auth::Denial::Replayed)), 1);
        assert_eq!(code(AuthError::Unreachable("refused".into())), code_of_unreachable());
    }

    fn code_of_unreachable() -> u8 {
        crate::exit::UNREACHABLE.code()
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
