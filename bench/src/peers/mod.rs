//! What people would use instead: one file a peer, each with its best honest configuration.

use crate::contestant::Contestant;
use std::path::PathBuf;

/// The peers that may take part.
pub struct Peers {
    /// Where `bench/install-peers` put their programs. None: no peers are wanted.
    folder: Option<PathBuf>,
}

impl Peers {
    /// Those installed there.
    pub const fn new(folder: Option<PathBuf>) -> Peers {
        Peers { folder }
    }

    /// Over shared memory.
    pub fn shared_memory(&self) -> Vec<Box<dyn Contestant>> {
        let Some(_folder) = &self.folder else { return Vec::new() };
        Vec::new()
    }
}
