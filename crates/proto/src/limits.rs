//! Every limit, and assertions that they fit each other.

/// The version of the wire format that this endpoint speaks.
pub const VERSION: u8 = 1;

/// Bytes of a message or request record's header.
pub const RECORD_BYTES: usize = 8;

/// Bytes of the header of every datagram of an established connection.
pub const HEADER_BYTES: usize = 48;

/// Bytes of the header of a datagram to a multicast group.
pub const GROUP_HEADER_BYTES: usize = 40;

/// Of a sender to multicast groups, the lowest bits: they count how often it began to number its datagrams anew.
pub const GROUP_SENDER_COUNT_BITS: u32 = 16;

/// Senders of one multicast group that a receiver remembers.
pub const GROUP_SENDERS_MAX: usize = 256;

/// Datagrams of one sender to a group for which a receiver remembers whether they have come: the last so many.
pub const GROUP_WINDOW: u64 = 64;

/// How far ahead of a sender's last datagram its next one may be: as many lost in a row are believed. One that is further ahead
/// is dropped, since anybody may have sent it.
pub const GROUP_JUMP_MAX: u64 = 1 << 20;

/// Datagrams of a sender that follow each other and are far from those before, more than which show that its numbers are there:
/// at least so many.
pub const GROUP_RESTART_MIN: u32 = 8;

/// Of the datagrams that came before, so many count at most when it is judged where a sender's numbers are.
pub const GROUP_RUN_MAX: u32 = 256;

/// The smallest datagram an endpoint may be limited to: every handshake datagram fits.
pub const DATAGRAM_BYTES_MIN: u16 = 1152;

/// The largest datagram: what UDP can carry, rounded down to a multiple of 8.
pub const DATAGRAM_BYTES_MAX: u16 = 65_504;

/// The longest connection request payload (CCI-036).
pub const REQUEST_BYTES_MAX: usize = 1024;

/// Bundles of a connection that may be queued or unacknowledged at once.
pub const WINDOW_BUNDLES_MAX: u32 = 256;

/// Bundles that one selective acknowledgement describes.
pub const SACK_BITS: u32 = 256;

/// 64-bit words of a full selective acknowledgement.
pub const SACK_WORDS_MAX: usize = (SACK_BITS / 64) as usize;

/// Messages in one bundle at most: bounds the work one datagram can cause.
pub const RECORDS_MAX: u16 = 256;

/// Pieces that one remote memory operation may have.
pub const RMA_SEGMENTS_MAX: usize = 1024;

/// Remote memory requests of one side of a connection that may be unanswered at once; more wait for their turn.
pub const RMA_SLOTS: usize = 128;

/// A read is asked for in requests of this size: bounds what is under way, and what a request can cause.
pub const RMA_READ_BYTES_MAX: u32 = 256 << 10;

/// Places in the window that messages leave to remote memory access while it has something to send, and the other way
/// round: bundles of it that may wait behind messages.
pub const RMA_BUNDLES_RESERVED: u32 = 16;

/// Places in the window that bulk leaves free: those above, which messages keep clear of, and a few for messages.
pub const MESSAGE_BUNDLES_RESERVED: u32 = RMA_BUNDLES_RESERVED + 4;

/// The share of the memory cap that the tables of remote memory operations get at most: one in this many parts.
pub const RMA_SHARE: u64 = 4;

/// The share of the memory cap that requests for connections get at most, waiting and answered: one in this many parts.
pub const HANDSHAKES_SHARE: u64 = 4;

/// The tables of remote memory operations grow by this many entries at a time.
pub const RMA_LOT: usize = 64;

/// The largest table index: the top bit of an index is used as a mark.
pub const INDEX_MAX: u32 = (1 << 31) - 2;

/// The most sends in progress that an endpoint can be set to allow.
pub const SENDS_MAX: u32 = (1 << 24) - 1;

/// How long a send may take unless the program has set another time.
pub const SEND_TIMEOUT_NS_DEFAULT: u64 = 30_000_000_000;

/// What a peer that works on remote operations must get done in a second, or their time runs: bytes of theirs that it sends
/// or takes.
pub const PROGRESS_BYTES_PER_SECOND_MIN: u64 = 64 << 10;

/// The answer to a request counts as so many bytes of progress, whatever it was about.
pub const PROGRESS_ANSWER_BYTES: u64 = 4 << 10;

/// The time that so many bytes of progress take at the least rate, in nanoseconds.
#[must_use]
pub const fn progress_ns(bytes: u64) -> u64 {
    bytes.saturating_mul(1_000_000_000) / PROGRESS_BYTES_PER_SECOND_MIN
}

