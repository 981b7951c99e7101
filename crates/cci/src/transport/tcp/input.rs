//! What a connection keeps of its input. Complete records are handled at once; an incomplete record is kept for the next read.

use super::wire::RECORD_BYTES_MAX;
use crate::transport::quota::{Host, Quota};
use cci_memory::fallible;
use std::net::Ipv4Addr;

/// The most bytes that one read takes.
pub(super) const READ_BYTES: usize = 64 << 10;
/// Space for one read, and for an incomplete record from before.
pub(super) const SCRATCH_BYTES: usize = READ_BYTES + RECORD_BYTES_MAX;
/// How many free keepers are stored for the connections that need one next.
const SPARES_MAX: usize = 16;

/// Whether messages are taken.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Take {
    All,
    /// A message waits for a receive buffer until this time.
    Holding {
        until_ns: u64,
    },
    /// Messages are dropped until there are receive buffers again. Then the peer is informed.
    Dropping,
    /// Messages are dropped. The peer knows that there are receive buffers, and has not resumed yet.
    Awaited,
}

/// The receiving side of a connection: input that was not handled yet, and how many messages were taken.
pub(super) struct Input {
    /// Input that was not handled yet. It begins with a record.
    kept: Keeper,
    /// How many bytes of the kept input have been handled.
    kept_at: usize,
    pub take: Take,
    /// How many messages were taken, modulo 2^32, and how many of these were acknowledged.
    taken: u32,
    announced: u32,
    /// The last acknowledgement that came.
    pub acked: u32,
    /// The poll in which a message came last.
    pub poll: u32,
}

impl Input {
    pub const fn new() -> Input {
        Input { kept: Keeper::NONE, kept_at: 0, take: Take::All, taken: 0, announced: 0, acked: 0, poll: 0 }
    }

    /// Returns how many messages were taken, for a header that leaves now. They count as acknowledged from now on.
    #[inline]
    pub fn announce(&mut self) -> u32 {
        self.announced = self.taken;
        self.taken
    }

    /// How many messages were taken and not acknowledged.
    #[inline]
    pub fn unannounced(&self) -> u32 {
        self.taken.wrapping_sub(self.announced)
    }

    /// How many messages were taken, for a header that may have to wait.
    #[inline]
    pub fn taken(&self) -> u32 {
        self.taken
    }

    pub fn is_holding(&self) -> bool {
        matches!(self.take, Take::Holding { .. })
    }

    /// Input that was not handled yet.
    pub fn kept(&self) -> &[u8] {
        self.kept.bytes.get(self.kept_at..).unwrap_or_default()
    }

    /// Notes that messages were taken in this poll.
    #[inline]
    pub fn took(&mut self, messages: u32, poll: u32) {
        self.taken = self.taken.wrapping_add(messages);
        self.poll = poll;
    }

    /// Discards the kept input.
    pub fn drop_kept(&mut self, keepers: &mut Keepers) {
        self.kept_at = 0;
        keepers.give_back(std::mem::take(&mut self.kept));
    }

    /// Keeps at least one byte of input, on a host's account. The caller has checked that the cap leaves space. Returns false if
    /// the system has no memory; the input is lost then.
    #[must_use]
    pub fn keep(&mut self, keepers: &mut Keepers, host: Host, tail: &[u8]) -> bool {
        let Some(keeper) = keepers.lend(host, tail.len()) else { return false };
        self.kept = keeper;
        self.kept_at = 0;
        self.kept.bytes.extend_from_slice(tail);
        true
    }

    /// Takes the kept input out, to be handled: the keeper, and how many of its bytes were handled.
    pub fn lift(&mut self) -> (Keeper, usize) {
        (std::mem::take(&mut self.kept), std::mem::take(&mut self.kept_at))
    }

    /// Puts the keeper back after more of it was handled. If all of it was, the keeper is free again.
    pub fn put_back(&mut self, keepers: &mut Keepers, kept: Keeper, at: usize) {
        (self.kept, self.kept_at) = (kept, at);
        if self.kept().is_empty() {
            self.drop_kept(keepers);
        }
    }
}

/// Memory that keeps the input of one connection.
pub(super) struct Keeper {
    bytes: Vec<u8>,
    /// The host on whose account it is.
    host: Host,
}

impl Keeper {
    const NONE: Keeper = Keeper { bytes: Vec::new(), host: Host::V4(Ipv4Addr::UNSPECIFIED) };

    /// The kept bytes behind the first `at`.
    pub fn behind(&self, at: usize) -> &[u8] {
        self.bytes.get(at..).unwrap_or_default()
    }
}

impl Default for Keeper {
    fn default() -> Keeper {
        Keeper::NONE
    }
}

/// The keepers of one endpoint. Hosts share them by the threshold.
pub(super) struct Keepers {
    bytes_max: u64,
    /// Bytes of all keepers, including free ones.
    bytes: u64,
    spare: Vec<Vec<u8>>,
    lent: Quota,
}

impl Keepers {
    pub fn new(bytes_max: u64) -> Keepers {
        Keepers { bytes_max, bytes: 0, spare: Vec::new(), lent: Quota::new(bytes_max) }
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.bytes + self.lent.bytes()
    }

    /// Whether so much memory is left that any host may have one more keeper.
    #[inline]
    pub fn has_plenty(&self) -> bool {
        self.lent.has_plenty_for(SCRATCH_BYTES as u64)
    }

    /// Whether a host may have one more keeper of the greatest length.
    #[inline]
    pub fn has_space(&mut self, host: Host) -> bool {
        self.lent.has_space_for(host, SCRATCH_BYTES as u64)
    }

    /// Lends an empty keeper with space for `len` bytes.
    fn lend(&mut self, host: Host, len: usize) -> Option<Keeper> {
        if !self.lent.can_note() {
            return None;
        }
        let bytes = match self.spare.iter().position(|keeper| keeper.capacity() >= len) {
            Some(at) => self.spare.swap_remove(at),
            None => self.make(len)?,
        };
        self.lent.take(host, bytes.capacity() as u64);
        Some(Keeper { bytes, host })
    }

    fn make(&mut self, len: usize) -> Option<Vec<u8>> {
        let len = if len <= RECORD_BYTES_MAX { RECORD_BYTES_MAX } else { SCRATCH_BYTES };
        // Free keepers that are too short are released, to make space.
        while self.bytes.saturating_add(len as u64) > self.bytes_max
            && let Some(short) = self.spare.pop()
        {
            self.bytes = self.bytes.saturating_sub(short.capacity() as u64);
        }
        let keeper = fallible::vec(len).ok()?;
        self.bytes += keeper.capacity() as u64;
        Some(keeper)
    }

    /// Takes a keeper back.
    pub fn give_back(&mut self, keeper: Keeper) {
        let Keeper { mut bytes, host } = keeper;
        if bytes.capacity() == 0 {
            return;
        }
        self.lent.give_back(host, bytes.capacity() as u64);
        if self.spare.len() < SPARES_MAX {
            bytes.clear();
            self.spare.push(bytes);
        } else {
            self.bytes = self.bytes.saturating_sub(bytes.capacity() as u64);
        }
    }
}
