//! A second socket that only sends: connected to the peer that lone datagrams go to again and again, it spares the kernel
//! the search for a route with each of them, a ninth of a half round trip over loopback.
//!
//! It has the address and port of the first socket, so that peers see no difference, and takes nothing from it: it is
//! bound to a multicast address that no group has, by which the kernel never finds it for what arrives for the
//! endpoint. Where the kernel does not play along there is none, and the first socket sends everything.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::sockopt;

use crate::error::{Result, SysError, Tried};
use crate::net::addr::is_link_local;
use crate::udp::{UdpSocket, dont_fragment, socket_for, source_for};

/// So many lone datagrams in a row to one peer lead the socket there: connecting it costs as much as two are spared.
const RUN: u32 = 64;
/// The most after failures, each of which doubles it.
const RUN_MAX: u32 = 1 << 24;
/// Reserved by IANA: the lowest multicast address, which is no group's.
const NOBODYS_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 0);
/// A multicast address of IPv6 that is no group's (RFC 4291, section 2.7.1: reserved, never assigned).
const NOBODYS_V6: Ipv6Addr = Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, 0);

/// The socket's lone peer, if it has one, and what decides when to connect to it.
#[derive(Debug, Default)]
pub(super) struct ConnectedSocket {
    allowed: bool,
    /// The socket while it leads nowhere: made with the endpoint, so that its descriptors are the same from then on.
    spare: Option<OwnedFd>,
    /// The socket, and where it leads.
    leads: Option<(OwnedFd, SocketAddr)>,
    /// Where the last lone datagrams went that it did not take, and how many there were in a row.
    last: Option<SocketAddr>,
    run: u32,
    failures: u32,
}

impl ConnectedSocket {
    /// Whether it may be used, for datagrams of `of`.
    pub(super) fn allow(&mut self, allowed: bool, of: &UdpSocket) {
        self.allowed = allowed;
        if let Some((fd, _)) = self.leads.take() {
            self.spare = Some(fd);
        }
        (self.last, self.run) = (None, 0);
        if allowed && self.spare.is_none() {
            self.spare = open(of.local_addr()).ok();
        }
    }

    /// No longer leads anywhere: it has failed.
    pub(super) fn give_up(&mut self) {
        (self.leads, self.last, self.run) = (None, None, 0);
    }

    /// The socket if it leads to `to` already.
    #[inline]
    pub(super) fn leading(&mut self, to: &SocketAddr) -> Option<BorrowedFd<'_>> {
        let (fd, _) = self.leads.as_ref().filter(|(_, present)| present == to)?;
        self.run = 0;
        Some(fd.as_fd())
    }

    /// The socket for one datagram to `to`, to which it may be led now.
    pub(super) fn to(&mut self, to: &SocketAddr, of: &UdpSocket) -> Option<BorrowedFd<'_>> {
        if !self.allowed {
            return None;
        }
        if self.leads.as_ref().is_none_or(|(_, present)| present != to) {
            self.note(to, of);
        }
        self.leading(to)
    }

    /// One more goes to a peer that it does not lead to.
    fn note(&mut self, to: &SocketAddr, of: &UdpSocket) {
        self.run = if self.last.as_ref() == Some(to) { self.run.saturating_add(1) } else { 1 };
        self.last = Some(*to);
        if self.run < (RUN << self.failures.min(20)).min(RUN_MAX) {
            return;
        }
        self.run = 0;
        match self.lead(to, of.local_addr()) {
            Ok(fd) => (self.leads, self.failures) = (Some((fd, *to)), 0),
            Err(_) => self.failures += 1,
        }
    }

    /// The socket, connected to another peer.
    fn lead(&mut self, to: &SocketAddr, local: SocketAddr) -> Result<OwnedFd> {
        let fd = match self.leads.take() {
            Some((fd, _)) => fd,
            None => {
                sends_from(local, to)?;
                self.spare.take().map_or_else(|| open(local), Ok)?
            }
        };
        lead(&fd, to)?;
        Ok(fd)
    }
}

/// An error if the kernel would send from elsewhere to `first`: once connected, a socket stays with the address it has
/// chosen, and does not say which.
fn sends_from(local: SocketAddr, first: &SocketAddr) -> Result<()> {
    if source_for(*first).is_none_or(|from| from.ip() != local.ip()) {
        return Err(SysError::new("connect a UDP socket", ErrorKind::AddrNotAvailable));
    }
    Ok(())
}

