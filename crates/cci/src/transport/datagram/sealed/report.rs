//! What a sealed carrier reports beside the carrier beneath: counters, and how a connection is encrypted.

use super::Sealed;
use crate::counters::DropReason;
use crate::explain::Explanation;
use crate::sealing::Sealing;
use crate::transport::datagram::carrier::Carrier;
use cci_proto::ConnectionInfo;

/// Adds the counters of handshakes, and the datagrams that were dropped.
pub(super) fn counters<C: Carrier>(
    carrier: &Sealed<C>,
    into: &mut Vec<(&'static str, u64)>,
    drops: &mut Vec<DropReason>,
) {
    let of = carrier.associations.counters();
    into.extend([
        ("security_handshakes", of.handshakes),
        ("security_handshakes_timed_out", of.timeouts),
        ("security_cookies_sent", of.cookies),
    ]);
    let counts = &carrier.counts;
    let all = [
        ("plain-refused", counts.plain),
        ("handshake-refused", of.refused),
        ("handshake-no-room", of.no_space),
        ("handshake-version", of.versions),
        ("handshake-own", of.own),
        ("sealed-forged", of.forged),
        ("sealed-replayed", of.replayed),
        ("sealed-unknown", of.unknown),
        ("sealed-malformed", of.malformed),
        ("sealed-for-another", counts.other_identity),
        ("not-sealed-yet", of.waited + counts.unsealed),
    ];
    drops.extend(
        all.into_iter().filter(|(_, count)| *count > 0).map(|(name, count)| DropReason { name, count }),
    );
}

/// Adds how a connection is encrypted, or why it is not yet.
pub(super) fn explain<C: Carrier>(carrier: &Sealed<C>, info: &ConnectionInfo, into: &mut Explanation) {
    let at = info.peer.with_secured(false);
    let text = match (info.peer.is_secured(), carrier.associations.peer(at)) {
        (false, _) => "none: the peer has none, and this endpoint does not require it".to_owned(),
        (true, Some((identity, _))) => Sealing::describe(identity),
        (true, None) => match carrier.associations.failure(at) {
            Some(why) => format!("not yet: the last handshake failed: {why}"),
            None => "not yet: the handshake is under way".to_owned(),
        },
    };
    into.facts.push(("encryption", text.into()));
}
