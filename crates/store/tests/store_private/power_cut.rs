//! What was acknowledged outlives a power cut at any moment. The server is killed under a load of commits; then what the disk
//! may not have had yet is taken from copies of its data: the log beyond what was flushed, cut and torn at random places. Each
//! copy must start, and hold everything that was acknowledged before, once, and nothing that skips a commit.

use super::{kill, postmaster_pid};
use crate::support::{Workplace, owner, start};
use pillion_store::Event;
use pillion_store::postgres::PgStore;
use pillion_store::prelude::*;
use pillion_store::private_postgres::Owner;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use sqlx::{Connection as _, PgConnection};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

/// How many write at once, each its own row of numbers.
const WRITERS: usize = 4;
/// How often the server is killed, and how many power cuts each of these kills is made to be.
const KILLS: usize = 2;
const CUTS: usize = 2;
/// Sizes that Postgres is built with everywhere: a segment of its log; and what a disk writes at once.
const SEGMENT_BYTES: u64 = 16 << 20;
const SECTOR_BYTES: u64 = 512;

/// How many events of each writer were acknowledged.
type Acknowledged = [AtomicU64; WRITERS];

fn now(acknowledged: &Acknowledged) -> [u64; WRITERS] {
    acknowledged.each_ref().map(|count| count.load(Ordering::SeqCst))
}

fn kind(writer: usize) -> String {
    format!("load-{writer}")
}

/// Writes one event after the other until the server is gone.
async fn write(store: Arc<PgStore>, writer: usize, acknowledged: Arc<Acknowledged>) {
    for number in acknowledged[writer].load(Ordering::SeqCst).. {
        let event = Event {
            at: pillion_core::UnixTime::from_epoch(1),
            kind: kind(writer).as_str().into(),
            job_id: None,
            node: None,
            detail: number.to_string(),
        };
        if store.record_event(&event).await.is_err() {
            return;
        }
        acknowledged[writer].store(number + 1, Ordering::SeqCst);
    }
}

async fn connect(url: &str) -> PgConnection {
    PgConnection::connect(url).await.expect("connected")
}

/// Up to where the log is on the disk, as Postgres says: a place in the file of this name.
async fn flushed(connection: &mut PgConnection) -> (String, u64) {
    let text =
        "select file_name, file_offset::bigint from pg_walfile_name_offset(pg_current_wal_flush_lsn())";
    let (file, offset): (String, i64) = sqlx::query_as(text).fetch_one(connection).await.expect("told");
    (file, u64::try_from(offset).expect("an offset"))
}

/// What a writer's events are: how many, and the greatest number.
async fn written(url: &str, writer: usize) -> (u64, u64) {
    let text = "select count(*), coalesce(max(detail::bigint) + 1, 0) from event where kind = $1";
    let asked = sqlx::query_as::<_, (i64, i64)>(text).bind(kind(writer));
    let (count, end) = asked.fetch_one(&mut connect(url).await).await.expect("counted");
    (u64::try_from(count).expect("a count"), u64::try_from(end).expect("a number"))
}

/// Starts a server on these data and holds it against what was acknowledged.
async fn check(directory: &Path, owner: Option<Owner>, least: [u64; WRITERS], what: &str) {
    let server = start(directory, owner).await;
    for (writer, least) in least.into_iter().enumerate() {
        let (count, end) = written(server.url(), writer).await;
        assert!(count >= least, "{what}: {least} of writer {writer} were acknowledged, {count} are there");
        assert_eq!(count, end, "{what}: a commit of writer {writer} is there, and one before it is not");
    }
    server.stop().await;
}

#[expect(clippy::disallowed_methods, reason = "cp keeps the owner of the files; no Slurm involved")]
fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status().expect("cp");
    assert!(copied.success(), "cp -a {} {}", from.display(), to.display());
}

/// Whether a process of a server stands in its data.
fn is_at_work(data: &Path) -> bool {
    let stands_there = |entry: &std::fs::DirEntry| {
        std::fs::read_link(entry.path().join("cwd")).is_ok_and(|directory| directory == data)
    };
    std::fs::read_dir("/proc").expect("/proc").flatten().any(|entry| stands_there(&entry))
}

