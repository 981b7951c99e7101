//! Receiving many datagrams per system call.

use std::io;
use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd};

use super::UdpSocket;
use super::bytes::AlignedBytes;
use super::cmsg::{self, RecvControl};
use crate::error::Result;
use crate::net::addr::RawAddr;

/// Room for one message: the kernel joins datagrams up to 64 KiB.
const AREA_BYTES: usize = 1 << 16;
/// Messages one call can bring.
const MESSAGES_MAX: usize = 16;
/// Errors that earlier datagrams left on the socket, taken off it in one call at most.
const SOFT_ERRORS_MAX: usize = 8;

/// What receiving did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecvStats {
    /// System calls made.
    pub syscalls: u64,
    /// System calls that found nothing.
    pub empty: u64,
    /// Datagrams received.
    pub datagrams: u64,
    /// Bytes of payload received.
    pub bytes: u64,
    /// Messages that held more than one datagram (GRO).
    pub gro_batches: u64,
    /// Messages skipped because they were cut off, or came from no IP address.
    pub skipped: u64,
    /// Errors of earlier sends, reported here and swallowed.
    pub soft_errors: u64,
}

/// Whether to ask for one message or for many: asking for many costs about 150 ns when only one is there.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    /// Calls in a row that found something.
    hits: u32,
    /// Calls that bring one message still to be made for one, because one for many found no more than that.
    singles: u32,
    /// How many those will be the next time.
    singles_next: u32,
    /// The last call brought as many as it asked for.
    filled: bool,
}

impl Pace {
    /// After this many calls for one message it is worth looking again whether more wait.
    const SINGLES_MAX: u32 = 16;

    #[inline]
    fn ask_for_many(self) -> bool {
        self.hits > 0 && self.singles == 0
    }

    #[inline]
    fn note(&mut self, asked_for_many: bool, count: usize) {
        self.hits = if count == 0 { 0 } else { self.hits.saturating_add(1) };
        match (asked_for_many, count) {
            // A program that spins finds nothing many times between two messages.
            (false, 0) => {}
            (false, _) => self.singles = self.singles.saturating_sub(1),
            (true, 0 | 1) => {
                self.singles_next = (self.singles_next * 2).clamp(1, Pace::SINGLES_MAX);
                self.singles = self.singles_next;
            }
            (true, _) => self.singles_next = 0,
        }
    }
}

/// Where one message lies and whose it is.
#[derive(Clone, Copy, Debug)]
struct Message {
    from: SocketAddr,
    area: usize,
    len: usize,
    segment_len: usize,
}

/// Buffers for receiving, and what the last call put there.
pub struct RecvBatch {
    areas: AlignedBytes,
    /// Room for one message.
    area_bytes: usize,
    slots: usize,
    addrs: Box<[RawAddr]>,
    controls: Box<[RecvControl]>,
    messages: Vec<Message>,
    /// The datagram that [`take_each`](RecvBatch::take_each) takes next.
    next: Place,
    pace: Pace,
    stats: RecvStats,
}

