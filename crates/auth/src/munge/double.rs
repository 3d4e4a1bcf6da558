//! A strict double of MUNGE: several machines with one key, a user on one of them, and a clock. It refuses what munged refuses.

use super::credential::{Decoded, Munge, MungeError, TTL_SECONDS};
use pillion_core::{Clock, UnixTime};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

struct Made {
    payload: Vec<u8>,
    uid: u32,
    reader: u32,
    at: UnixTime,
}

/// What all munged of one key know of each other's credentials.
#[derive(Default)]
pub struct Realm(Mutex<BTreeMap<String, Made>>);

/// The munged of one machine, as one user sees it.
pub struct Double {
    realm: Arc<Realm>,
    uid: u32,
    clock: Arc<dyn Clock>,
    /// Of this machine.
    read: Mutex<BTreeSet<String>>,
    /// Whether it has been stopped.
    stopped: Mutex<bool>,
}

impl Double {
    /// For this user, by this machine's clock.
    pub fn new(realm: &Arc<Realm>, uid: u32, clock: Arc<dyn Clock>) -> Self {
        Self { realm: Arc::clone(realm), uid, clock, read: Mutex::default(), stopped: Mutex::default() }
    }

    /// Stops it, or starts it again.
    pub fn stop(&self, is_stopped: bool) {
        *self.stopped.lock().unwrap_or_else(PoisonError::into_inner) = is_stopped;
    }

    fn answering(&self) -> Result<(), MungeError> {
        let is_stopped = *self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        let why = "MUNGE does not answer: it was stopped";
        if is_stopped { Err(MungeError::Unavailable(why.to_owned())) } else { Ok(()) }
    }
}

impl Munge for Double {
    fn encode(&self, payload: &str, reader: u32) -> Result<String, MungeError> {
        self.answering()?;
        let mut made = self.realm.0.lock().unwrap_or_else(PoisonError::into_inner);
        let credential = format!("MUNGE:{}:", made.len());
        let (payload, uid, at) = (payload.as_bytes().to_vec(), self.uid, self.clock.now());
        made.insert(credential.clone(), Made { payload, uid, reader, at });
        Ok(credential)
    }

    fn decode(&self, credential: &str) -> Result<Decoded, MungeError> {
        self.answering()?;
        let made = self.realm.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = made.get(credential).ok_or_else(|| MungeError::Bad("Invalid credential".to_owned()))?;
        if found.reader != self.uid {
            return Err(MungeError::NotForUs);
        }
        let (now, ttl) = (self.clock.now(), Duration::from_secs(u64::from(TTL_SECONDS)));
        if now > found.at + ttl || now < found.at - ttl {
            return Err(MungeError::Clock { made_at: found.at, read_at: now });
        }
        if !self.read.lock().unwrap_or_else(PoisonError::into_inner).insert(credential.to_owned()) {
            return Err(MungeError::Replayed);
        }
        Ok(Decoded { payload: found.payload.clone(), uid: found.uid })
    }
}
