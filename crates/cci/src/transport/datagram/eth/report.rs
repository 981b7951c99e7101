//! What raw Ethernet reports: counters, and explanations of connections.

use super::Eth;
use crate::counters::DropReason;
use crate::explain::{Explanation, Fact, PathOption};
use cci_proto::ConnectionInfo;

/// Adds the counters, and the frames that were dropped.
pub(super) fn counters(carrier: &Eth, into: &mut Vec<(&'static str, u64)>, drops: &mut Vec<DropReason>) {
    let mut sum = cci_sys::ethernet::FrameStats::default();
    for of in carrier.sockets.stats() {
        sum.sent += of.sent;
        sum.kicks += of.kicks;
        sum.full += of.full;
        sum.received += of.received;
        sum.dropped += of.dropped;
        sum.refused += of.refused;
        sum.malformed += of.malformed;
    }
    let counts = &carrier.counts;
    into.extend([
        ("datagrams_sent", sum.sent),
        ("datagrams_received", counts.received),
        ("datagram_bytes_sent", counts.sent_bytes),
        ("datagram_bytes_received", counts.received_bytes),
        ("frames_received", sum.received),
        ("send_syscalls", sum.kicks),
        ("send_ring_full", sum.full),
        ("socket_errors", counts.errors),
    ]);
    // The program counts the frames of all endpoints on the interface.
    let steered =
        carrier.attachment.as_ref().and_then(|attachment| attachment.counters().ok()).unwrap_or_default();
    into.extend([
        ("interface_frames_redirected", steered.redirected),
        ("interface_frames_passed", steered.passed),
        ("interface_frames_for_nobody", steered.no_endpoint),
        ("interface_frames_malformed", steered.malformed),
        ("interface_frames_with_wrong_nonce", steered.wrong_nonce),
    ]);
    let all = [
        ("frame-ring-full", sum.dropped),
        ("frame-refused", sum.refused),
        ("frame-malformed", sum.malformed + counts.malformed),
        ("frame-for-another", counts.strange),
        ("interface-down", counts.lost),
    ];
    drops.extend(
        all.into_iter().filter(|(_, count)| *count > 0).map(|(name, count)| DropReason { name, count }),
    );
}

/// Explains a connection.
pub(super) fn explain(carrier: &Eth, connection: &ConnectionInfo, into: &mut Explanation) {
    // This side does not know the name of the peer's interface. Its own interface leads there.
    let uri = |(mac, endpoint)| super::uri::format(&carrier.link.name, mac, endpoint);
    into.peer = connection.peer.ethernet_addr().map_or_else(String::new, uri);
    let option = |path: &str, chosen, reason: String| PathOption { path: path.to_owned(), chosen, reason };
    let socket_path = &carrier.socket_path;
    into.paths.push(option(socket_path.path, true, socket_path.reason.clone()));
    let missing = socket_path.missing.iter();
    into.paths
        .extend(missing.map(|lack| option(&lack.what, false, format!("{}; {}", lack.reason, lack.remedy))));
    let forged = if carrier.attachment.is_some() { "by the interface's program" } else { "here" };
    into.facts.push(("nonces checked", forged.into()));
    let why = "the URI says eth; a peer on this host has a shm:// URI, which would be faster";
    into.paths.push(option("shared memory", false, why.to_owned()));
    let sockets = carrier.sockets.each().map(|socket| socket.borrow().receive_buffer_bytes());
    into.facts.extend([
        ("interface", carrier.link.name.clone().into()),
        ("hardware address", super::show_mac(carrier.link.mac).into()),
        ("rings for frames that come", Fact::Bytes(sockets.sum::<usize>() as u64)),
    ]);
}