impl RecvBatch {
    /// Buffers for `messages` messages per system call (1 to 16), 64 KiB each, taken from the system as they fill.
    ///
    /// # Panics
    /// There is no memory for them: see [`try_with_area`](RecvBatch::try_with_area).
    pub fn new(messages: usize) -> RecvBatch {
        RecvBatch::try_with_area(messages, AREA_BYTES).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Buffers for `messages` messages per system call (1 to 16), 64 KiB each.
    ///
    /// # Errors
    /// There is no memory for them.
    pub fn try_new(messages: usize) -> Result<RecvBatch> {
        RecvBatch::try_with_area(messages, AREA_BYTES)
    }

    /// Buffers for `messages` messages per system call, `area_bytes` each (up to 64 KiB, rounded up to a multiple of 8), for a
    /// socket without GRO: a longer message is truncated, and skipped.
    ///
    /// # Errors
    /// There is no memory for them.
    pub fn try_with_area(messages: usize, area_bytes: usize) -> Result<RecvBatch> {
        let slots = messages.clamp(1, MESSAGES_MAX);
        let area_bytes = area_bytes.clamp(8, AREA_BYTES).next_multiple_of(8);
        Ok(RecvBatch {
            areas: AlignedBytes::new(slots * area_bytes)?,
            area_bytes,
            slots,
            addrs: vec![RawAddr::EMPTY; slots].into_boxed_slice(),
            controls: vec![RecvControl([0; 64]); slots].into_boxed_slice(),
            messages: Vec::with_capacity(slots),
            next: Place::default(),
            pace: Pace::default(),
            stats: RecvStats::default(),
        })
    }

    /// Takes what has arrived, replacing what the last call took; says how many datagrams that is.
    ///
    /// 0: nothing there, for one system call. More may be there when it is not 0. An error is one of the socket
    /// itself; ICMP's word on an earlier datagram is counted and swallowed.
    pub fn recv(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        self.forget();
        if self.pace.ask_for_many() {
            self.recv_up_to::<MESSAGES_MAX>(socket)
        } else {
            self.recv_up_to::<1>(socket)
        }
    }

    /// Receives as [`recv`](RecvBatch::recv) does, cheaper while little comes, for protocols whose datagrams hold their own length:
    /// `first_len` gives the length of the first datagram in some bytes. Without its help the kernel must be asked what it
    /// has joined, at the price of a control message with each call.
    ///
    /// A wrong `first_len` only splits wrongly what the kernel has joined.
    // Never inlined: otherwise an empty poll would save the registers that a received datagram needs.
    #[inline(never)]
    pub fn recv_framed(
        &mut self,
        socket: &UdpSocket,
        first_len: impl Fn(&[u8]) -> usize,
    ) -> io::Result<usize> {
        if self.pace.ask_for_many() {
            return self.recv(socket);
        }
        self.forget();
        let got = self.call_plain(socket)?;
        self.pace.note(false, usize::from(got.is_some()));
        self.pace.filled = got.is_some();
        let Some((len, from)) = got else { return Ok(0) };
        let Some(from) = from else {
            self.stats.skipped += 1;
            return Ok(0);
        };
        let bytes = self.areas.as_slice().get(..len).unwrap_or_default();
        // Of joined datagrams all are as long as the first, but for the last.
        let segment_len = first_len(bytes).clamp(1, len.max(1));
        Ok(self.keep(Message { from, area: 0, len, segment_len }))
    }

    /// One call for one message into the first area: its length and sender.
    #[inline]
    fn call_plain(&mut self, socket: &UdpSocket) -> io::Result<Option<(usize, Option<SocketAddr>)>> {
        let area = self.areas.as_mut_slice().get_mut(..self.area_bytes).unwrap_or_default();
        let Some(addr) = self.addrs.first_mut() else { return Ok(None) };
        for _ in 0..SOFT_ERRORS_MAX {
            self.stats.syscalls += 1;
            let mut addr_bytes = addr.len();
            let fd = socket.as_fd().as_raw_fd();
            // Not the C library's call, which is a cancellation point, and costs programs with several threads.
            // SAFETY: area, address and length are borrowed for longer than the call, given with their true sizes, and hold
            // whatever bytes the kernel writes.
            let got = unsafe {
                libc::syscall(
                    libc::SYS_recvfrom,
                    fd,
                    area.as_mut_ptr(),
                    area.len(),
                    libc::MSG_DONTWAIT,
                    addr.as_mut_ptr(),
                    &raw mut addr_bytes,
                )
            };
            if let Ok(len) = usize::try_from(got) {
                return Ok(Some((len, addr.get(addr_bytes as usize))));
            }
            // An error that is nothing but a number owns nothing that would have to be dropped.
            let error = ManuallyDrop::new(io::Error::last_os_error());
            match error.raw_os_error() {
                Some(libc::EAGAIN) => break,
                Some(libc::EINTR) => {}
                Some(errno) if is_icmp(errno) => self.stats.soft_errors += 1,
                _ => return Err(ManuallyDrop::into_inner(error)),
            }
        }
        self.stats.empty += 1;
        Ok(None)
    }

    /// Keeps a message; how many datagrams it holds.
    fn keep(&mut self, message: Message) -> usize {
        let is_one = message.len <= message.segment_len;
        let datagrams = if is_one { 1 } else { message.len.div_ceil(message.segment_len) };
        self.stats.bytes += message.len as u64;
        self.stats.datagrams += datagrams as u64;
        self.stats.gro_batches += u64::from(datagrams > 1);
        self.messages.push(message);
        datagrams
    }

    /// The datagrams the last [`recv`](RecvBatch::recv) took: who sent each, and its bytes.
    ///
    /// Bytes start on an 8-byte boundary, except that of datagrams joined by the kernel only those do that follow
    /// ones of a length divisible by 8.
    #[inline]
    pub fn iter(&self) -> Datagrams<'_> {
        Datagrams { batch: self, next: Place::default() }
    }