/// Takes from the log what the disk may not have had: all beyond a random place, and some sectors before that.
fn tear(data: &Path, (file, offset): &(String, u64), random: &mut SmallRng) -> String {
    let folder = data.join("pg_wal");
    let segment = std::fs::File::options().read(true).write(true).open(folder.join(file)).expect("the log");
    let mut bytes = vec![0; usize::try_from(SEGMENT_BYTES - offset).expect("a segment")];
    segment.read_exact_at(&mut bytes, *offset).expect("a whole segment");
    let end = offset + bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1);
    let cut = random.random_range(*offset..=end);
    segment.write_all_at(&vec![0; usize::try_from(SEGMENT_BYTES - cut).expect("small")], cut).expect("cut");
    let first = offset.div_ceil(SECTOR_BYTES);
    let torn: Vec<u64> = (first..cut / SECTOR_BYTES).filter(|_| random.random_bool(0.2)).collect();
    for sector in &torn {
        segment.write_all_at(&[0xa5; 512], sector * SECTOR_BYTES).expect("torn");
    }
    for entry in std::fs::read_dir(&folder).expect("the log").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.len() == file.len() && name > *file {
            std::fs::remove_file(entry.path()).expect("a later segment");
        }
    }
    format!("{file} flushed to {offset}, written to {end}, cut at {cut}, {} sectors torn", torn.len())
}

#[tokio::test]
async fn what_was_acknowledged_outlives_a_power_cut_at_any_moment() {
    let Ok(owner) = owner() else { return };
    let (workplace, mut random) = (Workplace::new(), SmallRng::seed_from_u64(20_261_123));
    let directory = workplace.path.join("postgres");
    let acknowledged = Arc::new(Acknowledged::default());
    for _ in 0..KILLS {
        let server = start(&directory, owner).await;
        let store = Arc::new(PgStore::connect(server.url()).await.expect("a store"));
        for writer in 0..WRITERS {
            let (_, end) = written(server.url(), writer).await;
            acknowledged[writer].store(end, Ordering::SeqCst);
        }
        let mut asking = connect(server.url()).await;
        let before = now(&acknowledged);
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            writers.spawn(write(Arc::clone(&store), writer, Arc::clone(&acknowledged)));
        }
        let is_under_load = || now(&acknowledged).iter().zip(before).all(|(now, before)| *now > before + 20);
        while !is_under_load() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(Duration::from_millis(random.random_range(0..200))).await;
        // In this order: what is acknowledged was flushed before.
        let least = now(&acknowledged);
        let place = flushed(&mut asking).await;
        kill(postmaster_pid(&directory).expect("it runs"));
        writers.join_all().await;
        drop((asking, store, server));
        let copies: Vec<PathBuf> =
            (0..CUTS).map(|number| workplace.path.join(format!("copy-{number}"))).collect();
        check_copies(&directory, owner, (&copies, least, &place), &mut random).await;
        check(&directory, owner, now(&acknowledged), "killed").await;
    }
}

/// The same moment with other losses each time.
async fn check_copies(
    directory: &Path,
    owner: Option<Owner>,
    (copies, least, place): (&[PathBuf], [u64; WRITERS], &(String, u64)),
    random: &mut SmallRng,
) {
    // Its processes end a moment after it.
    let data = directory.join("data");
    while is_at_work(&data) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for path in copies {
        copy(directory, path);
        let torn = tear(&path.join("data"), place, random);
        check(path, owner, least, &torn).await;
        std::fs::remove_dir_all(path).expect("removed");
    }
}

/// What is really in force, asked of a session like the store's own.
#[tokio::test]
async fn the_server_acknowledges_nothing_that_is_not_on_the_disk() {
    let Ok(owner) = owner() else { return };
    let workplace = Workplace::new();
    let server = start(&workplace.path.join("postgres"), owner).await;
    let mut connection = connect(server.url()).await;
    for setting in ["fsync", "synchronous_commit", "full_page_writes", "data_checksums"] {
        let show = sqlx::AssertSqlSafe(format!("show {setting}"));
        let shown: String = sqlx::query_scalar(show).fetch_one(&mut connection).await.expect("shown");
        assert_eq!(shown, "on", "{setting}");
    }
    drop(connection);
    server.stop().await;
}
