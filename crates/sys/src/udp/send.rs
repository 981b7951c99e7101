//! Sending many datagrams per system call.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use super::bytes::AlignedBytes;
use super::recv::is_icmp;
use super::{DATAGRAM_BYTES_MAX, UdpSocket};
use crate::error::{Result, Tried};
use cci_memory::fallible;

mod call;
mod connected;
mod message;

use call::{send_connected, send_entries};
use connected::ConnectedSocket;
use message::{How, Message};

/// Datagrams one GSO message can carry: what every kernel since 4.18 takes.
const SEGMENTS_MAX: usize = 64;
/// Messages given to the kernel in one call.
const ENTRIES_MAX: usize = 64;
/// A datagram of this length fits any IPv6 path: when GSO refuses even that, it is GSO that does not work.
const SEGMENT_BYTES_SURE: usize = 1_200;

/// What sending did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendStats {
    /// System calls made.
    pub syscalls: u64,
    /// Datagrams the kernel took.
    pub datagrams: u64,
    /// Bytes of payload the kernel took.
    pub bytes: u64,
    /// Messages the kernel was to cut into several datagrams (GSO).
    pub gso_batches: u64,
    /// How often the kernel had no space.
    pub would_block: u64,
    /// Datagrams given up because they fit neither interface nor path.
    pub too_big: u64,
    /// Datagrams given up because their destination cannot be sent to now (no route, refused, forbidden).
    pub unreachable: u64,
    /// Errors of earlier datagrams, reported at a later one and swallowed.
    pub soft_errors: u64,
    /// Datagrams given up because the socket itself failed.
    pub failed: u64,
    /// GSO messages that had to be sent again one by one.
    pub gso_refused: u64,
    /// Datagrams that went by the connected socket ([`SendBatch::allow_connected`]).
    pub connected: u64,
}

/// The last datagram given up for its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooBig {
    /// Where it was to go.
    pub to: SocketAddr,
    /// Its payload in bytes.
    pub len: usize,
}

/// Datagrams on their way to the kernel, in memory taken once.
pub struct SendBatch {
    arena: AlignedBytes,
    datagrams_max: usize,
    /// First free byte.
    tail: usize,
    /// What `next` handed out and `commit` has not taken yet.
    open: Option<Open>,
    /// Where that is to go, or what is lone.
    to: SocketAddr,
    /// The length of the only datagram that waits, which begins at the first byte and becomes a message when it must; 0: it is one already,
    /// or there are none or several.
    lone_bytes: usize,
    messages: Vec<Message>,
    /// First message not sent yet.
    first: usize,
    /// Datagrams not sent yet.
    pending: usize,
    /// Largest datagram sent by GSO; 0 when that is off for good.
    gso_segment_bytes_max: usize,
    too_big: Option<TooBig>,
    connected: ConnectedSocket,
    stats: SendStats,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    start: usize,
    len_max: usize,
}

impl SendBatch {
    /// Room for `datagrams_max` datagrams and `arena_bytes` bytes of them (at least one datagram of any length
    /// fits), to be sent by `socket`.
    ///
    /// # Panics
    /// There is no memory for it: see [`try_new`](SendBatch::try_new).
    pub fn new(socket: &UdpSocket, datagrams_max: usize, arena_bytes: usize) -> SendBatch {
        SendBatch::try_new(socket, datagrams_max, arena_bytes).unwrap_or_else(|error| panic!("{error}"))
    }

    /// A batch like that of [`new`](SendBatch::new).
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn try_new(socket: &UdpSocket, datagrams_max: usize, arena_bytes: usize) -> Result<SendBatch> {
        let datagrams_max = datagrams_max.max(1);
        Ok(SendBatch {
            arena: AlignedBytes::new(arena_bytes.max(DATAGRAM_BYTES_MAX))?,
            datagrams_max,
            tail: 0,
            open: None,
            to: SocketAddr::from(([0, 0, 0, 0], 0)),
            lone_bytes: 0,
            messages: fallible::vec(datagrams_max).tried("have memory for datagrams")?,
            first: 0,
            pending: 0,
            gso_segment_bytes_max: if socket.gso().is_ok() { DATAGRAM_BYTES_MAX } else { 0 },
            too_big: None,
            connected: ConnectedSocket::default(),
            stats: SendStats::default(),
        })
    }

