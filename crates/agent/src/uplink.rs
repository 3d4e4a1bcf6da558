//! The stream to the scheduler: reports up, shares down. Row 6 of the way of a job. Knows nothing of devices, but carries
//! how they are: not kept for later, for only the present counts.
//!
//! The scheduler may be away for as long as it likes: reports wait in the journal. A report is sent once a stream, in
//! order, and taken as arrived when the scheduler acknowledges it; after a broken stream what is not acknowledged is sent
//! again, and the scheduler knows by journal and sequence what it has. The journal is read no faster than the stream takes
//! it, and no further ahead than [`UNACKNOWLEDGED_MAX`].
//!
//! How far this node's clock is off the scheduler learns when a stream begins. So one ends where that clock is set.

use crate::devices::Command;
use crate::journal::{Journal, JournalError};
use crate::node::{Inventory, Node};
use crate::setup::Places;
use pillion_auth::{AuthError, Door};
use pillion_core::health::DeviceCondition;
use pillion_core::report::{AgentHello, FromAgent, PROTOCOL_VERSION, ToAgent};
use pillion_core::setup::NodeSetup;
use pillion_core::{Clock, Fraction, UnixTime, error};
use pillion_proto::v1 as wire;
use pillion_proto::v1::agent_service_client::AgentServiceClient;
use rand::RngCore;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::Streaming;
use tracing::{debug, info, warn};

/// How many reports may be under way unacknowledged.
const UNACKNOWLEDGED_MAX: u64 = 512;
/// How many are read from the journal at once.
const READ_COUNT: usize = 64;
/// How many messages wait for the wire.
const OUTGOING_LENGTH: usize = 16;
/// The shortest pause between two attempts.
const RETRY_MIN: Duration = Duration::from_millis(500);
/// How many reasons for not being connected are told until it is again.
const REASONS_MAX: usize = 16;
/// How often a silent stream is probed, and how long the answer may take.
const PROBE: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(10));

/// By how much a clock is set at least, in seconds, for a new stream: far less than by what the scheduler lets a report be early.
const LEAP_SECONDS_MIN: f64 = 5.0;

