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

    /// Over shared memory: `Work::HalfTrip` and `Work::Rate`.
    pub fn shared_memory(&self) -> Vec<Box<dyn Contestant>> {
        let Some(_folder) = &self.folder else { return Vec::new() };
        Vec::new()
    }

    /// Over UDP on loopback, reliable: `Work::HalfTrip` and `Work::Rate`.
    pub fn udp(&self) -> Vec<Box<dyn Contestant>> {
        let Some(_folder) = &self.folder else { return Vec::new() };
        Vec::new()
    }

    /// Over TCP on loopback: `Work::HalfTrip` and `Work::Rate`.
    pub fn tcp(&self) -> Vec<Box<dyn Contestant>> {
        let Some(_folder) = &self.folder else { return Vec::new() };
        Vec::new()
    }

    /// Remote memory over shared memory: `Work::Write`.
    pub fn remote_memory(&self) -> Vec<Box<dyn Contestant>> {
        let Some(_folder) = &self.folder else { return Vec::new() };
        Vec::new()
    }

    /// Remote memory over sockets on loopback: `Work::Write`.
    pub fn remote_memory_sockets(&self) -> Vec<Box<dyn Contestant>> {
        let Some(_folder) = &self.folder else { return Vec::new() };
        Vec::new()
    }
}
