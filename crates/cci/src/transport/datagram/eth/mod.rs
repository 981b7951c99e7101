//! The carrier over raw Ethernet: frames of our own, past the kernel's IP stack. A program does the work where frames enter the
//! kernel, which the SeaStar prototype (CCI 2013, IV.B) did in its network processor: see `cci_sys::xdp`.
//!
//! Frames leave by one socket and arrive at one or two. The protocol writes into a socket's memory and reads from it, so nothing
//! is copied here.

mod open;
mod report;
pub(super) mod uri;

pub(crate) use open::{lacks_xdp, open};
pub(crate) use uri::show_mac;

use super::carrier::{Anonymous, Carrier, Dead, Narrow, Nobody, Paths, Report, Who};
use crate::device::Unavailable;
use crate::engine::poller::Poller;
use cci_proto::{Address, ConnKey, Transmit};
use cci_sys::clock;
use cci_sys::ethernet::{
    self, EndpointLock, FrameHeader, FrameSocket, FrameStats, Link, Lookout, PAYLOAD_OFFSET,
};
use cci_sys::xdp::Attachment;
use std::cell::RefCell;
use std::io;
use std::ops::ControlFlow;

/// The token of the first socket in the endpoint's epoll set. It does not matter which descriptor is readable.
const TOKEN_FIRST: u64 = 0;
/// The most frames that one flush gives to the kernel: twice what it takes in one call.
const SEND_FRAMES_MAX: usize = 64;
/// The most frames that one receive call takes from one socket.
const RECV_FRAMES_MAX: usize = 32;
/// The shortest frame on the wire, bytes. Shorter ones must be padded.
const FRAME_BYTES_MIN: usize = 60;
/// For how long nothing is given to an interface that turned out to be down. What is sent meanwhile is lost.
const CUT_OFF_NS: u64 = 5_000_000;
/// The shortest time between two questions to the system whether an interface that gives errors is still there.
const LOOK_NS: u64 = 100_000_000;

/// A socket. It is in a cell because reports have only `&self`, and reading the kernel's counters changes the socket's own.
/// Nothing is borrowed for longer than a call.
type Socket = RefCell<Box<dyn FrameSocket>>;

/// The kind of socket that carries the frames, for explanations.
struct SocketPath {
    path: &'static str,
    reason: String,
    /// Better kinds that are not available.
    missing: Vec<Unavailable>,
}

/// One endpoint of an interface.
pub(super) struct Eth {
    link: Link,
    /// The endpoint's entry in the program on the interface; `None` if there is no such program.
    attachment: Option<Attachment>,
    sockets: Sockets,
    /// Released after the sockets are closed, since fields are dropped in their order here.
    lock: EndpointLock,
    socket_path: SocketPath,
    /// The header of the datagram that was begun last.
    header: FrameHeader,
    /// Committed frames that the kernel has not taken yet.
    pending: usize,
    counts: Counts,
    /// Finds out whether the interface is still there, even for a thread in another network namespace.
    lookout: Lookout,
    /// Whether the interface is gone for good.
    dead: bool,
    /// Until when the interface counts as down. What is sent is lost, as on a cable that is not plugged in. 0 means that it is
    /// up.
    cut_off_until_ns: u64,
    /// The buffer for datagrams that are lost.
    scrap: Box<[u8]>,
    /// When the system was last asked whether the interface is there.
    looked_at_ns: u64,
    /// Whether all sockets are in the endpoint's epoll set.
    is_watched: bool,
}

struct Sockets {
    /// All frames leave by this socket, and most arrive at it.
    main: Socket,
    /// Frames from the interface's other queues, which the main socket can't get, arrive at this one.
    side: Option<Socket>,
}

#[derive(Default)]
struct Counts {
    sent_bytes: u64,
    received: u64,
    received_bytes: u64,
    /// Frames that broke the format.
    malformed: u64,
    /// Frames for another endpoint.
    strange: u64,
    /// Datagrams that could not leave because the interface was down.
    lost: u64,
    /// Errors of the sockets.
    errors: u64,
}

