//! What people would use instead of CCI.

mod leftovers;
mod program;
mod programs;
mod ucx;

use crate::contestant::Contestant;
use program::{Installed, Peer, Program};
pub use programs::RANKS_MANY;
use programs::*;
use std::path::PathBuf;
use ucx::Ucx;

/// The peers that may take part.
pub struct Peers {
    /// Where `bench/install-peers` put their programs. None: no peers are wanted.
    installed: Option<Installed>,
}

impl Peers {
    /// Those installed in this folder.
    pub fn new(folder: Option<PathBuf>) -> Peers {
        Peers { installed: folder.map(Installed::new) }
    }

    /// Over shared memory: `Work::HalfTrip` and `Work::Rate`.
    pub fn shared_memory(&self) -> Vec<Box<dyn Contestant>> {
        let others =
            [LIBFABRIC_SHM, OPEN_MPI_SHM, MPICH_SHM, ZEROMQ_IPC, NNG_IPC, ICEORYX2, AERON_IPC, GRPC_UNIX];
        self.of(&[Ucx::shared_memory], others)
    }

    /// Over UDP on loopback, reliable: `Work::HalfTrip` and `Work::Rate`.
    pub fn udp(&self) -> Vec<Box<dyn Contestant>> {
        self.of(&[], [LIBFABRIC_UDP, AERON_UDP])
    }

    /// Over TCP on loopback: `Work::HalfTrip` and `Work::Rate`.
    pub fn tcp(&self) -> Vec<Box<dyn Contestant>> {
        self.of(&[Ucx::tcp], [LIBFABRIC_TCP, OPEN_MPI_TCP, MPICH_TCP, ZEROMQ_TCP, NNG_TCP, GRPC_TCP])
    }

    /// Remote memory over shared memory: `Work::Write`.
    pub fn remote_memory(&self) -> Vec<Box<dyn Contestant>> {
        self.of(&[Ucx::shared_memory], [LIBFABRIC_SHM, OPEN_MPI_SHM, MPICH_SHM])
    }

    /// Active messages between ranks over shared memory: `Work::HalfTrip` and `Work::Rate`. UCX takes part twice: by its active messages, and by its
    /// tagged ones, since the best of all counts.
    pub fn active_messages(&self) -> Vec<Box<dyn Contestant>> {
        self.of(&[Ucx::active_messages, Ucx::shared_memory], [OPEN_MPI_SHM, MPICH_SHM])
    }

    /// Remote memory and atomics between ranks over shared memory: `Work::Write` and `Work::FetchAdd`.
    pub fn ranks(&self) -> Vec<Box<dyn Contestant>> {
        self.of(&[Ucx::shared_memory], [OPEN_MPI_SHM, MPICH_SHM])
    }

    /// What only the MPIs do: puts and gets with a flush, collectives.
    pub fn message_passing(&self) -> Vec<Box<dyn Contestant>> {
        self.of(&[], [OPEN_MPI_SHM, MPICH_SHM])
    }

    /// Remote memory over sockets on loopback: `Work::Write`.
    pub fn remote_memory_sockets(&self) -> Vec<Box<dyn Contestant>> {
        self.of(&[Ucx::tcp], [LIBFABRIC_TCP, LIBFABRIC_UDP, OPEN_MPI_TCP, MPICH_TCP])
    }

    /// Long messages over shared memory: `Work::Long`.
    pub fn long_shared_memory(&self) -> Vec<Box<dyn Contestant>> {
        self.of(&[Ucx::shared_memory], [OPEN_MPI_SHM, MPICH_SHM, ZEROMQ_IPC, GRPC_UNIX])
    }

    /// Long messages over TCP on loopback: `Work::Long`.
    pub fn long_tcp(&self) -> Vec<Box<dyn Contestant>> {
        self.of(&[Ucx::tcp], [OPEN_MPI_TCP, MPICH_TCP, ZEROMQ_TCP, GRPC_TCP])
    }

    /// Calls between processes of one machine: `Work::Call` and `Work::Calls`.
    pub fn calls_shared_memory(&self) -> Vec<Box<dyn Contestant>> {
        self.of(&[], [GRPC_UNIX])
    }

    /// Calls over TCP on loopback: `Work::Call` and `Work::Calls`.
    pub fn calls_tcp(&self) -> Vec<Box<dyn Contestant>> {
        self.of(&[], [GRPC_TCP])
    }

    fn of<const N: usize>(
        &self,
        ucx: &[fn(Installed) -> Ucx],
        programs: [Program; N],
    ) -> Vec<Box<dyn Contestant>> {
        let Some(installed) = &self.installed else { return Vec::new() };
        let ucx = ucx.iter().map(|ucx| -> Box<dyn Contestant> { Box::new(ucx(installed.clone())) });
        let others = programs.into_iter().map(|program| -> Box<dyn Contestant> {
            Box::new(Peer { program, installed: installed.clone() })
        });
        ucx.chain(others).collect()
    }
}
