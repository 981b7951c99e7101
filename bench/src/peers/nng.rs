//! nng: `bench/peers/nng.c`.

use super::program::{Installed, Program, no_launcher};

/// Over UNIX sockets, which is all it has within a machine.
pub fn ipc(installed: &Installed) -> Program {
    Program { name: "nng ipc", transport: "ipc", ..program(installed) }
}

/// Over TCP.
pub fn tcp(installed: &Installed) -> Program {
    Program { name: "nng tcp", transport: "tcp", ..program(installed) }
}

fn program(installed: &Installed) -> Program {
    Program {
        name: "",
        program: "nng",
        transport: "",
        set_up: "PAIR1 sockets; asks without sleeping and yields the core to the library's threads in between",
        launcher: no_launcher,
        variables: &[],
        installed: installed.clone(),
    }
}
