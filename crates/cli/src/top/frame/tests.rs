//! Golden frames: what stands on the screen for a state and a size.

use super::*;
use pillion_api::TopCounts;

fn member(job: Option<&str>, user: &str, cap_fraction: Option<f64>) -> Member {
    Member {
        job_id: job.map(str::to_owned),
        user: job.map(|_| user.to_owned()),
        state: "running".to_owned(),
        cap_fraction,
        ..Member::default()
    }
}

fn device(gres_type: &str, shards_used: u32, tenants: Vec<Member>) -> TopDevice {
    TopDevice {
        node: "n1".to_owned(),
        gres_type: gres_type.to_owned(),
        device_model: "h200".to_owned(),
        memory_bytes: 141 << 30,
        shards_used,
        tenants,
        ..TopDevice::default()
    }
}

fn job(id: &str, reason: &str) -> QueueJob {
    QueueJob {
        job_id: id.to_owned(),
        user: "bob".to_owned(),
        partition: "shared".to_owned(),
        submitted_at_seconds: Some(100.0),
        state: "waiting".to_owned(),
        reason: reason.to_owned(),
        ..QueueJob::default()
    }
}

fn state() -> State {
    let active = Activity {
        sm_active_fraction: Some(0.68),
        memory_bytes_used: Some(100 << 30),
        power_watts: Some(412.0),
        ..Activity::default()
    };
    let shared = TopDevice {
        activity: Some(active),
        ..device("g0", 100, vec![member(Some("42"), "alice", Some(0.6)), member(None, "", None)])
    };
    let busy = Activity { gpu_busy_fraction: Some(1.0), ..Activity::default() };
    let single =
        TopDevice { activity: Some(busy), ..device("g1", 100, vec![member(Some("43"), "bob", None)]) };
    let drained =
        TopDevice { closed: Some("drained by root: fan noise".to_owned()), ..device("g3", 0, vec![]) };
    let overview = TopResponse {
        now_seconds: 160.0,
        mode: "active".to_owned(),
        counts: Some(TopCounts { devices: 8, shared: 1, single: 1, idle: 6, closed: 1 }),
        agent_count: 2,
        agents_not_responding_count: 1,
        waiting_count: 2,
        unplaced_count: 0,
        devices: vec![shared, single, device("g2", 0, vec![]), drained],
        jobs: vec![job("44", "waits: no device is wholly free"), job("45", "odd\n\u{1b}[2Jline")],
    };
    let gains = AccountRow {
        gpu_seconds_saved: 36_000.0,
        gpu_seconds: 360_000.0,
        energy_joules_saved: 7.2e6,
        promises_kept: 27,
        promises_broken: 1,
        ..AccountRow::default()
    };
    State { overview: Some(overview), gains: Some(gains), ..State::default() }
}

const WIDE: Size = Size { width: 110, height: 18 };

#[test]
fn a_page_ends_with_its_last_row() {
    let text = page(&state(), Size { width: 120, height: 40 });
    assert!(!text.contains("\n\n\n") && !text.contains("q quit"), "{text}");
    let last = text.lines().last().unwrap_or_default();
    assert!(last.starts_with(" 45 "), "{text}");
    let low = Size { width: 120, height: 12 };
    assert!(page(&state(), low).lines().count() <= usize::from(low.height), "no more than there is room for");
}

#[test]
fn a_frame_shows_devices_tenants_and_who_waits() {
    insta::assert_snapshot!(text(&state(), WIDE));
}

#[test]
fn a_scheduler_that_does_not_respond_leaves_what_was_known_and_says_so() {
    let trouble = Some(("cannot reach the scheduler at unix:/run/x.sock".to_owned(), 12));
    let unreachable = State { trouble: trouble.clone(), ..state() };
    assert!(
        text(&unreachable, WIDE)
            .contains("\nAWAY for 12 s: cannot reach the scheduler at unix:/run/x.sock\n")
    );
    assert!(text(&unreachable, WIDE).contains("42 alice cap 60 % + (not shown)"));
    let never = text(&State { trouble, ..State::default() }, WIDE);
    assert!(never.starts_with("pillion top\n\nAWAY for 12 s"), "{never}");
}

#[test]
fn a_page_of_many_says_where_it_stands() {
    let mut scrolled = State { first_device: 4, pane: Pane::Jobs, ..state() };
    scrolled.overview.as_mut().unwrap().waiting_count = 900;
    let shown = text(&scrolled, WIDE);
    assert!(shown.contains(" GPUs 5-8 of 8") && shown.contains(">waiting 1-2 of 900"), "{shown}");
}

#[test]
fn no_size_is_too_small() {
    for (width, height) in [(1, 1), (5, 2), (20, 7), (300, 3)] {
        let shown = text(&state(), Size { width, height });
        assert!(shown.lines().count() <= usize::from(height), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= usize::from(width)), "{shown}");
    }
}

#[test]
fn without_colour_there_is_none_and_with_it_every_sign_is_still_a_word() {
    let styles = |has_colour: bool| {
        let mut terminal = Terminal::new(TestBackend::new(WIDE.width, WIDE.height)).unwrap();
        terminal.draw(|frame| draw(frame, &State { has_colour, ..state() })).unwrap();
        let cells = terminal.backend().buffer().content.clone();
        cells.iter().filter(|cell| cell.style() != ratatui::buffer::Cell::default().style()).count()
    };
    assert_eq!(styles(false), 0);
    assert!(styles(true) > 0);
    assert_eq!(text(&State { has_colour: true, ..state() }, WIDE), text(&state(), WIDE));
}
