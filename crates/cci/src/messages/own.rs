//! The contexts of the endpoint's completions: those of the program pass through, and those of this layer say what they are for.

use cci_memory::slab::Key;

/// What the layer has started with the endpoint.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Own {
    /// The offer of a long message.
    Offer(Key),
    /// The cancellation of one.
    Cancel(Key),
    /// The answer to one.
    Answer(Key),
    /// A read of a piece of one.
    Piece(Key),
    /// A short message whose context is kept in a table, since the program's number looks like one of these.
    Kept(Key),
    /// The request of a call, in one message.
    Request(Key),
    /// The answer to a request, in one message; the key is the call's number.
    Reply(Key),
    /// That a request gets no answer; the key is the call's number.
    NoReply(Key),
}

/// Set in the contexts of the layer.
const MARK: u64 = 1 << 63;
const INDEX_BITS: u32 = 24;

impl Own {
    /// Above it are the contexts of what the layer hears of only if it fails: requests, replies, and that there is none.
    pub const LAST_SIGNALED: u64 = (MARK | 5 << (32 + INDEX_BITS)) - 1;

    /// Whether a number of the program's would be taken for one of the layer's.
    #[inline]
    pub const fn is_like(context: u64) -> bool {
        context & MARK != 0
    }

    pub const fn to_context(self) -> u64 {
        let (purpose, key) = match self {
            Own::Offer(key) => (0, key),
            Own::Cancel(key) => (1, key),
            Own::Answer(key) => (2, key),
            Own::Piece(key) => (3, key),
            Own::Kept(key) => (4, key),
            Own::Request(key) => (5, key),
            Own::Reply(key) => (6, key),
            Own::NoReply(key) => (7, key),
        };
        debug_assert!(key.index >> INDEX_BITS == 0);
        MARK | purpose << (32 + INDEX_BITS) | (key.index as u64) << 32 | key.generation as u64
    }

    /// `None`: the context is the program's.
    #[inline]
    pub const fn from_context(context: u64) -> Option<Own> {
        if !Own::is_like(context) {
            return None;
        }
        let index = (context >> 32) as u32 & ((1 << INDEX_BITS) - 1);
        let key = Key { index, generation: context as u32 };
        match (context & !MARK) >> (32 + INDEX_BITS) {
            0 => Some(Own::Offer(key)),
            1 => Some(Own::Cancel(key)),
            2 => Some(Own::Answer(key)),
            3 => Some(Own::Piece(key)),
            4 => Some(Own::Kept(key)),
            5 => Some(Own::Request(key)),
            6 => Some(Own::Reply(key)),
            7 => Some(Own::NoReply(key)),
            _ => None,
        }
    }
}