impl Sockets {
    fn each(&self) -> impl Iterator<Item = &Socket> {
        std::iter::once(&self.main).chain(&self.side)
    }

    fn stats(&self) -> impl Iterator<Item = FrameStats> {
        self.each().map(|socket| socket.borrow_mut().stats())
    }
}

impl Eth {
    #[inline]
    fn is_cut_off(&self) -> bool {
        self.cut_off_until_ns != 0
    }

    /// Whether the interface has to be left alone for longer, after it turned out to be down.
    #[cold]
    fn stays_cut_off(&mut self) -> bool {
        if self.dead || clock::now_ns() < self.cut_off_until_ns {
            return true;
        }
        self.cut_off_until_ns = 0;
        false
    }

    /// Counts an error of a socket, and finds out whether it is permanent: the interface may only be down for now.
    #[cold]
    fn count_error(&mut self) -> Result<(), Dead> {
        self.counts.errors += 1;
        let now_ns = clock::now_ns();
        if !self.dead && now_ns >= self.looked_at_ns.saturating_add(LOOK_NS) {
            self.looked_at_ns = now_ns;
            // The interface is identified by its number. Another one may have its name by now, and it may have a new name itself.
            self.dead = !self.lookout.sees(self.link.index);
            if self.dead {
                self.cut_off_until_ns = u64::MAX;
            }
        }
        if self.dead { Err(Dead) } else { Ok(()) }
    }
}

impl Carrier for Eth {
    type Identities = Anonymous;

    #[inline]
    fn receive(&mut self) -> Result<usize, Dead> {
        let ready = |socket: &mut Socket| socket.get_mut().ready();
        let Sockets { main, side } = &mut self.sockets;
        // The number of frames is known only when they are read. So each socket counts as if it had a whole batch.
        let first = if ready(main) { RECV_FRAMES_MAX } else { 0 };
        let second = if side.as_mut().is_some_and(ready) { RECV_FRAMES_MAX } else { 0 };
        Ok(first + second)
    }

    #[inline]
    fn arrived(
        &mut self,
        mut datagram: impl FnMut(Address, &[u8], &dyn Who) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let (endpoint, mac) = (self.lock.endpoint(), self.link.mac);
        let Eth { sockets, counts, .. } = self;
        for socket in std::iter::once(&mut sockets.main).chain(&mut sockets.side) {
            let socket = socket.get_mut();
            for _ in 0..RECV_FRAMES_MAX {
                let Some(frame) = socket.receive() else { break };
                match FrameHeader::parse(frame) {
                    //= wire.md R-ETH-2
                    Ok((header, _)) if header.to != mac || header.to_endpoint != endpoint => {
                        counts.strange += 1;
                    }
                    Ok((header, payload)) => {
                        counts.received += 1;
                        counts.received_bytes += payload.len() as u64;
                        //= wire.md R-ETH-3
                        let from = Address::ethernet(header.from, header.from_endpoint);
                        if datagram(from, payload, &Nobody).is_break() {
                            socket.release();
                            return ControlFlow::Break(());
                        }
                    }
                    Err(_) => counts.malformed += 1,
                }
            }
            socket.release();
        }
        ControlFlow::Continue(())
    }

    fn flush(&mut self, _: impl FnMut(Narrow)) -> Result<(), Dead> {
        let main = self.sockets.main.get_mut();
        let flushed = main.flush();
        self.pending = main.pending();
        if flushed.is_ok() {
            return Ok(());
        }
        self.cut_off_until_ns = clock::now_ns().saturating_add(CUT_OFF_NS);
        self.count_error()
    }

    #[inline]
    fn has_pending(&self) -> bool {
        // Frames in the ring of an interface that is down stay there, and nobody need wait for them.
        !self.is_cut_off() && self.pending > 0
    }

