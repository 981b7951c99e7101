//! Every limit of this crate, each with its unit in its name, and proofs that they fit each other.

/// The longest name of a service, bytes.
pub const NAME_BYTES_MAX: usize = 63;
/// URIs in one record of a directory.
pub const RECORD_URIS_MAX: usize = 4;
/// The longest URI in a record, bytes.
pub const RECORD_URI_BYTES_MAX: usize = 512;
/// The longest record as text, bytes.
pub const RECORD_BYTES_MAX: usize = 4_096;
/// Members of a group that one process sends to.
pub const MEMBERS_MAX: usize = 1_024;
/// Services that one node registers.
pub const SERVICES_MAX: usize = 1_024;
/// Partners of one node: pairs of a service here and a service elsewhere.
pub const PARTNERS_MAX: usize = 65_536;
/// Short items in one message: their count travels in one byte.
pub const ITEMS_MAX: usize = 255;
/// Long items in one message.
pub const LONG_ITEMS_MAX: usize = 32;
/// Return buffers offered with one message.
pub const OFFERS_MAX: usize = 32;
/// Return buffers that are kept of one partner; of more, the oldest is forgotten.
pub const OFFERS_KEPT_MAX: usize = 64;
/// Messages that wait for one service to receive them.
pub const QUEUE_MAX: usize = 256;
/// Messages of one partner among those, so that one that floods leaves space for others.
pub const QUEUE_OF_ONE_MAX: usize = 128;
/// Messages that wait until a partner is found and connected.
pub const WAITING_MAX: usize = 128;
/// Calls of one service that have no answer yet, to one partner. A partner remembers as many answers.
pub const CALLS_MAX: usize = 256;
/// Long messages of one partner that are fetched at a time; further ones wait where they are.
pub const PULLS_MAX: usize = 16;
/// The longest long item, bytes.
pub const LONG_BYTES_MAX: u64 = 1 << 40;
/// Bytes of answers that one service keeps, in case a call is repeated.
pub const ANSWERS_BYTES_MAX: usize = 8 << 20;
/// Clients whose answers one service keeps.
pub const CLIENTS_MAX: usize = 16_384;
/// How long an unknown service is looked for, by default, nanoseconds.
pub const RESOLVE_TIMEOUT_NS: u64 = 10_000_000_000;
/// How long memory is lent, by default, nanoseconds.
pub const LEASE_NS: u64 = 60_000_000_000;
/// The first pause before an unknown service is asked for again, nanoseconds; it doubles.
pub const ASK_AGAIN_NS_MIN: u64 = 1_000_000;
/// The longest such pause, nanoseconds.
pub const ASK_AGAIN_NS_MAX: u64 = 200_000_000;
/// How long one attempt to connect to a partner may take, nanoseconds: its record may be stale.
pub const CONNECT_NS: u64 = 2_000_000_000;
/// How long a call that a partner was too busy for waits before it is repeated, nanoseconds.
pub const BUSY_NS: u64 = 5_000_000;
/// How often services whose answers do not come are asked for again, nanoseconds.
pub const WATCH_NS: u64 = 200_000_000;
/// How long a partner may be silent before it is looked for anew, by default, nanoseconds.
pub const KEEPALIVE_NS: u64 = 5_000_000_000;
/// How long it may be silent if the directory says that it is elsewhere, nanoseconds.
pub const ELSEWHERE_KEEPALIVE_NS: u64 = 300_000_000;
/// How long a send may take before its partner is looked for anew, by default, nanoseconds.
pub const SEND_TIMEOUT_NS: u64 = 5_000_000_000;
/// Bytes that long messages may be fetched into where a program has given no windows, by default.
pub const PULLED_BYTES_DEFAULT: u64 = 256 << 20;
/// Bytes of memory of the library's own that a node keeps to fetch further long items into.
pub const KEPT_BYTES_MAX: usize = 32 << 20;
/// Buffers of such memory.
pub const KEPT_BUFFERS_MAX: usize = 64;
/// The shortest such buffer, bytes: shorter ones are quickly made.
pub const KEPT_BUFFER_BYTES_MIN: usize = 64 << 10;
/// How long an answer may take before the directory is asked whether its service is elsewhere, nanoseconds.
pub const LATE_NS: u64 = 20_000_000;
/// The longest sleep of a wait: how late a directory's news are seen where it has no descriptor, nanoseconds.
pub const DIRECTORY_LOOK_NS: u64 = 500_000_000;

const _: () = assert!(ITEMS_MAX <= u8::MAX as usize && LONG_ITEMS_MAX <= 255 && OFFERS_MAX <= 255);
const _: () = assert!(KEPT_BUFFERS_MAX * KEPT_BUFFER_BYTES_MIN <= KEPT_BYTES_MAX && LATE_NS < WATCH_NS);
const _: () = assert!(QUEUE_OF_ONE_MAX <= QUEUE_MAX && OFFERS_MAX <= OFFERS_KEPT_MAX);
const _: () =
    assert!(RECORD_URIS_MAX * (RECORD_URI_BYTES_MAX + 1) + NAME_BYTES_MAX + 128 <= RECORD_BYTES_MAX);
