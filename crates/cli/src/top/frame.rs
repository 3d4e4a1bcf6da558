//! One frame of `top`: a pure function of the state and the size. Whatever a colour says, a word says too.

use super::state::{FOOT_ROWS, HEAD_ROWS, HEADING_ROWS, Pane, Rows, Size, State};
use crate::format::{self, clean};
use pillion_api::{AccountRow, Activity, Member, QueueJob, TopDevice, TopResponse};
use pillion_core::amount::Amount;
use pillion_core::decision::MemberState;
use ratatui::Frame;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row, Table};

/// Cells of the bar that shows how active a device is.
const BAR_CELLS: usize = 10;

/// The lists, and the keys below them.
pub fn draw(frame: &mut Frame<'_>, state: &State) {
    let area = frame.area();
    let rows = Size { width: area.width, height: area.height }.rows();
    let foot = draw_lists(frame, state, rows);
    let keys = "q quit   up/down, PgUp/PgDn, Home/End scroll   Tab the other list";
    frame.render_widget(Paragraph::new(keys).style(dim(state)), foot);
}

/// All but the last line, whose place is returned.
fn draw_lists(frame: &mut Frame<'_>, state: &State, Rows { devices, jobs }: Rows) -> Rect {
    let heights = [HEAD_ROWS, devices + 1, 1, jobs + 1, FOOT_ROWS].map(Constraint::Length);
    let [head, upper, _, lower, foot] = Layout::vertical(heights).areas(frame.area());
    frame.render_widget(Paragraph::new(head_lines(state)), head);
    if let Some(overview) = &state.overview {
        draw_devices(frame, upper, state, overview);
        draw_jobs(frame, lower, state, overview);
    }
    foot
}

/// The same as text, without blanks at the ends of lines and without empty lines at the end.
pub fn text(state: &State, size: Size) -> String {
    as_text(size, |frame| draw(frame, state))
}

/// What the lists hold and no more: no empty rows, and no line on keys that nobody reads.
pub fn page(state: &State, size: Size) -> String {
    let room = size.rows();
    let (devices, jobs) =
        state.overview.as_ref().map_or((0, 0), |overview| (overview.devices.len(), overview.jobs.len()));
    let rows = Rows { devices: at_most(room.devices, devices), jobs: at_most(room.jobs, jobs) };
    let height = HEAD_ROWS + HEADING_ROWS + FOOT_ROWS + rows.devices + rows.jobs;
    as_text(Size { height, ..size }, |frame| {
        draw_lists(frame, state, rows);
    })
}

fn at_most(most: u16, count: usize) -> u16 {
    u16::try_from(count).unwrap_or(most).min(most)
}

fn as_text(size: Size, draw: impl FnOnce(&mut Frame<'_>)) -> String {
    let Ok(mut terminal) = Terminal::new(TestBackend::new(size.width, size.height));
    let Ok(_) = terminal.draw(draw);
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for y in 0..size.height {
        let cells = (0..size.width).filter_map(|x| buffer.cell((x, y)));
        let line: String = cells.map(ratatui::buffer::Cell::symbol).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text.trim_end().to_owned() + "\n"
}

fn dim(state: &State) -> Style {
    if state.has_colour { Style::new().add_modifier(Modifier::DIM) } else { Style::new() }
}

fn coloured(state: &State, colour: Color) -> Style {
    if state.has_colour { Style::new().fg(colour) } else { Style::new() }
}

fn head_lines(state: &State) -> Vec<Line<'static>> {
    let first = state.overview.as_ref().map_or_else(|| "pillion top".to_owned(), summary);
    let trouble = state.trouble.as_ref().map(|(why, seconds)| {
        Line::styled(clean(&format!("AWAY for {seconds} s: {why}")), coloured(state, Color::Red))
    });
    vec![
        Line::from(first),
        Line::from(state.gains.as_ref().map(gains).unwrap_or_default()),
        trouble.unwrap_or_default(),
    ]
}

fn summary(overview: &TopResponse) -> String {
    let counts = overview.counts.unwrap_or_default();
    let mut text = format!(
        "pillion top   mode {}   {} GPUs: {} shared, {} with one job, {} idle, {} closed   {} agents",
        clean(&overview.mode),
        counts.devices,
        counts.shared,
        counts.single,
        counts.idle,
        counts.closed,
        overview.agent_count,
    );
    if overview.agents_not_responding_count > 0 {
        text = format!("{text}, {} GONE", overview.agents_not_responding_count);
    }
    if overview.unplaced_count > 0 {
        text = format!("{text}   {} placed by Slurm", overview.unplaced_count);
    }
    text
}

fn gains(row: &AccountRow) -> String {
    let measured = row.promises_kept + row.promises_broken;
    let promises = match measured {
        0 => "no promise measured yet".to_owned(),
        _ => format!("{} of {measured} promises kept", row.promises_kept),
    };
    format!(
        "today: {} saved of {} used, {} saved, {promises}",
        Amount::device_time(row.gpu_seconds_saved),
        Amount::device_time(row.gpu_seconds),
        Amount::energy(row.energy_joules_saved),
    )
}

fn heading(state: &State, pane: Pane) -> Style {
    let style = Style::new();
    if state.has_colour && state.pane == pane { style.add_modifier(Modifier::REVERSED) } else { style }
}

/// `GPUs 21-40 of 8000`, with a sign at the list that the keys move.
fn range(state: &State, pane: Pane, name: &str, (first, shown, all): (u32, usize, u32)) -> String {
    let sign = if state.pane == pane { ">" } else { " " };
    let last = first.saturating_add(u32::try_from(shown).unwrap_or(u32::MAX));
    match shown {
        0 => format!("{sign}{name} (none)"),
        _ if u32::try_from(shown) == Ok(all) => format!("{sign}{name}"),
        _ => format!("{sign}{name} {}-{last} of {all}", first.saturating_add(1)),
    }
}

fn draw_devices(frame: &mut Frame<'_>, area: Rect, state: &State, overview: &TopResponse) {
    let shown = (state.first_device, overview.devices.len(), overview.counts.unwrap_or_default().devices);
    let title = range(state, Pane::Devices, "GPUs", shown);
    let header = Row::new([title.as_str(), "STATE", "ACTIVE", "MEMORY", "POWER", "TENANTS"])
        .style(heading(state, Pane::Devices));
    let widths = [
        Constraint::Length(22),
        Constraint::Length(7),
        Constraint::Length(17),
        Constraint::Length(19),
        Constraint::Length(6),
        Constraint::Min(10),
    ];
    let rows = overview.devices.iter().map(|device| device_row(state, device));
    frame.render_widget(Table::new(rows, widths).header(header), area);
}

fn device_row(state: &State, device: &TopDevice) -> Row<'static> {
    let (word, colour) = device_state(device);
    let tenants: Vec<String> = device.tenants.iter().map(tenant).collect();
    let mut who = tenants.join(" + ");
    if let Some(why) = &device.closed {
        who = if who.is_empty() { why.clone() } else { format!("{who}; {why}") };
    }
    let activity = device.activity.unwrap_or_default();
    let memory = activity.memory_bytes_used.map_or_else(String::new, |used| {
        format!("{}/{}", format::bytes(Some(used)), format::bytes(Some(device.memory_bytes)))
    });
    let word =
        colour.map_or_else(|| Cell::from(word), |colour| Cell::from(word).style(coloured(state, colour)));
    Row::new([
        Cell::from(clean(&format!(" {} {} {}", device.node, device.gres_type, device.device_model))),
        word,
        Cell::from(active(activity)),
        Cell::from(memory),
        Cell::from(format::power(activity.power_watts)),
        Cell::from(clean(&who)),
    ])
}

