//! What is bounded in a job, and by how much.

use std::time::Duration;

/// Most ranks of a job that `cci run` starts.
pub const RANKS_MAX: u32 = 1024;
/// Longest key of a value that a rank puts, bytes.
pub const KEY_BYTES_MAX: usize = 64;
/// Longest value of a rank, put or exchanged, bytes.
pub const VALUE_BYTES_MAX: usize = 4096;
/// Most values that one rank puts.
pub const VALUES_PER_RANK_MAX: usize = 64;
/// Longest text of a reason, bytes.
pub const REASON_BYTES_MAX: usize = 512;
/// Longest frame between a rank and the launcher: everybody's values, each with its length.
pub const FRAME_BYTES_MAX: usize = RANKS_MAX as usize * (VALUE_BYTES_MAX + 4) + 64;
/// Longest line of a PMI-1 server: the protocol has 1,024 for a value, and the rest is short.
pub const PMI_LINE_BYTES_MAX: usize = 4096;
/// How soon the launcher is asked again what has become of a rank; each time later, up to the second one.
pub const STATUS_PAUSE_MIN: Duration = Duration::from_millis(1);
/// How late it is asked again at most.
pub const STATUS_PAUSE_MAX: Duration = Duration::from_millis(64);
/// Bytes of a job's key.
pub const JOB_KEY_BYTES: usize = 32;
/// Bytes of the number by which ranks know each other when they connect.
pub const TICKET_BYTES: usize = 16;
/// How many labels connections with a rank may have, of each kind: so a rank can't have another one keep more of them.
pub const LABELS_MAX: u16 = 16;
/// Most children that a rank has in barriers on its host, and the first rank of a host has among hosts.
pub const BARRIER_BRANCHES: usize = 4;
/// How soon a message of a barrier is tried again for which there was no send buffer, ms.
pub const BARRIER_RETRY_MS: u64 = 1;
/// More ranks than these on one host make an endpoint of the job a small one.
pub const LOCAL_RANKS_ROOMY: u32 = 16;
/// Cap on the memory of a small endpoint, bytes. What a link takes shrinks with what is left under the cap.
pub const SMALL_ENDPOINT_BYTES: u64 = 40_000_000;
/// Longest list of the ranks' URIs that a process keeps for itself, bytes: shared memory takes a page at least.
pub const OWN_BOOK_BYTES_MAX: usize = 4096;
/// How often a rank that survives others looks which ones have ended.
pub const ENDED_LOOK_EVERY: Duration = Duration::from_millis(500);
/// So many polls have one reading of the clock.
pub(crate) const POLLS_PER_CLOCK: u32 = 64;
/// What a rank has sent before it ended still arrives for so long.
pub const ENDED_GRACE: Duration = Duration::from_secs(1);
/// How long after the grace what was under way to that rank has failed.
pub(crate) const ENDED_PARTING: Duration = Duration::from_millis(100);
/// How long after the grace the connection ends although the program has not got all other events.
pub(crate) const ENDED_PARTING_MAX: Duration = Duration::from_secs(5);

const _: () = assert!(SMALL_ENDPOINT_BYTES < cci::limits::MEMORY_BYTES_DEFAULT);
const _: () = assert!(FRAME_BYTES_MAX < u32::MAX as usize);
const _: () = assert!(REASON_BYTES_MAX + KEY_BYTES_MAX < VALUE_BYTES_MAX);
/// Events that are taken and kept at the end of a barrier.
pub(crate) const BARRIER_EVENTS_MAX: usize = 64;
