//! What is counted.

/// What a peer, or someone pretending to be one, did wrong. Each has a counter; none has any other effect
/// than that the datagram is dropped.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PeerFault {
    /// Shorter than its header, or than its header says.
    Short,
    /// Longer than a datagram may be, or its length is not a multiple of 8.
    Length,
    /// Not a version this endpoint speaks.
    Version,
    /// A type that does not exist.
    Type,
    /// A reserved field is not zero or a field has no meaning.
    Field,
    /// The records of a bundle do not add up.
    Record,
    /// No such connection, or no longer.
    Unknown,
    /// The nonce proves nothing.
    Nonce,
    /// The cookie is old or forged.
    Cookie,
    /// Not the address that the connection's peer has.
    Source,
    /// A sequence number outside the window.
    OutsideWindow,
    /// Acknowledges what was never sent.
    BadAck,
    /// Of a kind that the connection's state or service does not expect.
    Unexpected,
}

impl PeerFault {
    /// Every fault, in the order of their numbers.
    pub const ALL: [PeerFault; 13] = [
        PeerFault::Short,
        PeerFault::Length,
        PeerFault::Version,
        PeerFault::Type,
        PeerFault::Field,
        PeerFault::Record,
        PeerFault::Unknown,
        PeerFault::Nonce,
        PeerFault::Cookie,
        PeerFault::Source,
        PeerFault::OutsideWindow,
        PeerFault::BadAck,
        PeerFault::Unexpected,
    ];

    /// A short name, for tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            PeerFault::Short => "short",
            PeerFault::Length => "length",
            PeerFault::Version => "version",
            PeerFault::Type => "type",
            PeerFault::Field => "field",
            PeerFault::Record => "record",
            PeerFault::Unknown => "unknown-connection",
            PeerFault::Nonce => "nonce",
            PeerFault::Cookie => "cookie",
            PeerFault::Source => "source",
            PeerFault::OutsideWindow => "outside-window",
            PeerFault::BadAck => "bad-ack",
            PeerFault::Unexpected => "unexpected",
        }
    }
}

/// What an endpoint counts over its whole life.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams handed to the carrier, of every type.
    pub datagrams_sent: u64,
    /// Datagrams that came from the carrier, good and bad.
    pub datagrams_received: u64,
    /// Bytes of the datagrams sent.
    pub datagram_bytes_sent: u64,
    /// Bytes of the datagrams received.
    pub datagram_bytes_received: u64,
    /// Messages accepted by `send`.
    pub messages_sent: u64,
    /// Payload bytes accepted by `send`.
    pub message_bytes_sent: u64,
    /// Messages delivered to the program.
    pub messages_received: u64,
    /// Payload bytes delivered to the program.
    pub message_bytes_received: u64,
    /// Bundles sent for the first time.
    pub bundles_sent: u64,
    /// Bundles taken in, duplicates not counted.
    pub bundles_received: u64,
    /// Bundles sent again.
    pub retransmissions: u64,
    /// Bundles sent again that had in fact arrived, as far as the sender can tell.
    pub retransmissions_spurious: u64,
    /// Probe time-outs: nothing was acknowledged for longer than expected.
    pub probe_timeouts: u64,
    /// Peers of idle connections that were asked whether they live.
    pub idle_asks: u64,
    /// Times a path turned out to take only smaller datagrams.
    pub paths_narrowed: u64,
    /// Datagrams with a part of a bundle.
    pub parts_sent: u64,
    /// Datagrams that only acknowledge.
    pub acks_sent: u64,
    /// Bundles that had already come.
    pub duplicates_received: u64,
    /// Bundles that came before one sent earlier.
    pub reordered_received: u64,
    /// Times a sender was refused, by receiver-not-ready.
    pub rnr_sent: u64,
    /// Times a receiver refused, by receiver-not-ready.
    pub rnr_received: u64,
    /// Bundles refused or dropped because there was no packet buffer or no memory for them.
    pub no_buffer_drops: u64,
    /// Unreliable messages that arrived and found no receive buffer.
    pub unreliable_drops: u64,
    /// Sends that ended in anything but success, silent ones included.
    pub sends_failed: u64,
    /// Connection requests delivered to the program.
    pub requests_received: u64,
    /// Connection requests dropped because too many wait already; the client asks again.
    pub requests_dropped: u64,
    /// Cookies handed out.
    pub cookies_sent: u64,
    /// Connections that came up.
    pub connections_opened: u64,
    /// Connections that broke: reset, or the send timeout passed.
    pub connections_broken: u64,
    /// Times a path of a bonded connection was taken for dead while the other lived.
    pub paths_lost: u64,
    /// Resets sent.
    pub resets_sent: u64,
    /// Answers not sent because too many were due at once.
    pub replies_dropped: u64,
    /// Remote memory writes accepted by `rma`.
    pub rma_writes: u64,
    /// Remote memory reads accepted by `rma`.
    pub rma_reads: u64,
    /// Atomic operations accepted by `atomic`.
    pub atomics: u64,
    /// Bytes written to peers' memory or read from ours, as far as they have been sent once.
    pub rma_bytes_sent: u64,
    /// Bytes put into memory of ours, whoever asked for it.
    pub rma_bytes_received: u64,
    /// Accesses of peers' that were refused: the handle stale, forged or without that right, the range or the
    /// operation wrong.
    pub rma_refused: u64,
    /// Remote memory operations that ended in anything but success.
    pub rma_failed: u64,
    faults: [u64; PeerFault::ALL.len()],
    useful: u64,
}

impl Counters {
    /// How often this fault was met.
    #[must_use]
    pub fn fault(&self, fault: PeerFault) -> u64 {
        self.faults[fault as usize]
    }

    /// How often any fault was met.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.faults.iter().sum()
    }

    /// Things that datagrams brought: bundles that were taken, acknowledgements of something new, steps of handshakes. A carrier
    /// whose datagrams bring few of them reads what only keeps others waiting behind it.
    #[must_use]
    pub fn useful(&self) -> u64 {
        self.useful
    }

    #[inline]
    pub(crate) fn count_useful(&mut self) {
        self.useful += 1;
    }

    pub(crate) fn count_fault(&mut self, fault: PeerFault) {
        self.faults[fault as usize] += 1;
    }
}

/// What a connection counts while it is not idle.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounters {
    /// Messages accepted by `send`.
    pub messages_sent: u64,
    /// Payload bytes accepted by `send`.
    pub message_bytes_sent: u64,
    /// Messages delivered to the program.
    pub messages_received: u64,
    /// Payload bytes delivered to the program.
    pub message_bytes_received: u64,
    /// Bundles sent for the first time.
    pub bundles_sent: u64,
    /// Bundles taken in, duplicates not counted.
    pub bundles_received: u64,
    /// Bundles sent again.
    pub retransmissions: u64,
    /// Bundles sent again that had in fact arrived.
    pub retransmissions_spurious: u64,
    /// Times this side refused the peer, by receiver-not-ready.
    pub rnr_sent: u64,
    /// Times the peer refused this side.
    pub rnr_received: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_its_number() {
        for (index, fault) in PeerFault::ALL.into_iter().enumerate() {
            assert_eq!(fault as usize, index, "{}", fault.name());
        }
    }
}
