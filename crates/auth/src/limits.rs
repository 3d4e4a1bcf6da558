//! How much anybody may cost: a stranger before it is known who he is, and whoever was let in.

use std::time::Duration;

/// How long the whole of it may take: connecting, TLS, and both proofs.
pub(crate) const HANDSHAKE_DURATION_MAX: Duration = Duration::from_secs(10);
/// How many may be under way at once. Whoever comes beyond gets a place all the same: whoever has most of them, a user of this
/// machine or another machine, loses his oldest.
pub(crate) const HANDSHAKES_MAX: usize = 256;
/// How many connections one address may have of those who have proven who they are: a login node has many users.
pub(crate) const CONNECTIONS_PER_ADDRESS_MAX: usize = 256;
/// How many one user, or the agent of one node.
pub(crate) const CONNECTIONS_PER_IDENTITY_MAX: usize = 16;
/// The longest claim or answer, in bytes. A credential of MUNGE has some hundred.
pub(crate) const FRAME_BYTES_MAX: usize = 4096;
/// How many threads may wait for munged at once.
pub(crate) const MUNGE_CALLS_MAX: usize = 8;
