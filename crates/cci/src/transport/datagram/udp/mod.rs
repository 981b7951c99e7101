//! The carrier over UDP: one socket for all connections of an endpoint, with its batches. Devices with two interfaces have two
//! sockets ([`bonded`]).

mod bonded;
mod open;
pub(super) mod report;

pub(crate) use open::open;

use super::carrier::{Anonymous, Carrier, Dead, Narrow, Nobody, Paths, Report, Who};
use super::{size, udp_uri};
use crate::engine::poller::Poller;
use cci_proto::{Address, Transmit, first_datagram_bytes};
use cci_sys::SysError;
use cci_sys::udp::{RecvBatch, SendBatch, UdpSocket};
use std::io;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::os::fd::AsFd;

/// The token of the socket in the endpoint's epoll set. It does not matter which descriptor is readable.
const TOKEN_SOCKET: u64 = 0;

/// The size of the batch of datagrams to be sent, bytes, if the endpoint's cap leaves so much.
const SEND_BYTES: usize = 512 << 10;
/// The most datagrams in the batch to be sent.
const SEND_DATAGRAMS_MAX: usize = 128;
/// The most messages that one receive call takes. With receive offload, a message is several datagrams.
const RECV_MESSAGES_MAX: usize = 16;
/// The longest message that the kernel hands over, bytes.
const RECV_MESSAGE_BYTES: u64 = 64 << 10;

/// One UDP socket.
pub(super) struct Udp {
    socket: UdpSocket,
    /// The interface that the socket is bound to, if its name is known.
    interface: Option<Box<str>>,
    out: SendBatch,
    input: RecvBatch,
    datagrams_max: usize,
    /// Whether the socket lets datagrams leave in fragments now.
    fragmenting: bool,
    /// Whether the socket has failed for good.
    dead: bool,
    /// Number of errors of the socket, including passing ones.
    errors: u64,
    /// Whether the socket is in the endpoint's epoll set.
    is_watched: bool,
}

impl Udp {
    /// Makes a carrier of a socket on the interface of that name. Its batches are for datagrams of up to `datagram_bytes`, and take
    /// about a 16th of `memory_bytes_max`.
    pub fn new(
        socket: UdpSocket,
        interface: Option<&str>,
        datagram_bytes: usize,
        memory_bytes_max: u64,
    ) -> Result<Udp, SysError> {
        let send_bytes = SEND_BYTES.min((memory_bytes_max / 32) as usize);
        let datagrams_max = (send_bytes / datagram_bytes).clamp(2, SEND_DATAGRAMS_MAX);
        let messages = (memory_bytes_max / 32 / RECV_MESSAGE_BYTES).clamp(1, RECV_MESSAGES_MAX as u64);
        let mut out = SendBatch::try_new(&socket, datagrams_max, datagrams_max * (datagram_bytes + 8))?;
        out.allow_connected(true, &socket);
        Ok(Udp {
            out,
            input: RecvBatch::try_new(messages as usize)?,
            socket,
            interface: interface.map(Box::from),
            datagrams_max,
            fragmenting: false,
            dead: false,
            errors: 0,
            is_watched: false,
        })
    }

    fn local(&self) -> SocketAddr {
        self.socket.local_addr()
    }

    /// Counts an error of the socket, and finds out whether it is permanent.
    fn count_error(&mut self, error: &io::Error) -> Result<(), Dead> {
        self.errors += 1;
        // After these errors the descriptor is no longer a socket of ours. Any other condition, such as an interface that is
        // down, may pass, and the protocol's time-outs inform the program meanwhile.
        self.dead |= matches!(error.raw_os_error(), Some(9 /* EBADF */ | 88 /* ENOTSOCK */));
        if self.dead { Err(Dead) } else { Ok(()) }
    }

    /// Gives the kernel what waits, as far as it has space.
    fn send_batch(&mut self) -> Result<(), Dead> {
        if self.dead {
            // Datagrams may get lost, and these are.
            self.out.clear();
            return Err(Dead);
        }
        match self.out.flush(&self.socket) {
            Ok(_) => Ok(()),
            Err(error) => self.count_error(&error),
        }
    }

