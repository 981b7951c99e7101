//! TCP streams: non-blocking, close-on-exec, without Nagle's delay.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, sockopt};

use crate::error::{Result, SysError, Tried};
#[cfg(feature = "simulated")]
use crate::simulated::streams;

mod info;

pub use info::Info;

/// Connections that the kernel keeps for a listener that does not take them; `net.core.somaxconn` bounds it.
const BACKLOG: i32 = 4096;

/// Space in the kernel for what follows a part of a record. The kernel appends new segments to the last buffer as long as that
/// has one of its 17 fragments free, each of up to 32 KiB, and frees none of it before all of it is read. So a part may hold
/// 544 KiB. The kernel doubles this figure, for its own bookkeeping: the rest is enough for some of the longest segments.
const SPACE_BEHIND_PARTS_BYTES: u32 = 512 << 10;

/// The congestion control of streams within a host, which every kernel has. Nothing is lost there, and others hold data back: BBR sends
/// by a timer, and takes a program that waits for a slow link.
const WITHIN_HOST: &str = "reno";

/// A listening socket.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    local: SocketAddr,
}

impl Listener {
    /// Listens on `local`; port 0 lets the kernel choose. `AddrInUse`, `AddrNotAvailable`, `PermissionDenied`.
    pub fn bind(local: SocketAddr) -> Result<Listener> {
        let on = |error: SysError| error.on(local);
        #[cfg(feature = "simulated")]
        if let Some(made) = streams::listen(local) {
            let (fd, local) = made.tried("listen on a TCP socket").map_err(on)?;
            return Ok(Listener { fd, local });
        }
        let fd = socket_for(&local).map_err(on)?;
        if local.is_ipv6() {
            sockopt::set_ipv6_v6only(&fd, true).tried("keep to IPv6 (IPV6_V6ONLY)").map_err(on)?;
        }
        // Streams of an endpoint that has ended may linger on the port for a minute; another listener is still refused.
        sockopt::set_socket_reuseaddr(&fd, true).tried("take a port that lingers (SO_REUSEADDR)")?;
        if local.ip().is_loopback() {
            // Accepted streams inherit it. Set on one of them it comes too late: a timer that has begun goes on.
            let _ = sockopt::set_tcp_congestion(&fd, WITHIN_HOST);
        }
        rustix::net::bind(&fd, &local).tried("bind a TCP socket").map_err(on)?;
        rustix::net::listen(&fd, BACKLOG).tried("listen on a TCP socket").map_err(on)?;
        let bound = rustix::net::getsockname(&fd).tried("ask for a socket's address").map_err(on)?;
        let local = SocketAddr::try_from(bound).tried("ask for a socket's address").map_err(on)?;
        Ok(Listener { fd, local })
    }

