//! libfabric: `bench/peers/libfabric.c`. Its own `fi_pingpong` measures half round trips only, to 10 ns; the two agree, ours being the
//! faster one by up to a seventh.

use super::program::{Installed, Program, no_launcher};

/// The provider `shm`.
pub fn shared_memory(installed: &Installed) -> Program {
    Program { name: "libfabric shm", transport: "shm", ..program(installed) }
}

/// Reliable datagrams over its TCP provider.
pub fn tcp(installed: &Installed) -> Program {
    Program { name: "libfabric tcp", transport: "tcp;ofi_rxm", ..program(installed) }
}

/// Reliable datagrams over its UDP provider.
pub fn udp(installed: &Installed) -> Program {
    Program { name: "libfabric udp", transport: "udp;ofi_rxd", ..program(installed) }
}

fn program(installed: &Installed) -> Program {
    Program {
        name: "",
        program: "libfabric",
        transport: "",
        set_up: "FI_EP_RDM, FI_THREAD_DOMAIN, polls; small messages injected, 256 receives posted",
        launcher: no_launcher,
        variables: &[],
        installed: installed.clone(),
    }
}
