//! Who is calling. The place for MUNGE and mTLS (docs/decisions/0010-the-wire.md); until they are built, a caller is
//! known by the credentials of the Unix socket, and over TCP by nothing: TCP listens on loopback unless the
//! configuration names an address.

use pillion_core::UserId;
use tonic::transport::server::UdsConnectInfo;
use tonic::{Request, Status};

/// Who may see everything.
#[derive(Debug, Clone, Default)]
pub struct Operators {
    /// Uids that are operators, besides root and the scheduler's own user.
    pub uids: Vec<u32>,
    /// Whether whoever reaches the TCP port is one.
    pub tcp_is_operator: bool,
}

/// A caller, as told apart by [`Operators::identify`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// Its uid, where known.
    pub uid: Option<UserId>,
    /// Whether it may see everything.
    pub is_operator: bool,
}

impl Operators {
    /// The interceptor: puts a [`Caller`] into the request.
    ///
    /// # Errors
    /// None yet; a later authentication refuses here.
    pub fn identify(&self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let uid = request
            .extensions()
            .get::<UdsConnectInfo>()
            .and_then(|info| info.peer_cred)
            .map(|cred| cred.uid());
        let caller = self.caller(uid);
        request.extensions_mut().insert(caller);
        Ok(request)
    }

    /// The caller of this uid; without one, whoever comes over TCP.
    pub fn caller(&self, uid: Option<u32>) -> Caller {
        let own = rustix::process::geteuid().as_raw();
        let is_operator = match uid {
            None => self.tcp_is_operator,
            Some(uid) => uid == 0 || uid == own || self.uids.contains(&uid),
        };
        Caller { uid: uid.map(UserId), is_operator }
    }
}

/// The caller of a request; a request that passed no interceptor is nobody's.
pub fn caller<T>(request: &Request<T>) -> Caller {
    request.extensions().get::<Caller>().copied().unwrap_or(Caller { uid: None, is_operator: false })
}

impl Caller {
    /// Whether the caller may see what this user's job runs, and everything else about it.
    pub fn may_see(&self, owner: UserId) -> bool {
        self.is_operator || self.uid == Some(owner)
    }

    /// Whose jobs alone the caller may ask for; `None`: everybody's.
    ///
    /// # Errors
    /// Where nobody knows who asks.
    pub fn only_uid(&self) -> Result<Option<UserId>, Status> {
        match (self.is_operator, self.uid) {
            (true, _) => Ok(None),
            (false, Some(uid)) => Ok(Some(uid)),
            (false, None) => Err(Status::permission_denied(
                "nobody knows who you are over TCP; ask over the scheduler's Unix socket, or as an operator",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_and_configured_uids_are_operators_and_tcp_is_nobody() {
        let operators = Operators { uids: vec![4242], tcp_is_operator: false };
        assert!(operators.caller(Some(0)).is_operator);
        assert!(operators.caller(Some(4242)).is_operator);
        let user = operators.caller(Some(4243));
        assert!(!user.is_operator && user.may_see(UserId(4243)) && !user.may_see(UserId(4242)));
        let tcp = operators.caller(None);
        assert!(!tcp.is_operator && !tcp.may_see(UserId(0)));
    }
}