    /// Address and port listened on.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Takes a stream that a peer has connected. `WouldBlock`: there is none.
    pub fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        #[cfg(feature = "simulated")]
        if let Some(accepted) = streams::accept(&self.fd) {
            let (fd, from) = accepted?;
            return Ok((Stream { fd }, from));
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        loop {
            match rustix::net::acceptfrom_with(&self.fd, flags) {
                // A peer that has gone again while it waited.
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => return Err(error.into()),
                Ok((fd, from)) => {
                    let unknown = || io::Error::from(io::ErrorKind::InvalidData);
                    let from = from.ok_or_else(unknown)?;
                    let from = SocketAddr::try_from(from).map_err(|_| unknown())?;
                    let stream = Stream { fd };
                    stream.set_no_delay()?;
                    return Ok((stream, from));
                }
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// One end of a connection.
#[derive(Debug)]
pub struct Stream {
    fd: OwnedFd,
}

impl Stream {
    /// Begins to connect to `to` from the address of `from`, whose port is ignored. It is made, or has failed, once the
    /// stream is writable: [`Stream::take_error`] has it.
    pub fn connect(from: SocketAddr, to: SocketAddr) -> Result<Stream> {
        #[cfg(feature = "simulated")]
        if let Some(made) = streams::connect(from, to) {
            let fd = made.tried("connect a TCP socket").map_err(|error| error.on(to))?;
            return Ok(Stream { fd });
        }
        let fd = socket_for(&to)?;
        let stream = Stream { fd };
        stream.set_no_delay().tried("switch Nagle's delay off (TCP_NODELAY)")?;
        if to.ip().is_loopback() || to.ip() == from.ip() {
            // A system that refuses it keeps its own.
            let _ = sockopt::set_tcp_congestion(&stream.fd, WITHIN_HOST);
        }
        // The port is chosen when the destination is known: as many connections as there are ports, to each.
        let _ = set_int(&stream.fd, libc::SOL_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1);
        let mut from = from;
        from.set_port(0);
        rustix::net::bind(&stream.fd, &from).tried("bind a TCP socket").map_err(|error| error.on(from))?;
        loop {
            match rustix::net::connect(&stream.fd, &to) {
                Ok(()) | Err(Errno::INPROGRESS) => return Ok(stream),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error).tried("connect a TCP socket").map_err(|error| error.on(to)),
            }
        }
    }

    /// What has gone wrong since it was last asked; also why a connection was not made.
    pub fn take_error(&self) -> io::Result<()> {
        #[cfg(feature = "simulated")]
        if let Some(done) = streams::take_error(&self.fd) {
            return Ok(done?);
        }
        match sockopt::socket_error(&self.fd) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) | Err(error) => Err(error.into()),
        }
    }

    /// The peer's address; an error while it is not connected.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        #[cfg(feature = "simulated")]
        if let Some(peer) = streams::peer_addr(&self.fd) {
            return Ok(peer?);
        }
        let peer = rustix::net::getpeername(&self.fd)?;
        let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
        peer.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    }

