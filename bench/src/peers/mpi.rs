//! Open MPI and MPICH: `bench/peers/mpi.c`, started by their own launchers. The ranks pin themselves.
//!
//! Open MPI has two ways to shared memory: its own (`vader`), faster by a fifth in half round trips, and UCX's, faster by a tenth in
//! messages a second. Each work gets the one that is better at it. Over TCP, UCX has the shorter half round trip and its own way
//! moves a megabyte three times as fast. MPICH as Debian builds it stands on UCX.

use super::program::{Installed, Program, no_launcher};
use crate::work::Work;

/// Open MPI's launcher: two places on this machine, and whoever the user is.
const MPIRUN: [&str; 7] =
    ["mpirun.openmpi", "--allow-run-as-root", "--bind-to", "none", "--host", "localhost:2", "-n"];

/// The better of its two ways for each work.
pub fn open_mpi_shared_memory(installed: &Installed) -> Program {
    Program {
        name: "Open MPI shm",
        program: "openmpi",
        transport: "shm",
        set_up: "pml ob1 with btl vader; for the rate pml ucx over shared memory",
        launcher: |work| match work {
            Work::Rate { .. } => open_mpi("ucx", &["-x", "UCX_TLS=posix,sysv,cma,self"]),
            _ => open_mpi("ob1", &["--mca", "btl", "vader,self"]),
        },
        ..program(installed)
    }
}

/// The better of its two ways for each work.
pub fn open_mpi_tcp(installed: &Installed) -> Program {
    Program {
        name: "Open MPI tcp",
        program: "openmpi",
        transport: "tcp",
        set_up: "pml ucx over TCP; for remote writes pml ob1 with btl tcp",
        launcher: |work| match work {
            Work::Write { .. } => {
                let options = ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"];
                open_mpi("ob1", &[options.as_slice(), &["--mca", "osc", "^ucx,sm"]].concat())
            }
            _ => open_mpi("ucx", &["-x", "UCX_TLS=tcp,self", "-x", "UCX_NET_DEVICES=lo"]),
        },
        ..program(installed)
    }
}

/// MPICH over shared memory, with its default settings.
pub fn mpich_shared_memory(installed: &Installed) -> Program {
    Program {
        name: "MPICH shm",
        program: "mpich",
        transport: "shm",
        set_up: "ch4:ucx as it comes",
        launcher: |_| mpich(),
        ..program(installed)
    }
}

/// Made to take TCP between ranks of one machine.
pub fn mpich_tcp(installed: &Installed) -> Program {
    Program {
        name: "MPICH tcp",
        program: "mpich",
        transport: "tcp",
        set_up: "ch4:ucx over TCP, its shared memory turned off",
        launcher: |_| mpich(),
        variables: &[("UCX_TLS", "tcp,self"), ("UCX_NET_DEVICES", "lo"), ("MPIR_CVAR_NOLOCAL", "1")],
        ..program(installed)
    }
}

fn open_mpi(pml: &'static str, options: &[&'static str]) -> Vec<&'static str> {
    let mut words = MPIRUN.to_vec();
    words.extend(["2", "--mca", "pml", pml]);
    if pml == "ucx" {
        // By itself it takes only transports of fast networks.
        words.extend(["--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any"]);
    }
    words.extend(options);
    words
}

fn mpich() -> Vec<&'static str> {
    vec!["mpirun.mpich", "-bind-to", "none", "-n", "2"]
}

fn program(installed: &Installed) -> Program {
    Program {
        name: "",
        program: "",
        transport: "",
        set_up: "",
        launcher: no_launcher,
        variables: &[],
        installed: installed.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::program::tests::line;
    use std::path::PathBuf;

    #[test]
    fn each_work_takes_the_way_that_is_better_at_it() {
        let program = open_mpi_shared_memory(&Installed::new(PathBuf::from("p")));
        let (trip, rate) = (line(&program, Work::HalfTrip { len: 8 }), line(&program, Work::Rate { len: 8 }));
        assert!(
            trip.contains("-n 2 --mca pml ob1") && trip.ends_with("p/openmpi half-trip 8 1000 shm"),
            "{trip}"
        );
        assert!(rate.contains("--mca pml ucx") && rate.ends_with("p/openmpi rate 8 1000 shm"), "{rate}");
    }
}
