//! A single-producer, single-consumer ring of variable-length records in memory shared by two processes that do not
//! trust each other.
//!
//! # Layout of a region (one direction)
//!
//! | bytes        | word               | written by | read by  |
//! |--------------|--------------------|------------|----------|
//! | 0..8         | `head: u64`        | consumer   | producer |
//! | 8..16        | `stall: u64`       | both (CAS) | both     |
//! | 128..136     | `attention: u64`   | both       | both     |
//! | 136..144     | `heavy: u64`       | consumer   | producer |
//! | 192..200     | `direct: u64`      | producer   | consumer |
//! | 200..208     | `light: u64`       | producer   | consumer |
//! | 256..        | data, a power of two of bytes | producer | consumer |
//!
//! All words are in the byte order of the machine. The region starts as zeros, aligned to 64 bytes or better. `head` has a
//! pair of lines of its own, because the consumer writes it often; `attention` has another, because the producer reads it
//! after every batch and it seldom changes, so it stays in the producer's cache. `heavy` is written once. The producer
//! writes `direct` and `light`, and the consumer seldom looks at them.
//!
//! *Positions* count bytes since the region was made, are multiples of 64 and never wrap (64 bits last for centuries);
//! position `p` lives at data offset `p mod data_bytes`.
//!
//! # Layout of a record
//!
//! A record starts on a 64-byte line and is rounded up to whole lines: 16 bytes of header, then the payload. An 8-byte
//! message is one cache line, the one that the consumer polls.
//!
//! | bytes  | content |
//! |--------|---------|
//! | 0..8   | `word`: bits 0–29 payload length, 30 PAD, 31 VOID, 32–39 kind, 40–47 flags, 48–63 check; 0 = nothing here yet |
//! | 8..16  | `conn: u32`, `ack: u32`, free for the user |
//! | 16..   | payload |
//!
//! A record never wraps: when it doesn't fit before the end, a PAD record takes the remaining space and the record
//! starts at offset 0. The consumer skips PAD and VOID records.
//!
//! # Why old bytes are never taken for a record
//!
//! *The word at the producer's tail is zero until the record there is complete.* The word after a record is zeroed
//! before that record is published (a Release store of its word), and the consumer looks at a word only after it has
//! seen (Acquire) the record before it. So what it finds is zero or a complete record, never anything of an earlier lap.
//! The producer keeps one line free beyond the record it writes, so that this word is its own to zero. In the usual
//! case (one-line records) the zeroing is done *after* the record before was published: off the path of a message
//! whose receiver waits, and it fetches the line that the next record will need.
//!
//! Records that are made visible together are written behind the first one's place, words and all, and the word behind the last
//! is zeroed; then the first one's word is stored (Release).
//!
//! The check is a hash of the position. It protects nobody from a peer that means harm; it turns accidents into
//! [`Corrupt`] instead of nonsense.
//!
//! # A peer that lies
//!
//! Everything read from the region is read once and checked: `head` must lie between the last one seen and the
//! producer's tail; a record's length must be at most the maximum given and end before the data does. What fails is
//! reported as [`Corrupt`]; no value found in the region can make either side panic, loop without bound, or touch
//! memory outside of the region. The payload is only ever copied out, never lent as `&[u8]`: the peer may write to it
//! at any time. A peer that writes garbage gets garbage delivered, on its own connections.
//!
//! # A peer that dies, at any instruction
//!
//! No call of this module waits. What the *caller* may wait for, and what ends that wait if the peer is killed:
//!
//! | word         | who waits for it | if the peer was killed before it wrote |
//! |--------------|------------------|----------------------------------------|
//! | record word  | the consumer, for records | stays 0 or is complete (one store): the consumer sees no half record and learns of the death from the kernel |
//! | `head`       | the producer, for space and completions | stays: pushes answer `Full` until the death is known |
//! | `attention`  | nobody: the producer looks once after a batch | a producer killed between taking it and waking leaves the consumer asleep; the kernel's hang-up, on the same descriptor set, wakes it |
//! | `stall` = 1  | the producer, for its oldest record | its own send timeout ends it |
//! | `stall` = 2  | the consumer, to resume | [`Consumer::resume`] answers `false` until the death is known, then [`Consumer::resume_orphaned`] goes on |
//!
//! # Sleeping
//!
//! Consumer: [`arm`](Consumer::arm) stores `attention`, fences (SeqCst), looks at the ring again; only if nothing is there may it
//! sleep. After it wakes, [`disarm`](Consumer::disarm). Producer: push records, then once
//! [`needs_wake`](Producer::needs_wake): fences (SeqCst), reads `attention` and, if it is set, takes it (sets it to 0),
//! so that one arming causes one wake-up. One of the two fences is first, so either the producer sees `attention` or
//! the consumer sees the record.
//!
//! A process that sleeps while it waits for the peer to *consume* (space, completions) announces that by
//! [`arm_for_progress`](Consumer::arm_for_progress) on the ring that it reads, then looks at
//! [`Producer::consumed`] of the ring that it writes once more. The peer, after
//! [`publish_head`](Consumer::publish_head), asks [`needs_progress_wake`](Producer::needs_progress_wake) of the ring
//! that *it* writes.
//!
//! *Light and heavy fences.* The fence after each push takes longer than the push. In a stream, the producer's fences are *light*: the
//! processor does nothing for them. The consumer, which seldom sleeps then, makes up for them by a *heavy* one, which has the kernel
//! put a fence into every running thread of the processes that have registered for it (`membarrier`, GLOBAL_EXPEDITED). `heavy` says
//! that the consumer can do that. The producer, whose process is registered, stores `light` = 1 and fences
//! ([`begin_light_fences`](Producer::begin_light_fences)); its fences are light then until it stores `light` = 0 (Release,
//! [`end_light_fences`](Producer::end_light_fences)). The consumer stores `attention`, fences, and reads `light` (Acquire) before it
//! looks at the ring. If that is 0, either the producer's light fences have ended, and all that was pushed until then can be seen; or
//! they have not begun, and the fence with which they begin comes behind the consumer's, so that it sees `attention`. If it is 1, the
//! consumer makes a heavy fence and looks at the ring behind it: what the producer pushed before the fence that was put into it can be
//! seen, and behind that it sees `attention`. Where somebody waits for a read position, the same holds for that.
//!
//! # Receiver not ready, and taking a message back
//!
//! `stall` is 0 (running), 1 (the consumer can't take the record at `head`) or 2 (the producer takes records back).
//!
//! | from | to | by | when |
//! |------|----|----|------|
//! | 0 | 1 | consumer, [`stall`](Consumer::stall) | no receive buffer; `head` was published before |
//! | 1 | 0 | consumer, [`resume`](Consumer::resume) | it can go on |
//! | 1 | 2 | producer, [`try_cancel`](Producer::try_cancel) | a send timeout passed |
//! | 2 | 1 | producer, dropping the [`CancelGuard`] | done |
//!
//! While it is not 0 the consumer takes nothing ([`peek`](Consumer::peek) answers `None`). So a record that was made
//! VOID under the guard had not been delivered, and never will be: a message whose send ended in RNR does not
//! arrive afterwards.
//!
//! # Direct access
//!
//! A process may let its peer write to memory of its own that both have mapped, and take that back at any time. For
//! each such memory it has a *live* word, outside of the ring, that the peer can read and not write. The peer, for each
//! copy: [`begin_direct`](Producer::begin_direct) stores the name of the memory in `direct` and fences (SeqCst); it reads
//! the live word, copies only if that still says so, and ends with [`end_direct`](Producer::end_direct) (Release). The
//! target, to take it back: clears the live word, fences (SeqCst), and waits while
//! [`direct_now`](Consumer::direct_now) (Acquire) is that name. One of the two fences is first, so either the peer sees
//! the cleared word and copies nothing, or the target sees the name and waits; and when it sees another word, all that
//! the peer wrote is there. `name` can't come back meanwhile, but for an instant, as the live word is looked at each
//! time. A peer killed in the middle never clears `direct`: the target stops waiting when the kernel reports that it
//! is dead. One that is only stopped, or lies, has to be locked out in another way: by other pages.