    /// Its own address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        #[cfg(feature = "simulated")]
        if let Some(local) = streams::local_addr(&self.fd) {
            return Ok(local?);
        }
        let local = rustix::net::getsockname(&self.fd)?;
        SocketAddr::try_from(local).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
    }

    /// Takes what has come, as much as fits; 0: the peer has closed its side. `WouldBlock`: nothing is there.
    #[inline]
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        again(|| self.recv_once(buffer, RecvFlags::empty()))
    }

    /// Takes what has come, as [`Stream::recv`] does, for callers that poll: `None` if nothing has come, which makes no error.
    #[inline]
    pub fn recv_now(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match self.recv_once(buffer, RecvFlags::empty()) {
                Ok(len) => return Ok(Some(len)),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Copies what has come, as [`Stream::recv`] does, and leaves it in the kernel.
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        again(|| self.recv_once(buffer, RecvFlags::PEEK))
    }

    /// Gives the kernel as many bytes as it takes, and returns how many. `WouldBlock`: none.
    #[inline]
    pub fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        again(|| {
            #[cfg(feature = "simulated")]
            if let Some(done) = streams::send(&self.fd, std::iter::once(bytes)) {
                return done;
            }
            rustix::net::send(&self.fd, bytes, SendFlags::NOSIGNAL)
        })
    }

    /// Gives the kernel as many bytes as it takes of several slices in a row, and returns how many. `WouldBlock`: none.
    pub fn send_vectored(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut none = rustix::net::SendAncillaryBuffer::default();
        again(|| {
            #[cfg(feature = "simulated")]
            if let Some(done) = streams::send(&self.fd, parts.iter().map(|part| &**part)) {
                return done;
            }
            rustix::net::sendmsg(&self.fd, parts, &mut none, SendFlags::NOSIGNAL)
        })
    }

    /// Closes this side: the peer reads the end behind what was sent.
    pub fn shutdown_write(&self) -> io::Result<()> {
        #[cfg(feature = "simulated")]
        if let Some(done) = streams::shut(&self.fd) {
            return Ok(done?);
        }
        Ok(rustix::net::shutdown(&self.fd, Shutdown::Write)?)
    }

    /// What was sent may be unacknowledged by the peer's kernel for so long; then the connection is broken. 0: as long
    /// as the system's retransmissions take.
    pub fn set_user_timeout_ms(&self, timeout_ms: u32) -> io::Result<()> {
        #[cfg(feature = "simulated")]
        if let Some(done) = streams::set_user_timeout_ms(&self.fd, timeout_ms) {
            return Ok(done?);
        }
        Ok(sockopt::set_tcp_user_timeout(&self.fd, timeout_ms)?)
    }

    /// Has the kernel ask the peer's whether the stream is still there once it was idle for `idle`, then once each `interval`, and
    /// break it after `tries` questions without an answer. If there is a user timeout, that counts in place of `tries`.
    pub fn set_keepalive(&self, idle: Duration, interval: Duration, tries: u32) -> io::Result<()> {
        sockopt::set_tcp_keepidle(&self.fd, idle)?;
        sockopt::set_tcp_keepintvl(&self.fd, interval)?;
        sockopt::set_tcp_keepcnt(&self.fd, tries)?;
        Ok(sockopt::set_socket_keepalive(&self.fd, true)?)
    }

    /// No more than so many bytes wait in the kernel without having been sent.
    pub fn set_unsent_bytes_max(&self, bytes: u32) -> io::Result<()> {
        let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
        set_int(&self.fd, libc::SOL_TCP, libc::TCP_NOTSENT_LOWAT, bytes)
    }

    /// It counts as readable once so many bytes are there, or the end; 1 as a rule.
    pub fn set_wakeup_bytes(&self, bytes: u32) -> io::Result<()> {
        #[cfg(feature = "simulated")]
        if let Some(done) = streams::set_wakeup_bytes(&self.fd, bytes) {
            return Ok(done?);
        }
        let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
        set_int(&self.fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, bytes)
    }

    /// For a stream of which parts of records are left in the kernel. A segment of 64 KiB (loopback) of which a byte is left
    /// counts whole, and so do those that the kernel has appended to it. Where a stream has space for no more than these, the
    /// kernel closes the window for ever. The stream counts as readable with one byte afterwards.
    pub fn make_space_behind_parts(&self) {
        // This is how the kernel makes space without ending its own adaption to the network, as `SO_RCVBUF` would. It gives no
        // more than the last figure of `net.ipv4.tcp_rmem`, which is 6 MiB or more unless somebody has lowered it.
        let _ = self.set_wakeup_bytes(SPACE_BEHIND_PARTS_BYTES);
        let _ = self.set_wakeup_bytes(1);
    }

    /// Whether the peer has closed its side or died. What it sent before may still be there.
    pub fn has_ended(&self) -> bool {
        #[cfg(feature = "simulated")]
        if let Some(has_ended) = streams::has_ended(&self.fd) {
            return has_ended;
        }
        use rustix::event::{PollFd, PollFlags, poll};
        let mut fds = [PollFd::new(&self.fd, PollFlags::RDHUP)];
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        let over = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        poll(&mut fds, Some(&now)).is_ok() && fds.iter().any(|fd| fd.revents().intersects(over))
    }

    /// Receives once, even if a signal interrupts it.
    #[inline]
    fn recv_once(&self, buffer: &mut [u8], flags: RecvFlags) -> rustix::io::Result<usize> {
        #[cfg(feature = "simulated")]
        if let Some(done) = streams::recv(&self.fd, buffer, flags.contains(RecvFlags::PEEK)) {
            return done;
        }
        rustix::net::recv(&self.fd, buffer, flags).map(|(len, _)| len)
    }

    fn set_no_delay(&self) -> io::Result<()> {
        Ok(sockopt::set_tcp_nodelay(&self.fd, true)?)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(feature = "simulated")]
impl Drop for Listener {
    fn drop(&mut self) {
        streams::close(&self.fd);
    }
}

#[cfg(feature = "simulated")]
impl Drop for Stream {
    fn drop(&mut self) {
        streams::close(&self.fd);
    }
}

/// Repeats a call that a signal interrupted.
#[inline]
fn again<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            done => return Ok(done?),
        }
    }
}

fn socket_for(addr: &SocketAddr) -> Result<OwnedFd> {
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(family, SocketType::STREAM, flags, None).tried("make a TCP socket")
}

fn set_int(fd: &OwnedFd, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: reads one int, which outlives the call.
    let done = unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, (&raw const value).cast(), len) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests;
