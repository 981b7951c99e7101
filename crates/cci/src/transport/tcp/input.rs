//! What a connection keeps of what it has read. Whole records are handled at once; a part of a record waits here for the
//! next read.

use super::wire::RECORD_BYTES_MAX;
use crate::transport::quota::{Host, Quota};
use cci_memory::fallible;
use std::net::Ipv4Addr;

/// Taken by one read at most.
pub(super) const READ_BYTES: usize = 64 << 10;
/// Space for one read, and for an incomplete record from before.
pub(super) const SCRATCH_BYTES: usize = READ_BYTES + RECORD_BYTES_MAX;
/// Keepers that are kept for the next connection that needs one.
const SPARES_MAX: usize = 16;

/// Whether messages are taken.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Take {
    All,
    /// A message waits for a receive buffer, until then.
    Holding {
        until_ns: u64,
    },
    /// Messages are dropped until there are buffers, of which the peer is then informed.
    Dropping,
    /// Messages are dropped, the peer knows that there are buffers, and it has not resumed yet.
    Awaited,
}

/// The receiving side of a connection: what was read and not dealt with, and how far messages were taken.
pub(super) struct Input {
    /// What was read and not dealt with; begins with a record.
    kept: Keeper,
    /// Up to here what is kept has been dealt with.
    kept_at: usize,
    pub take: Take,
    /// Messages taken, modulo 2^32, and how many of them have been acknowledged.
    taken: u32,
    announced: u32,
    /// The last acknowledgement that came.
    pub acked: u32,
    /// The poll in which a message last came.
    pub poll: u32,
}

impl Input {
    pub const fn new() -> Input {
        Input { kept: Keeper::NONE, kept_at: 0, take: Take::All, taken: 0, announced: 0, acked: 0, poll: 0 }
    }

    /// How many messages were taken, for a header that leaves now: they count as acknowledged.
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

    /// What was read and not dealt with.
    pub fn kept(&self) -> &[u8] {
        self.kept.bytes.get(self.kept_at..).unwrap_or_default()
    }

    /// Messages were taken, in this poll.
    #[inline]
    pub fn took(&mut self, messages: u32, poll: u32) {
        self.taken = self.taken.wrapping_add(messages);
        self.poll = poll;
    }

    /// Forgets what is kept.
    pub fn drop_kept(&mut self, keepers: &mut Keepers) {
        self.kept_at = 0;
        keepers.give_back(std::mem::take(&mut self.kept));
    }

    /// Keeps bytes that were not dealt with, at least one, on a host's account. The caller has made sure that the cap leaves space. False: the
    /// system has no memory, and it is lost.
    #[must_use]
    pub fn keep(&mut self, keepers: &mut Keepers, host: Host, tail: &[u8]) -> bool {
        let Some(keeper) = keepers.lend(host, tail.len()) else { return false };
        self.kept = keeper;
        self.kept_at = 0;
        self.kept.bytes.extend_from_slice(tail);
        true
    }

    /// Takes out what is kept, to be dealt with: the keeper, and up to where it was.
    pub fn lift(&mut self) -> (Keeper, usize) {
        (std::mem::take(&mut self.kept), std::mem::take(&mut self.kept_at))
    }

    /// Puts it back, with more of it dealt with. Where that is all of it, the keeper is free again.
    pub fn put_back(&mut self, keepers: &mut Keepers, kept: Keeper, at: usize) {
        (self.kept, self.kept_at) = (kept, at);
        if self.kept().is_empty() {
            self.drop_kept(keepers);
        }
    }
}

/// What one input is kept in.
pub(super) struct Keeper {
    bytes: Vec<u8>,
    /// On whose account.
    host: Host,
}

impl Keeper {
    const NONE: Keeper = Keeper { bytes: Vec::new(), host: Host::V4(Ipv4Addr::UNSPECIFIED) };

    /// What of it comes behind the first `at` bytes.
    pub fn behind(&self, at: usize) -> &[u8] {
        self.bytes.get(at..).unwrap_or_default()
    }
}

impl Default for Keeper {
    fn default() -> Keeper {
        Keeper::NONE
    }
}

/// What the inputs of one endpoint are kept in. Hosts share it by the threshold.
pub(super) struct Keepers {
    bytes_max: u64,
    /// Bytes of all keepers, spare ones too.
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

    /// Whether so much is left that any host may have one more keeper.
    #[inline]
    pub fn has_plenty(&self) -> bool {
        self.lent.has_plenty_for(SCRATCH_BYTES as u64)
    }

    /// Whether a host may have one more keeper, even of the greatest length.
    #[inline]
    pub fn has_space(&mut self, host: Host) -> bool {
        self.lent.has_space_for(host, SCRATCH_BYTES as u64)
    }

    /// Lends an empty keeper with space for so many bytes.
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
        // Spare keepers that are too short are freed to make space.
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
