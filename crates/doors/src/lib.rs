//! Connections as they come in, over TCP and over Unix sockets: of gRPC, of the page and of metrics alike. Knows nothing of what
//! is said on them.
//!
//! ```text
//!  listener ─► take (the loop) ─► Doors: whoever comes gets a place; who holds the most makes room   (nobody said who he is)
//!                                 Permits: so many of each peer; the next is sent away                 (he did)
//!                                 Held: a connection with its place, as gRPC wants it
//! ```

mod held;
mod incoming;
mod peer;
mod permits;
mod places;
mod turned_away;

pub use held::Held;
pub use incoming::{Listener, take};
pub use peer::{Ends, is_of_this_machine, owner};
pub use permits::{Permit, Permits};
pub use places::{Doors, Place};
pub use turned_away::{Cause, TurnedAway};