/// What a device is like in a word, for those who see no colour too.
fn device_state(device: &TopDevice) -> (&'static str, Option<Color>) {
    match (&device.closed, device.tenants.len()) {
        (Some(_), _) => ("CLOSED", Some(Color::Red)),
        (None, 0) if device.shards_used == 0 => ("idle", None),
        (None, 0 | 1) => ("single", Some(Color::Cyan)),
        (None, _) => ("shared", Some(Color::Green)),
    }
}

/// `#######... 68 %`; a `~` says that only a coarse source is there: any kernel running at all.
fn active(activity: Activity) -> String {
    let (fraction, sign) = match (activity.sm_active_fraction, activity.gpu_busy_fraction) {
        (Some(active), _) => (active, ""),
        (None, Some(busy)) => (busy, "~"),
        (None, None) => return String::new(),
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and BAR_CELLS")]
    let full = (fraction.clamp(0.0, 1.0) * 10.0).round() as usize;
    let full = full.min(BAR_CELLS);
    format!("{}{} {sign}{}", "#".repeat(full), ".".repeat(BAR_CELLS - full), format::fraction(Some(fraction)))
}

fn tenant(member: &Member) -> String {
    let name = match (&member.job_id, &member.user) {
        (Some(job), Some(user)) => format!("{job} {user}"),
        (Some(job), None) => job.clone(),
        (None, _) => return "(not shown)".to_owned(),
    };
    let cap = if member.cap_fraction.is_some() { " cap" } else { "" };
    let part = format::part(member.cap_fraction, member.ccs_mode, member.mig_slot.as_ref());
    let share = part.map_or_else(String::new, |part| format!("{cap} {part}"));
    let starting = if member.state.parse() == Ok(MemberState::Running) { "" } else { " (starting)" };
    format!("{name}{share}{starting}")
}

fn draw_jobs(frame: &mut Frame<'_>, area: Rect, state: &State, overview: &TopResponse) {
    let shown = (state.first_job, overview.jobs.len(), overview.waiting_count);
    let title = range(state, Pane::Jobs, "waiting", shown);
    let header =
        Row::new([title.as_str(), "USER", "STATE", "WAITS", "REASON"]).style(heading(state, Pane::Jobs));
    let widths = [
        Constraint::Length(22),
        Constraint::Length(10),
        Constraint::Length(9),
        Constraint::Length(10),
        Constraint::Min(10),
    ];
    let rows = overview.jobs.iter().map(|job| job_row(job, overview.now_seconds));
    frame.render_widget(Table::new(rows, widths).header(header), area);
}

fn job_row(job: &QueueJob, now_seconds: f64) -> Row<'static> {
    let waits = job.submitted_at_seconds.map(|since| (now_seconds - since).max(0.0));
    let cells = [
        format!(" {}", job.job_id),
        job.user.clone(),
        job.state.clone(),
        format::duration(waits),
        job.reason.clone(),
    ];
    Row::new(cells.map(|cell| clean(&cell)))
}

#[cfg(test)]
mod tests;
