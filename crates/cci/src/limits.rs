//! Every limit of the library in one place, each with its unit in its name, and proofs that they fit each other.

/// Longest payload of a connection request, bytes (CCI-036; the C interface's `CCI_CONN_REQ_LEN`).
pub const REQUEST_BYTES_MAX: usize = 1024;
/// Receive buffers of an endpoint, by default: with [`MESSAGE_BYTES_MAX`] about 8 MB (CCI-079).
pub const RECV_BUFFERS_DEFAULT: u32 = 1024;
/// The largest number of receive buffers that an endpoint may be opened with.
pub const RECV_BUFFERS_MAX: u32 = 1 << 20;
/// Sends started and not yet completed, per endpoint, by default.
pub const SENDS_DEFAULT: u32 = 16 * 1024;
/// The largest number of sends in progress that an endpoint may be opened with.
pub const SENDS_MAX: u32 = 1 << 22;
/// Remote memory operations started and not yet completed, per endpoint, by default: as many as programs for the
/// published library post. Their memory is borrowed when they begin.
pub const RMA_OPERATIONS_DEFAULT: u32 = 16 * 1024;
/// Remote memory operations whose completions have a place in the queue of events from the beginning.
pub const RMA_EVENTS_RESERVED: u32 = 4 * 1024;
/// The largest number of remote memory operations in progress that an endpoint may be opened with.
pub const RMA_OPERATIONS_MAX: u32 = 1 << 20;
/// The least rate at which a peer has to take, or deliver, the data of remote operations over a channel, bytes a second.
/// The time that an operation needs at this rate is added to its send timeout.
pub const RMA_BYTES_PER_S_MIN: u64 = 64 << 10;
/// Bytes that an operation counts for beside its data, since answering it takes time, too.
pub const RMA_OPERATION_BYTES: u64 = 256;
/// Memory that idles in the registration cache, by default, bytes.
pub const IDLE_REGISTERED_BYTES_DEFAULT: u64 = 64 << 20;
/// Runs contiguous on both sides that one operation is made of, at most: what `IOV_MAX` is to `writev`.
pub const RMA_SEGMENTS_MAX: usize = cci_proto::limits::RMA_SEGMENTS_MAX;
/// The largest message any device of ours takes (CCI-049: 2 K to 8 K is what an MSS should be), bytes.
pub const MESSAGE_BYTES_MAX: u32 = 8 * 1024;
/// How long a reliable send may take before it fails, by default.
pub const SEND_TIMEOUT_NS_DEFAULT: u64 = 10_000_000_000;
/// Messages that may be out as loans at a time: to each process of the host that maps them, and all those of an endpoint that are copied.
pub const LOANS_MAX: u32 = 32;
/// The shortest message that is handed over mapped, bytes. The slot has to be returned, which costs more than copying a shorter
/// one.
pub const LOAN_MAPPED_BYTES_MIN: usize = 2 * 1024;
/// Cap on the memory of one endpoint, all kinds together, by default.
pub const MEMORY_BYTES_DEFAULT: u64 = 256 << 20;
/// Smallest cap that an endpoint can be opened with.
pub const MEMORY_BYTES_MIN: u64 = 1 << 20;
/// Connection requests waiting for the program to accept or reject them, per endpoint.
pub const REQUESTS_MAX: u32 = 1024;
/// Connections of one endpoint.
pub const CONNECTIONS_MAX: u32 = 4 << 20;
/// Longest spin of a wait before it sleeps: about what a sleep and wake-up cost, so that waiting never costs more
/// than twice the better of the two (the ski-rental argument).
pub const SPIN_NS_MAX: u64 = 50_000;
/// Shortest spin: long enough to notice that spinning has begun to pay again.
pub const SPIN_NS_MIN: u64 = 2_000;
/// How often a spinning wait makes progress between two readings of the clock. With slow transports, whose progress takes a microsecond, a
/// wait may last as many microseconds longer.
pub const LOOKS_PER_CLOCK: u32 = 8;
/// How often a blocking send that found no space tries again.
pub const SPACE_POLL_NS: u64 = 1_000_000;
/// How long a program has called nothing before the progress thread takes over. A shorter nap costs more looks at a busy
/// program, each a few microseconds; a longer one makes the peers of a program that has begun to compute wait.
pub const PROGRESS_NAP_NS: u64 = 1_000_000;
/// Events taken before progress is made all the same, at most.
pub const EVENTS_PER_PROGRESS: u32 = 16;
/// About how long a program may take events before progress is made: acknowledgements are due in less than twice this.
pub const PROGRESS_NS: u64 = 50_000;
/// If a read leaves more events than this in the queue, a program that is quick takes some of them before the next read.
pub const EVENTS_MANY: usize = 128;
/// How long destroying an endpoint may go on delivering what was sent before.
pub const LINGER_NS_MAX: u64 = 1_000_000_000;
/// How long an endpoint may go on closing its connections once everything sent has been delivered: long enough for CLOSE to be repeated where
/// it was lost, short enough for a program whose peer is busy elsewhere and answers late.
pub const FAREWELL_NS_MAX: u64 = 50_000_000;

