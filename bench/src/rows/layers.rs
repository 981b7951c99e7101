//! What stands on the endpoint: messages of any length, and calls.

use super::{Contestants, Row, baseline_at_least, baseline_at_most, best_peer_at_least, with_peers};
use crate::args::By;
use crate::contestant::Worker;
use crate::peers::Peers;
use crate::work::{Placement, Work};

const KIB_64: u32 = 64 << 10;
const MIB: u32 = 1 << 20;
const MIB_16: u32 = 16 << 20;
/// Clients that call at once.
const CLIENTS: u32 = 64;

/// The rows that measure layers.
pub fn rows(peers: &Peers) -> Vec<Row> {
    let devices = [("shm", "shared memory", By::Shm), ("udp", "UDP", By::Udp), ("tcp", "TCP", By::Tcp)];
    let rows = devices.into_iter().flat_map(|(name, over, by)| {
        let long = [KIB_64, MIB, MIB_16].map(|len| long(name, over, by, len, peers));
        long.into_iter().chain([call(name, over, by, peers), calls(name, over, by, peers)])
    });
    rows.collect()
}

/// Beside the core's remote writes of as many bytes, and beside what others send such messages by.
fn long(name: &str, over: &str, by: By, len: u32, peers: &Peers) -> Row {
    let place = Placement::SameHost;
    let writes = Worker::baseline("cci remote write", by, place).doing(Work::Write { len });
    let contestants: Contestants = vec![Box::new(writes), Box::new(Worker::ours("cci messages", by, place))];
    let others = match by {
        By::Shm => peers.long_shared_memory(),
        // None of them goes over UDP: there they go over TCP.
        _ => peers.long_tcp(),
    };
    let size = if len < MIB { format!("{} KiB", len >> 10) } else { format!("{} MiB", len >> 20) };
    let row = Row::new(
        format!("{name}/long/{len}"),
        format!("Messages of any length over {over}, {size}"),
        Work::Long { len },
        with_peers(contestants, others),
    );
    let beside_writes = (len == MIB).then(|| baseline_at_least(0.95));
    // From 1 MiB on, all of them are one copy.
    let beside_peers = best_peer_at_least(if len < MIB { 1.0 } else { 0.97 });
    row.with_goals(&beside_writes.into_iter().chain([beside_peers]).collect::<Vec<_>>())
}

/// Beside two messages, one each way.
fn call(name: &str, over: &str, by: By, peers: &Peers) -> Row {
    let place = Placement::SameHost;
    let work = Work::Call { len: 8 };
    let messages = Worker::baseline("cci messages", by, place).doing(Work::HalfTrip { len: 8 });
    let contestants: Contestants = vec![Box::new(messages), Box::new(Worker::ours("cci calls", by, place))];
    let title = format!("Half of a request and its reply over {over}, 8 B");
    let row = Row::new(format!("{name}/call/8"), title, work, with_peers(contestants, callers(by, peers)));
    // 60 ns more than two half round trips, which take 180 ns each where the page was measured.
    if by == By::Shm { row.with_goals(&[baseline_at_most(1.17)]) } else { row }
}

fn calls(name: &str, over: &str, by: By, peers: &Peers) -> Row {
    let work = Work::Calls { len: 8, clients: CLIENTS };
    let contestants: Contestants = vec![Box::new(Worker::ours("cci calls", by, Placement::SameHost))];
    let title = format!("Calls a second of {CLIENTS} clients over {over}, 8 B");
    let row = Row::new(format!("{name}/calls/8"), title, work, with_peers(contestants, callers(by, peers)));
    row.with_goals(&[best_peer_at_least(if by == By::Shm { 5.0 } else { 2.0 })])
}

/// gRPC has no way over UDP: there it calls over TCP.
fn callers(by: By, peers: &Peers) -> Contestants {
    if by == By::Shm { peers.calls_shared_memory() } else { peers.calls_tcp() }
}
