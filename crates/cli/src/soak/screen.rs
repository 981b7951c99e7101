//! The live screen, and the same picture as text for the end.

use super::Title;
use super::status::{State, Status};
use crate::failure::{Failure, Outcome};
use crate::text;
use ratatui::Frame;
use ratatui::Terminal;
use ratatui::backend::{CrosstermBackend, TestBackend};
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph, Sparkline};
use std::io::{Stdout, stdout};

/// Of the picture at the end.
const PICTURE_COLUMNS: u16 = 118;
/// Lines of one device, its frame included.
const DEVICE_LINES: u16 = 9;
/// Lines above all devices.
const HEAD_LINES: u16 = 1;
/// Columns of memory and descriptors.
const SIDE_COLUMNS: u16 = 34;

/// The terminal, until it is dropped. It is not in raw mode, so Ctrl-C is a signal as everywhere.
pub struct Screen(Terminal<CrosstermBackend<Stdout>>);

fn failed(error: std::io::Error) -> Failure {
    Failure::new(format!("the terminal: {error}")).remedy("--plain")
}

impl Screen {
    /// Takes the terminal.
    pub fn open() -> Outcome<Screen> {
        execute!(stdout(), EnterAlternateScreen, Hide).map_err(failed)?;
        Terminal::new(CrosstermBackend::new(stdout())).map(Screen).map_err(failed)
    }

    /// Shows how things are.
    pub fn draw(&mut self, title: &Title, all: &[Status]) -> Outcome {
        self.0.draw(|frame| paint(frame, title, all)).map(|_| ()).map_err(failed)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs no restoring.
        let _ = execute!(stdout(), LeaveAlternateScreen, Show);
    }
}

/// The screen as text.
pub fn picture(title: &Title, all: &[Status]) -> String {
    let lines = HEAD_LINES + DEVICE_LINES * all.len() as u16;
    let Ok(mut terminal) = Terminal::new(TestBackend::new(PICTURE_COLUMNS, lines));
    let Ok(_) = terminal.draw(|frame| paint(frame, title, all));
    let buffer = terminal.backend().buffer();
    let mut picture = String::new();
    for row in buffer.content().chunks(PICTURE_COLUMNS.into()) {
        let line: String = row.iter().map(|cell| cell.symbol()).collect();
        picture.push_str(line.trim_end());
        picture.push('\n');
    }
    picture
}

fn paint(frame: &mut Frame<'_>, title: &Title, all: &[Status]) {
    let mut rows = vec![Constraint::Length(HEAD_LINES)];
    rows.extend(all.iter().map(|_| Constraint::Length(DEVICE_LINES)));
    rows.push(Constraint::Min(0));
    let areas = Layout::vertical(rows).split(frame.area());
    let mut areas = areas.iter();
    if let Some(&area) = areas.next() {
        frame.render_widget(Paragraph::new(head(title, all)), area);
    }
    for (status, &area) in all.iter().zip(areas) {
        device(frame, area, status);
    }
}

fn head(title: &Title, all: &[Status]) -> String {
    let elapsed = title.begin.elapsed();
    let left = title.lasts.saturating_sub(elapsed);
    let clock = |seconds: u64| format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    let failures: usize = all.iter().map(|status| status.failures.len()).sum();
    let over = all.iter().all(|status| status.state.is_over());
    let rest = match (over, failures) {
        (true, 0) => "survived".to_owned(),
        (true, _) => "FAILED".to_owned(),
        (false, _) => format!("{} left, Ctrl-C ends it", clock(left.as_secs())),
    };
    format!(" cci soak  seed {}  {} gone, {rest}  failures {failures}", title.seed, clock(elapsed.as_secs()))
}

