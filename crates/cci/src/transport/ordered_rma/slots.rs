//! What the slots of a connection's two sides stand for.

use cci_proto::{RemoteAddress, RmaRefusal};

/// What a slot of the asking side waits for.
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
    /// Its operation has ended; the peer is to be told, and its answer is awaited.
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
            | Slot::Fetch { op, .. } => Some(op),
        }
    }
}

/// What a slot of the peer's is to us.
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
        address: u64,
    },
    /// A message has no buffer; its sender is to be told.
    Hold,
    /// It was told.
    Held,
    /// It was told to say the message again.
    Again,
}
