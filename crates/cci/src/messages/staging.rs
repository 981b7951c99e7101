//! Memory of the library for long messages that are sent from slices: they are copied there before the call returns, and the peer reads
//! them there.

use super::send::SendError;
use crate::connection::Connection;
use crate::endpoint::Endpoint;
use crate::rma::{Access, Memory, RegionHandle, Registration};

/// The shortest memory that is allocated.
const BYTES_MIN: usize = 64 << 10;
/// The most pieces of memory that are kept for the next messages.
const IDLE_MAX: usize = 64;

/// Memory with a message in it. A peer on the same host maps memory that it reads from and may look there for as long as it lives, so
/// memory is used for one connection only, and stays registered for its peer between messages.
pub struct Staged {
    pub memory: Memory,
    pub region: RegionHandle,
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

    /// How many pieces of memory are kept.
    pub fn idle_len(&self) -> usize {
        self.idle.len()
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
            let staged = self.idle.remove(at);
            self.idle_bytes -= needed;
            self.used_bytes += needed;
            return Ok(staged);
        }
        while self.used_bytes + self.idle_bytes + needed > self.max_bytes {
            if self.idle.is_empty() {
                return Err(SendError::WouldBlock);
            }
            self.free(endpoint, 0);
        }
        let memory = endpoint.allocate(needed as usize).map_err(SendError::Memory)?;
        let what = Registration { range: None, access: Access::READ, only: Some(connection) };
        let region = endpoint.register(&memory, what).map_err(SendError::Memory)?;
        self.used_bytes += needed;
        Ok(Staged { memory, region, connection })
    }

    /// Takes memory back that no message is in any more.
    pub fn give_back(&mut self, endpoint: &mut Endpoint, staged: Staged) {
        let len_bytes = staged.memory.len() as u64;
        self.used_bytes -= len_bytes;
        self.idle_bytes += len_bytes;
        self.idle.push(staged);
        if self.idle.len() > IDLE_MAX {
            self.free(endpoint, 0);
        }
    }

    /// Frees what was kept for a connection that has ended.
    pub fn forget(&mut self, endpoint: &mut Endpoint, connection: Connection) {
        while let Some(at) = self.idle.iter().position(|staged| staged.connection == connection) {
            self.free(endpoint, at);
        }
    }

    /// Frees one that was kept; the first has not been used for longest.
    fn free(&mut self, endpoint: &mut Endpoint, at: usize) {
        let staged = self.idle.remove(at);
        self.idle_bytes -= staged.memory.len() as u64;
        // It is registered, unless the process is another one, where nobody can read anything.
        let _ = endpoint.deregister(&staged.region);
    }
}
