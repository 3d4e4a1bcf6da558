//! Whether a credential of MUNGE proves what it must: by whom, over what, on which connection; pure. That it is fresh, and was
//! made for us to read, munged has judged before.

use crate::claim::{Claimant, Exporter};
use crate::error::{AuthError, Denial};
use crate::munge::{Decoded, MungeError};

/// Which of the two texts a credential must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// What a client says of itself.
    Claim,
    /// What the scheduler answers it.
    Answer,
}

/// Whose credential it is, where it is one over this text and connection.
///
/// # Errors
/// [`AuthError`]: what it lacks, or that MUNGE could not say.
pub(crate) fn maker(
    decoded: Result<Decoded, MungeError>,
    side: Side,
    claimant: &Claimant,
    exporter: &Exporter,
    must_be: Option<u32>,
) -> Result<u32, AuthError> {
    let Decoded { payload, uid } = decoded.map_err(AuthError::from)?;
    let wanted = match side {
        Side::Claim => claimant.payload(exporter),
        Side::Answer => claimant.answer_payload(exporter),
    };
    if payload != wanted.as_bytes() {
        // Told apart for those who look into logs: a relay, or a fault of ours.
        let is_of_connection = payload.ends_with(exporter.text().as_bytes());
        let denial = if is_of_connection { Denial::OtherRole } else { Denial::OtherConnection };
        return Err(AuthError::Denied(denial));
    }
    match must_be {
        Some(wanted) if wanted != uid => Err(AuthError::Denied(Denial::WrongUser { found: uid, wanted })),
        _ => Ok(uid),
    }
}

impl From<MungeError> for AuthError {
    fn from(error: MungeError) -> Self {
        match error {
            MungeError::Unavailable(why) => Self::Unavailable(why),
            MungeError::Clock { made_at, read_at } => Self::Denied(Denial::Clock { made_at, read_at }),
            MungeError::Replayed => Self::Denied(Denial::Replayed),
            MungeError::NotForUs => Self::Denied(Denial::NotForUs),
            MungeError::Bad(why) => Self::Denied(Denial::BadProof(why)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillion_core::{NodeName, UnixTime};

    const HERE: Exporter = Exporter([1; 32]);
    const ELSEWHERE: Exporter = Exporter([2; 32]);

    fn agent(node: &str) -> Claimant {
        Claimant::Agent(NodeName::new(node))
    }

    fn read(payload: String, uid: u32) -> Decoded {
        Decoded { payload: payload.into_bytes(), uid }
    }

    fn judged(decoded: Result<Decoded, MungeError>) -> Result<u32, AuthError> {
        maker(decoded, Side::Claim, &agent("n1"), &HERE, Some(0))
    }

    #[test]
    fn a_credential_of_root_over_this_connection_is_an_agents() {
        assert_eq!(judged(Ok(read(agent("n1").payload(&HERE), 0))), Ok(0));
        assert_eq!(
            maker(Ok(read(Claimant::User.payload(&HERE), 1000)), Side::Claim, &Claimant::User, &HERE, None),
            Ok(1000)
        );
    }

    #[test]
    fn a_relayed_credential_is_of_another_connection() {
        let denied = AuthError::Denied(Denial::OtherConnection);
        assert_eq!(judged(Ok(read(agent("n1").payload(&ELSEWHERE), 0))), Err(denied.clone()));
        assert_eq!(judged(Ok(read(String::new(), 0))), Err(denied));
    }

    #[test]
    fn a_credential_for_another_role_or_node_proves_nothing() {
        for payload in
            [agent("n2").payload(&HERE), Claimant::User.payload(&HERE), agent("n1").answer_payload(&HERE)]
        {
            assert_eq!(judged(Ok(read(payload, 0))), Err(AuthError::Denied(Denial::OtherRole)));
        }
        let reflected =
            maker(Ok(read(agent("n1").payload(&HERE), 0)), Side::Answer, &agent("n1"), &HERE, Some(0));
        assert_eq!(reflected, Err(AuthError::Denied(Denial::OtherRole)), "its own claim, sent back");
    }

    #[test]
    fn a_user_is_no_agent_and_no_scheduler() {
        assert_eq!(
            judged(Ok(read(agent("n1").payload(&HERE), 1000))),
            Err(AuthError::Denied(Denial::WrongUser { found: 1000, wanted: 0 }))
        );
        let fake = maker(
            Ok(read(agent("n1").answer_payload(&HERE), 1000)),
            Side::Answer,
            &agent("n1"),
            &HERE,
            Some(64030),
        );
        assert_eq!(fake, Err(AuthError::Denied(Denial::WrongUser { found: 1000, wanted: 64030 })));
    }

    #[test]
    fn what_munged_refuses_is_denied_and_what_it_cannot_say_is_unavailable() {
        let (made_at, read_at) = (UnixTime::from_epoch(10), UnixTime::from_epoch(400));
        for (error, denial) in [
            (MungeError::Clock { made_at, read_at }, Denial::Clock { made_at, read_at }),
            (MungeError::Replayed, Denial::Replayed),
            (MungeError::NotForUs, Denial::NotForUs),
            (MungeError::Bad("Invalid credential".into()), Denial::BadProof("Invalid credential".into())),
        ] {
            assert_eq!(judged(Err(error)), Err(AuthError::Denied(denial)));
        }
        assert!(matches!(
            judged(Err(MungeError::Unavailable("munged".into()))),
            Err(AuthError::Unavailable(_))
        ));
    }
}
