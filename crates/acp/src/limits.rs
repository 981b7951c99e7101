//! Limits of the global address space.

use std::time::Duration;

/// Colours with which memory can be registered. Each has its own connection with each rank.
pub const COLORS: u32 = 2;
/// The colour whose accesses use a network, also to ranks of the same host, if the device has such a path.
pub const NETWORK_COLOR: u32 = 1;
/// The most ranks of a job with global memory.
pub const RANKS_MAX: u32 = (1 << RANK_BITS) - 1;
/// The most bytes of all regions of a rank, with the gaps between them: 2 TiB.
pub const PLACES: u64 = 1 << PLACE_BITS;

/// Bits of a global address for the rank plus 1.
pub(crate) const RANK_BITS: u32 = 21;
pub(crate) const COLOR_BITS: u32 = 2;
pub(crate) const PLACE_BITS: u32 = 41;
/// The places of a region and the addresses of its memory have the same last bits, so that both show its alignment.
pub(crate) const ALIGN_BYTES: u64 = 4096;
/// Where the starter memory of every rank begins.
pub(crate) const STARTER_PLACE: u64 = ALIGN_BYTES;
/// Size of the buffer for what a rank reads of others, or writes to them.
pub(crate) const SCRATCH_BYTES: usize = 16 << 10;
/// A rank may compute for this time without making progress before it is considered dead. Over shared memory and TCP, a death is
/// noticed at once. Otherwise the launcher ends the job, or shows the death to the surviving ranks.
pub(crate) const SILENCE_LIMIT: Duration = Duration::from_secs(3600);
/// Time between two attempts of an operation that waits for space.
pub(crate) const SPACE_PAUSE: Duration = Duration::from_millis(1);
/// The most events that one turn takes.
pub(crate) const TURN_EVENTS: usize = 256;
/// The most short messages of channels that are taken before it is checked again whether what was waited for has happened.
pub(crate) const TURN_MESSAGES: usize = 32;
/// How many checks come before a wait of the endpoint, which spins and sleeps.
pub(crate) const LOOKS: u32 = 16;
/// The most copies between two other ranks that one rank asks of another at a time. More wait at the rank that wants them.
pub(crate) const ASKED_COPIES_MAX: u32 = 256;
/// The most records that wait to be sent to a rank. A rank that keeps to the protocol never needs as many answers.
pub(crate) const OUTBOX_RECORDS_MAX: usize = 1024;
/// The most atomic operations on 4 bytes of other ranks that are under way at a time. More of them wait.
pub(crate) const RESULTS_MAX: usize = 64;
/// Bytes that are copied in one step within a process.
pub(crate) const COPY_BYTES: usize = 64 << 10;
/// The longest copy that is done within the call if the other rank's memory is mapped, bytes.
pub(crate) const AT_ONCE_BYTES_MAX: u64 = 16 << 10;
/// After this many operations that were done within their calls, a turn follows, since other ranks may wait for one.
pub(crate) const AT_ONCE_TURN: u32 = 64;
/// The longest time for which closing delivers what was sent.
pub(crate) const CLOSE_LIMIT: Duration = Duration::from_secs(10);

/// The most slots of an end of a channel.
pub const SLOTS_MAX: u32 = 1 << 16;
/// The shortest slot, bytes.
pub const SLOT_BYTES_MIN: u32 = 32;
/// The header of a receiver's slot, bytes.
pub const SLOT_HEADER_BYTES: usize = 16;
/// The longest segment of a channel that travels with its record, bytes. It fits in a message of every device.
pub(crate) const SEGMENT_HERE_BYTES_MAX: usize = 1024;
/// The longest message of a channel that goes directly to the memory of its request, bytes. A call copies all of it.
pub(crate) const PLACED_BYTES_MAX: usize = 64 << 20;
/// From this length on, it pays to check first whether the receiver has shown where a message goes, bytes.
pub(crate) const LOOK_BYTES: usize = 16 << 10;
/// A sender asks to be shown the memory of this many requests at a time, and keeps no more.
pub(crate) const ASKED_REQUESTS: u32 = 32;
pub(crate) const SHOWN_REQUESTS_MAX: usize = 64;
/// The most empty queues of requests that channels keep for each direction, and their greatest length.
pub(crate) const SPARE_QUEUES_MAX: usize = 16;
pub(crate) const SPARE_QUEUE_LEN_MAX: usize = 64;
/// Bits of the number of a channel of a pair and direction. Those above [`CHANNELS_BITS`] count resets.
pub(crate) const CHANNEL_BITS: u32 = 42;
/// Bits that count channels of a pair and direction between two resets.
pub(crate) const CHANNELS_BITS: u32 = 32;
/// Numbers of segmented buffers have this bit set. Those of channels have not.
pub(crate) const BUFFER_BIT: u64 = 1 << (CHANNELS_BITS - 1);

const _: () = assert!(1 + RANK_BITS + CHANNEL_BITS == u64::BITS, "a context names an end");
const _: () = assert!(RANK_BITS + COLOR_BITS + PLACE_BITS == u64::BITS);
const _: () = assert!(COLORS <= 1 << COLOR_BITS);
const _: () = assert!(RANKS_MAX > 1_000_000, "ACP aims at a million processes");
const _: () = assert!(OUTBOX_RECORDS_MAX > 2 * ASKED_COPIES_MAX as usize + 2);
const _: () = assert!(RESULTS_MAX <= u8::MAX as usize);
