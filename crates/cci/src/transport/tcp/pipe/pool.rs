//! Buffers that sealed streams borrow while something is in them.

use cci_ring::room;
use cci_secure::limits::{RECORD_BODY_BYTES_MAX, RECORD_OVERHEAD_BYTES};
use std::sync::{Mutex, PoisonError};

/// Four of the longest records.
pub(super) const BUFFER_BYTES: usize = 4 * (RECORD_BODY_BYTES_MAX + RECORD_OVERHEAD_BYTES);
/// However little memory there is: for both streams of some connections.
const BUFFERS_MIN: u64 = 16;

/// All buffers of an endpoint. A request that another endpoint accepts takes its stream, and what it has borrowed, there:
/// hence the lock, for which nobody waits as a rule.
pub(super) struct Pool {
    state: Mutex<State>,
    made_max: u64,
}

struct State {
    free: Vec<Box<[u8]>>,
    made: u64,
}

/// One buffer: something is in `at..end`.
pub(super) struct Buffer {
    pub bytes: Box<[u8]>,
    pub at: usize,
    pub end: usize,
}

impl Buffer {
    pub fn filled(&self) -> &[u8] {
        self.bytes.get(self.at..self.end).unwrap_or_default()
    }

    pub fn is_empty(&self) -> bool {
        self.at == self.end
    }
}

impl Pool {
    pub fn new(bytes_max: u64) -> Pool {
        let made_max = (bytes_max / BUFFER_BYTES as u64).max(BUFFERS_MIN);
        Pool { state: Mutex::new(State { free: Vec::new(), made: 0 }), made_max }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // Nothing that could panic is done under it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One that was given back, or a new one; `None`: there are as many as there may be, or there is no memory.
    pub fn lend(&self) -> Option<Buffer> {
        let mut state = self.state();
        let bytes = match state.free.pop() {
            Some(bytes) => bytes,
            None if state.made < self.made_max => {
                // So that giving back never allocates.
                let made = usize::try_from(state.made + 1).unwrap_or(usize::MAX);
                let missing = made.saturating_sub(state.free.len());
                state.free.try_reserve(missing).ok()?;
                let bytes = room::zeroed(BUFFER_BYTES)?;
                state.made += 1;
                bytes
            }
            None => return None,
        };
        Some(Buffer { bytes, at: 0, end: 0 })
    }

    pub fn give_back(&self, buffer: Buffer) {
        self.state().free.push(buffer.bytes);
    }

    /// Bytes of all that were made.
    pub fn bytes(&self) -> u64 {
        self.state().made * BUFFER_BYTES as u64
    }
}