    /// Calls `each` with the datagrams that were received and not taken yet. If it breaks off or panics, those behind are taken by the
    /// next call.
    #[inline]
    pub fn take_each(
        &mut self,
        mut each: impl FnMut(SocketAddr, &[u8]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        while let Some((from, bytes)) = self.next.step(&self.messages, self.areas.as_slice()) {
            each(from, bytes)?;
        }
        ControlFlow::Continue(())
    }

    /// Whether [`take_each`](RecvBatch::take_each) has datagrams to take.
    #[inline]
    pub fn has_left(&self) -> bool {
        self.next.message < self.messages.len()
    }

    /// How many those are.
    #[cold]
    pub fn left(&self) -> usize {
        Datagrams { batch: self, next: self.next }.count()
    }

    /// Forgets what the last call took.
    #[inline]
    fn forget(&mut self) {
        self.messages.clear();
        self.next = Place::default();
    }

    /// Whether the last [`recv`](RecvBatch::recv) took all it could hold, so that more may be waiting.
    #[inline]
    pub fn may_have_more(&self) -> bool {
        self.pace.filled
    }

    /// What receiving did so far.
    pub fn stats(&self) -> RecvStats {
        self.stats
    }

    /// Bytes of memory this holds at most.
    pub fn memory_bytes(&self) -> usize {
        self.areas.len()
            + size_of_val(&*self.addrs)
            + size_of_val(&*self.controls)
            + self.messages.capacity() * size_of::<Message>()
    }

    /// One call for at most `N` messages; how many datagrams came.
    fn recv_up_to<const N: usize>(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        let mut headers = [const { EMPTY_HEADER }; N];
        let mut vectors = [const { EMPTY_VECTOR }; N];
        let wanted = headers.get_mut(..N.min(self.slots)).unwrap_or_default();
        let count = self.call(socket, wanted, &mut vectors)?;
        self.pace.note(N > 1, count);
        self.pace.filled = count == N.min(self.slots);
        Ok(headers.iter().take(count).enumerate().map(|(slot, header)| self.note(slot, header)).sum())
    }

    /// One receive call for `headers.len()` messages; how many came.
    fn call(
        &mut self,
        socket: &UdpSocket,
        headers: &mut [libc::mmsghdr],
        vectors: &mut [libc::iovec],
    ) -> io::Result<usize> {
        let fd = socket.as_fd().as_raw_fd();
        let areas = self.areas.as_mut_slice().chunks_exact_mut(self.area_bytes);
        let slots = areas.zip(&mut self.addrs).zip(&mut self.controls).zip(vectors.iter_mut());
        for (header, (((area, addr), control), vector)) in headers.iter_mut().zip(slots) {
            *vector = libc::iovec { iov_base: area.as_mut_ptr().cast(), iov_len: area.len() };
            let header = &mut header.msg_hdr;
            header.msg_name = addr.as_mut_ptr().cast();
            header.msg_namelen = RawAddr::EMPTY.len();
            header.msg_iov = vector;
            header.msg_iovlen = 1;
            header.msg_control = control.0.as_mut_ptr().cast();
            header.msg_controllen = control.0.len() as _;
        }
        for _ in 0..SOFT_ERRORS_MAX {
            self.stats.syscalls += 1;
            // SAFETY: each header points to an area, an address, a control buffer and a vector of its own, with
            // their true lengths; all of them outlive the call and are written by nobody else meanwhile.
            let got = unsafe { receive(fd, headers) };
            if got >= 0 {
                return Ok(got as usize);
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EAGAIN) => break,
                Some(libc::EINTR) => {}
                Some(errno) if is_icmp(errno) => self.stats.soft_errors += 1,
                _ => return Err(error),
            }
        }
        self.stats.empty += 1;
        Ok(0)
    }

