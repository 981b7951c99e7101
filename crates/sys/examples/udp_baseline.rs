//! What each thing that the library asks of UDP sockets costs in the kernel, measured without it: half round trips of one datagram over
//! loopback between two processes, each polling on a core of its own, one thing more in each row (`docs/adr/0014`).
//!
//! `cargo run --release -p cci-sys --example udp_baseline` (`chrt -f 20` before it on a busy machine).

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a program that prints what it found")]

use cci_sys::cpu;
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Instant;

/// Round trips of a row in one round, and rounds, in which the rows take turns.
const TRIPS: usize = 6_000;
const ROUNDS: usize = 9;

/// How one datagram goes.
#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    send: Send,
    /// The receiver asks who sent it.
    sender: bool,
    len: usize,
    /// The kernel reports with each how many it has dropped (`SO_RXQ_OVFL`).
    drops: bool,
    gro: bool,
    path_mtu: Option<Ipv4PathMtuDiscovery>,
}

#[derive(Clone, Copy, PartialEq)]
enum Send {
    Unconnected,
    /// The socket that receives.
    Connected,
    /// A second socket of that port, bound to the address of nobody.
    SecondConnected,
}

struct End {
    socket: OwnedFd,
    second: Option<OwnedFd>,
    at: SocketAddr,
}

fn main() {
    let plain = Way {
        name: "unconnected",
        send: Send::Unconnected,
        sender: false,
        len: 8,
        drops: false,
        gro: false,
        path_mtu: None,
    };
    let sender = Way { name: "+ who sent it", sender: true, ..plain };
    let header = Way { name: "+ 64 bytes", len: 64, ..sender };
    let drops = Way { name: "+ SO_RXQ_OVFL", drops: true, ..header };
    let gro = Way { name: "- that, + UDP_GRO", gro: true, ..header };
    let whole = Way { name: "+ IP_PMTUDISC_DO", path_mtu: Some(Ipv4PathMtuDiscovery::DO), ..gro };
    let probe = Way { name: "IP_PMTUDISC_PROBE instead", path_mtu: Some(Ipv4PathMtuDiscovery::PROBE), ..gro };
    let second = Way { name: "as the library", send: Send::SecondConnected, ..whole };
    let connected = Way { name: "connected", send: Send::Connected, ..plain };
    let ways = [connected, plain, sender, header, drops, gro, whole, probe, second];
    let mut found_ns = ways.map(|_| Vec::with_capacity(ROUNDS));
    for _ in 0..ROUNDS {
        for (way, found) in ways.iter().zip(&mut found_ns) {
            found.push(half_round_trip_ns(way));
        }
    }
    for (way, mut found) in ways.iter().zip(found_ns) {
        found.sort_unstable();
        println!("{:<28} {:>5} ns (least {})", way.name, found[ROUNDS / 2], found[0]);
    }
}

/// The median of a round.
fn half_round_trip_ns(way: &Way) -> u64 {
    let (mut here, mut there) = (End::new(way), End::new(way));
    here.lead(way, there.at);
    there.lead(way, here.at);
    let message = vec![7; way.len];
    // The child begins where it stays: with real-time priority it would not get away from a core that its parent polls on.
    cpu::pin(1).unwrap();
    // SAFETY: this process has one thread; the child makes system calls until it is killed.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: it ends with its parent, whatever ends that one.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        loop {
            there.receive(way);
            there.send(way, &message, here.at);
        }
    }
    cpu::pin(0).unwrap();
    let mut trips_ns: Vec<u64> = (0..TRIPS)
        .map(|_| {
            let start = Instant::now();
            here.send(way, &message, there.at);
            here.receive(way);
            start.elapsed().as_nanos() as u64
        })
        .collect();
    // SAFETY: the child made above.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
    trips_ns.sort_unstable();
    trips_ns[TRIPS / 2] / 2
}

impl End {
    fn new(way: &Way) -> End {
        let socket = socket(way);
        rustix::net::bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let at: SocketAddr = rustix::net::getsockname(&socket).unwrap().try_into().unwrap();
        let second = (way.send == Send::SecondConnected).then(|| {
            let second = self::socket(way);
            let nobodys = SocketAddr::from((Ipv4Addr::new(224, 0, 0, 0), at.port()));
            rustix::net::bind(&second, &nobodys).unwrap();
            second
        });
        End { socket, second, at }
    }

    fn lead(&mut self, way: &Way, to: SocketAddr) {
        if way.send != Send::Unconnected {
            rustix::net::connect(self.second.as_ref().unwrap_or(&self.socket), &to).unwrap();
        }
    }

    fn send(&self, way: &Way, message: &[u8], to: SocketAddr) {
        match way.send {
            Send::Unconnected => rustix::net::sendto(&self.socket, message, SendFlags::DONTWAIT, &to),
            Send::Connected | Send::SecondConnected => {
                let socket = self.second.as_ref().unwrap_or(&self.socket);
                rustix::net::send(socket, message, SendFlags::DONTWAIT)
            }
        }
        .unwrap();
    }

    fn receive(&self, way: &Way) {
        let mut buffer = [0; 64];
        loop {
            let got = if way.sender {
                rustix::net::recvfrom(&self.socket, &mut buffer[..], RecvFlags::DONTWAIT).map(|(len, ..)| len)
            } else {
                rustix::net::recv(&self.socket, &mut buffer[..], RecvFlags::DONTWAIT).map(|(len, _)| len)
            };
            match got {
                Ok(len) => return assert_eq!(len, way.len),
                Err(rustix::io::Errno::AGAIN) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}

fn socket(way: &Way) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None).unwrap();
    if let Some(how) = way.path_mtu {
        sockopt::set_ip_mtu_discover(&socket, how).unwrap();
    }
    for (level, option, wanted) in
        [(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, way.drops), (libc::SOL_UDP, libc::UDP_GRO, way.gro)]
    {
        let value = libc::c_int::from(wanted);
        let len = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: reads one int, which outlives the call.
        let done =
            unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), len) };
        assert_eq!(done, 0);
    }
    socket
}