/// What a peer has begun here and must end itself is looked at after so long, or after the send timeout if that is longer. If
/// nothing has changed when it is looked at again, the connection is broken.
pub const UNENDED_NS_MIN: u64 = SEND_TIMEOUT_NS_DEFAULT;

/// How long an acknowledgement waits for company at most.
pub const ACK_DELAY_NS_MAX: u64 = 200_000;

/// How long an acknowledgement waits for company at least, so that an answer that comes at once takes it along.
pub const ACK_DELAY_NS_MIN: u64 = 20_000;

/// A second datagram is acknowledged at once; a single one waits for [`ACK_DELAY_NS_MAX`] or a quarter of the
/// round trip.
pub const ACK_BUNDLES: u32 = 2;

/// What a receiver's socket spends on a datagram beyond its bytes, about: counted against windows, so that a
/// flood of small datagrams does not overrun it.
pub const DATAGRAM_OVERHEAD_BYTES: u32 = 640;

/// The congestion window a connection starts with, in full datagrams.
pub const INITIAL_WINDOW_DATAGRAMS: u32 = 16;

/// Delay without loss does not make it smaller than this.
pub const DELAY_WINDOW_DATAGRAMS: u32 = 32;

/// Loss without delay does not make the congestion window smaller than this.
pub const LOSS_WINDOW_DATAGRAMS: u32 = 4;

/// The queueing delay that is no reason to send less: what a receiver's process takes to come round.
pub const TARGET_QUEUE_NS: u64 = 250_000;

/// Round trips shorter than this are not paced: the acknowledgements are the pace.
pub const PACING_RTT_NS_MIN: u64 = 1_000_000;

/// A paced connection may send what falls due in this time in one burst.
pub const PACING_BURST_NS: u64 = 250_000;

/// A paced connection may send what falls due in this part of a round trip in one burst, if that is longer.
pub const PACING_BURST_SHARE: u64 = 4;

/// A connection idle for this long gives its active state back.
pub const IDLE_NS: u64 = 100_000_000;

/// Connections are looked at once in so long, a quarter more or less: of one whose peer was not heard of since the last look, the
/// peer is asked whether it lives.
pub const IDLE_LOOK_NS: u64 = 30_000_000_000;

/// Idle connections looked at in a second at most, however many there are.
pub const IDLE_LOOKS_PER_SECOND_MAX: u64 = 1_000;

/// A peer that is asked whether it lives has this time to answer at first, and twice as long each time that it is asked again.
pub const IDLE_ASK_NS_MIN: u64 = 1_000_000_000;

/// The longest time that such a peer has to answer one question.
pub const IDLE_ASK_NS_MAX: u64 = 15_000_000_000;

/// The questions that have to stay without an answer, besides the send timeout, before such a peer is given up: its program may
/// compute for a while.
pub const IDLE_ASKS_MIN: u8 = 12;

/// Bytes before the data of a part of a bundle.
pub const PART_HEAD_BYTES: usize = 8;

/// Parts of a bundle at most.
pub const PARTS_MAX: usize = 64;

/// Bundles that an endpoint puts together from parts at the same time.
pub const PARTIALS_MAX: usize = 32;

/// Copies of a bundle that are lost before its size is suspected: one bundle in 10,000 loses as many by chance where a tenth
/// of all is lost.
pub const SIZE_SUSPECT_COPIES: u8 = 4;

/// Repeats of a bundle after which IP may fragment it.
pub const FRAGMENT_RESENDS: u8 = 3;

/// Tries of one larger datagram size before that is put off.
pub const SIZE_TRIES_MAX: u8 = 2;

/// For how long a larger datagram size is not tried again after it has failed.
pub const SIZE_RAISE_NS: u64 = 60_000_000_000;

/// The first wait for the answer to a question about a path to the peer; doubles up to [`PATH_RETRY_NS_MAX`].
pub const PATH_RETRY_NS_MIN: u64 = 20_000_000;

/// The longest wait between two such questions: how soon at the latest a path that works again is noticed.
pub const PATH_RETRY_NS_MAX: u64 = 500_000_000;

/// How long a path may be silent that is being asked, before it is taken for dead if the other is alive: longer than the queue
/// of a link that has just been filled.
pub const PATH_SILENCE_NS: u64 = 50_000_000;

/// The probes in a row without an answer that keep new bundles from a path, if there is another: the first one may only be
/// delayed by a queue.
pub const PATH_PROBES_TRUSTED: u32 = 2;

