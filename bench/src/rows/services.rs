//! Services (libRIPC): calls, long messages, and how long it takes to find one.

use super::{Contestants, Row, baseline_at_least, baseline_at_most, best_peer_at_least, with_peers};
use crate::args::By;
use crate::contestant::Worker;
use crate::peers::Peers;
use crate::work::{Placement, Work};

const MIB: u32 = 1 << 20;
/// Clients that call at once.
const CLIENTS: u32 = 64;

/// The rows that measure services.
pub fn rows(peers: &Peers) -> Vec<Row> {
    let devices = [
        ("shm", "shared memory", By::ServicesShm),
        ("udp", "UDP", By::ServicesUdp),
        ("tcp", "TCP", By::ServicesTcp),
    ];
    let mut rows: Vec<Row> = devices.map(|(name, over, by)| calls(name, over, by, peers)).into();
    rows.push(long());
    rows.push(contact("shm", "the directory of the host", ("cci connect", By::Shm), By::ServicesShm));
    rows.push(contact("udp", "multicast", ("question by hand", By::PlainUdp), By::ServicesUdp));
    rows
}

/// gRPC has no way over UDP: there it calls over TCP.
fn calls(name: &str, over: &str, by: By, peers: &Peers) -> Row {
    let ours: Contestants = vec![Box::new(Worker::ours("cci services", by, Placement::SameHost))];
    let is_shm = by == By::ServicesShm;
    let others = if is_shm { peers.calls_shared_memory() } else { peers.calls_tcp() };
    let title = format!("Calls a second of {CLIENTS} clients to a service over {over}, 8 B");
    let work = Work::Calls { len: 8, clients: CLIENTS };
    let row = Row::new(format!("{name}/service-calls/8"), title, work, with_peers(ours, others));
    row.with_goals(&[best_peer_at_least(if is_shm { 5.0 } else { 2.0 })])
}

/// Beside the core's remote reads of as many bytes.
fn long() -> Row {
    let place = Placement::SameHost;
    let reads = Worker::baseline("cci remote read", By::Shm, place).doing(Work::Read { len: MIB });
    let contestants: Contestants =
        vec![Box::new(reads), Box::new(Worker::ours("cci services", By::ServicesShm, place))];
    let title = "Long items of messages between services over shared memory, 1 MiB".to_owned();
    let row = Row::new(format!("shm/service-long/{MIB}"), title, Work::Long { len: MIB }, contestants);
    row.with_goals(&[baseline_at_least(0.9)])
}

fn contact(name: &str, how: &str, beside: (&'static str, By), by: By) -> Row {
    let place = Placement::SameHost;
    let contestants: Contestants = vec![
        Box::new(Worker::baseline(beside.0, beside.1, place)),
        Box::new(Worker::ours("cci services", by, place)),
    ];
    let title = format!("First contact with a service by {how}");
    let row = Row::new(format!("{name}/service-contact"), title, Work::Contact, contestants);
    row.with_goals(&[baseline_at_most(3.0)])
}