/// Bytes of a mapped region that are copied before its owner's word that it may be used is looked at again.
pub const RMA_COPY_BYTES: usize = 1 << 20;
/// TCP: seconds without a byte from the peer's kernel after which ours asks it whether the connection is still there,
pub const TCP_IDLE_S: u64 = 30;
/// TCP: up to so many seconds are added to that, a different number for each connection.
pub const TCP_IDLE_JITTER_S: u64 = 15;
/// TCP: seconds between two such questions.
pub const TCP_ASK_S: u64 = 10;
/// TCP: questions without an answer after which the connection is broken.
pub const TCP_ASKS: u32 = 9;
/// A transport lends its part of the memory cap to sends that wait for space, except for one part in this many.
pub const KEPT_SHARE: u64 = 8;

/// Long messages of one connection that may be under way at once, in each direction.
pub const LONG_MESSAGES_MAX: u32 = 16;
/// Messages that may be sent behind a long one that has not ended, on a reliable ordered connection.
pub const HELD_MESSAGES_MAX: u32 = 32;
/// Calls of one connection that may be unanswered at once, in each direction.
pub const CALLS_MAX: u32 = 256;
/// Calls of one endpoint that may be under way at once.
pub const CALLS_ALL_MAX: u32 = 1 << 20;
/// Parts of memory that one long message may be gathered from.
pub const LONG_SEGMENTS_MAX: usize = 4;
/// Long messages of one endpoint that may be under way at once, in each direction.
pub const LONG_MESSAGES_ALL_MAX: u32 = 1 << 20;
/// The length of the pieces in which long messages are fetched, bytes.
pub const LONG_PIECE_BYTES: u64 = 256 << 10;
/// Pieces of one long message that are under way at once, at most.
pub const LONG_PIECES_MAX: u32 = 8;
/// While so many bytes of a connection's long messages are still to come, no further one is given memory of the library: more under way would
/// make none of them faster, and so many buffers leave the processor's caches.
pub const LONG_AHEAD_BYTES: u64 = LONG_PIECES_MAX as u64 * LONG_PIECE_BYTES;
/// How often the receiver of a long message reports its progress to the sender: each time it has this many more bytes.
pub const LONG_PROGRESS_BYTES: u64 = 4 << 20;
/// The longest message that comes whole, by default, bytes.
pub const WHOLE_BYTES_DEFAULT: u64 = 1 << 20;
/// The longest message that is taken at all, by default, bytes.
pub const LONG_BYTES_DEFAULT: u64 = 1 << 40;
/// Cap on the memory that is lent for long messages, by default, bytes.
pub const LENT_BYTES_DEFAULT: u64 = 64 << 20;
/// Cap on copies of long messages that are being sent, by default, bytes.
pub const STAGED_BYTES_DEFAULT: u64 = 64 << 20;
/// How long what could not be done for lack of space waits until it is tried again.
pub const LONG_RETRY_NS: u64 = 1_000_000;

/// The time in nanoseconds that `len_bytes` take at the least rate.
pub const fn progress_ns(bytes: u64) -> u64 {
    let ns = bytes as u128 * 1_000_000_000 / RMA_BYTES_PER_S_MIN as u128;
    if ns > u64::MAX as u128 { u64::MAX } else { ns as u64 }
}

const _: () = {
    assert!(RECV_BUFFERS_DEFAULT <= RECV_BUFFERS_MAX && SENDS_DEFAULT <= SENDS_MAX);
    assert!(MESSAGE_BYTES_MAX.is_multiple_of(8), "receive buffers are 8-byte aligned");
    assert!(
        RECV_BUFFERS_DEFAULT as u64 * MESSAGE_BYTES_MAX as u64 <= MEMORY_BYTES_DEFAULT / 4,
        "the default buffers fit the default cap with room for connections"
    );
    assert!(RMA_EVENTS_RESERVED <= RMA_OPERATIONS_DEFAULT && RMA_OPERATIONS_DEFAULT <= RMA_OPERATIONS_MAX);
    assert!(SPIN_NS_MIN < SPIN_NS_MAX);
    assert!(
        LONG_PROGRESS_BYTES.is_multiple_of(LONG_PIECE_BYTES),
        "progress is reported at the ends of pieces"
    );
    assert!(WHOLE_BYTES_DEFAULT <= LENT_BYTES_DEFAULT && LENT_BYTES_DEFAULT <= LONG_BYTES_DEFAULT);
    assert!(
        HELD_MESSAGES_MAX <= RECV_BUFFERS_DEFAULT / 4,
        "one connection's messages behind a long one leave receive buffers to others"
    );
    assert!(
        LONG_SEGMENTS_MAX < 256 && LONG_SEGMENTS_MAX <= RMA_SEGMENTS_MAX,
        "a frame counts them in a byte"
    );
    assert!(
        RMA_OPERATIONS_DEFAULT as u64 * RMA_OPERATION_BYTES / RMA_BYTES_PER_S_MIN <= 64,
        "as many operations as there are by default end within about a minute, if they move nothing"
    );
};
