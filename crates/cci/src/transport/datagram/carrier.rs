//! The socket and its batches, as the protocol sees them.

use cci_proto::{Address, Transmit, first_datagram_bytes};
use cci_sys::udp::{Datagrams, RecvBatch, RecvStats, SendBatch, SendStats, TooBig, UdpSocket};
use std::io;

/// Memory for one batch of datagrams on their way out, bytes, if the endpoint's cap leaves so much.
const SEND_BYTES: usize = 512 << 10;
/// And that many datagrams at most.
const SEND_DATAGRAMS_MAX: usize = 128;
/// Messages taken by one receive call at most.
const RECV_MESSAGES_MAX: usize = 16;
/// What the kernel may hand over in one piece.
const RECV_MESSAGE_BYTES: u64 = 64 << 10;

/// One UDP socket.
pub(super) struct Carrier {
    socket: UdpSocket,
    out: SendBatch,
    input: RecvBatch,
    datagrams_max: usize,
    /// The socket lets datagrams leave in fragments now.
    fragmenting: bool,
    /// The socket itself failed, for good.
    dead: bool,
    /// Errors of the socket, good or not.
    errors: u64,
}

/// What a receive call brought.
pub(super) enum Received {
    /// So many datagrams; 0: nothing is there.
    Datagrams(usize),
    /// The socket is dead; `first`: it was not before.
    Failed {
        /// To be told to the program.
        first: bool,
    },
}

impl Carrier {
    /// Batches for datagrams of up to `datagram_bytes`, in about a 16th of `memory_bytes_max`.
    pub fn new(socket: UdpSocket, datagram_bytes: usize, memory_bytes_max: u64) -> Carrier {
        let send_bytes = SEND_BYTES.min((memory_bytes_max / 32) as usize);
        let datagrams_max = (send_bytes / datagram_bytes).clamp(2, SEND_DATAGRAMS_MAX);
        let messages = (memory_bytes_max / 32 / RECV_MESSAGE_BYTES).clamp(1, RECV_MESSAGES_MAX as u64);
        Carrier {
            out: SendBatch::new(&socket, datagrams_max, datagrams_max * (datagram_bytes + 8)),
            input: RecvBatch::new(messages as usize),
            socket,
            datagrams_max,
            fragmenting: false,
            dead: false,
            errors: 0,
        }
    }

    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// One receive call.
    #[inline]
    pub fn receive(&mut self) -> Received {
        if self.dead {
            return Received::Failed { first: false };
        }
        match self.input.recv_framed(&self.socket, first_datagram_bytes) {
            Ok(count) => Received::Datagrams(count),
            Err(error) if self.is_death(&error) => Received::Failed { first: true },
            Err(_) => Received::Datagrams(0),
        }
    }

    /// The datagrams of the last call.
    pub fn arrived(&self) -> Datagrams<'_> {
        self.input.iter()
    }

    /// Gives the kernel what waits. True: the socket has just died.
    pub fn flush(&mut self) -> bool {
        if self.dead {
            // Datagrams may be lost; these are.
            self.out.clear();
            return false;
        }
        match self.out.flush(&self.socket) {
            Ok(_) => false,
            Err(error) => self.is_death(&error),
        }
    }

    /// An error of the socket: passing, such as an interface that is down for now, or the end? Notes it.
    fn is_death(&mut self, error: &io::Error) -> bool {
        self.errors += 1;
        // The descriptor is no socket of ours any more. Whatever else is wrong may come right again, and the
        // protocol's time-outs tell the program meanwhile.
        let ends = matches!(error.raw_os_error(), Some(9 /* EBADF */ | 88 /* ENOTSOCK */));
        self.dead |= ends;
        ends
    }

    /// Datagrams that the kernel had no room for yet.
    #[inline]
    pub fn pending(&self) -> usize {
        self.out.pending()
    }

    /// The last datagram given up for its length.
    #[inline]
    pub fn take_too_big(&mut self) -> Option<TooBig> {
        self.out.take_too_big()
    }

    /// Whether sends are cut into datagrams by the kernel (or the card).
    pub fn gso(&self) -> bool {
        self.out.gso()
    }

    pub fn errors(&self) -> u64 {
        self.errors
    }

    pub fn send_stats(&self) -> SendStats {
        self.out.stats()
    }

    pub fn recv_stats(&self) -> RecvStats {
        self.input.stats()
    }

    /// Bytes held for sending and for receiving.
    pub fn memory_bytes(&self) -> (u64, u64) {
        (self.out.memory_bytes() as u64, self.input.memory_bytes() as u64)
    }

    /// Whether datagrams may leave in fragments is a matter of the whole socket: what waits leaves before it changes.
    fn set_fragmenting(&mut self, fragment: bool) -> bool {
        if self.fragmenting == fragment {
            return true;
        }
        self.flush();
        if self.out.pending() > 0 || self.socket.set_fragment(fragment).is_err() {
            return false;
        }
        self.fragmenting = fragment;
        true
    }
}

impl Transmit for Carrier {
    #[inline]
    fn room(&self) -> bool {
        self.out.pending() < self.datagrams_max
    }

    #[inline]
    fn begin(&mut self, to: Address, len_max: usize, fragment: bool) -> Option<&mut [u8]> {
        let to = to.socket_addr()?;
        if !self.set_fragmenting(fragment) {
            return None;
        }
        self.out.next(&to, len_max)
    }

    #[inline]
    fn commit(&mut self, len: usize) {
        self.out.commit(len);
    }
}
