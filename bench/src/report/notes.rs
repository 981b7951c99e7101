//! What stands in the way where a goal is not met, in words, with where it was measured: the one part of the page that a
//! person writes.

/// By the row's name. Shown below the goals as long as a goal of that row is not met.
pub const NOTES: &[(&str, &str)] = &[
    (
        "shm/half-trip/8",
        "where two cores share a cache (a line in 23 to 27 ns), a line each way with nothing in it takes 2.3 lines, a ring that is checked 1.7, and \
         receive buffers and events are some 150 instructions more on each side; where cores are far apart (a line in 200 to 240 ns) the same code takes \
         1.02 to 1.15 lines. The steps are in `cargo run --release -p cci --example shm_ladder`, the reasons in ADR 0013. \
         Aeron's reader looks at its log in place, without buffer, event or completion; to keep a message a program copies it itself.",
    ),
    (
        "shm/rate/8",
        "Aeron hands a reader slices of its log and asks nothing of the writer per message. Here each message has a line and a receive buffer of its own, \
         which may be kept and given back in any order, and its completion: 1,600 instructions for a send and a receive (bench/instructions). \
         Of UCX's and the MPIs' it is 0.6 to 1.2 at 8 B, more from 1 KiB on.",
    ),
    (
        "udp/half-trip/8",
        "the calls alone, with this library's options, take 1.02 times as long as on two plain connected sockets (`cargo run --release -p cci-sys --example udp_baseline`); the rest, 450 to 580 ns, is \
         4,100 instructions a message of protocol and events on both sides, of which no single part is 2 % (ADR 0014). It could be shortened; that has not been done.",
    ),
    (
        "tcp/half-trip/8",
        "as many system calls (two) as the baseline makes, and 2,100 instructions a message: the ratio is 0.91 to 0.93 in `cci perf` (above 1 is faster) at real-time priority, somewhat more at this machine's ordinary one.",
    ),
    (
        "eth/half-trip/64",
        "plain AF_XDP sockets, which were measured too, take 0.45 to 0.6 of UDP's time on a virtual pair: a frame is one `sendto` of 1.3 µs, most of it the receiving end's work, \
         which virtual interfaces do on the sender's core. Of the rest, the library takes 0.2 µs (ADR 0009). No network card, which would send without a system call, was available.",
    ),
    (
        "shm/c/half-trip/8",
        "a message through C is 2,340 instructions beside 1,580 (bench/instructions): each call of `cci.h` finds the endpoint, holds off others and returns its event as a record that \
         the program gives back. It was 3,010 before it was optimised.",
    ),
    ("shm/c/rate/8", "the reason is that of the half round trip over shared memory."),
    ("udp/c/rate/8", "the reason is that of the half round trip over shared memory."),
    (
        "tcp/wait-handle/8",
        "sleeping on the descriptor means arming an epoll set and waiting for it, where the baseline makes one blocking call of `read`: more system calls for each message. \
         `Endpoint::wait` polls for a moment before it sleeps, and is faster than the baseline.",
    ),
    (
        "udp/idle-memory/1000000",
        "128 bytes are structure (96 in the protocol, 32 in the engine's table; runs gave 149 to 178); the rest is what thousands of connections that were just set up had borrowed, which an endpoint keeps for later ones. \
         To reach 120, the protocol's entry has to shrink by another eight bytes, and what is no longer borrowed has to be given back to the system.",
    ),
];
