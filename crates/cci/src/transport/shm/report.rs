//! What an endpoint reports: counters, memory and explanations.

use super::connections::{Phase, State};
use super::link::{Life, Link};
use super::out::Control;
use super::peer::Side;
use super::transfers;
use super::{Proof, Shm};
use crate::counters::{ConnectionCounters, DropReason};
use crate::engine::mapped_pairs::MappedPairs;
use crate::explain::{Explanation, Fact, PathOption};
use cci_memory::slab::Key;

/// The bytes of a request that the program holds, with its payload.
const REQUEST_BYTES: u64 = 1_300;

/// The counters of one connection.
pub(super) fn connection(shm: &Shm, key: Key) -> ConnectionCounters {
    let Some(conn) = shm.common.connections.conns.get(key) else { return ConnectionCounters::default() };
    let link = shm.link_of(key);
    let base = &conn.base;
    ConnectionCounters {
        messages_sent: base.messages_sent,
        bytes_sent: base.bytes_sent,
        messages_received: base.messages_received,
        bytes_received: base.bytes_received,
        retransmissions: 0,
        rtt_ns: None,
        window_bytes: link.map_or(0, |link| u64::from(link.out.ring_bytes)),
        receiver_not_ready: link.map_or(0, |link| link.rnr),
        sends_in_progress: conn.on().map_or(0, |on| on.in_progress.into()),
    }
}

/// The counters of the device, and of what was dropped and why.
pub(super) fn counters(
    shm: &Shm,
    pairs: &MappedPairs,
    into: &mut Vec<(&'static str, u64)>,
    drops: &mut Vec<DropReason>,
) {
    let counts = &shm.common.connections.counts;
    into.extend([
        ("links", u64::from(shm.links.table.len())),
        ("links_made", counts.links_made),
        ("links_joined", counts.links_joined),
        ("links_died", counts.links_died),
        ("links_polled", shm.links.schedule.active().len() as u64),
        (
            "wakes_sent",
            counts.wakes_sent + shm.links.table.iter().map(|(_, link)| link.out.wakes).sum::<u64>(),
        ),
        ("wakes_received", counts.wakes_received),
        ("kernel_polls", counts.kernel_polls),
        ("stalls", counts.stalls),
        ("sends_in_progress", u64::from(shm.common.connections.sends.in_use())),
        ("loans_lent", shm.links.table.iter().map(|(_, link)| link.out.lending.lent() as u64).sum()),
        (
            "loans_held",
            shm.links
                .table
                .iter()
                .map(|(_, link)| link.borrowing.as_ref().map_or(0, |it| it.held().into()))
                .sum(),
        ),
        ("loans_mapped_bytes", shm.common.transfers.paths.mapped.of_loans()),
        ("loan_offers_refused", counts.loan_offers_refused),
        ("requests_waiting", u64::from(shm.connecting.server.held.total())),
        ("system_errors", counts.system_errors),
    ]);
    transfers::report::count(&shm.common.transfers, &shm.links.table, pairs, into);
    drops.extend(
        [
            ("bad_record", counts.bad_record),
            ("link_corrupt", counts.link_corrupt),
            ("unknown_connection", counts.unknown_connection),
            ("after_close", counts.after_close),
            ("unreliable_no_buffer", counts.unreliable_no_buffer),
            ("bad_handshake", counts.bad_handshake),
            ("not_permitted", counts.not_permitted),
            ("not_proven", counts.not_proven),
            ("handshake_timed_out", counts.handshake_timed_out),
            ("requests_over_quota", counts.requests_over_quota),
            ("operations_over_quota", counts.operations_over_quota),
        ]
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| DropReason { name, count }),
    );
}

