//! Puts texts, keys and MUNGE together: makes proofs and judges them, by what `[auth]` says. Its calls may wait for munged and read
//! files: they belong on threads that may wait ([`Prover::ask`]).

use crate::claim::{Claim, Claimant, Exporter, Method};
use crate::error::{AuthError, Denial};
use crate::identity::Identity;
use crate::key::{self, Keys};
use crate::limits::MUNGE_CALLS_MAX;
use crate::munge::{Library, Munge};
use crate::tls;
use crate::verify::{Side, maker};
use pillion_config::{Auth, AuthMethod};
use pillion_core::{Clock, UserId};
use rustls::pki_types::CertificateDer;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Root's: agents run as root, and only root can say that it is one.
const ROOT: u32 = 0;

/// Makes and judges proofs.
pub struct Prover {
    auth: Auth,
    munge: Arc<dyn Munge>,
    clock: Arc<dyn Clock>,
    places: Arc<Semaphore>,
}

/// A claim that is believed.
#[derive(Clone)]
pub struct Judged {
    /// Who it is.
    pub identity: Identity,
    by: By,
}

/// How it was believed, by which it is answered.
#[derive(Clone)]
enum By {
    Munge { uid: u32 },
    Key(Keys),
    Certificate,
    Nothing,
}

impl Prover {
    /// With the machine's MUNGE.
    pub fn new(auth: &Auth, clock: Arc<dyn Clock>) -> Self {
        Self::with_munge(auth, clock, Arc::new(Library::new(auth.munge_socket.clone())))
    }

    /// With another MUNGE.
    pub fn with_munge(auth: &Auth, clock: Arc<dyn Clock>, munge: Arc<dyn Munge>) -> Self {
        Self { auth: auth.clone(), munge, clock, places: Arc::new(Semaphore::new(MUNGE_CALLS_MAX)) }
    }

    /// What is configured.
    pub const fn auth(&self) -> &Auth {
        &self.auth
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        self.clock.as_ref()
    }

    /// How nodes prove who they are here. Looked up each time: munged may be started, or stopped, at any time.
    pub fn method(&self) -> Method {
        match self.auth.method {
            Some(AuthMethod::Munge) => Method::Munge,
            Some(AuthMethod::Mtls) => Method::Mtls,
            Some(AuthMethod::None) => Method::None,
            None if self.auth.munge_socket.exists() => Method::Munge,
            Some(AuthMethod::Key) | None => Method::Key,
        }
    }

