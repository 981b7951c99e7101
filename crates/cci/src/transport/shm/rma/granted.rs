//! What an endpoint has granted to peers, and the live words by which it is taken back.

use super::grant::NotMapped;
use super::patience::Patience;
use crate::rma::Memory;
use cci_memory::slab::Key;
use cci_sys::random;
use cci_sys::segment::Segment;
use std::collections::HashMap;
use std::sync::Arc;

/// Regions that may be granted at a time, less the first word, which names none.
const WORDS: u32 = 2048;
/// Regions that may be granted at a time.
pub(super) const REGIONS_MAX: usize = WORDS as usize - 1;
const CONTROL_BYTES: usize = WORDS as usize * 8;

/// A region that some peers may use directly.
pub(super) struct Granted {
    pub(super) word: u32,
    pub(super) token: u64,
    pub(super) links: Vec<Key>,
    /// Must be taken back before it goes.
    pub(super) memory: Memory,
    /// A peer that nobody looks at any more was in the middle of a copy of it.
    pub(super) is_lost: bool,
}

/// What an endpoint has granted; the owner's side.
pub(in crate::transport::shm) struct Owner {
    pub(super) control: Option<Arc<Segment>>,
    pub(super) free: Vec<u32>,
    next: u32,
    pub(super) token: u64,
    pub(super) granted: HashMap<u64, Granted>,
    pub(super) patience: Patience,
    pub waited: u64,
    pub detached: u64,
    pub detach_failed: u64,
}

impl Owner {
    pub fn new() -> Owner {
        Owner {
            control: None,
            free: Vec::new(),
            next: 1,
            token: 0,
            granted: HashMap::new(),
            patience: Patience::default(),
            waited: 0,
            detached: 0,
            detach_failed: 0,
        }
    }

    pub fn bytes(&self) -> u64 {
        let control = self.control.as_ref().map_or(0, |control| control.len());
        (control + self.patience.bytes() + self.granted.capacity() * size_of::<(u64, Granted)>()) as u64
    }

    /// Processes that have nothing mapped any more.
    pub fn barred(&self) -> usize {
        self.patience.barred()
    }

    pub fn regions(&self) -> usize {
        self.granted.len()
    }

    /// The control page, made when it is first wanted.
    pub(super) fn control(&mut self) -> Result<Arc<Segment>, NotMapped> {
        if let Some(control) = &self.control {
            return Ok(Arc::clone(control));
        }
        let control = Arc::new(Segment::create_read_only_for_others(CONTROL_BYTES)?);
        self.token = random::u64()?;
        self.control = Some(Arc::clone(&control));
        Ok(control)
    }

    /// A live word that is not in use.
    pub(super) fn take_word(&mut self) -> Option<u32> {
        self.free.pop().or_else(|| {
            let word = self.next;
            (word < WORDS).then(|| {
                self.next += 1;
                word
            })
        })
    }
}
