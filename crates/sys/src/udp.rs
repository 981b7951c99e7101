//! UDP in batches: many datagrams per system call, one system call when there is one datagram.
//!
//! Datagrams may be lost, repeated and reordered; what is sent whole arrives whole. Nothing here allocates after
//! construction.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::error::{Result, SysError, Tried};
use crate::net::mtu_seen_by;

mod bytes;
mod cmsg;
mod multicast;
mod recv;
mod send;

pub use multicast::Outgoing;
pub use recv::{Datagrams, RecvBatch, RecvStats};
pub use send::{SendBatch, SendStats, TooBig};

/// Largest payload of one UDP datagram over IPv4, and of one GSO batch.
pub const DATAGRAM_BYTES_MAX: usize = 65_507;
/// Socket buffers that are asked for by default: some milliseconds of a fast link.
pub const BUFFER_BYTES_WANTED: usize = 4 << 20;

/// Choices at [`UdpSocket::bind_with`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Receive buffer to ask for; the kernel grants at most `net.core.rmem_max`.
    pub recv_buffer_bytes: usize,
    /// Send buffer to ask for; the kernel grants at most `net.core.wmem_max`.
    pub send_buffer_bytes: usize,
    /// Whether to ask for GRO: arriving datagrams of one sender handed over in one piece.
    pub gro: bool,
    /// Whether datagrams may leave in fragments; see [`UdpSocket::set_fragment`].
    pub fragment: bool,
    /// Whether others may bind the same address and port, as those who join one multicast group do (`SO_REUSEADDR`).
    pub share: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            recv_buffer_bytes: BUFFER_BYTES_WANTED,
            send_buffer_bytes: BUFFER_BYTES_WANTED,
            gro: true,
            fragment: false,
            share: false,
        }
    }
}

/// A UDP socket: unconnected, non-blocking, close-on-exec, one IP version.
#[derive(Debug)]
pub struct UdpSocket {
    fd: OwnedFd,
    local: SocketAddr,
    recv_buffer_bytes: usize,
    send_buffer_bytes: usize,
    gro: std::result::Result<(), SysError>,
    gso: std::result::Result<(), SysError>,
}

impl UdpSocket {
    /// Binds to `local`; port 0 lets the kernel choose. `AddrInUse`, `AddrNotAvailable`, `PermissionDenied`.
    pub fn bind(local: SocketAddr) -> Result<UdpSocket> {
        UdpSocket::bind_with(local, Options::default())
    }

    /// Binds to `local` with these options; errors are those of [`bind`](UdpSocket::bind).
    pub fn bind_with(local: SocketAddr, options: Options) -> Result<UdpSocket> {
        let on = |error: SysError| error.on(local);
        let fd = socket_for(&local).map_err(on)?;
        if local.is_ipv6() {
            // One socket, one IP version: no mapped addresses, and ports of the two do not clash.
            sockopt::set_ipv6_v6only(&fd, true).tried("keep to IPv6 (IPV6_V6ONLY)").map_err(on)?;
        }
        // Never fails for being too much: the kernel grants what it may, and we read that below.
        sockopt::set_socket_recv_buffer_size(&fd, options.recv_buffer_bytes)
            .tried("size a receive buffer (SO_RCVBUF)")?;
        sockopt::set_socket_send_buffer_size(&fd, options.send_buffer_bytes)
            .tried("size a send buffer (SO_SNDBUF)")?;
        if options.share {
            sockopt::set_socket_reuseaddr(&fd, true).tried("share a port (SO_REUSEADDR)").map_err(on)?;
        }
        rustix::net::bind(&fd, &local).tried("bind a UDP socket").map_err(on)?;
        let bound = rustix::net::getsockname(&fd).tried("ask for a socket's address").map_err(on)?;
        let socket = UdpSocket {
            local: SocketAddr::try_from(bound).tried("ask for a socket's address").map_err(on)?,
            // The kernel doubles what is asked, for its own book-keeping.
            recv_buffer_bytes: sockopt::socket_recv_buffer_size(&fd).tried("read SO_RCVBUF")? / 2,
            send_buffer_bytes: sockopt::socket_send_buffer_size(&fd).tried("read SO_SNDBUF")? / 2,
            gro: ask_for_gro(&fd, options.gro),
            // Before 4.18 the kernel ignores the GSO message, and would send a batch as one large datagram.
            gso: get_int(&fd, libc::SOL_UDP, libc::UDP_SEGMENT).map(|_| ()),
            fd,
        };
        socket.set_fragment(options.fragment)?;
        Ok(socket)
    }

    /// Address and port bound to.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Receive buffer granted, in bytes, comparable to what was asked for.
    pub fn recv_buffer_bytes(&self) -> usize {
        self.recv_buffer_bytes
    }

    /// Send buffer granted, in bytes, comparable to what was asked for.
    pub fn send_buffer_bytes(&self) -> usize {
        self.send_buffer_bytes
    }