/// Why a stream ended.
#[derive(Debug, thiserror::Error)]
pub enum UplinkError {
    /// Nobody there, or it does not let us in, or it is not the scheduler.
    #[error("cannot come to the scheduler at {address}")]
    Connect { address: String, source: AuthError },
    /// The scheduler said so, or went away.
    #[error("the scheduler ended the stream")]
    Status(#[source] Box<tonic::Status>),
    /// It closed the stream without a word.
    #[error("the scheduler closed the stream")]
    Closed,
    /// The node has other devices than the scheduler was told.
    #[error("the node has other devices now")]
    OtherDevices,
    /// The node's clock is another than the scheduler was told.
    #[error("the node's clock was set")]
    OtherClock,
    #[error("reports cannot be read")]
    Journal(#[from] JournalError),
}

/// What the uplink works with.
pub struct Uplink {
    /// The ways to the schedulers; one of them leads.
    pub doors: Vec<Arc<Door>>,
    /// The longest pause between two attempts.
    pub retry_max: Duration,
    /// What the node's parts of the agent share.
    pub node: Arc<Node>,
    pub clock: Arc<dyn Clock>,
    pub journal: Arc<Journal>,
    /// The last sequence in the journal.
    pub appended: watch::Receiver<u64>,
    /// To the devices.
    pub commands: mpsc::Sender<Command>,
    /// Answers of the devices.
    pub answers: mpsc::Receiver<FromAgent>,
    /// How the devices are.
    pub conditions: watch::Receiver<Vec<DeviceCondition>>,
    /// Which devices there are.
    pub inventory: watch::Receiver<Inventory>,
    /// Where to look how the node is set up beside them; `None`: an agent that observes, which needs nothing of that.
    pub setup: Option<Places>,
}

/// The pause before attempt `attempt` (from 0): doubling from [`RETRY_MIN`] to `retry_max`, times a half to one and a half by
/// `chance`, so that a thousand agents do not come back in step.
fn retry_pause(attempt: u32, retry_max: Duration, chance: Fraction) -> Duration {
    let doubled = RETRY_MIN.saturating_mul(1_u32.checked_shl(attempt.min(16)).unwrap_or(u32::MAX));
    doubled.min(retry_max).mul_f64(0.5 + chance.value())
}

/// A reason but for the numbers in it, which may be others each time: ports, seconds.
fn without_digits(reason: &str) -> String {
    reason.chars().filter(|letter| !letter.is_ascii_digit()).collect()
}

impl Uplink {
    /// Connects, and connects again, until `stop`.
    pub async fn run(mut self, stop: CancellationToken, chance: &mut (dyn RngCore + Send)) {
        let (mut attempt, mut turn, mut reported) = (0, 0, BTreeSet::new());
        while !stop.is_cancelled() {
            let mut was_connected = false;
            let door = self.doors.get(turn % self.doors.len().max(1)).cloned();
            let Some(door) = door else { break };
            let ended = tokio::select! {
                () = stop.cancelled() => break,
                ended = self.session(&door, &mut was_connected) => ended,
            };
            if was_connected {
                attempt = 0;
                reported.clear();
            }
            if matches!(ended, UplinkError::OtherDevices | UplinkError::OtherClock) {
                // The next hello tells it; there is nothing to wait for.
                info!(why = %ended, "telling the scheduler anew");
                continue;
            }
            self.node.set_connected(false);
            self.node.figures().uplink_failed();
            turn += 1;
            // Each reason once: who is refused after the scheduler has come up was told of a scheduler that is down before.
            let reason = error::report(&ended);
            if reported.len() < REASONS_MAX && reported.insert(without_digits(&reason)) {
                warn!(error = reason, "not connected to the scheduler; reports are kept");
            } else {
                debug!(attempt, error = reason, "still not connected to the scheduler");
            }
            if turn % self.doors.len() != 0 && !was_connected {
                // Another scheduler may lead: all of them are asked before anybody rests.
                continue;
            }
            let luck = Fraction::clamped(f64::from(chance.next_u32()) / f64::from(u32::MAX));
            let pause = retry_pause(attempt, self.retry_max, luck);
            attempt += 1;
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(pause) => {}
            }
        }
        self.node.set_connected(false);
    }

    /// One stream, from connecting to its end. `was_connected` becomes true when the scheduler has answered.
    async fn session(&mut self, door: &Arc<Door>, was_connected: &mut bool) -> UplinkError {
        let begun = self.times();
        match self.attach(door).await {
            Ok((outgoing, incoming)) => {
                *was_connected = true;
                info!(scheduler = %door, "connected to the scheduler");
                self.node.set_connected(true);
                match self.converse(&outgoing, incoming, begun).await {
                    Ok(()) => UplinkError::Closed,
                    Err(error) => error,
                }
            }
            Err(error) => error,
        }
    }

    async fn attach(
        &mut self,
        door: &Arc<Door>,
    ) -> Result<(mpsc::Sender<wire::AgentMessage>, Streaming<wire::SchedulerMessage>), UplinkError> {
        let endpoint = Door::endpoint()
            .http2_keep_alive_interval(PROBE.0)
            .keep_alive_timeout(PROBE.1)
            .keep_alive_while_idle(true);
        let channel = door
            .channel(endpoint)
            .await
            .map_err(|source| UplinkError::Connect { address: door.to_string(), source })?;
        let (outgoing, messages) = mpsc::channel(OUTGOING_LENGTH);
        let _ = outgoing.send(FromAgent::Hello(self.hello()).into()).await;
        let attached = AgentServiceClient::new(channel).attach(ReceiverStream::new(messages)).await;
        let incoming = attached.map_err(|status| UplinkError::Status(Box::new(status)))?.into_inner();
        Ok((outgoing, incoming))
    }

    fn hello(&mut self) -> AgentHello {
        let Inventory { devices, fault } = self.inventory.borrow_and_update().clone();
        let mut setup = NodeSetup::default();
        if let Some(places) = &self.setup {
            setup = places.look();
            setup.faults.extend(places.of_devices(&devices));
        }
        setup.faults.extend(fault);
        AgentHello {
            protocol_version: PROTOCOL_VERSION,
            node: self.node.name().clone(),
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            journal_id: self.journal.id().to_owned(),
            devices: devices.to_vec(),
            sent_at: self.clock.now(),
            decision_ids: self.node.decision_ids(),
            conditions: self.conditions.borrow_and_update().clone(),
            setup: Some(setup),
            observes: self.setup.is_none(),
        }
    }

    async fn converse(
        &mut self,
        outgoing: &mpsc::Sender<wire::AgentMessage>,
        mut incoming: Streaming<wire::SchedulerMessage>,
        begun: Times,
    ) -> Result<(), UplinkError> {
        let mut cursor = Cursor::default();
        loop {
            // Before anything more is sent that is dated by the new one.
            if has_leapt(begun, self.times()) {
                return Err(UplinkError::OtherClock);
            }
            if cursor.read.is_empty() && cursor.has_room() {
                cursor.read.extend(self.journal.read_after(cursor.sent, READ_COUNT)?);
            }
            let has_next = !cursor.read.is_empty() && cursor.has_room();
            tokio::select! {
                message = incoming.message() => {
                    let message = message.map_err(|status| UplinkError::Status(Box::new(status)))?;
                    let Some(message) = message else { return Ok(()) };
                    self.received(message, &mut cursor).await;
                }
                Some(answer) = self.answers.recv() => {
                    let sent = outgoing.send(answer.into()).await;
                    if sent.is_err() {
                        return Ok(());
                    }
                }
                place = outgoing.reserve(), if has_next => {
                    let Ok(place) = place else { return Ok(()) };
                    if let Some(report) = cursor.next() {
                        let body = Some(wire::agent_message::Body::Report(report));
                        place.send(wire::AgentMessage { body });
                    }
                }
                changed = self.conditions.changed() => {
                    let conditions = self.conditions.borrow_and_update().clone();
                    let sent = outgoing.send(FromAgent::Conditions(conditions).into()).await;
                    if changed.is_err() || sent.is_err() {
                        return Ok(());
                    }
                }
                changed = self.inventory.changed() => {
                    return if changed.is_err() { Ok(()) } else { Err(UplinkError::OtherDevices) };
                }
                changed = self.appended.changed(), if !has_next => {
                    if changed.is_err() {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn times(&self) -> Times {
        (self.clock.now(), Instant::now())
    }

    async fn received(&self, message: wire::SchedulerMessage, cursor: &mut Cursor) {
        let command = match ToAgent::try_from(message) {
            Ok(ToAgent::Ack(sequence)) => {
                let sequence = sequence.min(*self.appended.borrow());
                self.journal.acknowledge(sequence);
                cursor.acknowledge(sequence);
                return;
            }
            Ok(ToAgent::Prepare(share)) => Command::Prepare(share),
            Ok(ToAgent::Revoke { decision_id, start }) => Command::Revoke { decision_id, start },
            Ok(ToAgent::Poke) => Command::Sample,
            Ok(ToAgent::End { start, order }) => Command::End { start, order },
            Err(error) => {
                warn!(error = %error::report(&error), "the scheduler said what this agent does not understand");
                return;
            }
        };
        if self.commands.send(command).await.is_err() {
            warn!("the device thread has stopped");
        }
    }
}

/// One moment by the clock, which may be set, and by the time that has passed, which nobody sets.
type Times = (UnixTime, Instant);

/// Whether the clock was set in between.
fn has_leapt((wall, moment): Times, (wall_now, now): Times) -> bool {
    let passed = now.saturating_duration_since(moment).as_secs_f64();
    (wall_now.seconds() - wall.seconds() - passed).abs() >= LEAP_SECONDS_MIN
}

/// How far one stream is.
#[derive(Debug, Default)]
struct Cursor {
    /// The last report that was sent, or that the scheduler has already.
    sent: u64,
    acknowledged: u64,
    /// Read and not yet sent.
    read: VecDeque<wire::Report>,
}

impl Cursor {
    fn has_room(&self) -> bool {
        self.sent - self.acknowledged < UNACKNOWLEDGED_MAX
    }

    fn acknowledge(&mut self, sequence: u64) {
        self.acknowledged = self.acknowledged.max(sequence);
        // The scheduler may know more than this stream has sent.
        self.sent = self.sent.max(self.acknowledged);
        while self.read.front().is_some_and(|report| report.sequence <= self.acknowledged) {
            self.read.pop_front();
        }
    }

    fn next(&mut self) -> Option<wire::Report> {
        let report = self.read.pop_front()?;
        self.sent = report.sequence;
        Some(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_bound_and_differ_by_chance() {
        let max = Duration::from_secs(30);
        let pauses: Vec<f64> =
            (0..9).map(|attempt| retry_pause(attempt, max, Fraction::clamped(0.5)).as_secs_f64()).collect();
        assert_eq!(pauses, [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]);
        assert_eq!(retry_pause(40, max, Fraction::ZERO), Duration::from_secs(15));
        assert_eq!(retry_pause(u32::MAX, max, Fraction::ONE), Duration::from_secs(45));
    }

    #[test]
    fn a_clock_that_is_set_ends_the_stream_and_one_that_goes_does_not() {
        let (wall, moment) = (UnixTime::from_epoch(1000), Instant::now());
        let later = |wall: f64, passed: u64| {
            has_leapt(
                (UnixTime::from_epoch(1000), moment),
                (UnixTime::from_seconds(wall), moment + Duration::from_secs(passed)),
            )
        };
        assert!(!has_leapt((wall, moment), (wall, moment)));
        for (wall, passed) in [(1100.0, 100), (1104.9, 100), (1096.0, 100), (90_000.5, 89_000)] {
            assert!(!later(wall, passed), "{wall} after {passed} s");
        }
        for (wall, passed) in [(1130.0, 100), (1070.0, 100), (1005.5, 0), (1.0, 3600)] {
            assert!(later(wall, passed), "{wall} after {passed} s");
        }
    }

    fn report(sequence: u64) -> wire::Report {
        wire::Report { sequence, body: None }
    }

    #[test]
    fn a_cursor_stops_at_its_window_and_skips_what_has_arrived() {
        let mut cursor =
            Cursor { read: (1..=UNACKNOWLEDGED_MAX + 5).map(report).collect(), ..Cursor::default() };
        while cursor.has_room() {
            cursor.next();
        }
        assert_eq!(cursor.sent, UNACKNOWLEDGED_MAX);
        cursor.acknowledge(3);
        assert!(cursor.has_room());
        cursor.acknowledge(UNACKNOWLEDGED_MAX + 2);
        assert_eq!(cursor.next().map(|report| report.sequence), Some(UNACKNOWLEDGED_MAX + 3));
        let before = cursor.sent;
        cursor.acknowledge(1);
        assert_eq!(cursor.sent, before, "an old acknowledgement moves nothing back");
    }

    #[test]
    fn a_gap_left_by_dropped_samples_is_no_room_taken_for_ever() {
        let mut cursor = Cursor { read: VecDeque::from([report(9000)]), ..Cursor::default() };
        cursor.next();
        assert!(!cursor.has_room(), "until it is acknowledged");
        cursor.acknowledge(9000);
        assert!(cursor.has_room());
    }
}