    fn arm(&mut self, poller: &Poller, watch: bool) -> Result<bool, Dead> {
        if self.is_watched != watch {
            let mut all = watch;
            for (token, socket) in (TOKEN_FIRST..).zip(self.sockets.each()) {
                let socket = socket.borrow();
                if watch {
                    let watched = poller.watch(socket.as_fd(), token);
                    all &= watched.is_ok()
                        || watched.is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists);
                } else {
                    poller.unwatch(socket.as_fd());
                }
            }
            self.is_watched = all;
        }
        // An error also makes a descriptor readable. If nobody took it, it would end each sleep at once.
        let mut failed = false;
        for socket in self.sockets.each() {
            failed |= ethernet::take_error(socket.borrow().as_fd()).is_err();
        }
        if failed {
            self.count_error()?;
        }
        Ok(self.is_watched)
    }

    fn parse(&self, uri: &str) -> Result<Paths, String> {
        let address = uri::parse(uri)?;
        if self.reaches(address) {
            return Ok(Paths::One(address));
        }
        Err(format!(
            "that is this endpoint's own interface {}, whose frames do not come back to it; use the peer's shm:// URI",
            self.link.name
        ))
    }

    fn reaches(&self, peer: Address) -> bool {
        !peer.is_secured() && peer.ethernet_addr().is_some_and(|(mac, _)| mac != self.link.mac)
    }

    fn set_nonce(&mut self, key: ConnKey, nonce: Option<u64>) {
        let Some(attachment) = &mut self.attachment else { return };
        match nonce {
            // If this fails, the program on the interface does not check the connection's frames.
            Some(nonce) => drop(attachment.connected(key.index, key.generation, nonce)),
            None => attachment.disconnected(key.index),
        }
    }

    fn report(&self, report: Report<'_>) {
        match report {
            Report::Memory(into) => {
                let bytes = self.sockets.each().map(|socket| socket.borrow().memory_bytes() as u64).sum();
                into.push(("frames and their rings", bytes));
            }
            Report::Counters { into, drops } => report::counters(self, into, drops),
            Report::Explanation { connection, into, .. } => report::explain(self, connection, into),
        }
    }
}

impl Transmit for Eth {
    #[inline]
    fn has_space(&self) -> bool {
        self.is_cut_off() || self.pending < SEND_FRAMES_MAX && self.sockets.main.borrow_mut().space() > 0
    }

    //= wire.md R-ETH-4
    #[inline]
    fn begin(&mut self, to: Address, len_max: usize, _: bool) -> Option<&mut [u8]> {
        let (mac, to_endpoint) = to.ethernet_addr()?;
        let (from, from_endpoint) = (self.link.mac, self.lock.endpoint());
        self.header = FrameHeader { to: mac, from, to_endpoint, from_endpoint };
        if self.cut_off_until_ns != 0 && self.stays_cut_off() {
            return self.scrap.get_mut(..len_max);
        }
        self.sockets.main.get_mut().begin(PAYLOAD_OFFSET + len_max)?.get_mut(PAYLOAD_OFFSET..)
    }

    #[inline]
    fn commit(&mut self, len: usize) {
        let Ok(payload_bytes) = u16::try_from(len) else { return };
        if self.is_cut_off() {
            self.counts.lost += 1;
            return;
        }
        // This is the memory that `begin` returned. Only now is its length known.
        let (socket, frame_bytes) = (self.sockets.main.get_mut(), PAYLOAD_OFFSET + len);
        let padded_bytes = frame_bytes.max(FRAME_BYTES_MIN);
        let Some(frame) = socket.begin(padded_bytes) else { return };
        if let Some((header, _)) = frame.split_first_chunk_mut() {
            *header = self.header.emit(payload_bytes);
        }
        if let Some(padding) = frame.get_mut(frame_bytes..) {
            // The memory still holds bytes of a datagram to somebody else.
            padding.fill(0);
        }
        socket.commit(padded_bytes);
        self.pending += 1;
        self.counts.sent_bytes += len as u64;
    }
}
