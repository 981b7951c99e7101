//! Both sides asleep until there is something.

use super::{Row, baseline_at_most};
use crate::args::By;
use crate::contestant::{Contestant, Worker};
use crate::work::{Placement, Work};

const LEN: u32 = 8;

/// `Endpoint::wait` spins for a while where that has paid, which is the library's offer to those who wait; the rows of
/// the descriptor are those in which both sides surely sleep.
pub fn rows() -> Vec<Row> {
    let row = |name: &str, title: &str, contestants: Vec<Worker>| Row {
        name: format!("{name}/{LEN}"),
        title: format!("Half round trip {title}, {LEN} B"),
        work: Work::BlockingTrip { len: LEN },
        goals: vec![baseline_at_most(1.15)],
        contestants: contestants.into_iter().map(|one| Box::new(one) as Box<dyn Contestant>).collect(),
    };
    let baseline = |name, by| Worker::baseline(name, by, Placement::SameHost);
    let ours = |name, by| Worker::ours(name, by, Placement::SameHost);
    let memory = || vec![baseline("eventfd", By::Eventfd), baseline("futex", By::Futex)];
    let sockets = |name, by| vec![baseline(name, by)];
    let with = |mut baselines: Vec<Worker>, one: Worker| {
        baselines.push(one);
        baselines
    };
    let (udp, tcp) = (("plain recv", By::PlainUdp), ("plain read", By::PlainTcp));
    vec![
        row("shm/wait", "waiting, over shared memory", with(memory(), ours("cci wait", By::Shm))),
        row(
            "shm/wait-handle",
            "asleep on the descriptor, over shared memory",
            with(memory(), ours("cci descriptor", By::ShmHandle)),
        ),
        row(
            "udp/wait",
            "waiting, over UDP on loopback",
            with(sockets(udp.0, udp.1), ours("cci wait", By::Udp)),
        ),
        row(
            "udp/wait-handle",
            "asleep on the descriptor, over UDP on loopback",
            with(sockets(udp.0, udp.1), ours("cci descriptor", By::UdpHandle)),
        ),
        row(
            "tcp/wait",
            "waiting, over TCP on loopback",
            with(sockets(tcp.0, tcp.1), ours("cci wait", By::Tcp)),
        ),
        row(
            "tcp/wait-handle",
            "asleep on the descriptor, over TCP on loopback",
            with(sockets(tcp.0, tcp.1), ours("cci descriptor", By::TcpHandle)),
        ),
    ]
}