    /// Keeps the message that came in `slot`; how many datagrams it holds.
    fn note(&mut self, slot: usize, header: &libc::mmsghdr) -> usize {
        let len = header.msg_len as usize;
        let control =
            self.controls.get(slot).and_then(|control| control.0.get(..header.msg_hdr.msg_controllen as _));
        let segment_bytes = cmsg::segment_bytes(control.unwrap_or_default());
        let from = self.addrs.get(slot).and_then(|addr| addr.get(header.msg_hdr.msg_namelen as usize));
        let truncated = header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 || len > self.area_bytes;
        // Without its control message a batch cannot be distinguished from one large datagram.
        let unclear = header.msg_hdr.msg_flags & libc::MSG_CTRUNC != 0;
        let (Some(from), false, false) = (from, truncated, unclear) else {
            self.stats.skipped += 1;
            return 0;
        };
        let segment_len = segment_bytes.unwrap_or(len).max(1);
        self.keep(Message { from, area: slot * self.area_bytes, len, segment_len })
    }
}

impl<'a> IntoIterator for &'a RecvBatch {
    type Item = (SocketAddr, &'a [u8]);
    type IntoIter = Datagrams<'a>;

    fn into_iter(self) -> Datagrams<'a> {
        self.iter()
    }
}

impl std::fmt::Debug for RecvBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecvBatch").field("messages", &self.messages).field("stats", &self.stats).finish()
    }
}

/// The datagrams of a [`RecvBatch`], one by one, in the order the kernel had them.
#[derive(Clone, Debug)]
pub struct Datagrams<'a> {
    batch: &'a RecvBatch,
    next: Place,
}

/// Where a datagram is among what was received.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    message: usize,
    /// Its place in that, bytes.
    at: usize,
}

impl Place {
    /// The datagram that is here, and moves on to the next one.
    #[inline]
    fn step<'a>(&mut self, messages: &[Message], areas: &'a [u8]) -> Option<(SocketAddr, &'a [u8])> {
        let message = messages.get(self.message)?;
        let end = (self.at + message.segment_len).min(message.len);
        let bytes = areas.get(message.area + self.at..message.area + end)?;
        if end == message.len {
            *self = Place { message: self.message + 1, at: 0 };
        } else {
            self.at = end;
        }
        Some((message.from, bytes))
    }
}

impl<'a> Iterator for Datagrams<'a> {
    type Item = (SocketAddr, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.next.step(&self.batch.messages, self.batch.areas.as_slice())
    }
}

const EMPTY_VECTOR: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
// SAFETY: an mmsghdr of zeros has no buffers at all, which is valid (and musl's has private padding to fill).
const EMPTY_HEADER: libc::mmsghdr = unsafe { std::mem::zeroed() };

/// recvmsg for one header, recvmmsg for more; how many came, or -1 and errno.
///
/// # Safety
/// The headers' pointers and lengths name memory that the call may write.
unsafe fn receive(fd: libc::c_int, headers: &mut [libc::mmsghdr]) -> libc::c_int {
    let flags = libc::MSG_DONTWAIT;
    if let [one] = headers {
        // SAFETY: promised by the caller.
        let len = unsafe { libc::recvmsg(fd, &mut one.msg_hdr, flags) };
        return match u32::try_from(len) {
            Ok(len) => {
                one.msg_len = len;
                1
            }
            Err(_) => -1,
        };
    }
    let count = headers.len() as libc::c_uint;
    // SAFETY: promised by the caller; without a timeout there is nothing more to point to.
    unsafe { libc::recvmmsg(fd, headers.as_mut_ptr(), count, flags as _, std::ptr::null_mut()) }
}

/// Whether this is ICMP's word (or the like) on an earlier datagram, and not an error of the socket.
pub(super) fn is_icmp(errno: i32) -> bool {
    matches!(
        errno,
        libc::ECONNREFUSED
            | libc::EHOSTUNREACH
            | libc::ENETUNREACH
            | libc::EHOSTDOWN
            | libc::ENONET
            | libc::ENOPROTOOPT
            | libc::EPROTO
            | libc::EMSGSIZE
    )
}
