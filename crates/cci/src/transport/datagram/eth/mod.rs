//! Raw Ethernet: frames of our own, past the kernel's IP stack. What the SeaStar prototype (CCI 2013, IV.B) had in its
//! network processor is done here by the kernel where frames enter it: see `cci_sys::xdp`.
//!
//! Frames leave by one socket and arrive at one or two. The protocol writes into the socket's memory and reads from
//! it: nothing is copied here.

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

/// Places in the endpoint's descriptor.
const TOKEN_FIRST: u64 = 0;
/// Frames given to the kernel by one flush at most: what it takes with one call, twice.
const SEND_FRAMES_MAX: usize = 64;
/// Frames taken from one socket by one receive call at most.
const RECV_FRAMES_MAX: usize = 32;
/// Shorter frames do not exist on the wire: something must pad them.
const FRAME_BYTES_MIN: usize = 60;
/// How long datagrams are lost after the interface proved to be down, until it is tried again.
const CUT_OFF_NS: u64 = 5_000_000;
/// How often at most the system is asked whether an interface that gives errors is still there.
const LOOK_NS: u64 = 100_000_000;

/// A socket, as the carrier uses it. Counters are asked for through `&self`, and the kernel's part of them changes the
/// socket's; so are the rings' states. Nothing is borrowed for longer than a call.
type Socket = RefCell<Box<dyn FrameSocket>>;

/// How frames travel, for people.
struct SocketPath {
    path: &'static str,
    reason: String,
    /// What was tried before and could not be had.
    missing: Vec<Unavailable>,
}

/// One endpoint of an interface.
pub(super) struct Eth {
    link: Link,
    /// The endpoint's place in the program on the interface. None: frames reach the sockets without.
    attachment: Option<Attachment>,
    sockets: Sockets,
    /// Given up after the sockets are closed: fields are dropped in this order.
    lock: EndpointLock,
    socket_path: SocketPath,
    /// Of the datagram begun last.
    header: FrameHeader,
    /// Frames committed and not yet taken by the kernel.
    pending: usize,
    counts: Counts,
    /// Tells whether the interface is still there, also to threads that are in another namespace than it.
    lookout: Lookout,
    /// The interface has gone, for good.
    dead: bool,
    /// It is down: what is sent is lost, as on a cable that is not plugged in. 0: it is not.
    cut_off_until_ns: u64,
    /// For what is lost.
    scrap: Box<[u8]>,
    /// When the system was last asked for it.
    looked_at_ns: u64,
    is_watched: bool,
}

struct Sockets {
    /// Frames leave by this one, and most arrive here.
    main: Socket,
    /// Frames that the first cannot have arrive here: those of the interface's other queues.
    side: Option<Socket>,
}

#[derive(Default)]
struct Counts {
    sent_bytes: u64,
    received: u64,
    received_bytes: u64,
    /// Frames that were not as they should be, or for somebody else.
    malformed: u64,
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

    /// The interface is down: is it time to try it again?
    #[cold]
    fn stays_cut_off(&mut self) -> bool {
        if self.dead || clock::now_ns() < self.cut_off_until_ns {
            return true;
        }
        self.cut_off_until_ns = 0;
        false
    }

    /// Counts an error of a socket, and finds out whether it is the end: the interface may only be down for now.
    #[cold]
    fn count_error(&mut self) -> Result<(), Dead> {
        self.counts.errors += 1;
        let now_ns = clock::now_ns();
        if !self.dead && now_ns >= self.looked_at_ns.saturating_add(LOOK_NS) {
            self.looked_at_ns = now_ns;
            // The interface goes by its number: another one may have its name by now, and it may have a new name itself.
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
        // How many frames there are is known only when they are read, so each socket counts as if it had a whole batch.
        let first = if ready(main) { RECV_FRAMES_MAX } else { 0 };
        let second = if side.as_mut().is_some_and(ready) { RECV_FRAMES_MAX } else { 0 };
        Ok(first + second)
    }

    #[inline]
    fn arrived(&mut self, mut datagram: impl FnMut(Address, &[u8], &dyn Who)) {
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
                        datagram(Address::ethernet(header.from, header.from_endpoint), payload, &Nobody);
                    }
                    Err(_) => counts.malformed += 1,
                }
            }
            socket.release();
        }
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
        // What is in the ring of an interface that is down stays there, and nobody need wait for it.
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
        // An error makes a descriptor readable, too, and would end each sleep at once if nobody took it.
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
        // This is the memory that `begin` returned before; only now its length is known.
        let (socket, frame_bytes) = (self.sockets.main.get_mut(), PAYLOAD_OFFSET + len);
        let padded_bytes = frame_bytes.max(FRAME_BYTES_MIN);
        let Some(frame) = socket.begin(padded_bytes) else { return };
        if let Some((header, _)) = frame.split_first_chunk_mut() {
            *header = self.header.emit(payload_bytes);
        }
        if let Some(padding) = frame.get_mut(frame_bytes..) {
            // It holds what was sent to somebody else before.
            padding.fill(0);
        }
        socket.commit(padded_bytes);
        self.pending += 1;
        self.counts.sent_bytes += len as u64;
    }
}
