//! Limits and times of what a multicast directory sends and keeps.

use crate::limits::RECORD_BYTES_MAX;

/// The least length of questions and probes, bytes. So no answer is three times as long as its question.
pub(super) const QUESTION_BYTES_MIN: usize = 480;
/// The longest datagram, bytes. It fits into the packets of every Ethernet.
pub(super) const DATAGRAM_BYTES_MAX: usize = 1_432;
/// Records in one datagram.
pub(super) const RECORDS_MAX: usize = 32;
/// Interfaces of one directory.
pub(super) const INTERFACES_MAX: usize = 16;
/// The most datagrams that are taken from one socket in a row.
pub(super) const BURST_MAX: usize = 4_096;
/// Names that others claim or announce, which are remembered for a while.
pub(super) const HEARD_MAX: usize = 4_096;

/// Milliseconds in nanoseconds.
pub(super) const MS: u64 = 1_000_000;
/// The longest random pause before a first probe, or before a question that somebody else's announcement raises, nanoseconds.
pub(super) const SPREAD_NS: u64 = 20 * MS;
/// Time between probes of a claim, and from the last one to the claim's end, nanoseconds.
pub(super) const PROBE_NS: u64 = 50 * MS;
/// Probes of a claim.
pub(super) const PROBES: u32 = 3;
/// Probes of a claim of a name that was heard of recently, since its owner may be slow.
pub(super) const PROBES_OF_HEARD: u32 = 10;
/// How long a name counts as heard of recently, nanoseconds.
pub(super) const HEARD_NS: u64 = 5_000 * MS;
/// When the questions of a round are sent, nanoseconds from its beginning.
pub(super) const QUESTIONS_NS: [u64; 3] = [0, 30 * MS, 90 * MS];
/// How long a round waits for answers, nanoseconds from its beginning.
pub(super) const ROUND_NS: u64 = 250 * MS;
/// How long an answer is reused without a new question, nanoseconds.
pub(super) const FRESH_NS: u64 = 200 * MS;
/// How long an answer is reused at all, nanoseconds.
pub(super) const CACHED_NS: u64 = 10_000 * MS;
/// How long a name that nobody asks for any more is watched, nanoseconds.
pub(super) const WATCHED_NS: u64 = 600_000 * MS;
/// Time between announcements of a service, nanoseconds; a fourth of it is random.
pub(super) const ANNOUNCE_NS: u64 = 2_000 * MS;
/// The least time between two announcements that others cause, nanoseconds.
pub(super) const ANNOUNCE_AGAIN_NS: u64 = 100 * MS;
/// How long to wait for the answer of an owner with a better right, nanoseconds.
pub(super) const CONTEST_NS: u64 = 500 * MS;
/// Answers to one address: in a second, and at once.
pub(super) const ANSWERS_OF_ONE: (u64, u64) = (200, 100);
/// Answers to all addresses: in a second, and at once.
pub(super) const ANSWERS_OF_ALL: (u64, u64) = (5_000, 1_000);

const _: () = assert!(DATAGRAM_BYTES_MAX < 3 * QUESTION_BYTES_MIN && DATAGRAM_BYTES_MAX < RECORD_BYTES_MAX);
const _: () = assert!(QUESTIONS_NS[QUESTIONS_NS.len() - 1] < ROUND_NS && FRESH_NS < CACHED_NS);
const _: () = assert!(HEARD_NS > 2 * ANNOUNCE_NS);
