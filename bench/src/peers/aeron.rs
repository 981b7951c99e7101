//! Aeron: `bench/peers/aeron`, two Java processes with one busy thread each. `INVOKER` is the best of its threading modes on two
//! cores: with a thread of its own the media driver takes turns with the program on the same core.

use super::leftovers::Tidied;
use super::program::{Installed, Program, no_launcher};

/// Through one media driver's shared memory.
pub fn ipc(installed: &Installed) -> Tidied {
    tidied(Program {
        name: "Aeron ipc",
        transport: "ipc",
        set_up: "Java; exclusive publications; driver invoked by the busy thread; terms of 1 MiB",
        ..program(installed)
    })
}

/// On loopback, each process with its own media driver.
pub fn udp(installed: &Installed) -> Tidied {
    tidied(Program {
        name: "Aeron udp",
        transport: "udp",
        set_up: "Java; exclusive publications; a driver each, invoked by the busy thread; MTU 64 KiB, window 2 MiB",
        ..program(installed)
    })
}

fn program(installed: &Installed) -> Program {
    Program {
        name: "",
        program: "aeron",
        transport: "",
        set_up: "",
        launcher: no_launcher,
        variables: &[],
        installed: installed.clone(),
    }
}

fn tidied(program: Program) -> Tidied {
    Tidied { program, prefix: "cci-bench-aeron-" }
}
