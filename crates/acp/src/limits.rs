//! What is bounded in the global address space, and by how much.

use std::time::Duration;

/// Colours that memory can be registered with: each is a connection of its own with each rank.
pub const COLORS: u32 = 2;
/// The colour whose accesses go over a network, also to ranks of the same host, where the device has such a path.
pub const NETWORK_COLOR: u32 = 1;
/// Most ranks of a job with global memory.
pub const RANKS_MAX: u32 = (1 << RANK_BITS) - 1;
/// Most bytes of all regions of a rank with the gaps between them: 2 TiB.
pub const PLACES: u64 = 1 << PLACE_BITS;

/// A global address has the rank plus 1, the colour, and a place.
pub(crate) const RANK_BITS: u32 = 21;
pub(crate) const COLOR_BITS: u32 = 2;
pub(crate) const PLACE_BITS: u32 = 41;
/// Places of a region and addresses of its memory are equal in their last bits, so that either shows how it is aligned.
pub(crate) const ALIGN_BYTES: u64 = 4096;
/// Where the starter memory of every rank begins.
pub(crate) const STARTER_PLACE: u64 = ALIGN_BYTES;
/// What a rank reads of others comes here first, or what it writes to them.
pub(crate) const SCRATCH_BYTES: usize = 16 << 10;
/// A rank may compute for so long without making progress, and is not taken for dead. One that dies is noticed at once
/// over shared memory and TCP. Else the launcher ends the job, or shows the end to those that survive it.
pub(crate) const SILENCE_LIMIT: Duration = Duration::from_secs(3600);
/// What waits for space is tried again so often.
pub(crate) const SPACE_PAUSE: Duration = Duration::from_millis(1);
/// Events that are taken in one turn.
pub(crate) const TURN_EVENTS: usize = 256;
/// Short messages of channels that are taken at a time, before the next look at what was waited for.
pub(crate) const TURN_MESSAGES: usize = 32;
/// Looks at what is waited for before a wait of the endpoint, which spins and sleeps.
pub(crate) const LOOKS: u32 = 16;
/// Copies between two other ranks that one rank has another one do at a time: more of them wait at the rank that wants them.
pub(crate) const ASKED_COPIES_MAX: u32 = 256;
/// Most records that wait on their way to a rank: more than a rank that keeps to the protocol has answers to get.
pub(crate) const OUTBOX_RECORDS_MAX: usize = 1024;
/// Atomic operations on 4 bytes of other ranks that are under way at a time; more of them wait.
pub(crate) const RESULTS_MAX: usize = 64;
/// Bytes that are copied at once within a process.
pub(crate) const COPY_BYTES: usize = 64 << 10;
/// The longest copies that are done within the call where the other rank's memory is mapped, bytes.
pub(crate) const AT_ONCE_BYTES_MAX: u64 = 16 << 10;
/// So many operations that were done within their calls are followed by a turn, since other ranks may wait for one.
pub(crate) const AT_ONCE_TURN: u32 = 64;
/// Closing delivers what was sent for so long at most.
pub(crate) const CLOSE_LIMIT: Duration = Duration::from_secs(10);

/// Most slots of an end of a channel.
pub const SLOTS_MAX: u32 = 1 << 16;
/// Shortest slot, bytes.
pub const SLOT_BYTES_MIN: u32 = 32;
/// What a receiver's slot begins with, bytes.
pub const SLOT_HEADER_BYTES: usize = 16;
/// Longest segment of a channel that travels with its record, bytes: these fit in a message of every device.
pub(crate) const SEGMENT_HERE_BYTES_MAX: usize = 1024;
/// Longest message of a channel that goes straight to the memory of its request, bytes: a call copies all of it.
pub(crate) const STRAIGHT_BYTES_MAX: usize = 64 << 20;
/// From here on a message of a channel is worth a look whether the receiver has said where it goes, bytes.
pub(crate) const LOOK_BYTES: usize = 16 << 10;
/// A sender asks to be shown the memory of so many requests at a time, and keeps no more than so many.
pub(crate) const ASKED_REQUESTS: u32 = 32;
pub(crate) const SHOWN_REQUESTS_MAX: usize = 64;
/// Empty queues of requests that channels keep for each direction, and how long these are at most.
pub(crate) const SPARE_QUEUES_MAX: usize = 16;
pub(crate) const SPARE_QUEUE_LEN_MAX: usize = 64;
/// Channels of a pair and direction are numbered with so many bits, of which those above the first ones count resets.
pub(crate) const CHANNEL_BITS: u32 = 42;
/// Bits that count channels of a pair and direction between two resets.
pub(crate) const CHANNELS_BITS: u32 = 32;
/// Numbers of segmented buffers have this one of them, and those of channels have not.
pub(crate) const BUFFER_BIT: u64 = 1 << (CHANNELS_BITS - 1);

const _: () = assert!(1 + RANK_BITS + CHANNEL_BITS == u64::BITS, "a context names an end");
const _: () = assert!(RANK_BITS + COLOR_BITS + PLACE_BITS == u64::BITS);
const _: () = assert!(COLORS <= 1 << COLOR_BITS);
const _: () = assert!(RANKS_MAX > 1_000_000, "ACP aims at a million processes");
const _: () = assert!(OUTBOX_RECORDS_MAX > 2 * ASKED_COPIES_MAX as usize + 2);
const _: () = assert!(RESULTS_MAX <= u8::MAX as usize);
