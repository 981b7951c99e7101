//! Memory of the library for long messages that are sent from slices: they are copied there before the call returns, and the peer reads
//! them there.

use super::send::SendError;
use crate::connection::Connection;
use crate::endpoint::Endpoint;
use crate::rma::Memory;

/// The shortest memory that is allocated.
const BYTES_MIN: usize = 64 << 10;
/// The most pieces of memory that are kept for the next messages.
const IDLE_MAX: usize = 64;

/// Memory with a message in it. A peer on the same host maps memory that it reads from and may look there for as long as it lives, so
/// memory is used for one connection only.
pub struct Staged {
    pub memory: Memory,
    connection: Connection,
}

/// All memory for staged messages, under a cap.
pub struct Staging {
    max_bytes: u64,
    used_bytes: u64,
    idle_bytes: u64,
    idle: Vec<Staged>,
}

impl Staging {
    pub const fn new(max_bytes: u64) -> Staging {
        Staging { max_bytes, used_bytes: 0, idle_bytes: 0, idle: Vec::new() }
    }

    /// The bytes that have messages in them, and those that are kept.
    pub fn in_use_bytes(&self) -> (u64, u64) {
        (self.used_bytes, self.idle_bytes)
    }

    /// Memory of `len` bytes or more for a message to a connection.
    pub fn take(
        &mut self,
        endpoint: &mut Endpoint,
        connection: Connection,
        len: usize,
    ) -> Result<Staged, SendError> {
        let too_long = SendError::TooLong { len_bytes: len as u64, max_bytes: self.max_bytes };
        let needed = len.max(BYTES_MIN).checked_next_power_of_two().unwrap_or(usize::MAX) as u64;
        // Near the cap, a message may have just what it needs.
        let needed = if needed > self.max_bytes { len as u64 } else { needed };
        if needed > self.max_bytes {
            return Err(too_long);
        }
        let fits = |staged: &Staged| staged.connection == connection && staged.memory.len() as u64 == needed;
        if let Some(at) = self.idle.iter().rposition(fits) {
            let staged = self.idle.swap_remove(at);
            self.idle_bytes -= needed;
            self.used_bytes += needed;
            return Ok(staged);
        }
        while self.used_bytes + self.idle_bytes + needed > self.max_bytes {
            let Some(idle) = self.idle.pop() else { return Err(SendError::WouldBlock) };
            self.idle_bytes -= idle.memory.len() as u64;
        }
        let memory = endpoint.allocate(needed as usize).map_err(SendError::Memory)?;
        self.used_bytes += needed;
        Ok(Staged { memory, connection })
    }

    /// Takes memory back that nobody reads any more.
    pub fn give_back(&mut self, staged: Staged) {
        let len_bytes = staged.memory.len() as u64;
        self.used_bytes -= len_bytes;
        if self.idle.len() < IDLE_MAX {
            self.idle_bytes += len_bytes;
            self.idle.push(staged);
        }
    }

    /// Frees what was kept for a connection that has ended.
    pub fn forget(&mut self, connection: Connection) {
        self.idle.retain(|staged| staged.connection != connection);
        self.idle_bytes = self.idle.iter().map(|staged| staged.memory.len() as u64).sum();
    }
}
