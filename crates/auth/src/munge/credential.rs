//! Credentials: what is asked of MUNGE, what it answers, and why it gives none.

use pillion_core::UnixTime;

/// A credential, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded {
    /// What is in it.
    pub payload: Vec<u8>,
    /// Who made it.
    pub uid: u32,
}

/// How long a credential is good.
pub const TTL_SECONDS: u32 = 60;

/// Why MUNGE gave nothing.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum MungeError {
    /// It did not answer, or is not installed.
    #[error("{0}")]
    Unavailable(String),
    /// The credential is too old, or of the future.
    #[error("the credential's time has passed or has not come")]
    Clock {
        /// When it was made, by its maker's clock.
        made_at: UnixTime,
        /// When it was read, by ours.
        read_at: UnixTime,
    },
    /// It was read before.
    #[error("the credential was used before")]
    Replayed,
    /// Another user may read it, we may not.
    #[error("the credential is not for us")]
    NotForUs,
    /// It is none, or made with another key.
    #[error("{0}")]
    Bad(String),
}

/// What is asked of MUNGE. Calls wait for munged: they belong on threads that may wait.
pub trait Munge: Send + Sync {
    /// Makes a credential over `payload` that `reader` alone may read, for [`TTL_SECONDS`].
    ///
    /// # Errors
    /// [`MungeError`].
    fn encode(&self, payload: &str, reader: u32) -> Result<String, MungeError>;
    /// Reads one, once.
    ///
    /// # Errors
    /// [`MungeError`].
    fn decode(&self, credential: &str) -> Result<Decoded, MungeError>;
}