    /// Room for one datagram of up to `len_max` bytes to `to`, holding old bytes; write it, then
    /// [`commit`](SendBatch::commit) it. One that was not committed is forgotten.
    ///
    /// `None`: the batch is full, [`flush`](SendBatch::flush) first; or `len_max` is more than a datagram can be.
    ///
    /// Starts on an 8-byte boundary when all datagrams before it have lengths divisible by 8, or it goes elsewhere
    /// than the one before.
    #[inline]
    pub fn next(&mut self, to: &SocketAddr, len_max: usize) -> Option<&mut [u8]> {
        self.open = None;
        if self.tail != 0 {
            return self.next_behind(to, len_max);
        }
        let space = self.arena.as_mut_slice().get_mut(..len_max).filter(|_| len_max <= DATAGRAM_BYTES_MAX)?;
        self.to = *to;
        self.open = Some(Open { start: 0, len_max });
        Some(space)
    }

    /// [`next`](SendBatch::next) where others wait.
    fn next_behind(&mut self, to: &SocketAddr, len_max: usize) -> Option<&mut [u8]> {
        if self.pending >= self.datagrams_max
            || self.messages.len() >= self.datagrams_max
            || len_max > DATAGRAM_BYTES_MAX
        {
            return None;
        }
        self.keep_lone();
        let follows = self.messages.last().is_some_and(|last| last.to == *to && self.can_extend(last));
        let start = if follows { self.tail } else { self.tail.next_multiple_of(size_of::<u64>()) };
        let space = self.arena.as_mut_slice().get_mut(start..start + len_max)?;
        self.to = *to;
        self.open = Some(Open { start, len_max });
        Some(space)
    }

    /// Keeps the first `len` bytes of what [`next`](SendBatch::next) gave as one datagram. 0 keeps nothing.
    ///
    /// Panics when `next` gave nothing, or less than `len` bytes: a mistake of the caller.
    #[inline]
    pub fn commit(&mut self, len: usize) {
        let open = self.open.take();
        let Some(open) = open.filter(|open| len <= open.len_max) else {
            panic!("commit({len}) without room for it: {open:?}");
        };
        if len == 0 {
            return;
        }
        self.tail = open.start + len;
        self.pending += 1;
        if open.start == 0 {
            self.lone_bytes = len;
        } else {
            self.commit_behind(open.start, len);
        }
    }

    /// [`commit`](SendBatch::commit) where others wait.
    fn commit_behind(&mut self, start: usize, len: usize) {
        let last = self.messages.len().checked_sub(1);
        let extends = last.and_then(|at| self.messages.get(at)).is_some_and(|last| {
            last.to == self.to
                && last.start + last.len == start
                && len <= last.segment_len
                && last.len + len <= DATAGRAM_BYTES_MAX
                && self.can_extend(last)
        });
        match self.messages.last_mut().filter(|_| extends) {
            Some(last) => last.extend(len),
            None => self.messages.push(Message::new(&self.to, start, len)),
        }
    }

    /// Gives the kernel what it takes; says how many datagrams that is.
    ///
    /// What it has no room for stays ([`pending`](SendBatch::pending)) for the next flush. Datagrams that cannot be
    /// sent (too big, no route) are counted and given up: they are lost, as datagrams may be. An error is one of
    /// the socket itself; the datagram it struck is given up, the others stay.
    #[inline]
    pub fn flush(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        self.open = None;
        if self.send_lone() { Ok(1) } else { self.flush_messages(socket) }
    }

    #[inline(never)]
    fn flush_messages(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        self.keep_lone();
        let mut sent = 0;
        let mut retried = false;
        while self.pending > 0 {
            match self.send_run(socket) {
                Ok(datagrams) => {
                    sent += datagrams;
                    retried = false;
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    Some(libc::EAGAIN) => {
                        self.stats.would_block += 1;
                        return Ok(sent);
                    }
                    Some(errno) => {
                        let outcome = self.on_errno(errno, error, &mut retried);
                        if outcome.is_err() && self.pending == 0 {
                            self.clear();
                        }
                        outcome?;
                    }
                    None => return Err(error),
                },
            }
        }
        self.clear();
        Ok(sent)
    }

