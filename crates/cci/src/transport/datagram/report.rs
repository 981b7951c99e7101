//! What the transport reports: counters, memory, and explanations of connections.

use super::adapter::Adapter;
use super::carrier::{Carrier, Report};
use super::rest::Rest;
use crate::counters::{ConnectionCounters, DropReason};
use crate::explain::{Explanation, Fact};
use crate::limits::MESSAGE_BYTES_MAX;
use cci_proto::{Blocked, ConnKey, ConnState, ConnectionInfo, Endpoint, PeerFault};

/// The counters of one connection.
pub(super) fn connection_counters(proto: &Endpoint, key: ConnKey) -> ConnectionCounters {
    let Some(info) = proto.connection(key) else { return ConnectionCounters::default() };
    ConnectionCounters {
        messages_sent: info.counters.messages_sent,
        bytes_sent: info.counters.message_bytes_sent,
        messages_received: info.counters.messages_received,
        bytes_received: info.counters.message_bytes_received,
        retransmissions: info.counters.retransmissions,
        rtt_ns: (info.rtt_ns > 0).then_some(info.rtt_ns),
        window_bytes: window_bytes(&info),
        receiver_not_ready: info.counters.rnr_received,
        sends_in_progress: info.bundles_unacked.into(),
    }
}

/// How many bytes may be in flight at once.
fn window_bytes(info: &ConnectionInfo) -> u64 {
    match info.peer_window_bytes {
        0 => info.congestion_window_bytes,
        peer => peer.min(info.congestion_window_bytes),
    }
}

/// Adds the counters of the carrier and the protocol, and the datagrams that were dropped.
pub(super) fn counters(
    proto: &Endpoint,
    carrier: &impl Carrier,
    adapter: &Adapter,
    into: &mut Vec<(&'static str, u64)>,
    drops: &mut Vec<DropReason>,
) {
    carrier.report(Report::Counters { into: &mut *into, drops: &mut *drops });
    let of = proto.counters();
    into.extend([
        ("bundles_sent", of.bundles_sent),
        ("bundles_received", of.bundles_received),
        ("retransmissions", of.retransmissions),
        ("retransmissions_spurious", of.retransmissions_spurious),
        ("probe_timeouts", of.probe_timeouts),
        ("idle_asks", of.idle_asks),
        ("paths_narrowed", of.paths_narrowed),
        ("parts_sent", of.parts_sent),
        ("acks_sent", of.acks_sent),
        ("duplicates_received", of.duplicates_received),
        ("reordered_received", of.reordered_received),
        ("rnr_sent", of.rnr_sent),
        ("rnr_received", of.rnr_received),
        ("requests_received", of.requests_received),
        ("cookies_sent", of.cookies_sent),
        ("connections_broken", of.connections_broken),
        ("resets_sent", of.resets_sent),
        ("paths_lost", of.paths_lost),
        ("rma_bytes_sent", of.rma_bytes_sent),
        ("rma_bytes_received", of.rma_bytes_received),
    ]);
    let faults = PeerFault::ALL.into_iter().map(|fault| (fault.name(), of.fault(fault)));
    let others = [
        ("message-too-long", adapter.too_long),
        ("request-not-permitted", adapter.not_permitted),
        ("no-packet-buffer", of.no_buffer_drops),
        ("no-receive-buffer", of.unreliable_drops),
        ("too-many-requests", of.requests_dropped),
        ("too-many-replies", of.replies_dropped),
    ];
    let met = faults.chain(others).filter(|(_, count)| *count > 0);
    drops.extend(met.map(|(name, count)| DropReason { name, count }));
}

/// Adds the bytes that the protocol, this transport and the carrier hold.
pub(super) fn memory(
    proto: &Endpoint,
    carrier: &impl Carrier,
    adapter: &Adapter,
    rest: &Rest,
    into: &mut Vec<(&'static str, u64)>,
) {
    let held = proto.memory();
    into.extend([
        ("packet buffers", held.pool_bytes + rest.memory_bytes()),
        ("sends in progress", held.sends_bytes),
        ("remote operations on their way", held.rma_bytes),
        ("protocol connection table", held.connections_bytes),
        ("active connections", held.actives_bytes),
        ("handshakes", held.handshakes_bytes + adapter.memory_bytes()),
        ("timers and queues", held.queues_bytes),
    ]);
    carrier.report(Report::Memory(into));
}

/// Explains a connection.
pub(super) fn explain(proto: &Endpoint, carrier: &impl Carrier, key: ConnKey, into: &mut Explanation) {
    let Some(info) = proto.connection(key) else { return };
    if info.rtt_ns > 0 {
        into.facts.push(("round trip, smoothed", Fact::Ns(info.rtt_ns)));
    }
    if info.rtt_ns_min > 0 {
        into.facts.push(("round trip, least", Fact::Ns(info.rtt_ns_min)));
    }
    into.facts.extend([
        ("state", state(info.state).into()),
        ("largest message", Fact::Bytes(info.message_bytes_max.min(MESSAGE_BYTES_MAX as usize) as u64)),
        ("largest datagram", Fact::Bytes(info.datagram_bytes_max as u64)),
        ("congestion window", Fact::Bytes(info.congestion_window_bytes)),
        ("peer's receive window", Fact::Bytes(info.peer_window_bytes)),
        ("in flight", Fact::Bytes(info.in_flight_bytes)),
        ("bundles unacknowledged", Fact::Count(info.bundles_unacked as u64)),
        ("bundles waiting for a receive buffer", Fact::Count(info.bundles_held as u64)),
        ("retransmissions", Fact::Count(info.counters.retransmissions)),
    ]);
    let paths = proto.paths(key);
    carrier.report(Report::Explanation { connection: &info, paths: paths.as_ref(), into: &mut *into });
    into.blocked_on = info.blocked.map(|blocked| blocked_on(blocked).to_owned());
}

fn state(state: ConnState) -> &'static str {
    match state {
        ConnState::Free => "free",
        ConnState::Dialing => "waits for the peer's answer",
        ConnState::Accepting => "accepted, waits for the peer to confirm",
        ConnState::Up => "up",
        ConnState::PeerClosed => "the peer has closed and takes no more",
        ConnState::Lingering => "closed here, delivers what was sent before",
        ConnState::Closing => "closed here, not confirmed by the peer yet",
        ConnState::Broken => "the peer died or stopped answering",
        ConnState::Done => "over",
    }
}

fn blocked_on(blocked: Blocked) -> &'static str {
    match blocked {
        Blocked::Congestion => "as much is in flight as the congestion window allows",
        Blocked::PeerWindow => "as much is in flight as the peer's socket buffer takes",
        Blocked::Window => "the most datagrams a connection may have unacknowledged are",
        Blocked::ReceiverNotReady => "the peer's program has no receive buffer free",
        Blocked::Pacing => "the pacer holds the next datagram back for a moment",
        Blocked::Pool => {
            "this endpoint's packet buffers are in use, or this connection has its share of them"
        }
        Blocked::Answers => "as many operations on the peer's memory are unanswered as may be at a time",
        Blocked::Fence => "an operation with a fence waits for those before it",
    }
}
