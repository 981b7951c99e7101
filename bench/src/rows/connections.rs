//! Connections: how fast they are set up, and what many idle ones cost.

use super::{Against, Bound, Contestants, Goal, Row, baseline, baseline_at_most, ours};
use crate::args::By;
use crate::contestant::Worker;
use crate::work::{Placement, Work};

/// The most that an idle connection may hold on each side, and where it counts.
const IDLE_BYTES_MAX: f64 = 120.0;
const MANY: u32 = 1_000_000;

/// The rows that measure connections: their set-up, and many of them.
pub fn rows() -> Vec<Row> {
    let mut rows = vec![
        connect("udp", "cci udp", By::Udp),
        connect("tcp", "cci tcp", By::Tcp),
        connect("shm", "cci shm", By::Shm),
        poll("udp", By::Udp, &["100,000 connections", "10,000 connections", "100 connections"])
            .with_goals(&[baseline_at_most(1.05)]),
        poll("shm", By::Shm, &["1,000 connections", "100 connections"]),
        poll("tcp", By::Tcp, &["1,000 connections", "100 connections"]),
    ];
    let most = Goal { against: Against::Itself, bound: Bound::AtMost(IDLE_BYTES_MAX) };
    rows.extend([1_000, 100_000].map(|connections| idle("udp", By::Udp, connections)));
    rows.push(idle("udp", By::Udp, MANY).with_goals(&[most]));
    rows.extend([("tcp", By::Tcp), ("shm", By::Shm)].map(|(device, by)| idle(device, by, 1_000)));
    rows
}

fn connect(device: &str, name: &'static str, by: By) -> Row {
    let contestants = vec![baseline("plain TCP", By::PlainTcp), ours(name, by)];
    let title = format!("Connections set up a second, {device}");
    Row::new(format!("{device}/connect"), title, Work::Connect, contestants)
}

/// One connection is the baseline, the most, which come first, are what counts.
fn poll(device: &str, by: By, names: &[&'static str]) -> Row {
    let work = |name: &str| Work::Poll {
        connections: name
            .bytes()
            .filter(u8::is_ascii_digit)
            .fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0')),
    };
    let one = Worker::baseline("1 connection", by, Placement::SameHost).doing(Work::Poll { connections: 1 });
    let mut contestants: Contestants = vec![Box::new(one)];
    for name in names {
        contestants.push(Box::new(Worker::ours(name, by, Placement::SameHost).doing(work(name))));
    }
    let title = format!("A poll that finds nothing, by idle connections, {device}");
    Row::new(format!("{device}/poll"), title, work(names.first().unwrap_or(&"1")), contestants)
}

fn idle(device: &str, by: By, connections: u32) -> Row {
    let title = format!("Resident memory an idle connection and side, {connections} connections, {device}");
    let name = format!("{device}/idle-memory/{connections}");
    Row::new(name, title, Work::IdleMemory { connections }, vec![ours("cci", by)])
}
