//! What the transport reports about itself.

use super::SCHEME;
use super::conn::{Attempt, Conn, Dialling};
use super::counts::Fault;
use super::established::Stage;
use super::handshakes::Handshakes;
use super::input::SCRATCH_BYTES;
use super::links::Links;
use super::local::Local;
use super::out::Out;
use super::second_stream::Second;
use crate::counters::{ConnectionCounters, DropReason};
use crate::explain::{Explanation, Fact, PathOption};
use crate::sealing::Sealing;

/// Adds the bytes that the endpoint's streams hold.
pub(super) fn memory(handshakes: &Handshakes, links: &Links, into: &mut Vec<(&'static str, u64)>) {
    let busy: usize =
        links.conns.iter().filter_map(|(_, conn)| conn.stream()).map(|(_, out)| out.bytes()).sum();
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

/// Adds the endpoint's counters, and the numbers of what it dropped by reason.
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

/// The counters of one connection.
pub(super) fn connection(conn: &Conn) -> ConnectionCounters {
    let (base, stream) = (conn.base(), conn.stream());
    let info = stream.and_then(|(stream, _)| stream.info()).unwrap_or_default();
    ConnectionCounters {
        messages_sent: base.messages_sent,
        bytes_sent: base.bytes_sent,
        messages_received: base.messages_received,
        bytes_received: base.bytes_received,
        retransmissions: info.retransmissions,
        rtt_ns: (info.rtt_ns > 0).then_some(info.rtt_ns),
        window_bytes: info.window_bytes,
        receiver_not_ready: base.not_ready,
        sends_in_progress: stream.map_or(0, |(_, out)| out.sends().into()),
    }
}

/// Explains where a connection leads, which path it takes and what it waits for.
pub(super) fn explain(conn: &Conn, local: &Local, into: &mut Explanation) {
    let (base, stream) = (conn.base(), conn.stream());
    into.peer = format!("{SCHEME}{}", base.peer);
    let why_not = if base.peer.ip().is_loopback() || base.peer.ip() == local.address.ip() {
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
    into.facts.push(("state", state(conn).into()));
    into.facts.push(("largest message", Fact::Bytes(base.mss.into())));
    if local.security.is_some() {
        let peer = stream.and_then(|(stream, _)| stream.peer()).and_then(|peer| peer.identity);
        let text = match (peer, conn) {
            (Some(peer), _) => Sealing::describe(&peer),
            (None, Conn::Dialling(Dialling { attempt: Attempt::Made { .. }, .. })) => {
                "not yet: the handshake is under way".to_owned()
            }
            _ => "none: the peer has none, and this endpoint does not require it".to_owned(),
        };
        into.facts.push(("encryption", text.into()));
    }
    if let Some(info) = stream.and_then(|(stream, _)| stream.info()) {
        into.facts.extend([
            ("round trip, smoothed", Fact::Ns(info.rtt_ns)),
            ("congestion window", Fact::Bytes(info.window_bytes)),
            ("largest segment", Fact::Bytes(info.segment_bytes)),
            ("retransmissions", Fact::Count(info.retransmissions)),
            ("in the socket's send buffer", Fact::Bytes(info.queued_bytes)),
        ]);
    }
    let (unwritten_bytes, in_flight) =
        stream.map_or((0, 0), |(_, out)| (out.unwritten_bytes(), u64::from(out.in_flight())));
    into.facts.push(("waiting to be written", Fact::Bytes(unwritten_bytes)));
    into.facts.push(("messages written, not acknowledged", Fact::Count(in_flight)));
    into.blocked_on = stream.and_then(|(_, out)| blocked_on(out)).map(str::to_owned);
    into.paths.push(second_path(conn));
}

fn state(conn: &Conn) -> &'static str {
    let conn = match conn {
        Conn::Dialling(_) => return "waits for the peer's answer",
        Conn::Established(conn) => conn,
        Conn::Gone(_) => return "the peer closed, died or stopped answering",
    };
    match conn.stage {
        Stage::Accepting { .. } => "accepted, waits for the peer to confirm",
        Stage::Open => "up",
        Stage::PeerClosing => "the peer has closed and takes no more",
        Stage::PeerClosed { .. } => "the peer has closed; its last answers are on their way",
        Stage::Closing { .. } => "closed here, delivers what was sent before",
        Stage::Lingering { .. } => "closed here, waits for the peer's end",
    }
}

fn blocked_on(out: &Out) -> Option<&'static str> {
    let waits = out.sends() > 0;
    if waits && out.is_refused() {
        return Some("the peer's program has no receive buffer free");
    }
    if out.blocked {
        return Some("the socket's send buffer is full: the peer or the network is slow");
    }
    if waits && out.unwritten_bytes() == 0 {
        return Some("all is written, and the peer has not acknowledged all of it yet");
    }
    None
}

/// The path of a connection's remote memory.
fn second_path(conn: &Conn) -> PathOption {
    let second = conn.established().map_or(&Second::None, |conn| &conn.second);
    let (chosen, reason) = match second {
        _ if !conn.base().is_reliable => (false, "an unreliable connection has none"),
        Second::None => (false, "made when the first operation needs it"),
        Second::Ended { .. } => (false, "it has ended, and the connection with it"),
        Second::Open(second) if second.stream.is_none() => (false, "being made"),
        Second::Open(second) if second.is_waiting() => {
            (true, "waits for its turn: more connections move data than there is memory for")
        }
        Second::Open(second) if !second.writer.is_empty() => {
            (true, "straight from memory and into place; the peer or the network is slow to take what waits")
        }
        Second::Open(_) => (true, "straight from memory and into place, past the messages"),
    };
    PathOption { path: "remote memory: second stream".to_owned(), chosen, reason: reason.to_owned() }
}