    /// Does something of a prover on a thread that may wait.
    ///
    /// # Errors
    /// Those of `work`.
    pub async fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, AuthError> + Send + 'static,
    ) -> Result<T, AuthError> {
        let place = Arc::clone(&self.places).acquire_owned().await;
        let prover = Arc::clone(self);
        let worked = tokio::task::spawn_blocking(move || {
            let done = work(&prover);
            drop(place);
            done
        });
        worked
            .await
            .unwrap_or_else(|_| Err(AuthError::Unavailable("a proof could not be worked on".to_owned())))
    }

    /// The client's claim.
    ///
    /// # Errors
    /// [`AuthError::Unavailable`] where it cannot be made now.
    pub fn claim(&self, claimant: &Claimant, exporter: &Exporter) -> Result<Claim, AuthError> {
        let method = match (claimant, self.method()) {
            (Claimant::User, Method::None) => Method::None,
            (Claimant::User, _) => Method::Munge,
            (Claimant::Agent(_), method) => method,
        };
        let payload = claimant.payload(exporter);
        let proof = match method {
            Method::Munge => self.munge.encode(&payload, self.scheduler_uid()?)?,
            Method::Key => self.keys()?.code(&payload),
            Method::Mtls | Method::None => String::new(),
        };
        Ok(Claim { method, claimant: claimant.clone(), proof })
    }

    /// Who a client is.
    ///
    /// # Errors
    /// [`AuthError::Denied`] where its proof is not good, [`AuthError::Unavailable`] where that cannot be said now.
    pub fn judge(
        &self,
        claim: &Claim,
        exporter: &Exporter,
        certificate: Option<&CertificateDer<'_>>,
    ) -> Result<Judged, AuthError> {
        let Claim { method, claimant, proof } = claim;
        self.takes(claim)?;
        let by = match method {
            Method::Munge => {
                let must_be = matches!(claimant, Claimant::Agent(_)).then_some(ROOT);
                let decoded = self.munge.decode(proof);
                By::Munge { uid: maker(decoded, Side::Claim, claimant, exporter, must_be)? }
            }
            Method::Key => {
                let key = self.keys()?.made_with(&claimant.payload(exporter), proof);
                By::Key(key.ok_or_else(|| other_key("the node's"))?)
            }
            Method::Mtls => {
                let certificate = certificate.ok_or_else(|| bad_proof("it showed no certificate"))?;
                let Claimant::Agent(node) = claimant else {
                    return Err(bad_proof("certificates prove nodes only"));
                };
                if !tls::is_of(certificate, node.as_str()) {
                    return Err(bad_proof(format!("its certificate has not the DNS name {node}")));
                }
                By::Certificate
            }
            Method::None => By::Nothing,
        };
        let identity = match (claimant, &by) {
            (Claimant::Agent(node), _) => Identity::Agent(node.clone()),
            (Claimant::User, By::Munge { uid }) => Identity::User(UserId(*uid)),
            (Claimant::User, _) => Identity::Nobody,
        };
        Ok(Judged { identity, by })
    }

    /// Whether a claim's method is one that is taken here.
    fn takes(&self, claim: &Claim) -> Result<(), AuthError> {
        let own = self.method();
        let is_users_proof = claim.claimant == Claimant::User && claim.method == Method::Munge;
        if claim.method == own && (own != Method::Key || claim.claimant != Claimant::User) || is_users_proof {
            return Ok(());
        }
        let denial =
            Denial::OtherMethod { given: claim.method.as_str().to_owned(), wanted: own.as_str().to_owned() };
        // Nobody chose ours: it may be another one as soon as munged is back.
        Err(if self.auth.method.is_none() {
            AuthError::Unavailable(denial.to_string())
        } else {
            AuthError::Denied(denial)
        })
    }

    /// The scheduler's own proof, towards a client that it believes.
    ///
    /// # Errors
    /// [`AuthError::Unavailable`] where it cannot be made now.
    pub fn answer(&self, claim: &Claim, judged: &Judged, exporter: &Exporter) -> Result<String, AuthError> {
        let payload = claim.claimant.answer_payload(exporter);
        match &judged.by {
            By::Munge { uid } => Ok(self.munge.encode(&payload, *uid)?),
            By::Key(keys) => Ok(keys.code(&payload)),
            By::Certificate | By::Nothing => Ok(String::new()),
        }
    }

    /// Whether it is the scheduler that has answered.
    ///
    /// # Errors
    /// As [`Prover::judge`].
    pub fn check_answer(&self, claim: &Claim, exporter: &Exporter, proof: &str) -> Result<(), AuthError> {
        let Claim { method, claimant, .. } = claim;
        match method {
            Method::Munge => {
                let must_be = Some(self.scheduler_uid()?);
                maker(self.munge.decode(proof), Side::Answer, claimant, exporter, must_be).map(drop)
            }
            Method::Key => {
                let key = self.keys()?.made_with(&claimant.answer_payload(exporter), proof);
                key.map(drop).ok_or_else(|| other_key("the scheduler's"))
            }
            // TLS has verified the certificate; of nobody nothing is asked.
            Method::Mtls | Method::None => Ok(()),
        }
    }

    fn keys(&self) -> Result<Keys, AuthError> {
        key::read(&self.auth.key_path, self.clock.now())
    }

    /// The uid that the scheduler runs as.
    fn scheduler_uid(&self) -> Result<u32, AuthError> {
        let name = &self.auth.scheduler_user;
        let number = name.parse().ok();
        number.or_else(|| uzers::get_user_by_name(name).map(|user| user.uid())).ok_or_else(|| {
            AuthError::Unavailable(format!(
                "there is no user '{name}' here (auth.scheduler_user: who the scheduler runs as)"
            ))
        })
    }
}

fn other_key(whose: &str) -> AuthError {
    bad_proof(format!("{whose} key is another one, or too old; copy the controller's key file to every node"))
}

fn bad_proof(why: impl Into<String>) -> AuthError {
    AuthError::Denied(Denial::BadProof(why.into()))
}

#[cfg(test)]
mod tests;
