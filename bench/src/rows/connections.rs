//! Connections: how fast they are set up, and what many idle ones cost.

use super::{Against, Bound, Goal, Row, baseline_at_most, pair};
use crate::args::By;
use crate::contestant::{Contestant, Worker};
use crate::work::{Placement, Work};

const SAME_HOST: Placement = Placement::SameHost;
/// The most that an idle connection may hold on each side, and where it counts.
const IDLE_BYTES_MAX: f64 = 120.0;
const MANY: u32 = 1_000_000;

/// The rows that measure connections: their set-up, and many of them.
pub fn rows() -> Vec<Row> {
    let mut rows = vec![
        connect("udp", vec![baseline_tcp(), ours("cci udp", By::Udp)]),
        connect("tcp", pair("plain TCP", By::PlainTcp, "cci tcp", By::Tcp, SAME_HOST)),
        connect("shm", vec![baseline_tcp(), ours("cci shm", By::Shm)]),
        poll("udp", By::Udp, &[100, 10_000, 100_000], vec![baseline_at_most(1.05)]),
        poll("shm", By::Shm, &[100, 1_000], Vec::new()),
        poll("tcp", By::Tcp, &[100, 1_000], Vec::new()),
    ];
    rows.extend([1_000, 100_000, MANY].map(|connections| {
        let most = Goal { against: Against::Itself, bound: Bound::AtMost(IDLE_BYTES_MAX) };
        let goals = if connections == MANY { vec![most] } else { Vec::new() };
        idle("udp", By::Udp, connections, goals)
    }));
    rows.push(idle("tcp", By::Tcp, 1_000, Vec::new()));
    rows.push(idle("shm", By::Shm, 1_000, Vec::new()));
    rows
}

fn ours(name: &'static str, by: By) -> Box<dyn Contestant> {
    Box::new(Worker::ours(name, by, SAME_HOST))
}

fn baseline_tcp() -> Box<dyn Contestant> {
    Box::new(Worker::baseline("plain TCP", By::PlainTcp, SAME_HOST))
}

fn connect(device: &str, contestants: Vec<Box<dyn Contestant>>) -> Row {
    Row {
        name: format!("{device}/connect"),
        title: format!("Connections set up a second, {device}"),
        work: Work::Connect,
        goals: Vec::new(),
        contestants,
    }
}

/// One connection is the baseline, the most is what counts.
fn poll(device: &str, by: By, connections: &[u32], goals: Vec<Goal>) -> Row {
    let name = |connections: u32| -> &'static str {
        match connections {
            100 => "100 connections",
            1_000 => "1,000 connections",
            10_000 => "10,000 connections",
            _ => "100,000 connections",
        }
    };
    let one = Worker::baseline("1 connection", by, SAME_HOST).doing(Work::Poll { connections: 1 });
    let mut contestants: Vec<Box<dyn Contestant>> = vec![Box::new(one)];
    contestants.extend(connections.iter().rev().map(|&connections| -> Box<dyn Contestant> {
        Box::new(Worker::ours(name(connections), by, SAME_HOST).doing(Work::Poll { connections }))
    }));
    Row {
        name: format!("{device}/poll"),
        title: format!("A poll that finds nothing, by idle connections, {device}"),
        work: Work::Poll { connections: connections.last().copied().unwrap_or(1) },
        goals,
        contestants,
    }
}

fn idle(device: &str, by: By, connections: u32, goals: Vec<Goal>) -> Row {
    Row {
        name: format!("{device}/idle-memory/{connections}"),
        title: format!("Resident memory an idle connection and side, {connections} connections, {device}"),
        work: Work::IdleMemory { connections },
        goals,
        contestants: vec![ours("cci", by)],
    }
}
