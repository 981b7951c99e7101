//! Limits of active messages.

use cci::limits::MESSAGE_BYTES_MAX;
use std::time::Duration;

/// The most arguments of an active message.
pub const ARGS_MAX: usize = 16;
/// The longest data of an active message, to any rank, bytes. With its header and 16 arguments, it fits in one message of the
/// core if the path takes the longest ones. Otherwise it travels in parts.
pub const DATA_BYTES_MAX: usize = MESSAGE_BYTES_MAX as usize - HEADER_BYTES - 8 * ARGS_MAX;
/// The most contexts that a process makes, including freed ones, whose numbers are not reused.
pub const CONTEXTS_MAX: usize = 4096;
/// The most remote operations that a process has under way.
pub const OPERATIONS_MAX: usize = 4096;
/// The most operations that had ended when a program started them and whose callbacks have not run. So many stay in the
/// processor's first cache. Handlers, which can't run callbacks, may start more.
pub(crate) const ENDED_MAX: usize = 256;
/// The longest name of a context, bytes.
pub const CONTEXT_NAME_BYTES_MAX: usize = 256;

/// The most large messages that a process has under way to a rank.
pub const LARGE_MESSAGES_MAX: u32 = 256;

/// The most collectives that a process has under way.
pub const COLLECTIVES_MAX: usize = 256;
/// The most teams of a process.
pub const TEAMS_MAX: usize = 4096;

/// The most ranks of one host whose barriers and collectives are counted in memory. There is a bit for each.
pub(crate) const COUNTED_RANKS_MAX: usize = 64;
/// How many barriers and collectives come before memory for counting is offered. Short jobs do without it.
pub(crate) const COUNTED_AFTER: u32 = 8;
/// How many barriers and collectives come between the first offer of such memory and the first one that is counted there. Each
/// offer leaves four times as many as the one before, for ranks that are further ahead.
pub(crate) const COUNTED_AHEAD: u32 = 8;
/// The most offers of such memory, if a rank is always too far ahead.
pub(crate) const COUNTED_OFFERS_MAX: u32 = 4;
/// Bytes of the slots of all ranks for one step of a counted collective.
pub(crate) const COUNTED_SLOTS_BYTES: usize = 1 << 20;
/// The longest piece of data that a rank has for each other one in such a step, bytes. Such pieces stay in the caches of both
/// sides.
pub(crate) const COUNTED_PIECE_BYTES_MAX: usize = 64 << 10;
/// The longest copy to or from the memory of such steps, bytes. Longer ones bypass caches on some processors.
pub(crate) const COUNTED_COPY_BYTES_MAX: usize = 16 << 10;
/// The longest segment of all such pieces, bytes.
pub(crate) const COUNTED_SEGMENT_BYTES_MAX: usize = 128 << 10;
/// Slots of up to this many bytes in total are read by each rank.
pub(crate) const COUNTED_SHORT_BYTES: usize = 16 << 10;
/// The most steps of a counted collective in one turn, since a process has other work.
pub(crate) const COUNTED_STEPS_PER_TURN: u32 = 4;
/// How many operations on the memory a rank tries before it concludes that the memory can't be mapped.
pub(crate) const COUNTED_TRIES_MAX: u32 = 8;
/// One of this many checks of a count makes progress for others.
pub(crate) const COUNTED_LOOKS_PER_PROGRESS: u32 = 4;