mod consumer;
mod producer;
#[cfg_attr(loom, path = "region_loom.rs")]
mod region;
mod span;
mod word;

pub use consumer::{Armed, Consumer, Like, Line, Record};
pub use producer::{CancelGuard, Direct, Producer, PushError};
#[cfg(loom)]
pub use region::pair as loom_pair;
pub use span::Span;
pub use word::{Corrupt, RecordHeader};

/// Bytes of a cache line: the unit of positions and of record sizes.
pub const LINE_BYTES: usize = 64;
/// Bytes of a record in front of its payload.
pub const RECORD_HEADER_BYTES: usize = 16;
/// The longest payload of a record of one line, bytes.
pub const LINE_PAYLOAD_BYTES: usize = LINE_BYTES - RECORD_HEADER_BYTES;
/// Bytes of a region in front of its data.
pub const CONTROL_BYTES: usize = 256;
/// The smallest data area, in bytes.
pub const DATA_BYTES_MIN: usize = 4 * LINE_BYTES;
/// The largest data area, in bytes: a length has 30 bits.
pub const DATA_BYTES_MAX: usize = 1 << 30;

const _: () = {
    assert!(RECORD_HEADER_BYTES < LINE_BYTES, "a short payload shares the line of its header");
    assert!(LINE_BYTES.is_power_of_two(), "lines are counted by masks");
    assert!(CONTROL_BYTES.is_multiple_of(LINE_BYTES), "data starts on a line");
    assert!(DATA_BYTES_MAX <= word::LEN_MASK as usize + 1, "every length fits in its bits");
};

