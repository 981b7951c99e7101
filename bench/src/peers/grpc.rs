//! gRPC: `bench/peers/rust/src/bin/grpc.rs`, tonic. For scale: what a remote procedure call costs by the usual means.

use super::leftovers::Tidied;
use super::program::{Installed, Program, no_launcher};

/// Over a UNIX socket.
pub fn unix(installed: &Installed) -> Tidied {
    tidied(Program { name: "gRPC unix", transport: "unix", ..program(installed) })
}

/// Over TCP.
pub fn tcp(installed: &Installed) -> Tidied {
    tidied(Program { name: "gRPC tcp", transport: "tcp", ..program(installed) })
}

fn program(installed: &Installed) -> Program {
    Program {
        name: "",
        program: "grpc",
        transport: "",
        set_up: "unary calls, for the rate one client stream; runtimes that never sleep; no TLS",
        launcher: no_launcher,
        variables: &[],
        installed: installed.clone(),
    }
}

fn tidied(program: Program) -> Tidied {
    Tidied { program, prefix: "cci-bench-grpc-" }
}
