//! ZeroMQ: `bench/peers/zeromq.c`.

use super::program::{Installed, Program, no_launcher};

/// Over UNIX sockets, which is all it has within a machine.
pub fn ipc(installed: &Installed) -> Program {
    Program { name: "ZeroMQ ipc", transport: "ipc", ..program(installed) }
}

/// Over TCP.
pub fn tcp(installed: &Installed) -> Program {
    Program { name: "ZeroMQ tcp", transport: "tcp", ..program(installed) }
}

fn program(installed: &Installed) -> Program {
    Program {
        name: "",
        program: "zeromq",
        transport: "",
        set_up: "VIRTUAL_PAIR sockets; asks without sleeping and yields the core to the library's thread in between",
        launcher: no_launcher,
        variables: &[],
        installed: installed.clone(),
    }
}