/// The memory that is held, by kind.
pub(super) fn memory(shm: &Shm, into: &mut Vec<(&'static str, u64)>) {
    let words: usize = shm.links.table.iter().map(|(_, link)| link.out.control.capacity()).sum();
    let links = shm.links.table.bytes()
        + u64::from(shm.links.table.len()) * size_of::<Link>() as u64
        + (words * size_of::<Control>()) as u64;
    let mapped = &shm.common.transfers.paths.mapped;
    into.extend([
        ("rings", shm.links.ring_memory().total()),
        ("links", links),
        ("connections", shm.common.connections.conns.bytes() as u64),
        (
            "handshakes",
            shm.common.handshakes.bytes() + u64::from(shm.connecting.server.held.total()) * REQUEST_BYTES,
        ),
        ("proof", shm.connecting.server.proof.as_ref().map_or(0, Proof::memory_bytes)),
        ("sends in progress", shm.common.connections.sends.bytes() as u64),
        ("memory lent to peers", shm.common.lent.total()),
        ("memory of peers, mapped", mapped.total().saturating_sub(mapped.of_loans())),
        ("loans of peers, mapped", mapped.of_loans()),
        ("remote memory access", transfers::report::bytes(&shm.common.transfers, &shm.links.table)),
    ]);
}

/// Explains which path a connection takes, and what holds it up.
pub(super) fn explain(shm: &Shm, key: Key, into: &mut Explanation) {
    let Some(conn) = shm.common.connections.conns.get(key) else { return };
    into.paths.push(PathOption {
        path: "shared-memory ring".to_owned(),
        chosen: true,
        reason: "same host: the peer took descriptors of this kernel's, and the kernel named its user"
            .to_owned(),
    });
    into.paths.push(PathOption {
        path: "network devices".to_owned(),
        chosen: false,
        reason: "not looked at: the endpoint was opened on a shared-memory device".to_owned(),
    });
    let (Some(conn), Some(link)) = (conn.on(), shm.link_of(key)) else {
        into.blocked_on = match conn.state {
            State::Making { .. } => Some("the peer has not confirmed yet".to_owned()),
            _ => Some("the peer has closed or died".to_owned()),
        };
        return;
    };
    if conn.is_reliable {
        transfers::report::explain(&shm.common.transfers, link, &mut into.paths);
        explain_loans(link, &mut into.paths);
    }
    let pid = link.peer.pid.map_or("in another container".to_owned(), |pid| pid.to_string());
    into.peer = format!("process {pid} of user {}", link.peer.uid);
    let mapped_bytes = shm.common.transfers.paths.mapped.of_process(link.peer.process());
    let in_ring = link.out.producer.tail().saturating_sub(link.out.consumed);
    let made_locally = link.side == Side::Server;
    into.facts.extend([
        ("ring to the peer", Fact::Bytes(link.out.ring_bytes.into())),
        ("ring to the peer, in use", Fact::Bytes(in_ring)),
        ("ring from the peer", Fact::Bytes(link.ring_bytes.into())),
        ("memory of the peer's process, mapped", Fact::Bytes(mapped_bytes)),
        ("connections on the link", Fact::Count(link.conns.into())),
        ("link made by", if made_locally { "this side" } else { "the peer" }.into()),
        ("sends in progress", Fact::Count(conn.in_progress.into())),
        ("sends in progress on the link", Fact::Count(link.out.fifo.len() as u64)),
        ("polled directly", Fact::Flag(link.is_active)),
        ("wake-ups sent", Fact::Count(link.out.wakes)),
        ("times without a receive buffer here", Fact::Count(link.stalls)),
        ("messages taken back for want of a receive buffer there", Fact::Count(link.rnr)),
    ]);
    into.blocked_on = if conn.phase == Phase::Broken {
        Some("a send timed out: the peer is not taking messages".to_owned())
    } else if link.life != Life::Up {
        Some("the peer has gone; what it sent before is being delivered".to_owned())
    } else if conn.in_progress > 0 && link.out.producer.is_stalled() {
        Some("peer has no receive buffer".to_owned())
    } else if in_ring + 2 * u64::from(shm.common.connections.mss) > u64::from(link.out.ring_bytes) {
        Some("ring full: the peer is not taking messages".to_owned())
    } else {
        None
    };
}

/// Explains for each direction whether loans are handed over where they lie.
fn explain_loans(link: &Link, into: &mut Vec<PathOption>) {
    let (chosen, reason) = link.out.lending.describe();
    into.push(PathOption { path: "loans to the peer, handed over mapped".to_owned(), chosen, reason });
    let reason = match (&link.borrowing, link.not_borrowed) {
        (Some(borrowing), _) => {
            format!("{} bytes are mapped; {} loans are here", borrowing.len_bytes(), borrowing.held())
        }
        (None, Some(why)) => format!("copied: {}", why.reason()),
        (None, None) => "the peer has offered no memory for them yet".to_owned(),
    };
    let (path, chosen) = ("loans of the peer's, mapped".to_owned(), link.borrowing.is_some());
    into.push(PathOption { path, chosen, reason });
}
