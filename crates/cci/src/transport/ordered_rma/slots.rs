//! What the slots of a connection's two sides stand for.

use super::SLOTS;
use cci_proto::{RemoteAddress, RmaRefusal};

/// What a slot of the initiator waits for.
#[derive(Copy, Clone, Debug)]
pub(super) enum Slot {
    Free,
    /// Writes of `op`; `last`: the answer may come.
    Write {
        op: u32,
        last: bool,
    },
    Read {
        op: u32,
        local: RemoteAddress,
        len_bytes: u64,
        got_bytes: u64,
    },
    Atomic {
        op: u32,
    },
    Notify {
        op: u32,
    },
    /// The peer has no buffer for the message.
    Held {
        op: u32,
    },
    /// The peer fetches it; it must still be ours when it says that it has.
    Pull {
        op: u32,
        local: RemoteAddress,
        len_bytes: u64,
    },
    Where {
        op: u32,
        local: RemoteAddress,
        len_bytes: u64,
    },
    /// We fetch it.
    Fetch {
        op: u32,
        local: RemoteAddress,
        len_bytes: u64,
        done_bytes: u64,
        address: u64,
    },
    /// We have fetched it, or could not. The peer is to say whether the region was there all the time.
    Check {
        op: u32,
    },
    /// Its operation has ended. The peer is to learn that nothing more comes, and its answer is awaited.
    Abandoned,
}

impl Slot {
    pub(super) fn op(&self) -> Option<u32> {
        match *self {
            Slot::Free | Slot::Abandoned => None,
            Slot::Write { op, .. }
            | Slot::Read { op, .. }
            | Slot::Atomic { op }
            | Slot::Notify { op }
            | Slot::Held { op }
            | Slot::Pull { op, .. }
            | Slot::Where { op, .. }
            | Slot::Fetch { op, .. }
            | Slot::Check { op } => Some(op),
        }
    }
}

/// The slots of the initiator's side.
pub(super) struct Slots {
    all: [Slot; SLOTS],
    /// One bit for each.
    free: u128,
}

const _: () = assert!(SLOTS == u128::BITS as usize, "one bit of a word for each slot");

impl Slots {
    pub fn new() -> Slots {
        Slots { all: [Slot::Free; SLOTS], free: u128::MAX }
    }

    pub fn reset(&mut self) {
        *self = Slots::new();
    }

    /// A slot that is free.
    #[inline]
    pub fn free(&self) -> Option<u16> {
        let slot = self.free.trailing_zeros();
        (slot < u128::BITS).then_some(slot as u16)
    }

    #[inline]
    pub fn are_all_free(&self) -> bool {
        self.free == u128::MAX
    }

    #[inline]
    pub fn set(&mut self, at: u16, slot: Slot) {
        let bit = 1_u128 << at;
        self.free = if matches!(slot, Slot::Free) { self.free | bit } else { self.free & !bit };
        if let Some(entry) = self.all.get_mut(usize::from(at)) {
            *entry = slot;
        }
    }

    #[inline]
    pub fn get(&self, at: u16) -> Slot {
        self.all.get(usize::from(at)).copied().unwrap_or(Slot::Free)
    }

    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.all.iter()
    }

    /// One bit for each that is abandoned. `None`: some are in use otherwise.
    pub fn abandoned(&self) -> Option<u128> {
        let mut abandoned = 0;
        for slot in bits(!self.free) {
            match self.get(slot) {
                Slot::Abandoned => abandoned |= 1 << slot,
                Slot::Free => {}
                _ => return None,
            }
        }
        Some(abandoned)
    }
}

/// The numbers of the bits that are set.
pub(super) fn bits(mut set: u128) -> impl Iterator<Item = u16> {
    std::iter::from_fn(move || {
        let at = set.trailing_zeros();
        set &= set.wrapping_sub(1);
        (at < u128::BITS).then_some(at as u16)
    })
}

/// What the target has to do for a slot of the peer's.
#[derive(Copy, Clone, Debug)]
pub(super) enum Job {
    Free,
    /// Writes come, and were refused or not.
    Writes {
        refused: bool,
    },
    /// Data is to be sent.
    Read {
        at: RemoteAddress,
        len_bytes: u64,
        sent_bytes: u64,
    },
    /// Data is to be fetched.
    Fetch {
        at: RemoteAddress,
        len_bytes: u64,
        done_bytes: u64,
        address: u64,
    },
    /// To be answered with DONE, or HERE.
    Done(Result<Option<u64>, RmaRefusal>),
    Here {
        at: RemoteAddress,
        len_bytes: u64,
        address: u64,
    },
    /// The peer fetches it, and then asks whether it was there all the time.
    Lent {
        at: RemoteAddress,
        len_bytes: u64,
    },
    /// A message has no buffer; HOLD is to be pushed.
    Hold,
    /// A message has no buffer, and its sender knows that.
    Held,
    /// There is a buffer again, and the sender has been asked for the message.
    Again,
}