/// Bytes of a region whose data area has `data_bytes` bytes (a power of two).
pub const fn region_bytes(data_bytes: usize) -> usize {
    CONTROL_BYTES + data_bytes
}

/// The longest payload, in bytes, that a ring of `data_bytes` bytes of data can carry.
///
/// Half the ring less a line: whatever the position, an empty ring then has space for the record, the PAD in front of
/// it and the word behind it.
pub const fn payload_bytes_limit(data_bytes: usize) -> usize {
    (data_bytes - LINE_BYTES) / 2 / LINE_BYTES * LINE_BYTES - RECORD_HEADER_BYTES
}

/// Bytes that a record with a payload of `payload_bytes` takes in the ring (without a PAD).
pub const fn record_bytes(payload_bytes: usize) -> usize {
    (payload_bytes + RECORD_HEADER_BYTES + LINE_BYTES - 1) & !(LINE_BYTES - 1)
}

/// Bytes of a payload that is gathered from `segments`.
#[inline(always)]
pub fn payload_bytes(segments: &[&[u8]]) -> usize {
    if let [message] = segments {
        return message.len();
    }
    segments.iter().fold(0, |bytes, segment| bytes.saturating_add(segment.len()))
}

/// A region that can't be a ring: its size, alignment or the maximum payload is wrong. The caller's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadRegion {
    /// The length is not [`region_bytes`] of a power of two between [`DATA_BYTES_MIN`] and [`DATA_BYTES_MAX`].
    Size,
    /// The address is not a multiple of [`LINE_BYTES`].
    Alignment,
    /// The maximum payload is more than [`payload_bytes_limit`].
    Payload,
}

impl core::fmt::Display for BadRegion {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            BadRegion::Size => "the region's size is not that of a ring",
            BadRegion::Alignment => "the region does not start on a cache line",
            BadRegion::Payload => "the longest payload does not fit the ring",
        })
    }
}

impl core::error::Error for BadRegion {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_record_fits_with_its_pad_at_every_offset() {
        for shift in 8..=30 {
            let data = 1 << shift;
            let record = record_bytes(payload_bytes_limit(data));
            // The worst PAD is one line shorter than the record that didn't fit.
            assert!((record - LINE_BYTES) + record + LINE_BYTES <= data, "data {data}");
        }
    }

    #[test]
    fn small_messages_are_one_line() {
        assert_eq!(record_bytes(0), 64);
        assert_eq!(record_bytes(48), 64);
        assert_eq!(record_bytes(49), 128);
    }
}
