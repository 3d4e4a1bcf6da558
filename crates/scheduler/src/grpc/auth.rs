//! Who is calling: by the kernel's word on the Unix socket, by the proof of the connection over TCP (`pillion-auth`,
//! docs/decisions/0013-who-is-believed.md). What he may see then is the same on both.

use pillion_auth::{Identity, Peer};
use pillion_core::UserId;
use tonic::transport::server::UdsConnectInfo;
use tonic::{Request, Status};

/// Who may see everything.
#[derive(Debug, Clone, Default)]
pub struct Operators {
    /// Uids that are operators, besides root and the scheduler's own user.
    pub uids: Vec<u32>,
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
    /// None: who is not known is nobody, and is refused where it matters.
    pub fn identify(&self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let caller = self.caller(uid_of(&request));
        request.extensions_mut().insert(caller);
        Ok(request)
    }

    /// The caller of this uid; without one, nobody.
    pub fn caller(&self, uid: Option<u32>) -> Caller {
        let own = rustix::process::geteuid().as_raw();
        let is_operator = uid.is_some_and(|uid| uid == 0 || uid == own || self.uids.contains(&uid));
        Caller { uid: uid.map(UserId), is_operator }
    }
}

/// Whose a connection is. An agent's is nobody's: it asks nothing here.
fn uid_of<T>(request: &Request<T>) -> Option<u32> {
    let extensions = request.extensions();
    if let Some(info) = extensions.get::<UdsConnectInfo>() {
        return info.peer_cred.map(|cred| cred.uid());
    }
    match extensions.get::<Peer>()?.identity {
        Identity::User(uid) => Some(uid.0),
        Identity::Agent(_) | Identity::Nobody => None,
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
                "nobody knows who you are: with auth.method = \"none\" users are known on the scheduler's Unix socket only",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillion_core::NodeName;

    #[test]
    fn root_and_configured_uids_are_operators_and_who_is_unknown_is_nobody() {
        let operators = Operators { uids: vec![4242] };
        assert!(operators.caller(Some(0)).is_operator);
        assert!(operators.caller(Some(4242)).is_operator);
        let user = operators.caller(Some(4243));
        assert!(!user.is_operator && user.may_see(UserId(4243)) && !user.may_see(UserId(4242)));
        let nobody = operators.caller(None);
        assert!(!nobody.is_operator && !nobody.may_see(UserId(0)) && nobody.only_uid().is_err());
    }

    #[test]
    fn over_tcp_a_user_is_who_he_proved_to_be_and_an_agent_is_nobody() {
        let operators = Operators { uids: vec![4242] };
        let seen = |identity| {
            let mut request = Request::new(());
            let address = ([10, 0, 0, 7], 40_000).into();
            request.extensions_mut().insert(Peer { address, identity });
            caller(&operators.identify(request).unwrap())
        };
        let alice = seen(Identity::User(UserId(1000)));
        assert_eq!(alice, Caller { uid: Some(UserId(1000)), is_operator: false });
        assert!(seen(Identity::User(UserId(4242))).is_operator);
        for identity in [Identity::Agent(NodeName::new("n1")), Identity::Nobody] {
            assert_eq!(seen(identity), Caller { uid: None, is_operator: false });
        }
    }
}