/// The addresses of symmetric memory. They are between programs and libraries, where neither Linux nor the sanitizers put
/// anything.
pub(crate) const SYMMETRIC_ADDRESSES: std::ops::Range<u64> = 0x5700_0000_0000..0x5a00_0000_0000;
/// How many addresses are tried for symmetric memory before it is given up.
pub(crate) const SYMMETRIC_ATTEMPTS_MAX: u32 = 64;
/// One of this many fences makes progress for others, even if everything that it waits for has ended.
pub(crate) const FENCES_PER_POLL: u32 = 16;
/// The longest data that are copied before a put, if that saves a registration, bytes.
pub(crate) const STAGED_BYTES: usize = 2048;
/// The longest data of one part of a collective, bytes: a multiple of an element's length.
pub(crate) const COLLECTIVE_BYTES_MAX: usize = MESSAGE_BYTES_MAX as usize - 2 * HEADER_BYTES;
/// The most changes of its memory that one process asks of a rank before the rank has made them.
pub(crate) const UPDATES_MAX: u32 = 16;
/// The most pieces of such a change.
pub(crate) const UPDATE_PIECES_MAX: usize = 128;
/// The most bytes of data and pieces in the record of such a change.
pub(crate) const UPDATE_BYTES_MAX: usize = RECORD_BYTES_MAX - HEADER_BYTES - 16;
/// The most packed bytes of described data in one record.
pub(crate) const PACKED_BYTES_MAX: usize = RECORD_BYTES_MAX - HEADER_BYTES - 32;
/// Transfers whose pieces are shorter than this on average, in bytes, travel packed.
pub(crate) const PACKED_PIECE_BYTES_MAX: usize = 256;
/// Transfers of fewer pieces do not travel packed.
pub(crate) const PACKED_PIECES_MIN: usize = 8;
/// How many descriptions of a rank a process remembers.
pub(crate) const DESCRIPTIONS_MAX: usize = 64;
/// The longest encoded description that is sent, bytes.
pub(crate) const DESCRIPTION_BYTES_MAX: usize = RECORD_BYTES_MAX - HEADER_BYTES;
/// Bytes of the header of every record.
pub(crate) const HEADER_BYTES: usize = 16;
/// A rank may compute for this time without making progress before it is considered dead. Over shared memory and TCP, a death is
/// noticed at once. Otherwise the launcher ends the job, or shows the death to the surviving ranks.
pub(crate) const SILENCE_LIMIT: Duration = Duration::from_secs(3600);
/// The longest record of a message, bytes.
pub(crate) const RECORD_BYTES_MAX: usize = MESSAGE_BYTES_MAX as usize;
/// Memory for messages of all ranks that have come and were not handled yet, bytes. It limits the credits of each rank.
const WINDOW_BYTES: usize = 32 << 20;
/// The range of the number of active messages that a process may have under way to one rank.
const CREDITS: std::ops::RangeInclusive<u32> = 16..=256;
/// The most records that wait to be sent to a rank. Contexts, questions, answers and messages with credits are always fewer. So a
/// rank that asks and reads no answers is cut off.
pub(crate) const OUTBOX_RECORDS_MAX: usize = 16 << 10;
/// The most messages that one turn takes from the endpoint.
pub(crate) const POLL_MESSAGES: usize = 64;
/// The most events that one turn takes from the endpoint.
pub(crate) const POLL_EVENTS: usize = 256;

//= wire.md R-AM-5
/// How many active messages a process may have under way to one rank of a job of `size`. Each holds a place for one message, its own
/// or its reply, on the side where that is.
pub(crate) fn credits(size: u32) -> u32 {
    let each = WINDOW_BYTES / RECORD_BYTES_MAX / 2 / size.max(1) as usize;
    u32::try_from(each).unwrap_or(u32::MAX).clamp(*CREDITS.start(), *CREDITS.end())
}

/// How many of the credits are reserved for handlers, which can't wait.
pub(crate) fn for_handlers(credits: u32) -> u32 {
    credits / 4
}

const _: () = assert!(
    OPERATIONS_MAX < cci::limits::RMA_OPERATIONS_DEFAULT as usize / 2,
    "one rank may have half of what an endpoint has"
);
const _: () = assert!(
    OUTBOX_RECORDS_MAX
        >= CONTEXTS_MAX
            + 2 * OPERATIONS_MAX
            + 2 * UPDATES_MAX as usize
            + LARGE_MESSAGES_MAX as usize
            + 4 * *CREDITS.end() as usize
);
const _: () =
    assert!(COUNTED_SHORT_BYTES <= COUNTED_SLOTS_BYTES && COUNTED_SHORT_BYTES >= 64 * COUNTED_RANKS_MAX);
const _: () = assert!(COUNTED_SLOTS_BYTES / COUNTED_RANKS_MAX >= 4096, "each rank has a segment");
const _: () = assert!(COLLECTIVE_BYTES_MAX.is_multiple_of(8), "elements are not divided");
const _: () = assert!(DATA_BYTES_MAX >= 4096, "the interface promises that");
const _: () = assert!(*CREDITS.end() <= u16::MAX as u32, "a record has 16 bits for them");
const _: () = assert!(*CREDITS.start() >= 8, "a quarter of them, for handlers, is some");
const _: () = assert!(CONTEXTS_MAX <= u16::MAX as usize, "a record has 16 bits for its context");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credits_shrink_with_the_job() {
        let all = [1, 2, 8, 16, 64, 128, 1024, u32::MAX].map(credits);
        assert!(all.is_sorted_by(|one, next| one >= next), "{all:?}");
        assert_eq!((all[0], all[7]), (256, 16));
    }
}
