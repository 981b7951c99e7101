//! What the transport tells about itself.

use super::SCHEME;
use super::conn::{Conn, State};
use super::counts::Fault;
use super::handshakes::Handshakes;
use super::input::SCRATCH_BYTES;
use super::links::Links;
use super::local::Local;
use super::transfers::Transfers;
use crate::counters::{ConnectionCounters, DropReason};
use crate::explain::{Explanation, Fact, PathOption};
use crate::sealing::Sealing;

/// Adds what the endpoint's streams hold.
pub(super) fn memory(handshakes: &Handshakes, links: &Links, into: &mut Vec<(&'static str, u64)>) {
    let busy: usize = links.conns.iter().map(|(_, conn)| conn.out.bytes()).sum();
    let lists = links.shared.streams.bytes() + links.deadlines.bytes();
    into.extend([
        ("connections", (links.conns.bytes() + busy) as u64),
        ("handshakes", handshakes.bytes()),
        ("messages on their way", links.shared.chunks.bytes()),
        ("sends in progress", links.shared.sends.bytes() as u64),
        ("read buffer", SCRATCH_BYTES as u64),
        ("read and not taken yet", links.shared.keepers.bytes()),
        ("lists", lists as u64),
    ]);
    if let Some(security) = &handshakes.local.security {
        into.push(("sealed, or to be opened", security.bytes()));
    }
    into.push(("remote memory", links.transfers.bytes(&links.conns)));
}

/// Adds what the endpoint has counted, and how often it dropped something for which reason.
pub(super) fn counters(links: &Links, into: &mut Vec<(&'static str, u64)>, drops: &mut Vec<DropReason>) {
    let of = &links.shared.counts;
    into.extend([
        ("stream_bytes_sent", of.bytes_written),
        ("stream_bytes_received", of.bytes_read),
        ("send_syscalls", of.writes),
        ("recv_syscalls", of.reads),
        ("recv_syscalls_empty", of.reads_empty),
        ("lone_messages", of.lone),
        ("batches", of.batches),
        ("kernel_polls", of.kernel_polls),
        ("acks_sent", of.acks_sent),
        ("rnr_sent", of.not_ready_sent),
        ("rnr_received", of.not_ready_received),
        ("requests_received", of.requests),
        ("connections_broken", of.broken),
        ("keepalive_timeouts", of.keepalives),
        ("waiting_connections_looked_at", of.starved_looks),
        ("refused_by_system", of.refused_system),
    ]);
    links.transfers.count(into);
    let faults = Fault::ALL.into_iter().map(|fault| (fault.name(), of.of(fault)));
    let others = [
        ("no-receive-buffer", of.unreliable_no_buffer),
        ("after-close", of.after_close),
        ("handshake-timed-out", of.handshake_timed_out),
    ];
    let met = faults.chain(others).filter(|(_, count)| *count > 0);
    drops.extend(met.map(|(name, count)| DropReason { name, count }));
}

/// What was counted on one connection.
pub(super) fn connection(conn: &Conn) -> ConnectionCounters {
    let info = conn.stream.as_ref().and_then(|stream| stream.info()).unwrap_or_default();
    ConnectionCounters {
        messages_sent: conn.messages_sent,
        bytes_sent: conn.bytes_sent,
        messages_received: conn.messages_received,
        bytes_received: conn.bytes_received,
        retransmissions: info.retransmissions,
        rtt_ns: (info.rtt_ns > 0).then_some(info.rtt_ns),
        window_bytes: info.window_bytes,
        receiver_not_ready: conn.not_ready,
        sends_in_progress: conn.out.sends().into(),
    }
}

/// Says where a connection leads, which path it takes and what it waits for.
pub(super) fn explain(conn: &Conn, local: &Local, into: &mut Explanation) {
    into.peer = conn.peer.map_or_else(String::new, |peer| format!("{SCHEME}{peer}"));
    let is_local = conn.peer.is_some_and(|peer| peer.ip().is_loopback() || peer.ip() == local.address.ip());
    let why_not = if is_local {
        "the URI says tcp; the peer is on this host, so its shm:// URI would be faster"
    } else {
        "the peer is on another host"
    };
    let option = |path: &str, chosen, reason: &str| PathOption {
        path: path.to_owned(),
        chosen,
        reason: reason.to_owned(),
    };
    into.paths.push(option("TCP", true, "one stream for messages, without Nagle's delay"));
    into.paths.push(option("shared memory", false, why_not));
    into.facts.push(("state", state(conn.state).into()));
    into.facts.push(("largest message", Fact::Bytes(conn.mss.into())));
    if local.security.is_some() {
        let peer = conn.stream.as_ref().and_then(|stream| stream.peer()).and_then(|peer| peer.identity);
        let text = match (peer, &conn.stream) {
            (Some(peer), _) => Sealing::describe(&peer),
            (None, Some(stream)) if stream.is_sealed() && conn.state == State::Dialing => {
                "not yet: the handshake is under way".to_owned()
            }
            _ => "none: the peer has none, and this endpoint does not require it".to_owned(),
        };
        into.facts.push(("encryption", text.into()));
    }
    if let Some(info) = conn.stream.as_ref().and_then(|stream| stream.info()) {
        into.facts.extend([
            ("round trip, smoothed", Fact::Ns(info.rtt_ns)),
            ("congestion window", Fact::Bytes(info.window_bytes)),
            ("largest segment", Fact::Bytes(info.segment_bytes)),
            ("retransmissions", Fact::Count(info.retransmissions)),
            ("in the socket's send buffer", Fact::Bytes(info.queued_bytes)),
        ]);
    }
    into.facts.push(("waiting to be written", Fact::Bytes(conn.out.unwritten_bytes())));
    into.facts.push(("messages written, not acknowledged", Fact::Count(conn.out.in_flight() as u64)));
    into.blocked_on = blocked_on(conn).map(str::to_owned);
    Transfers::explain(conn, into);
}

fn state(state: State) -> &'static str {
    match state {
        State::Dialing => "waits for the peer's answer",
        State::Accepting => "accepted, waits for the peer to confirm",
        State::Open => "up",
        State::PeerClosing => "the peer has closed and takes no more",
        State::PeerClosed => "the peer has closed; its last answers are on their way",
        State::Closing => "closed here, delivers what was sent before",
        State::Lingering => "closed here, waits for the peer's end",
        State::Gone => "the peer closed, died or stopped answering",
    }
}

fn blocked_on(conn: &Conn) -> Option<&'static str> {
    let waits = conn.out.sends() > 0;
    if waits && conn.out.is_refused() {
        return Some("the peer's program has no receive buffer free");
    }
    if conn.out.blocked && conn.stream.is_some() {
        return Some("the socket's send buffer is full: the peer or the network is slow");
    }
    if waits && conn.out.unwritten_bytes() == 0 {
        return Some("all is written, and the peer has not acknowledged all of it yet");
    }
    None
}