fn device(frame: &mut Frame<'_>, area: Rect, status: &Status) {
    let colour = match status.state {
        State::Failed => Color::Red,
        State::Survived => Color::Green,
        _ => Color::Reset,
    };
    let title = Line::from(vec![
        Span::styled(format!(" {} ", status.name), Style::new().add_modifier(Modifier::BOLD)),
        Span::raw(format!("{}, {} ", status.place, status.state.word())),
    ]);
    let block = Block::new().borders(Borders::ALL).border_style(Style::new().fg(colour)).title(title);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let sides = Layout::horizontal([Constraint::Min(0), Constraint::Length(SIDE_COLUMNS)]).split(inner);
    let [left, right] = sides.as_ref() else { return };
    frame.render_widget(Paragraph::new(figures(status)), *left);
    side(frame, *right, status);
}

fn figures(status: &Status) -> Vec<Line<'static>> {
    let total = &status.total;
    let rates = |name: &str, [messages, bytes, transfers, transfer_bytes, atomics]: [f64; 5]| {
        Line::from(format!(
            "{name:<5} {:>6} msg/s {:>6}B/s {:>6} rma/s {:>6}B/s {:>6} atomics/s",
            text::si(messages),
            text::si(bytes),
            text::si(transfers),
            text::si(transfer_bytes),
            text::si(atomics)
        ))
    };
    let verified = format!(
        "right {} messages, {} transfers, {} atomics, {} in all",
        thousands(total.messages),
        thousands(total.transfers),
        thousands(total.atomics),
        text::bytes(total.message_bytes + total.transfer_bytes)
    );
    let sessions = format!(
        "{} peers, {} connections; {} sessions to their end, {} cut by faults, {} rejected",
        status.peers,
        total.open,
        thousands(total.clean),
        thousands(status.excused),
        thousands(total.rejected)
    );
    let faults = format!("faults {}: {}", status.faults_total(), status.faults_text());
    let last = match status.failures.first() {
        Some(failure) => Line::styled(failure.lines().next().unwrap_or("").to_owned(), Color::Red),
        None => Line::from(status.lines.back().cloned().unwrap_or_default()),
    };
    let spoiled = match (status.spoiled, total.lost) {
        (0, 0) => String::new(),
        (spoiled, lost) => format!("{spoiled} datagrams lost, late or twice on the way; {lost} of UU lost"),
    };
    vec![
        rates("now", status.now),
        rates("mean", status.mean()),
        Line::from(verified),
        Line::from(sessions),
        Line::from(faults),
        Line::from(spoiled),
        last,
    ]
}

fn side(frame: &mut Frame<'_>, area: Rect, status: &Status) {
    let rows = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(2),
        Constraint::Length(1),
        Constraint::Length(2),
        Constraint::Min(0),
    ])
    .split(area);
    let [memory_text, memory, descriptors_text, descriptors, _] = rows.as_ref() else { return };
    let last = |series: &[u64]| series.last().copied().unwrap_or(0);
    let memory_line = format!("memory {}", text::bytes(last(&status.memory_bytes)));
    frame.render_widget(Paragraph::new(memory_line), *memory_text);
    frame.render_widget(Sparkline::default().data(tail(&status.memory_bytes, area.width)), *memory);
    let descriptors_line = format!("descriptors {}", last(&status.descriptors));
    frame.render_widget(Paragraph::new(descriptors_line), *descriptors_text);
    frame.render_widget(Sparkline::default().data(tail(&status.descriptors, area.width)), *descriptors);
}

/// As many as there are columns.
fn tail(series: &[u64], columns: u16) -> &[u64] {
    series.get(series.len().saturating_sub(columns.into())..).unwrap_or_default()
}

/// A count for people: 1,234,567.
pub fn thousands(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped() {
        assert_eq!([0, 999, 1000, 1234567].map(thousands), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn the_picture_shows_every_device() {
        let title =
            Title { seed: 7, lasts: std::time::Duration::from_secs(9), begin: std::time::Instant::now() };
        let picture = picture(&title, &[Status::new("shm".into(), "x"), Status::new("udp".into(), "y")]);
        assert!(
            picture.contains("seed 7") && picture.contains(" shm ") && picture.contains(" udp "),
            "{picture}"
        );
    }
}
