//! Regions that stay registered between messages.
//!
//! A peer on the same host maps the memory that a message is sent from. Each new region costs it a request, a descriptor and a mapping, which
//! take longer than reading a message of many kilobytes. What it has once mapped it may look at for as long as it lives, so nothing is lost
//! if the region stays registered, for this one connection, until the next message from there.

use crate::connection::Connection;
use crate::endpoint::Endpoint;
use crate::rma::{Memory, RegionHandle};
use std::ops::Range;

/// The most regions that are kept.
const KEPT_MAX: usize = 64;

/// A part of the program's memory that the peer of one connection may read.
pub struct Lent {
    pub memory: Memory,
    pub range: Range<usize>,
    pub region: RegionHandle,
}

/// Regions that wait for the next message, the one that was used last at the end.
#[derive(Default)]
pub struct Kept {
    all: Vec<(Connection, Lent)>,
}

impl Kept {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// The region of this memory, if it was kept. It was used last, where there are several.
    pub fn take(&mut self, connection: Connection, memory: &Memory, range: &Range<usize>) -> Option<Lent> {
        let fits = |(to, lent): &(Connection, Lent)| {
            *to == connection && lent.range == *range && lent.memory.is_same(memory)
        };
        let at = self.all.iter().rposition(fits)?;
        Some(self.all.remove(at).1)
    }

    /// Keeps a region that no message uses any more, or deregisters it, if the peer does not map it.
    pub fn put(&mut self, endpoint: &mut Endpoint, connection: Connection, lent: Lent) {
        if !endpoint.is_mapped_by_peer(&lent.region) {
            return deregister(endpoint, &lent);
        }
        if self.all.len() >= KEPT_MAX {
            deregister(endpoint, &self.all.remove(0).1);
        }
        self.all.push((connection, lent));
    }

    /// Deregisters what was kept for a connection that has ended.
    pub fn forget(&mut self, endpoint: &mut Endpoint, connection: Connection) {
        self.all.retain(|(to, lent)| {
            if *to == connection {
                deregister(endpoint, lent);
            }
            *to != connection
        });
    }

    /// Deregisters what the program has given back: it can't send from there any more.
    pub fn sweep(&mut self, endpoint: &mut Endpoint) {
        let mut at = 0;
        while let Some((_, lent)) = self.all.get(at) {
            let ours = self.all.iter().filter(|(_, other)| other.memory.is_same(&lent.memory)).count();
            // Each has a handle here, one in its region and one in the grant of that.
            if lent.memory.handles() > 3 * ours {
                at += 1;
            } else {
                deregister(endpoint, lent);
                self.all.remove(at);
            }
        }
    }
}

fn deregister(endpoint: &mut Endpoint, lent: &Lent) {
    // It is registered, unless the process is another one, where nobody can read anything.
    let _ = endpoint.deregister(&lent.region);
}
