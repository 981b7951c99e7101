//! The programs of `bench/peers`, each with its best honest configuration.

use super::program::{Program, no_launcher};
use crate::work::Work;

/// Ranks of a job that shares its two cores.
pub const RANKS_MANY: u32 = 8;

/// What a program has unless it says otherwise.
const PLAIN: Program = Program {
    name: "",
    program: "",
    transport: "",
    set_up: "",
    launcher: no_launcher,
    variables: &[],
    files: None,
};

/// `libfabric.c`. libfabric's own `fi_pingpong` measures half round trips only, to 10 ns; the two agree, ours being the
/// faster one by up to a seventh.
const LIBFABRIC: Program = Program {
    program: "libfabric",
    set_up: "FI_EP_RDM, FI_THREAD_DOMAIN, polls; small messages injected, 256 receives posted",
    ..PLAIN
};
/// The provider `shm`.
pub const LIBFABRIC_SHM: Program = Program { name: "libfabric shm", transport: "shm", ..LIBFABRIC };
/// Reliable datagrams over its TCP provider.
pub const LIBFABRIC_TCP: Program = Program { name: "libfabric tcp", transport: "tcp;ofi_rxm", ..LIBFABRIC };
/// Reliable datagrams over its UDP provider.
pub const LIBFABRIC_UDP: Program = Program { name: "libfabric udp", transport: "udp;ofi_rxd", ..LIBFABRIC };

/// `mpi.c`, started by Open MPI's launcher; the ranks pin themselves. There are two ways to shared memory: its own
/// (`vader`), faster by a fifth in half round trips, and UCX's, faster by a tenth in messages a second. Each work gets
/// the one that is better at it.
pub const OPEN_MPI_SHM: Program = Program {
    name: "Open MPI shm",
    program: "openmpi",
    transport: "shm",
    set_up: "pml ob1 with btl vader; for the rate pml ucx over shared memory",
    launcher: |work| match work {
        Work::Rate { .. } | Work::Long { .. } => {
            open_mpi(work, "ucx", &["-x", "UCX_TLS=posix,sysv,cma,self"])
        }
        _ => open_mpi(work, "ob1", &["--mca", "btl", "vader,self"]),
    },
    ..PLAIN
};
/// Over TCP, UCX has the shorter half round trip, and Open MPI's own way moves a megabyte three times as fast.
pub const OPEN_MPI_TCP: Program = Program {
    name: "Open MPI tcp",
    program: "openmpi",
    transport: "tcp",
    set_up: "pml ucx over TCP; for remote writes pml ob1 with btl tcp",
    launcher: |work| match work {
        Work::Write { .. } => {
            let options = ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"];
            open_mpi(work, "ob1", &[options.as_slice(), &["--mca", "osc", "^ucx,sm"]].concat())
        }
        _ => open_mpi(work, "ucx", &["-x", "UCX_TLS=tcp,self", "-x", "UCX_NET_DEVICES=lo"]),
    },
    ..PLAIN
};

/// `mpi.c` by MPICH, which stands on UCX as Debian builds it, over shared memory.
pub const MPICH_SHM: Program = Program {
    name: "MPICH shm",
    program: "mpich",
    transport: "shm",
    set_up: "ch4:ucx as it comes",
    launcher: |work| vec!["mpirun.mpich", "-bind-to", "none", "-n", ranks(work)],
    ..PLAIN
};
/// Made to take TCP between ranks of one machine.
pub const MPICH_TCP: Program = Program {
    name: "MPICH tcp",
    transport: "tcp",
    set_up: "ch4:ucx over TCP, its shared memory turned off",
    variables: &[("UCX_TLS", "tcp,self"), ("UCX_NET_DEVICES", "lo"), ("MPIR_CVAR_NOLOCAL", "1")],
    ..MPICH_SHM
};

/// `zeromq.c`, over UNIX sockets, which is all that ZeroMQ has within a machine.
pub const ZEROMQ_IPC: Program = Program {
    name: "ZeroMQ ipc",
    program: "zeromq",
    transport: "ipc",
    set_up: "PAIR sockets; asks without sleeping and yields the core to the library's thread in between",
    ..PLAIN
};
/// Over TCP.
pub const ZEROMQ_TCP: Program = Program { name: "ZeroMQ tcp", transport: "tcp", ..ZEROMQ_IPC };

/// `nng.c`, over UNIX sockets, which is all that nng has within a machine.
pub const NNG_IPC: Program = Program {
    name: "nng ipc",
    program: "nng",
    transport: "ipc",
    set_up: "PAIR1 sockets; asks without sleeping and yields the core to the library's threads in between",
    ..PLAIN
};
/// Over TCP.
pub const NNG_TCP: Program = Program { name: "nng tcp", transport: "tcp", ..NNG_IPC };

/// `rust/src/bin/iceoryx2.rs`, the shape of its own publish-subscribe benchmark between two processes, by its
/// `ipc::Service`.
pub const ICEORYX2: Program = Program {
    name: "iceoryx2",
    program: "iceoryx2",
    transport: "ipc",
    set_up: "publish-subscribe, zero copy, polls; queue of 1, for the rate 256 that block",
    files: Some("cci-bench-iox2-"),
    ..PLAIN
};

/// `aeron`, two Java processes with one busy thread each, through one media driver's shared memory. `INVOKER` is the best
/// of its threading modes on two cores: with a thread of its own the media driver takes turns with the program on the
/// same core.
pub const AERON_IPC: Program = Program {
    name: "Aeron ipc",
    program: "aeron",
    transport: "ipc",
    set_up: "Java; exclusive publications; driver invoked by the busy thread; terms of 1 MiB",
    files: Some("cci-bench-aeron-"),
    ..PLAIN
};
/// On loopback, each process with its own media driver.
pub const AERON_UDP: Program = Program {
    name: "Aeron udp",
    transport: "udp",
    set_up: "Java; exclusive publications; a driver each, invoked by the busy thread; MTU 64 KiB, window 2 MiB",
    ..AERON_IPC
};

/// `rust/src/bin/grpc.rs`, tonic, over a UNIX socket. For scale: what a remote procedure call costs by the usual means.
pub const GRPC_UNIX: Program = Program {
    name: "gRPC unix",
    program: "grpc",
    transport: "unix",
    set_up: "unary calls, for the rate and long messages one client stream, 64 clients on a connection each; runtimes that never sleep; no TLS",
    files: Some("cci-bench-grpc-"),
    ..PLAIN
};
/// Over TCP.
pub const GRPC_TCP: Program = Program { name: "gRPC tcp", transport: "tcp", ..GRPC_UNIX };

/// Open MPI's launcher: places enough on this machine, and whoever the user is.
const MPIRUN: [&str; 7] =
    ["mpirun.openmpi", "--allow-run-as-root", "--bind-to", "none", "--host", "localhost:64", "-n"];

/// How many ranks a work has, for a launcher.
const fn ranks(work: Work) -> &'static str {
    match work.ranks() {
        RANKS_MANY => "8",
        16 => "16",
        64 => "64",
        _ => "2",
    }
}

fn open_mpi(work: Work, pml: &'static str, options: &[&'static str]) -> Vec<&'static str> {
    let mut words = MPIRUN.to_vec();
    words.extend([ranks(work), "--mca", "pml", pml]);
    if work.ranks() > 2 {
        // What it does by itself where it knows that ranks share cores.
        words.extend(["--mca", "mpi_yield_when_idle", "1"]);
    }
    if pml == "ucx" {
        // By itself it takes only transports of fast networks.
        words.extend(["--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any"]);
    }
    words.extend(options);
    words
}