/// A socket of that port, by which nothing arrives.
fn open(local: SocketAddr) -> Result<OwnedFd> {
    let nobodys = match local.ip() {
        IpAddr::V4(_) => IpAddr::V4(NOBODYS_V4),
        IpAddr::V6(_) => IpAddr::V6(NOBODYS_V6),
    };
    let fd = socket_for(&local)?;
    if local.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, true).tried("keep to IPv6 (IPV6_V6ONLY)")?;
    }
    // Endpoints of other addresses of this machine may have the same port.
    sockopt::set_socket_reuseaddr(&fd, true).tried("share a port (SO_REUSEADDR)")?;
    dont_fragment(&fd, &local)?;
    rustix::net::bind(&fd, &SocketAddr::new(nobodys, local.port())).tried("bind a UDP socket")?;
    Ok(fd)
}

fn lead(fd: &OwnedFd, to: &SocketAddr) -> Result<()> {
    const WHAT: &str = "connect a UDP socket";
    // Connecting to a link-local peer would bind the socket to its interface for good.
    if matches!(to, SocketAddr::V6(v6) if is_link_local(v6.ip())) {
        return Err(SysError::new(WHAT, ErrorKind::Unsupported));
    }
    rustix::net::connect(fd, to).tried(WHAT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::{RecvBatch, SendBatch};
    use std::time::{Duration, Instant};

    fn loopbacks() -> Vec<SocketAddr> {
        let all = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), SocketAddr::from((Ipv6Addr::LOCALHOST, 0))];
        let (present, absent): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|&at| UdpSocket::bind(at).is_ok());
        absent.iter().for_each(|at| println!("skipped: {at}"));
        present
    }

    /// Sends one datagram and takes it where it went: who sent it.
    fn pass(send: &mut SendBatch, from: &UdpSocket, recv: &mut RecvBatch, to: &UdpSocket) -> SocketAddr {
        let space = send.next(&to.local_addr(), 8).unwrap();
        space.copy_from_slice(b"a letter");
        send.commit(8);
        assert_eq!(send.flush(from).unwrap(), 1);
        let start = Instant::now();
        while recv.recv(to).unwrap() == 0 {
            assert!(start.elapsed() < Duration::from_secs(5), "{:?}", send.stats());
        }
        let (sender, bytes) = recv.iter().next().unwrap();
        assert_eq!(bytes, b"a letter");
        sender
    }

    #[test]
    fn peers_see_one_socket_and_all_of_them_are_heard() {
        for at in loopbacks() {
            let [us, peer, other] = [at; 3].map(|at| UdpSocket::bind(at).unwrap());
            let [mut ours, mut theirs, mut others] =
                [&us, &peer, &other].map(|socket| SendBatch::new(socket, 8, 1 << 16));
            let mut recv = RecvBatch::new(4);
            ours.allow_connected(true, &us);
            for number in 1..=3 * u64::from(RUN) {
                assert_eq!(pass(&mut ours, &us, &mut recv, &peer), us.local_addr());
                // What comes for the endpoint is not the connected socket's, be it from the peer it leads to.
                assert_eq!(pass(&mut theirs, &peer, &mut recv, &us), peer.local_addr());
                assert_eq!(pass(&mut others, &other, &mut recv, &us), other.local_addr());
                let by_it = (number + 1).saturating_sub(u64::from(RUN));
                assert_eq!(ours.stats().connected, by_it, "{at} {number}");
            }
            let before = ours.stats().connected;
            for _ in 1..RUN {
                pass(&mut ours, &us, &mut recv, &other);
                assert_eq!(pass(&mut ours, &us, &mut recv, &peer), us.local_addr());
            }
            assert_eq!(
                ours.stats().connected,
                before + u64::from(RUN) - 1,
                "one in between leads it nowhere else"
            );
            for _ in 0..RUN {
                assert_eq!(pass(&mut ours, &us, &mut recv, &other), us.local_addr());
            }
            assert_eq!(ours.stats().connected, before + u64::from(RUN), "now it leads there");
            ours.allow_connected(false, &us);
            pass(&mut ours, &us, &mut recv, &other);
            assert_eq!(ours.stats().connected, before + u64::from(RUN));
        }
    }

    #[test]
    fn it_sends_from_the_endpoints_address_or_not_at_all() {
        let [us, peer] = [(); 2].map(|()| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap());
        // Two endpoints may have one port on two addresses of this machine.
        let _other = open(us.local_addr()).unwrap();
        let connected = open(us.local_addr()).unwrap();
        lead(&connected, &peer.local_addr()).unwrap();
        let (mut recv, start) = (RecvBatch::new(1), Instant::now());
        rustix::net::send(&connected, b"1", rustix::net::SendFlags::empty()).unwrap();
        while recv.recv(&peer).unwrap() == 0 {
            assert!(start.elapsed() < Duration::from_secs(5));
        }
        assert_eq!(recv.iter().next().unwrap().0, us.local_addr());
        let elsewhere = SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), us.local_addr().port()));
        assert!(sends_from(elsewhere, &peer.local_addr()).is_err(), "the kernel would send from 127.0.0.1");
    }
}
