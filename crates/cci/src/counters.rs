//! Counters of endpoints and connections. They are always on and may be read at any time.

use cci_proto::RmaKind;

/// Why something that arrived, or was to leave, was dropped. Every drop has a reason and a counter.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct DropReason {
    /// A short, stable name, such as `bad_nonce`.
    pub name: &'static str,
    /// How many there were.
    pub count: u64,
}

/// The memory that an endpoint holds, by kind, in bytes. All of it counts under the endpoint's cap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryUse {
    /// Each kind of memory with its bytes: receive buffers, send buffers, rings, connection table, queues.
    pub kinds: Vec<(&'static str, u64)>,
    /// The sum over all kinds.
    pub total_bytes: u64,
    /// The cap, which is `Options::memory_bytes_max`.
    pub cap_bytes: u64,
}

/// Counters of one endpoint since it was opened.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct EndpointCounters {
    /// Messages taken for sending.
    pub messages_sent: u64,
    /// Messages handed to the program.
    pub messages_received: u64,
    /// Payload bytes of the messages taken for sending.
    pub bytes_sent: u64,
    /// Payload bytes of the messages handed to the program.
    pub bytes_received: u64,
    /// Remote memory writes started.
    pub rma_writes: u64,
    /// Remote memory reads started.
    pub rma_reads: u64,
    /// Bytes moved by remote memory reads and writes that were started.
    pub rma_bytes: u64,
    /// Atomic operations started.
    pub atomics: u64,
    /// Accesses of peers that were refused, because of their handle, range or right.
    pub rma_refused: u64,
    /// Accesses of peers that a region allows, but not to a peer of that name (`allow_rma_read`, `allow_rma_write`). They count
    /// among those refused, too.
    pub rma_refused_by_name: u64,
    /// Regions registered now.
    pub regions: u64,
    /// Registrations of the program's own memory that needed no check, since all of it was known.
    pub registration_hits: u64,
    /// Registrations of the program's own memory of which something had to be checked.
    pub registration_misses: u64,
    /// Runs of known memory that were forgotten for `Options::idle_registered_bytes_max`.
    pub registration_evictions: u64,
    /// Bytes of memory that are known and not registered now.
    pub registrations_idle_bytes: u64,
    /// Sends and operations that ended with an error, silent ones included.
    pub sends_failed: u64,
    /// Times a message waited because the program held every receive buffer, or all of the sender's quota.
    pub receiver_not_ready: u64,
    /// Times a message waited because its connection had used up its quota of receive buffers: it held as many as were
    /// free for all others.
    pub over_quota: u64,
    /// Connections open now.
    pub connections_open: u64,
    /// Connections made since the endpoint was opened.
    pub connections_made: u64,
    /// Times the owner slept in `wait`.
    pub sleeps: u64,
    /// Times the progress thread looked for something to do.
    pub thread_rounds: u64,
    /// Device-specific counters by name: datagrams, retransmissions, system calls, ring wake-ups.
    pub device: Vec<(&'static str, u64)>,
    /// Everything dropped, by reason; reasons that never occurred may be left out.
    pub drops: Vec<DropReason>,
    /// Memory held now.
    pub memory: MemoryUse,
}

impl EndpointCounters {
    pub(crate) fn count_rma(&mut self, kind: RmaKind, len_bytes: u64) {
        match kind {
            RmaKind::Write => self.rma_writes += 1,
            RmaKind::Read => self.rma_reads += 1,
        }
        self.rma_bytes += len_bytes;
    }
}

/// Counters of one connection.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ConnectionCounters {
    /// Messages taken for sending.
    pub messages_sent: u64,
    /// Messages handed to the program.
    pub messages_received: u64,
    /// Payload bytes of the messages taken for sending.
    pub bytes_sent: u64,
    /// Payload bytes of the messages handed to the program.
    pub bytes_received: u64,
    /// Datagrams that were retransmitted; 0 where the device loses nothing.
    pub retransmissions: u64,
    /// Smoothed round trip, if one was measured.
    pub rtt_ns: Option<u64>,
    /// The congestion window: bytes that may be in flight at once.
    pub window_bytes: u64,
    /// Times the peer said that it had no receive buffer.
    pub receiver_not_ready: u64,
    /// Sends not yet completed.
    pub sends_in_progress: u64,
}