    /// Changes whether datagrams leave in fragments, and returns whether that worked. The setting holds for the whole socket, so
    /// what waits leaves before it changes.
    #[cold]
    fn set_fragmenting(&mut self, fragment: bool) -> bool {
        // The next flush reports a dead socket.
        let _ = self.send_batch();
        if self.out.pending() > 0 || self.socket.set_fragment(fragment).is_err() {
            return false;
        }
        self.out.allow_connected(!fragment, &self.socket);
        self.fragmenting = fragment;
        true
    }
}

impl Carrier for Udp {
    type Identities = Anonymous;

    // Always inlined: every poll goes through it, and what it calls is not inlined.
    #[inline(always)]
    fn receive(&mut self) -> Result<usize, Dead> {
        if self.dead {
            return Err(Dead);
        }
        if self.input.has_left() {
            return Ok(self.input.left());
        }
        match self.input.recv_framed(&self.socket, first_datagram_bytes) {
            Ok(count) => Ok(count),
            Err(error) => self.count_error(&error).map(|()| 0),
        }
    }

    #[inline]
    fn arrived(
        &mut self,
        mut datagram: impl FnMut(Address, &[u8], &dyn Who) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.input.take_each(|from, bytes| datagram(Address::from(from), bytes, &Nobody))
    }

    fn flush(&mut self, mut narrowed: impl FnMut(Narrow)) -> Result<(), Dead> {
        let sent = self.send_batch();
        if let Some(too_big) = self.out.take_too_big() {
            let (to, interface) = (too_big.to, self.interface.as_deref());
            let mtu_bytes = interface.and_then(|interface| self.socket.interface_mtu(interface));
            let datagram_bytes_max = size::smaller_than(too_big.len, mtu_bytes, to.is_ipv6());
            narrowed(Narrow { to: Address::from(to), datagram_bytes_max });
        }
        sent
    }

    #[inline]
    fn has_pending(&self) -> bool {
        self.out.pending() > 0
    }

    fn arm(&mut self, poller: &Poller, watch: bool) -> Result<bool, Dead> {
        if self.is_watched != watch {
            let socket = self.socket.as_fd();
            self.is_watched = watch && poller.watch(socket, TOKEN_SOCKET).is_ok();
            if !watch {
                poller.unwatch(socket);
            }
        }
        Ok(self.is_watched)
    }

    fn parse(&self, uri: &str) -> Result<Paths, String> {
        let local = self.local();
        let peer = match udp_uri::parse_peer(uri)? {
            (peer, None) => peer,
            (first, Some(second)) if udp_uri::nearness(second, local) > udp_uri::nearness(first, local) => {
                second
            }
            (first, Some(_)) => first,
        };
        udp_uri::with_local_zone(peer, local).map(|peer| Paths::One(peer.into()))
    }

    fn reaches(&self, peer: Address) -> bool {
        let alike = |addr: SocketAddr| addr.is_ipv6() == self.local().is_ipv6();
        !peer.is_secured() && peer.socket_addr().is_some_and(alike)
    }

    fn report(&self, report: Report<'_>) {
        match report {
            Report::Memory(into) => into.extend([
                ("socket batches out", self.out.memory_bytes() as u64),
                ("socket batches in", self.input.memory_bytes() as u64),
            ]),
            Report::Counters { into, drops } => report::counters([self], into, drops),
            Report::Explanation { connection, into, .. } => report::explain(self, connection, into),
        }
    }
}

impl Transmit for Udp {
    #[inline]
    fn has_space(&self) -> bool {
        self.out.pending() < self.datagrams_max
    }

    #[inline]
    fn begin(&mut self, to: Address, len_max: usize, fragment: bool) -> Option<&mut [u8]> {
        let to = to.socket_addr()?;
        if self.fragmenting != fragment && !self.set_fragmenting(fragment) {
            return None;
        }
        self.out.next(&to, len_max)
    }

    #[inline]
    fn commit(&mut self, len: usize) {
        self.out.commit(len);
    }
}
