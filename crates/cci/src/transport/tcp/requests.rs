//! Requests of clients, and the hosts whose requests the program holds.

use super::pipe::Pipe;
use crate::transport::quota::{Host, Quota};
use cci_memory::slab::{Key, Slab};
use std::net::SocketAddr;

/// A request that the program decides on, with all that is needed to continue with it on any endpoint.
pub(super) struct Request {
    pub stream: Pipe,
    pub peer: SocketAddr,
    pub mss: u32,
}

/// Requests that the program holds.
pub(super) struct Shown {
    /// The host of each request.
    table: Slab<Host>,
    quota: Quota,
}

impl Shown {
    pub fn new(max: u32) -> Shown {
        Shown { table: Slab::new(max), quota: Quota::new(max.into()) }
    }

    /// Enters a request of this host. Returns `None` if the program holds as many of that host as are left for all others.
    pub fn insert(&mut self, host: Host) -> Option<Key> {
        if !self.quota.has_space_for(host, 1) {
            return None;
        }
        let key = self.table.insert(host).ok()?;
        self.quota.take(host, 1);
        Some(key)
    }

    pub fn remove(&mut self, ticket: u64) {
        if let Some(host) = self.table.remove(Key::from_bits(ticket)) {
            self.quota.give_back(host, 1);
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.table.bytes() as u64 + self.quota.bytes()
    }
}
