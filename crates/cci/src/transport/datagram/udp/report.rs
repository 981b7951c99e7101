//! What UDP reports: counters, and explanations of connections.

use super::Udp;
use crate::counters::DropReason;
use crate::explain::{Explanation, Fact, PathOption};
use crate::transport::datagram::udp_uri;
use cci_proto::{ConnectionInfo, PathInfo, PathState};
use cci_sys::udp::{RecvStats, SendStats};
use std::net::SocketAddr;

/// Adds the counters of one or several sockets, and the datagrams that were dropped.
pub(super) fn counters<const N: usize>(
    carriers: [&Udp; N],
    into: &mut Vec<(&'static str, u64)>,
    drops: &mut Vec<DropReason>,
) {
    let sent = |of: fn(SendStats) -> u64| carriers.iter().map(|carrier| of(carrier.out.stats())).sum();
    let received = |of: fn(RecvStats) -> u64| carriers.iter().map(|carrier| of(carrier.input.stats())).sum();
    let errors = carriers.iter().map(|carrier| carrier.errors).sum::<u64>();
    let soft_errors: u64 = sent(|of| of.soft_errors) + received(|of| of.soft_errors);
    into.extend([
        ("datagrams_sent", sent(|of| of.datagrams)),
        ("datagrams_received", received(|of| of.datagrams)),
        ("datagram_bytes_sent", sent(|of| of.bytes)),
        ("datagram_bytes_received", received(|of| of.bytes)),
        ("send_syscalls", sent(|of| of.syscalls)),
        ("datagrams_sent_connected", sent(|of| of.connected)),
        ("recv_syscalls", received(|of| of.syscalls)),
        ("recv_syscalls_empty", received(|of| of.empty)),
        ("gso_batches", sent(|of| of.gso_batches)),
        ("gro_batches", received(|of| of.gro_batches)),
        ("send_would_block", sent(|of| of.would_block)),
        ("socket_errors", errors + soft_errors),
    ]);
    let all = [
        ("socket-buffer-full", carriers.iter().map(|carrier| carrier.socket.kernel_drops()).sum()),
        ("truncated", received(|of| of.skipped)),
        ("too-big-for-path", sent(|of| of.too_big)),
        ("unreachable", sent(|of| of.unreachable)),
        ("socket-failed", sent(|of| of.failed)),
    ];
    drops.extend(
        all.into_iter().filter(|(_, count)| *count > 0).map(|(name, count)| DropReason { name, count }),
    );
}

/// Explains a connection over one socket.
pub(super) fn explain(carrier: &Udp, connection: &ConnectionInfo, into: &mut Explanation) {
    into.peer = udp_uri::of(connection.peer);
    into.paths = options(carrier, connection);
    into.facts.push(("socket receive buffer", Fact::Bytes(carrier.socket.recv_buffer_bytes() as u64)));
}

/// The ways in which the kernel can carry datagrams, the chosen one first.
fn options(carrier: &Udp, connection: &ConnectionInfo) -> Vec<PathOption> {
    let gso = carrier.socket.gso();
    let gro = carrier.socket.gro();
    let (path, reason) = match (carrier.out.gso(), gro.is_ok()) {
        (true, true) => ("UDP with GSO and GRO", "the kernel cuts and joins batches of datagrams both ways"),
        (true, false) => ("UDP with GSO, without GRO", "the kernel cuts batches of datagrams but joins none"),
        (false, true) => ("UDP with GRO, without GSO", "the kernel joins batches of datagrams but cuts none"),
        (false, false) => ("UDP without GSO and GRO", "each datagram passes the kernel by itself"),
    };
    let option = |path: &str, chosen, reason: String| PathOption { path: path.to_owned(), chosen, reason };
    let mut paths = vec![option(path, true, reason.to_owned())];
    if !carrier.out.gso() {
        let why = gso.err().map_or_else(
            || {
                "a network device on the way refused it; its driver or settings (ethtool -k) may allow it"
                    .to_owned()
            },
            |error| format!("{error}; use Linux 4.18 or newer"),
        );
        paths.push(option("UDP with GSO", false, why));
    }
    if let Err(error) = gro {
        paths.push(option("UDP with GRO", false, format!("{error}; use Linux 5.0 or newer")));
    }
    let is_local = connection
        .peer
        .socket_addr()
        .is_some_and(|peer| peer.ip().is_loopback() || peer.ip() == carrier.local().ip());
    let why = if is_local {
        "the URI says udp; the peer is on this host, so its shm:// URI would be faster"
    } else {
        "the peer is on another host"
    };
    paths.push(option("shared memory", false, why.to_owned()));
    paths
}

/// The two paths of a bonded connection, those in use first. `locals` are this side's addresses, in the order of `via`.
pub(in crate::transport::datagram) fn bonded_paths(
    paths: &[PathInfo; 2],
    locals: [SocketAddr; 2],
) -> Vec<PathOption> {
    let bytes_all = paths.iter().map(|path| path.bytes_sent).sum::<u64>().max(1);
    let option = |(number, path): (usize, &PathInfo)| {
        let local = path.to.and_then(|to| locals.get(usize::from(to.via())));
        let local = local.map_or_else(String::new, |local| local.ip().to_string());
        let remote = path.to.map_or_else(|| "an address not known yet".to_owned(), udp_uri::of);
        let share_pct = path.bytes_sent * 100 / bytes_all;
        let round_trip = match path.rtt_ns {
            0 => "no round trip measured".to_owned(),
            rtt_ns => format!("round trip {:.1} us", rtt_ns as f64 / 1e3),
        };
        let reason = format!(
            "{}, {round_trip}, {share_pct} % of the bytes sent, {} datagrams, {} sent again, went down {} times",
            path_state(path.state),
            path.datagrams_sent,
            path.retransmissions,
            path.downs
        );
        let name = format!("path {} from {local} to {remote}", number + 1);
        PathOption { path: name, chosen: path.is_up(), reason }
    };
    let mut options: Vec<PathOption> = paths.iter().enumerate().map(option).collect();
    options.sort_by_key(|option| !option.chosen);
    options
}

fn path_state(state: PathState) -> &'static str {
    match state {
        PathState::Up => "up",
        PathState::Down => "down: nothing comes back by it; look at its link",
        PathState::Unproved => "not proved yet: the peer has not answered by it",
    }
}
