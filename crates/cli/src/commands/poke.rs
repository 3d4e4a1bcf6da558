//! `pillion poke`: called by `EpilogSlurmctld` when a job ends, so that the scheduler looks at once. It carries no data; the
//! scheduler's own scan is the truth. Whatever happens it is quick and it succeeds: a failing hook would be an outage.

use crate::client::{Target, connect};
use pillion_api::PokeRequest;
use std::time::Duration;

/// How long it may take in all: the connection, the call and the answer.
const POKE_DEADLINE: Duration = Duration::from_millis(1900);

/// Tries once; whether it was heard is not told.
pub async fn poke(address: &Target) {
    let attempt = async {
        if let Ok(mut client) = connect(address).await {
            // Nobody reads the answer; a lost poke costs one scan interval.
            let _ = client.poke(PokeRequest {}).await;
        }
    };
    let _ = tokio::time::timeout(POKE_DEADLINE, attempt).await;
}