/// A path that nothing came by for so long is asked, while the other is in use.
pub const PATH_MEASURE_NS: u64 = 50_000_000;

/// Datagrams a connection may send before it is the next one's turn.
pub const TURN_DATAGRAMS: u32 = 16;

/// First wait of a client for an answer; doubles up to [`DIAL_RETRY_NS_MAX`].
pub const DIAL_RETRY_NS_MIN: u64 = 20_000_000;

/// The longest wait of a client between two requests.
pub const DIAL_RETRY_NS_MAX: u64 = 1_000_000_000;

/// How long a server waits for the client to confirm, at most.
pub const ACCEPT_TIMEOUT_NS: u64 = 30_000_000_000;

/// How long a server waits for the client to confirm, at least. In between, the endpoint's send timeout counts: an acceptance is a send like any other.
pub const ACCEPT_TIMEOUT_NS_MIN: u64 = 1_000_000_000;

/// How often a closing side sends that to the peer before it gives up.
pub const CLOSE_TRIES_MAX: u32 = 10;

/// The first wait for the answer to a close, at least.
pub const CLOSE_RETRY_NS_MIN: u64 = 10_000_000;

/// The first wait between two questions whether a receiver is ready again.
pub const RNR_PROBE_NS_MIN: u64 = 1_000_000;
/// The longest wait between two questions whether a receiver is ready again.
pub const RNR_PROBE_NS_MAX: u64 = 100_000_000;

/// Refused senders that are notified at once that they may go on; the others follow as buffers come back.
pub const READY_PER_RETURN_MAX: usize = 8;

/// Answers to strangers that may wait until the carrier takes them.
pub const REPLIES_MAX: usize = 256;

/// Resets are sent no faster than one in this time, over a burst of [`REPLIES_MAX`].
pub const RESET_INTERVAL_NS: u64 = 50_000;

/// Connections that wait for receive buffers and are looked at when some come back; the others have their turn next.
pub const WAITING_PER_RETURN_MAX: usize = 64;

/// The share of the memory cap that packet buffers get: one in this many parts.
pub const POOL_SHARE: u64 = 2;

/// The most memory that packet buffers get, in bytes: beyond it buffers only add delay.
pub const POOL_BYTES_MAX: u64 = 16 << 20;

/// Of the memory for packet buffers, one part in so many is for putting bundles together that come in parts.
pub const PARTS_SHARE: u64 = 16;

/// The fewest packet buffers with which an endpoint works.
pub const POOL_BUFFERS_MIN: u64 = 8;

/// The longest message that fits a datagram of this size, in bytes.
#[must_use]
pub const fn message_bytes_max(datagram_bytes: u16) -> usize {
    (datagram_bytes as usize).saturating_sub(HEADER_BYTES + RECORD_BYTES)
}

/// The number of bytes up to the next multiple of 8.
pub(crate) const fn padded(len: usize) -> usize {
    (len + 7) & !7
}

/// Bytes that a record with this much payload takes.
pub(crate) const fn record_bytes(payload_bytes: usize) -> usize {
    RECORD_BYTES + padded(payload_bytes)
}

const _: () = {
    assert!(WINDOW_BUNDLES_MAX.is_power_of_two(), "the slot index is seq & (window - 1)");
    assert!(WINDOW_BUNDLES_MAX <= SACK_BITS, "one SACK must describe a full window");
    assert!(
        DATAGRAM_BYTES_MAX as usize / (DATAGRAM_BYTES_MIN as usize - HEADER_BYTES - PART_HEAD_BYTES)
            < PARTS_MAX,
        "the longest bundle has no more parts than bits"
    );
    assert!(IDLE_ASK_NS_MAX * (IDLE_ASKS_MIN as u64 - 4) >= 120_000_000_000, "two minutes at least");
    assert!(IDLE_LOOKS_PER_SECOND_MAX > 0 && IDLE_LOOK_NS > IDLE_NS);
    assert!(DATAGRAM_BYTES_MIN.is_multiple_of(8) && DATAGRAM_BYTES_MAX.is_multiple_of(8));
    assert!(GROUP_HEADER_BYTES.is_multiple_of(8), "messages start on 8-byte boundaries");
    assert!(GROUP_HEADER_BYTES <= HEADER_BYTES, "a group takes every message that a connection takes");
    assert!(HEADER_BYTES.is_multiple_of(8) && RECORD_BYTES.is_multiple_of(8));
};
