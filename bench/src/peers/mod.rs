//! What people would use instead: one file a peer, each with its best honest configuration.

mod aeron;
mod grpc;
mod iceoryx2;
mod leftovers;
mod libfabric;
mod mpi;
mod nng;
mod program;
mod ucx;
mod zeromq;

use crate::contestant::Contestant;
use program::Installed;
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
        let Some(installed) = self.installed() else { return Vec::new() };
        vec![
            Box::new(ucx::shared_memory(&installed)),
            Box::new(libfabric::shared_memory(&installed)),
            Box::new(mpi::open_mpi_shared_memory(&installed)),
            Box::new(mpi::mpich_shared_memory(&installed)),
            Box::new(zeromq::ipc(&installed)),
            Box::new(nng::ipc(&installed)),
            Box::new(iceoryx2::publish_subscribe(&installed)),
            Box::new(aeron::ipc(&installed)),
            Box::new(grpc::unix(&installed)),
        ]
    }

    /// Over UDP on loopback, reliable: `Work::HalfTrip` and `Work::Rate`.
    pub fn udp(&self) -> Vec<Box<dyn Contestant>> {
        let Some(installed) = self.installed() else { return Vec::new() };
        vec![Box::new(libfabric::udp(&installed)), Box::new(aeron::udp(&installed))]
    }

    /// Over TCP on loopback: `Work::HalfTrip` and `Work::Rate`.
    pub fn tcp(&self) -> Vec<Box<dyn Contestant>> {
        let Some(installed) = self.installed() else { return Vec::new() };
        vec![
            Box::new(ucx::tcp(&installed)),
            Box::new(libfabric::tcp(&installed)),
            Box::new(mpi::open_mpi_tcp(&installed)),
            Box::new(mpi::mpich_tcp(&installed)),
            Box::new(zeromq::tcp(&installed)),
            Box::new(nng::tcp(&installed)),
            Box::new(grpc::tcp(&installed)),
        ]
    }

    /// Remote memory over shared memory: `Work::Write`.
    pub fn remote_memory(&self) -> Vec<Box<dyn Contestant>> {
        let Some(installed) = self.installed() else { return Vec::new() };
        vec![
            Box::new(ucx::shared_memory(&installed)),
            Box::new(libfabric::shared_memory(&installed)),
            Box::new(mpi::open_mpi_shared_memory(&installed)),
            Box::new(mpi::mpich_shared_memory(&installed)),
        ]
    }

    /// Remote memory over sockets on loopback: `Work::Write`.
    pub fn remote_memory_sockets(&self) -> Vec<Box<dyn Contestant>> {
        let Some(installed) = self.installed() else { return Vec::new() };
        vec![
            Box::new(ucx::tcp(&installed)),
            Box::new(libfabric::tcp(&installed)),
            Box::new(libfabric::udp(&installed)),
            Box::new(mpi::open_mpi_tcp(&installed)),
            Box::new(mpi::mpich_tcp(&installed)),
        ]
    }

    fn installed(&self) -> Option<Installed> {
        self.folder.clone().map(Installed::new)
    }
}
