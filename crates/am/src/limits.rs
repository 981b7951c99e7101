//! What is bounded in active messages, and by how much.

use cci::limits::MESSAGE_BYTES_MAX;
use std::time::Duration;

/// Most arguments of an active message.
pub const ARGS_MAX: usize = 16;
/// Longest data of an active message, to any rank, bytes: with its header and 16 arguments it fits in one message of the core where the
/// path takes the longest ones, and travels in parts where it does not.
pub const DATA_BYTES_MAX: usize = MESSAGE_BYTES_MAX as usize - HEADER_BYTES - 8 * ARGS_MAX;
/// Most contexts that a process makes, freed ones included: their numbers are not used again.
pub const CONTEXTS_MAX: usize = 4096;
/// Most remote operations that a process has under way.
pub const OPERATIONS_MAX: usize = 4096;
/// Most operations that had ended when a program started them and whose callbacks have not run: these stay in the processor's first cache. Handlers,
/// which can't run callbacks, may start more.
pub(crate) const ENDED_MAX: usize = 256;
/// Longest name of a context, bytes.
pub const CONTEXT_NAME_BYTES_MAX: usize = 256;

/// Most large messages that a process has under way to a rank.
pub const LARGE_MESSAGES_MAX: u32 = 256;

/// Most collectives that a process has under way.
pub const COLLECTIVES_MAX: usize = 256;
/// Most teams of a process.
pub const TEAMS_MAX: usize = 4096;

/// Most ranks of one host whose barriers and collectives are counted in memory: there is a bit for each.
pub(crate) const COUNTED_RANKS_MAX: usize = 64;
/// Barriers and collectives before memory for that is offered, which short jobs do without.
pub(crate) const COUNTED_AFTER: u32 = 8;
/// Barriers from the first offer of such memory to the first one that is counted there, and collectives. Each offer leaves four times as many as
/// the one before, for ranks that are further ahead.
pub(crate) const COUNTED_AHEAD: u32 = 8;
/// So often is it offered, if some rank got to one of these first.
pub(crate) const COUNTED_OFFERS_MAX: u32 = 4;
/// Slots of all ranks for one step of a counted collective, bytes.
pub(crate) const COUNTED_SLOTS_BYTES: usize = 1 << 20;
/// Longest piece of data that a rank has for each other one in such a step, bytes: pieces stay in the caches of both sides.
pub(crate) const COUNTED_PIECE_BYTES_MAX: usize = 16 << 10;
/// Longest segment of all such pieces, bytes.
pub(crate) const COUNTED_SEGMENT_BYTES_MAX: usize = 128 << 10;
/// Slots of so many bytes in all are read by each rank.
pub(crate) const COUNTED_SHORT_BYTES: usize = 16 << 10;
/// Steps of a counted collective in one turn: a process has more to do.
pub(crate) const COUNTED_STEPS_PER_TURN: u32 = 4;
/// Operations on it before a rank believes that it can't be mapped.
pub(crate) const COUNTED_TRIES_MAX: u32 = 8;
/// One look at a count in so many makes progress for others.
pub(crate) const COUNTED_LOOKS_PER_PROGRESS: u32 = 4;

/// Where symmetric memory lies: between programs and libraries, where neither Linux nor the sanitizers put anything.
pub(crate) const SYMMETRIC_ADDRESSES: std::ops::Range<u64> = 0x5700_0000_0000..0x5a00_0000_0000;
/// So often is an address tried for symmetric memory before it is given up.
pub(crate) const SYMMETRIC_ATTEMPTS_MAX: u32 = 64;
/// One fence in so many looks for what others want of this process, even if all it waits for has ended.
pub(crate) const FENCES_PER_POLL: u32 = 16;
/// Longest data that are copied before they are put, where that saves a registration, bytes.
pub(crate) const STAGED_BYTES: usize = 2048;
/// Longest data of one part of a collective, bytes: a multiple of an element's.
pub(crate) const COLLECTIVE_BYTES_MAX: usize = MESSAGE_BYTES_MAX as usize - 2 * HEADER_BYTES;
/// Most changes of its memory that a rank is asked for and has not made, by one process.
pub(crate) const UPDATES_MAX: u32 = 16;
/// Most pieces that one such change has.
pub(crate) const UPDATE_PIECES_MAX: usize = 128;
/// Most bytes of data and pieces in the record of such a change.
pub(crate) const UPDATE_BYTES_MAX: usize = RECORD_BYTES_MAX - HEADER_BYTES - 16;
/// Every record begins with so many bytes.
pub(crate) const HEADER_BYTES: usize = 16;
/// A rank may compute for so long without making progress, and is not taken for dead. One that dies is noticed at once
/// over shared memory and TCP. Else the launcher ends the job, or shows the end to those that survive it.
pub(crate) const SILENCE_LIMIT: Duration = Duration::from_secs(3600);
/// Longest record of a message, bytes.
pub(crate) const RECORD_BYTES_MAX: usize = MESSAGE_BYTES_MAX as usize;
/// Memory for messages of all ranks that have come and were not handled yet, bytes: it bounds the credits of each.
const WINDOW_BYTES: usize = 32 << 20;
/// Most and fewest active messages that a process has under way to one rank.
const CREDITS: std::ops::RangeInclusive<u32> = 16..=256;
/// Most records that wait for space on their way to a rank: more than what contexts, questions, answers and messages with credits there can be,
/// so that a rank which asks and reads no answers is cut off.
pub(crate) const OUTBOX_RECORDS_MAX: usize = 16 << 10;
/// Messages that are taken from the endpoint in one turn.
pub(crate) const POLL_MESSAGES: usize = 64;
/// Events that are taken from the endpoint in one turn.
pub(crate) const POLL_EVENTS: usize = 256;

//= wire.md R-AM-5
/// How many active messages a process may have under way to one rank of a job of `size`. Each holds a place for one message, its own
/// or its reply, on the side where that is.
pub(crate) fn credits(size: u32) -> u32 {
    let each = WINDOW_BYTES / RECORD_BYTES_MAX / 2 / size.max(1) as usize;
    u32::try_from(each).unwrap_or(u32::MAX).clamp(*CREDITS.start(), *CREDITS.end())
}

/// Of `credits`, so many are for what handlers send: they can't wait.
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
