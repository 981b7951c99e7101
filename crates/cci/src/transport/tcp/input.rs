//! What a connection keeps of what it read: whole records are dealt with at once ([`read`](super::read)), what is left
//! waits here for the next read.

use super::wire::RECORD_BYTES_MAX;
use cci_ring::room;

/// Taken by one read at most.
pub(super) const READ_BYTES: usize = 64 << 10;
/// Room for that, and for the rest of a record from before.
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
    /// Messages are dropped; the peer is to be told once there are buffers.
    Dropping,
    /// The same, and it was told.
    Awaited,
}

/// See the module.
pub(super) struct Input {
    /// What was read and not dealt with; begins with a record.
    kept: Vec<u8>,
    /// Up to there it was.
    kept_at: usize,
    pub take: Take,
    /// Messages taken, modulo 2^32, and how many of them the peer was told of.
    taken: u32,
    told: u32,
    /// The last acknowledgement that came.
    pub acked: u32,
    /// The poll in which a message last came.
    pub poll: u32,
}

impl Input {
    pub const fn new() -> Input {
        Input { kept: Vec::new(), kept_at: 0, take: Take::All, taken: 0, told: 0, acked: 0, poll: 0 }
    }

    /// How many messages were taken: said in every header.
    #[inline]
    pub fn tell(&mut self) -> u32 {
        self.told = self.taken;
        self.taken
    }

    /// How many messages were taken that the peer does not know of.
    #[inline]
    pub fn untold(&self) -> u32 {
        self.taken.wrapping_sub(self.told)
    }

    /// As [`Input::tell`], in a header that may have to wait.
    #[inline]
    pub fn taken(&self) -> u32 {
        self.taken
    }

    pub fn is_holding(&self) -> bool {
        matches!(self.take, Take::Holding { .. })
    }

    /// What was read and not dealt with.
    pub fn kept(&self) -> &[u8] {
        self.kept.get(self.kept_at..).unwrap_or_default()
    }

    /// A message was taken, in this poll.
    #[inline]
    pub fn took(&mut self, poll: u32) {
        self.taken = self.taken.wrapping_add(1);
        self.poll = poll;
    }

    /// Forgets what is kept.
    pub fn drop_kept(&mut self, keepers: &mut Keepers) {
        self.kept_at = 0;
        keepers.give_back(std::mem::take(&mut self.kept));
    }

    /// Keeps what was not dealt with. Whoever calls has made sure that the cap leaves room. False: the system has no memory,
    /// and it is lost.
    #[must_use]
    pub fn keep(&mut self, keepers: &mut Keepers, rest: &[u8]) -> bool {
        if rest.is_empty() {
            return true;
        }
        let Some(keeper) = keepers.lend(rest.len()) else { return false };
        self.kept = keeper;
        self.kept_at = 0;
        self.kept.extend_from_slice(rest);
        true
    }

    /// Takes out what is kept, to be dealt with: the keeper, and up to where it was.
    pub fn lift(&mut self) -> (Vec<u8>, usize) {
        (std::mem::take(&mut self.kept), std::mem::take(&mut self.kept_at))
    }

    /// Puts it back, with more of it dealt with. Where that is all of it, the keeper is free again.
    pub fn put_back(&mut self, keepers: &mut Keepers, kept: Vec<u8>, at: usize) {
        (self.kept, self.kept_at) = (kept, at);
        if self.kept().is_empty() {
            self.drop_kept(keepers);
        }
    }
}

/// What the inputs of one endpoint are kept in.
pub(super) struct Keepers {
    bytes_max: u64,
    /// Of all there are, spare ones too.
    bytes: u64,
    spare: Vec<Vec<u8>>,
}

impl Keepers {
    pub const fn new(bytes_max: u64) -> Keepers {
        Keepers { bytes_max, bytes: 0, spare: Vec::new() }
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether one more may be made, the longest even.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.bytes + SCRATCH_BYTES as u64 <= self.bytes_max
    }

    /// An empty one with room for so much.
    fn lend(&mut self, len: usize) -> Option<Vec<u8>> {
        if let Some(at) = self.spare.iter().position(|keeper| keeper.capacity() >= len) {
            return Some(self.spare.swap_remove(at));
        }
        let keeper =
            room::vec(if len <= RECORD_BYTES_MAX { RECORD_BYTES_MAX } else { SCRATCH_BYTES }).ok()?;
        self.bytes += keeper.capacity() as u64;
        Some(keeper)
    }

    /// One is free again.
    pub fn give_back(&mut self, mut keeper: Vec<u8>) {
        if keeper.capacity() == 0 {
            return;
        }
        if self.spare.len() < SPARES_MAX {
            keeper.clear();
            self.spare.push(keeper);
        } else {
            self.bytes = self.bytes.saturating_sub(keeper.capacity() as u64);
        }
    }
}
