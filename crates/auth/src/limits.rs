//! How much a stranger may cost before it is known who he is.

use std::time::Duration;

/// How long the whole of it may take: connecting, TLS, and both proofs.
pub(crate) const HANDSHAKE_DURATION_MAX: Duration = Duration::from_secs(10);
/// How many may be under way at once; who comes beyond waits.
pub(crate) const HANDSHAKES_MAX: usize = 256;
/// How many of one address; who comes beyond is sent away, so that nobody alone takes all the places.
pub(crate) const HANDSHAKES_PER_ADDRESS_MAX: usize = 32;
/// The longest claim or answer, in bytes. A credential of MUNGE has some hundred.
pub(crate) const FRAME_BYTES_MAX: usize = 4096;
/// How many threads may wait for munged at once.
pub(crate) const MUNGE_CALLS_MAX: usize = 8;