    /// Datagrams the kernel dropped because the receive buffer was full, so far; starts again at 2^32. 0 where it does not say.
    ///
    /// A system call: it costs less to ask now and then (`SO_MEMINFO`) than to have it with each datagram (`SO_RXQ_OVFL`).
    pub fn kernel_drops(&self) -> u64 {
        /// `SK_MEMINFO_VARS` and `SK_MEMINFO_DROPS` of linux/sock_diag.h.
        const VARS: usize = 9;
        const DROPS: usize = 8;
        let mut info = [0_u32; VARS];
        let mut len = size_of_val(&info) as libc::socklen_t;
        let (level, option) = (libc::SOL_SOCKET, libc::SO_MEMINFO);
        // SAFETY: writes at most `len` bytes, which `info` has; both variables outlive the call.
        let done = unsafe {
            libc::getsockopt(self.fd.as_raw_fd(), level, option, info.as_mut_ptr().cast(), &mut len)
        };
        // What it did not write is 0.
        if done == 0 { u64::from(info[DROPS]) } else { 0 }
    }

    /// Whether GRO is on, else why not.
    pub fn gro(&self) -> std::result::Result<(), &SysError> {
        self.gro.as_ref().copied()
    }

    /// Whether the kernel knows GSO, else why not. A [`SendBatch`] may still give it up for a device that cannot.
    pub fn gso(&self) -> std::result::Result<(), &SysError> {
        self.gso.as_ref().copied()
    }

    /// `true`: datagrams larger than the interface's MTU leave in fragments, and routers may cut them further where IP lets them.
    /// `false`: every datagram leaves whole, and one larger than the interface takes is not sent: the batch reports it, and
    /// [`UdpSocket::interface_mtu`] what would fit.
    ///
    /// ICMP messages about a path count for neither (`IP_PMTUDISC_OMIT`, `IP_PMTUDISC_PROBE`): nobody can distinguish a router from
    /// somebody who wants datagrams to be small. A datagram that is too long for the path vanishes, and who sent it finds that out.
    pub fn set_fragment(&self, fragment: bool) -> Result<()> {
        if !fragment {
            return dont_fragment(&self.fd, &self.local);
        }
        choose_fragmentation(&self.fd, &self.local, Ipv4PathMtuDiscovery::OMIT, Ipv6PathMtuDiscovery::OMIT)
    }

    /// The longest IP packet, in bytes, that the interface of that name takes now, in this socket's network namespace. `None`:
    /// there is no such interface.
    pub fn interface_mtu(&self, name: &str) -> Option<usize> {
        usize::try_from(mtu_seen_by(self.fd.as_fd(), name)?).ok()
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The local address the kernel would send from to reach `to`; port 0. `None`: no route. Sends nothing.
pub fn source_for(to: SocketAddr) -> Option<SocketAddr> {
    let fd = socket_for(&to).ok()?;
    rustix::net::connect(&fd, &to).ok()?;
    let mut from = SocketAddr::try_from(rustix::net::getsockname(&fd).ok()?).ok()?;
    from.set_port(0);
    Some(from)
}

fn socket_for(addr: &SocketAddr) -> Result<OwnedFd> {
    #[cfg(feature = "simulated")]
    if crate::simulated::is_entered() {
        return Err(rustix::io::Errno::AFNOSUPPORT).tried("make a UDP socket");
    }
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(family, SocketType::DGRAM, flags, None).tried("make a UDP socket")
}

//= wire.md R-MTU-5
/// Every datagram leaves whole or not at all, whatever ICMP says of the path.
fn dont_fragment(fd: &OwnedFd, local: &SocketAddr) -> Result<()> {
    choose_fragmentation(fd, local, Ipv4PathMtuDiscovery::PROBE, Ipv6PathMtuDiscovery::PROBE)
}

fn choose_fragmentation(
    fd: &OwnedFd,
    local: &SocketAddr,
    v4: Ipv4PathMtuDiscovery,
    v6: Ipv6PathMtuDiscovery,
) -> Result<()> {
    match local {
        SocketAddr::V4(_) => {
            sockopt::set_ip_mtu_discover(fd, v4).tried("choose fragmentation (IP_MTU_DISCOVER)")
        }
        SocketAddr::V6(_) => {
            sockopt::set_ipv6_mtu_discover(fd, v6).tried("choose fragmentation (IPV6_MTU_DISCOVER)")
        }
    }
}

fn ask_for_gro(fd: &OwnedFd, wanted: bool) -> Result<()> {
    const WHAT: &str = "receive joined datagrams (UDP_GRO)";
    if !wanted {
        return Err(SysError::new(
            WHAT,
            std::io::Error::new(std::io::ErrorKind::Unsupported, "switched off"),
        ));
    }
    set_int(fd, libc::SOL_UDP, libc::UDP_GRO, 1)
}

fn set_int(fd: &OwnedFd, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> Result<()> {
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: reads one int, which outlives the call.
    let done = unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, (&raw const value).cast(), len) };
    if done == 0 { Ok(()) } else { Err(SysError::last("set a socket option")) }
}

fn get_int(fd: &OwnedFd, level: libc::c_int, option: libc::c_int) -> Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: writes at most `len` bytes, one int; both variables outlive the call.
    let done = unsafe { libc::getsockopt(fd.as_raw_fd(), level, option, (&raw mut value).cast(), &mut len) };
    if done == 0 { Ok(value) } else { Err(SysError::last("read a socket option")) }
}

#[cfg(test)]
mod tests;