    /// Sends the only datagram that waits by the connected socket, if it leads there already. False: it is still to be sent.
    #[inline]
    fn send_lone(&mut self) -> bool {
        if self.lone_bytes == 0 {
            return false;
        }
        let Some(fd) = self.connected.leading(&self.to) else { return false };
        let bytes = self.arena.as_slice().get(..self.lone_bytes).unwrap_or_default();
        self.stats.syscalls += 1;
        if send_connected(fd, bytes).is_err() {
            return false;
        }
        self.stats.bytes += bytes.len() as u64;
        self.stats.datagrams += 1;
        self.stats.connected += 1;
        (self.lone_bytes, self.tail, self.pending) = (0, 0, 0);
        true
    }

    /// The only datagram that waits is a message like others from now on.
    fn keep_lone(&mut self) {
        if self.lone_bytes != 0 {
            self.messages.push(Message::new(&self.to, 0, self.lone_bytes));
            self.lone_bytes = 0;
        }
    }

    /// Datagrams not sent yet.
    #[inline]
    pub fn pending(&self) -> usize {
        self.pending
    }

    /// Whether nothing is waiting to be sent.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.pending == 0
    }

    /// Forgets all that is not sent yet.
    pub fn clear(&mut self) {
        self.messages.clear();
        (self.open, self.lone_bytes) = (None, 0);
        self.first = 0;
        self.tail = 0;
        self.pending = 0;
    }

    /// Whether GSO is still in use: the kernel knows it and no device has refused it.
    pub fn gso(&self) -> bool {
        self.gso_segment_bytes_max > 0
    }

    /// Uses no GSO from now on.
    pub fn disable_gso(&mut self) {
        self.gso_segment_bytes_max = 0;
        for message in self.messages.iter_mut().filter(|message| message.how == How::Whole) {
            message.how = How::Split;
        }
    }

    /// Whether lone datagrams that go to one peer again and again may leave by a second socket, which is connected to it:
    /// with the same address and port, but never in fragments, so this is for a socket that sends none either. Off at
    /// first. It is made when it is allowed; where the system has none, `socket` sends everything.
    pub fn allow_connected(&mut self, allowed: bool, socket: &UdpSocket) {
        self.connected.allow(allowed, socket);
    }

    /// The last datagram given up for its length since this was asked last.
    #[inline]
    pub fn take_too_big(&mut self) -> Option<TooBig> {
        if self.too_big.is_none() { None } else { self.too_big.take() }
    }

    /// What sending did so far.
    pub fn stats(&self) -> SendStats {
        self.stats
    }

    /// Bytes of memory this holds at most.
    pub fn memory_bytes(&self) -> usize {
        self.arena.len() + self.messages.capacity() * size_of::<Message>()
    }

    /// Whether one more datagram may be joined to `message`, as far as that does not depend on its length.
    #[inline]
    fn can_extend(&self, message: &Message) -> bool {
        !message.closed
            && message.how == How::Whole
            && message.segments < SEGMENTS_MAX
            && message.segment_len <= self.gso_segment_bytes_max
    }

    /// One send call for the first messages; how many datagrams the kernel took.
    fn send_run(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        if let Some(datagrams) = self.send_connected(socket)? {
            return Ok(datagrams);
        }
        let waiting = self.messages.get(self.first..).unwrap_or_default();
        self.stats.syscalls += 1;
        let waiting_entries = waiting.iter().map(Message::entry_count).take(ENTRIES_MAX).sum();
        let entries = waiting.iter().flat_map(Message::entries);
        let count = send_entries(socket.as_fd(), self.arena.as_slice(), entries, waiting_entries)?;
        let mut datagrams = 0;
        for _ in 0..count {
            let Some(message) = self.messages.get_mut(self.first) else { break };
            let (segments, bytes) = message.advance();
            self.stats.gso_batches += u64::from(segments > 1);
            self.stats.bytes += bytes as u64;
            datagrams += segments;
            if message.len == 0 {
                let done = *message;
                self.first += 1;
                self.learn_from(&done);
            }
        }
        self.pending = self.pending.saturating_sub(datagrams);
        self.stats.datagrams += datagrams as u64;
        Ok(datagrams)
    }

    /// Sends what waits by the connected socket, if that is one datagram and the socket leads there. `None`: it does
    /// not, and an error of its own is no reason not to try the other.
    #[inline]
    fn send_connected(&mut self, socket: &UdpSocket) -> io::Result<Option<usize>> {
        let Some([only]) = self.messages.get(self.first..) else { return Ok(None) };
        if self.pending != 1 || only.how != How::Whole {
            return Ok(None);
        }
        let Some(fd) = self.connected.to(&only.to, socket) else { return Ok(None) };
        let bytes = self.arena.as_slice().get(only.start..only.start + only.len).unwrap_or_default();
        self.stats.syscalls += 1;
        match send_connected(fd, bytes) {
            Ok(()) => {}
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => {
                return Err(error);
            }
            Err(_) => {
                self.connected.give_up();
                return Ok(None);
            }
        }
        self.stats.bytes += only.len as u64;
        self.stats.datagrams += 1;
        self.stats.connected += 1;
        self.first += 1;
        self.pending = 0;
        Ok(Some(1))
    }

    /// The first message has all been sent: one by one, after GSO had refused it?
    fn learn_from(&mut self, done: &Message) {
        if done.how != How::SplitOnRefusal || !self.gso() {
            return;
        }
        if done.segment_len > SEGMENT_BYTES_SURE {
            // Too long for the path's MTU, which GSO does not fragment: shorter ones may still go.
            self.gso_segment_bytes_max = self.gso_segment_bytes_max.min(done.segment_len - 1);
        } else {
            self.disable_gso();
        }
    }

    /// The kernel refused the first message, or what is left of it.
    fn on_errno(&mut self, errno: i32, error: io::Error, retried: &mut bool) -> io::Result<()> {
        let Some(message) = self.messages.get_mut(self.first) else { return Err(error) };
        let joined = message.how == How::Whole && message.segments > 1;
        if joined && matches!(errno, libc::EIO | libc::EINVAL | libc::EMSGSIZE | libc::EOPNOTSUPP) {
            self.stats.gso_refused += 1;
            message.how = How::SplitOnRefusal;
            if errno == libc::EIO {
                // The device on this route cannot sum what it cuts.
                self.disable_gso();
            }
            return Ok(());
        }
        if is_icmp(errno) && errno != libc::EMSGSIZE && !*retried {
            // Most likely the word on an earlier datagram, which telling us has cleared: this one was not tried.
            self.stats.soft_errors += 1;
            *retried = true;
            return Ok(());
        }
        *retried = false;
        let to = message.to;
        if message.how == How::SplitOnRefusal {
            message.how = How::Split;
        }
        let (segments, bytes) = message.advance();
        if message.len == 0 {
            self.first += 1;
        }
        self.pending = self.pending.saturating_sub(segments);
        match errno {
            libc::EMSGSIZE => {
                self.stats.too_big += segments as u64;
                self.too_big = Some(TooBig { to, len: bytes });
                Ok(())
            }
            _ if is_destination(errno) => {
                self.stats.unreachable += segments as u64;
                Ok(())
            }
            _ => {
                self.stats.failed += segments as u64;
                Err(error)
            }
        }
    }
}

impl std::fmt::Debug for SendBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let waiting = self.messages.get(self.first..).unwrap_or_default();
        f.debug_struct("SendBatch").field("waiting", &waiting).field("stats", &self.stats).finish()
    }
}

/// Whether this concerns one destination (or the moment), and not the socket.
fn is_destination(errno: i32) -> bool {
    is_icmp(errno)
        || matches!(
            errno,
            // A full device queue, a firewall's verdict, broadcast, port 0 or a scope that is gone, the
            // other IP version, no source address to use, an interface that is down.
            libc::ENOBUFS
                | libc::ENOMEM
                | libc::EPERM
                | libc::EACCES
                | libc::EINVAL
                | libc::EAFNOSUPPORT
                | libc::EADDRNOTAVAIL
                | libc::ENETDOWN
                | libc::ENODEV
                | libc::ENXIO
                | libc::EIO
        )
}
