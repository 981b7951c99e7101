//! What a link and an endpoint keep for remote memory access.

use super::granted::Owner;
use super::mapped::MappedBytes;
use super::pull::Word;
use crate::device::Cma;
use crate::transport::ordered_rma::Flows;
use cci_ring::slab::Key;
use cci_ring::spsc::Span;
use std::collections::VecDeque;

/// A message behind data, in the ring.
pub(in crate::transport::shm) struct Notify {
    pub span: Span,
    pub flow: Key,
    pub slot: u16,
}

/// What a link needs for remote memory access.
pub(in crate::transport::shm) struct LinkRma {
    /// Flows of connections on this link, and their connections.
    pub(super) flows: Vec<(Key, Key)>,
    /// Those with something to push or fetch, and their connections.
    pub(super) queue: VecDeque<(Key, Key)>,
    /// Something is to be done that waits for nobody.
    pub at_once: bool,
    /// Messages behind data that the peer has not taken, oldest first.
    pub(super) notifies: VecDeque<Notify>,
    pub(super) looked_ns: u64,
    /// When the first operation is overdue, as of the last look.
    pub deadline_ns: u64,
}

impl LinkRma {
    pub fn new() -> LinkRma {
        LinkRma {
            flows: Vec::new(),
            queue: VecDeque::new(),
            at_once: false,
            notifies: VecDeque::new(),
            looked_ns: 0,
            deadline_ns: u64::MAX,
        }
    }

    /// Some connection has something under way, or had until lately.
    pub fn is_in_use(&self) -> bool {
        !self.flows.is_empty()
    }

    /// Something is to be pushed or fetched.
    #[inline]
    pub fn has_work(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Bytes held beside the flows.
    pub fn bytes(&self) -> u64 {
        let keys = self.flows.capacity() + self.queue.capacity();
        (keys * size_of::<(Key, Key)>() + self.notifies.capacity() * size_of::<Notify>()) as u64
    }
}

/// The state of the endpoint.
pub(in crate::transport::shm) struct Rma {
    pub flows: Flows,
    pub owner: Owner,
    /// Of all links.
    pub mapped: MappedBytes,
    pub(super) word: Option<Word>,
    pub counts: Counts,
    /// `direct` and `cma` of the device.
    pub direct: bool,
    pub cma: Cma,
}

/// Counted since the endpoint was opened, of links that are gone.
#[derive(Default)]
pub(in crate::transport::shm) struct Counts {
    /// Operations that did not end at once.
    pub ring: u64,
    pub direct: u64,
    pub pulled: u64,
    pub grants_refused: u64,
}

impl Rma {
    pub fn new(operations_max: u32, direct: bool, cma: Cma) -> Rma {
        let (flows, owner) = (Flows::new(operations_max), Owner::new());
        let mapped = MappedBytes::default();
        Rma { flows, owner, mapped, word: None, counts: Counts::default(), direct, cma }
    }

    pub fn bytes(&self) -> u64 {
        self.flows.bytes() + self.owner.bytes()
    }

    /// The word of ours that peers look for.
    pub(super) fn word(&mut self) -> Option<&Word> {
        if self.word.is_none() {
            self.word = Word::new().ok();
        }
        self.word.as_ref()
    }
}
