//! The journal over a disk whose power goes: of what was written since the last sync anything may be there, in part, or not
//! at all. What `append` has returned for is there, whenever it goes.

use super::tests::{launch, samples, sequences, summary};
use super::*;
use redb::StorageBackend;
use std::sync::Arc;

/// What happens to a disk, in order.
#[derive(Debug, Clone)]
enum Event {
    Write(u64, Vec<u8>),
    Length(u64),
    Sync,
    /// Not of the disk: `append` returned, and this was the last sequence.
    Returned(u64),
}

#[derive(Debug, Default)]
struct State {
    image: Vec<u8>,
    events: Vec<Event>,
    /// It has no room, or is broken.
    is_failing: bool,
}

/// A disk in memory that writes down what is done to it.
#[derive(Debug, Clone, Default)]
struct Disk(Arc<Mutex<State>>);

impl Disk {
    fn with(image: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new(State { image, ..State::default() })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn happened(&self, event: Event) -> io::Result<()> {
        let mut state = self.state();
        if state.is_failing {
            return Err(io::ErrorKind::StorageFull.into());
        }
        apply(&mut state.image, &event);
        state.events.push(event);
        Ok(())
    }
}

fn place(offset: u64) -> usize {
    usize::try_from(offset).unwrap()
}

fn apply(image: &mut Vec<u8>, event: &Event) {
    match event {
        Event::Write(offset, data) => {
            let end = place(*offset) + data.len();
            image.resize(image.len().max(end), 0);
            image[place(*offset)..end].copy_from_slice(data);
        }
        Event::Length(length) => image.resize(place(*length), 0),
        Event::Sync | Event::Returned(_) => {}
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state().image.len() as u64)
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.state();
        let bytes = state.image.get(place(offset)..place(offset) + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.happened(Event::Length(len))
    }
    fn sync_data(&self) -> io::Result<()> {
        self.happened(Event::Sync)
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.happened(Event::Write(offset, data.to_vec()))
    }
}

fn open(disk: Disk) -> Result<Journal, JournalError> {
    let opener = move || Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(disk.clone());
    Journal::over(Box::new(opener), Path::new("in memory"), 1 << 20, &|| "first".to_owned())
}

/// A journal that is filled, acknowledged in part, and filled again; and all that its disk saw.
fn recorded() -> Vec<Event> {
    let disk = Disk::default();
    let journal = open(disk.clone()).unwrap();
    for count in 0..6 {
        let last = journal.append(vec![samples(), launch(), summary()]).unwrap();
        disk.happened(Event::Returned(last)).unwrap();
        if count == 2 {
            journal.acknowledge(4);
        }
    }
    disk.state().events.clone()
}

/// What of the events since the last sync has reached the disk; `chance` is of this moment.
fn survived(pending: &[Event], how: u32, chance: usize) -> Vec<Event> {
    let torn = |event: &Event| match event {
        Event::Write(offset, data) => Event::Write(*offset, data[..data.len() / 2].to_vec()),
        other => other.clone(),
    };
    match how {
        0 => Vec::new(),
        1 => pending.to_vec(),
        2 => pending.iter().rev().map(torn).collect(),
        _ => pending
            .iter()
            .enumerate()
            .filter_map(|(index, event)| match (chance / (index + 1) + index) % 3 {
                0 => None,
                1 => Some(torn(event)),
                _ => Some(event.clone()),
            })
            .collect(),
    }
}

#[test]
fn what_was_returned_for_outlives_a_loss_of_power_at_any_moment() {
    let events = recorded();
    let mut synced = Vec::new();
    let (mut pending, mut returned, mut looks): (Vec<Event>, u64, u32) = (Vec::new(), 0, 0);
    for (moment, event) in events.iter().enumerate() {
        for how in 0..4 {
            let mut image = synced.clone();
            for event in survived(&pending, how, moment * 7919) {
                apply(&mut image, &event);
            }
            let journal = match open(Disk::with(image)) {
                Ok(journal) => journal,
                // One that was never whole is set aside by `Journal::open`.
                Err(JournalError::Store { source, .. }) if returned == 0 && is_damage(&source) => continue,
                Err(error) => panic!("moment {moment}, {how}: {error}"),
            };
            looks += 1;
            assert!(
                journal.last_sequence() >= returned,
                "moment {moment}, {how}: a sequence would be given twice"
            );
            let kept = sequences(&journal, 4);
            assert!(
                (5..=returned).all(|sequence| kept.contains(&sequence)),
                "moment {moment}, {how}: {kept:?}"
            );
            assert_eq!(journal.append(vec![summary()]).unwrap(), journal.last_sequence(), "it goes on");
        }
        match event {
            Event::Sync => {
                for event in std::mem::take(&mut pending) {
                    apply(&mut synced, &event);
                }
            }
            Event::Returned(sequence) => returned = *sequence,
            other => pending.push(other.clone()),
        }
    }
    assert!(returned == 18 && looks > 50, "{returned} {looks}");
}

#[test]
fn a_disk_that_had_no_room_for_a_while_is_written_to_again() {
    let disk = Disk::default();
    let journal = open(disk.clone()).unwrap();
    let mut given = vec![journal.append(vec![summary()]).unwrap()];
    for reads_first in [false, true, false] {
        disk.state().is_failing = true;
        for _ in 0..3 {
            assert!(journal.append(vec![samples()]).is_err());
        }
        disk.state().is_failing = false;
        if reads_first {
            assert_eq!(sequences(&journal, 0), given);
        }
        given.push(journal.append(vec![summary()]).unwrap());
        assert_eq!(sequences(&journal, 0), given, "none is lost that was returned for, none given twice");
    }
    assert_eq!((journal.id(), journal.figures().lost_count), ("first", 9));
    assert!(given.is_sorted_by(|one, next| one < next));
}

/// As after a sync that failed: what was returned for has gone from the disk, and the scheduler may have it.
#[test]
fn a_disk_that_forgets_is_given_no_sequence_twice() {
    let disk = Disk::default();
    let journal = open(disk.clone()).unwrap();
    let before = disk.state().image.clone();
    assert_eq!(journal.append(vec![summary(), summary()]).unwrap(), 2);
    disk.state().is_failing = true;
    assert!(journal.append(vec![summary()]).is_err());
    *disk.state() = State { image: before, ..State::default() };
    assert_eq!(journal.append(vec![summary()]).unwrap(), 3);
    assert_eq!(sequences(&journal, 0), [3]);
}
