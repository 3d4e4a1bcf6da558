//! What every order has: an operator who gives it, his name for the record, and a reason.

use crate::grpc::auth::Caller;
use std::time::Duration;
use tonic::Status;

/// How long a reason may be: it stands in every explanation that it causes.
const REASON_CHARS_MAX: usize = 200;
/// How long the name of a uid is looked for: a directory service may not respond.
const NAME_WAIT: Duration = Duration::from_secs(2);

/// Refuses everybody else.
pub(super) fn operators_only(caller: Caller, action: &str) -> Result<(), Status> {
    if caller.is_operator {
        return Ok(());
    }
    Err(Status::permission_denied(format!(
        "only operators {action}; ask as root, as SlurmUser, or with a uid of listen.operator_uids"
    )))
}

/// The caller's user name, for the record; its number where nobody knows the name in time.
pub(super) async fn name_of(caller: Caller) -> String {
    let Some(uid) = caller.uid.map(|uid| uid.0) else { return "an operator over TCP".to_owned() };
    let looked_up = tokio::task::spawn_blocking(move || uzers::get_user_by_uid(uid));
    match tokio::time::timeout(NAME_WAIT, looked_up).await {
        Ok(Ok(Some(user))) => user.name().to_string_lossy().into_owned(),
        _ => format!("uid {uid}"),
    }
}

/// A reason as it is kept: one line. `None`: none was given.
pub(super) fn reason(text: &str) -> Result<Option<String>, Status> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let text: String = words.join(" ").chars().filter(|char| !char.is_control()).collect();
    if text.chars().count() > REASON_CHARS_MAX {
        return Err(Status::invalid_argument(format!(
            "the reason is longer than {REASON_CHARS_MAX} characters; write a shorter one"
        )));
    }
    Ok((!text.is_empty()).then_some(text))
}
