//! Frames through the kernel's packet sockets (AF_PACKET) with mapped rings, for where AF_XDP cannot be had.
//!
//! The kernel copies each arriving frame into our ring, and sends from our ring without a copy. Rings are of version 2:
//! one slot a frame, there when it has come. Version 3 packs frames into blocks but hands a block over only when it is
//! full or when a timer of a millisecond or more has run out. Needs CAP_NET_RAW.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use crate::error::{Result, SysError, Tried};
use crate::ethernet::{ETHERNET_BYTES, ETHERTYPE, FrameSocket, FrameStats, PAYLOAD_OFFSET, raw};
use crate::mapped::Mapped;

mod filter;
mod ring;

use ring::{Layout, Ring};

/// Bytes the kernel leaves free before each frame received, so that payloads are aligned to 8: without them it puts
/// the end of the Ethernet header, padded to 16, there.
const RESERVE_BYTES: usize = 6;
/// Where a received frame begins in its slot: the kernel's header and a socket address, rounded up to 16, a padded
/// Ethernet header, the reserve, less the real one.
const RECV_OFFSET: usize = (libc::TPACKET2_HDRLEN + 16).next_multiple_of(16) + RESERVE_BYTES - ETHERNET_BYTES;
/// Where a frame to be sent begins in its slot.
const SEND_OFFSET: usize = libc::TPACKET2_HDRLEN - size_of::<libc::sockaddr_ll>();

const _: () = assert!((RECV_OFFSET + PAYLOAD_OFFSET).is_multiple_of(8));
const _: () = assert!((SEND_OFFSET + PAYLOAD_OFFSET).is_multiple_of(8));

/// What a [`Socket`] is opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Number of the interface ([`Link::index`](crate::ethernet::Link)).
    pub interface_index: u32,
    /// Endpoint whose frames are received; see [`EndpointLock`](crate::ethernet::EndpointLock).
    pub endpoint: u32,
    /// Longest frame, Ethernet header included: MTU and 14.
    pub frame_bytes_max: usize,
    /// Frames the kernel can store for us.
    pub recv_frames: usize,
    /// Frames that can wait to be sent.
    pub send_frames: usize,
}

/// Flushes in a row of which the kernel took nothing before the frame at the head is taken for one that never leaves.
const FRUITLESS_MAX: u32 = 4;
/// Frames in a row that one flush gives up at most.
const GIVEN_UP_MAX: u32 = 64;

/// A packet socket with mapped rings: non-blocking, close-on-exec, gone with its process.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    rings: Mapped,
    recv: Ring,
    send: Ring,
    frame_bytes_max: usize,
    /// A received frame is lent out: the slot at `recv.at()`.
    lent: bool,
    /// Slots that hold frames, sent or not: the oldest is `send.back(in_use)`.
    in_use: usize,
    /// Of those, the newest ones, which the kernel has not looked at.
    unsent: usize,
    /// Flushes in a row in which the kernel took none of them.
    fruitless: u32,
    /// The length of the shortest frame that never left; [`u32::MAX`] if all do. Those as long are not tried as often.
    refused_bytes: u32,
    /// A frame was begun, with space for so many bytes.
    reserved: Option<usize>,
    stats: FrameStats,
}

impl Socket {
    /// Opens a socket. `PermissionDenied` (`EPERM`): the process lacks CAP_NET_RAW in the network namespace's user
    /// namespace. `ENODEV`: no such interface. `ENOMEM`: no memory for the rings.
    pub fn open(options: &Options) -> Result<Socket> {
        let on = |error: SysError| error.on(format_args!("interface {}", options.interface_index));
        Socket::make(options).map_err(on)
    }

    fn make(options: &Options) -> Result<Socket> {
        let fd = raw::packet_socket()?;
        let set = |option, value, what| set_packet(&fd, option, value).map_err(|e| SysError::new(what, e));
        set(
            libc::PACKET_VERSION,
            libc::tpacket_versions::TPACKET_V2 as i32,
            "choose rings (PACKET_VERSION)",
        )?;
        set(libc::PACKET_RESERVE, RESERVE_BYTES as i32, "align frames (PACKET_RESERVE)")?;
        // A frame that is invalid is skipped, and does not stop those behind it.
        set(libc::PACKET_LOSS, 1, "skip bad frames (PACKET_LOSS)")?;
        set(libc::PACKET_QDISC_BYPASS, 1, "send past queueing disciplines (PACKET_QDISC_BYPASS)")?;
        // Before 4.20 we see what others here send: the filter drops it, as it goes to other hosts.
        let _ = set_packet(&fd, libc::PACKET_IGNORE_OUTGOING, 1);
        let recv = Layout::new(options.recv_frames, RECV_OFFSET + options.frame_bytes_max);
        let send = Layout::new(options.send_frames, SEND_OFFSET + options.frame_bytes_max);
        size_send_buffer(&fd, send.len_bytes());
        set_ring(&fd, libc::PACKET_RX_RING, &recv, "make a ring to receive (PACKET_RX_RING)")?;
        set_ring(&fd, libc::PACKET_TX_RING, &send, "make a ring to send (PACKET_TX_RING)")?;
        // The kernel shows both rings in one mapping, this one first.
        let rings = Mapped::of(&fd, recv.len_bytes() + send.len_bytes(), 0).tried("map packet rings")?;
        filter::attach(&fd, options.interface_index, options.endpoint)?;
        // Nothing is received before this: there is no frame that the filter has not seen.
        raw::bind(&fd, options.interface_index, ETHERTYPE)?;
        Ok(Socket {
            fd,
            send: Ring::new(send, recv.len_bytes()),
            recv: Ring::new(recv, 0),
            rings,
            frame_bytes_max: options.frame_bytes_max,
            lent: false,
            in_use: 0,
            unsent: 0,
            fruitless: 0,
            refused_bytes: u32::MAX,
            reserved: None,
            stats: FrameStats::default(),
        })
    }

    /// Takes slots back whose frames have left.
    fn reap(&mut self) {
        while self.in_use > self.unsent {
            // Pairs with the kernel's write when a frame has left (or was skipped): its slot may be written again.
            let status = self.rings.word(self.send.back(self.in_use)).load(Ordering::Acquire);
            if status != libc::TP_STATUS_AVAILABLE {
                return;
            }
            self.in_use -= 1;
        }
    }

    /// Finds out which frames the kernel has taken.
    fn count_unsent(&mut self) {
        while self.unsent > 0 {
            let status = self.rings.word(self.send.back(self.unsent)).load(Ordering::Relaxed);
            if status == libc::TP_STATUS_SEND_REQUEST {
                return;
            }
            if self.refused_bytes != u32::MAX && self.oldest_unsent_bytes() >= self.refused_bytes {
                self.refused_bytes = u32::MAX;
            }
            self.unsent -= 1;
            self.stats.sent += 1;
        }
    }

    /// The length of the frame at the head of those that are unsent.
    fn oldest_unsent_bytes(&self) -> u32 {
        // SAFETY: the kernel never writes the length, and any four bytes are a number.
        unsafe { self.rings.read(self.send.back(self.unsent) + ring::LEN_OFFSET) }.unwrap_or(u32::MAX)
    }

    /// The kernel takes frames in order, and one that the interface refuses for ever (too long for who is behind it) stays
    /// at the head. Its payload is given up, as datagrams may be lost: its headers, which mean nothing alone, are let go.
    fn pass_refused(&mut self) {
        self.fruitless = 0;
        self.stats.refused += 1;
        // SAFETY: the kernel looks at the slot only while `sendto` runs, which takes `&mut self`.
        unsafe { self.rings.write(self.send.back(self.unsent) + ring::LEN_OFFSET, PAYLOAD_OFFSET as u32) };
    }

    /// Whether the frame at the head, which has just been refused, is one that never leaves. Then it has been given up.
    fn gives_up(&mut self, took_some: bool) -> bool {
        let len_bytes = self.oldest_unsent_bytes();
        self.fruitless = if took_some { 1 } else { self.fruitless + 1 };
        if len_bytes < self.refused_bytes {
            if self.fruitless < FRUITLESS_MAX || len_bytes <= PAYLOAD_OFFSET as u32 {
                return false;
            }
            self.refused_bytes = len_bytes;
        }
        self.pass_refused();
        true
    }

    /// Has the kernel send what is there.
    fn kick(&mut self) -> io::Result<()> {
        self.stats.kicks += 1;
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: no memory is passed: what is to be sent lies in the ring.
        let done =
            unsafe { libc::sendto(self.fd.as_raw_fd(), std::ptr::null(), 0, flags, std::ptr::null(), 0) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn recv_status(&self) -> u32 {
        // Pairs with the kernel's write after it has copied a frame into the slot.
        self.rings.word(self.recv.position()).load(Ordering::Acquire)
    }
}

impl FrameSocket for Socket {
    fn frame_bytes_max(&self) -> usize {
        self.frame_bytes_max
    }

    fn space(&mut self) -> usize {
        if self.in_use == self.send.slots() {
            self.reap();
        }
        self.send.slots() - self.in_use
    }

    #[inline]
    fn begin(&mut self, len_bytes: usize) -> Option<&mut [u8]> {
        if len_bytes > self.frame_bytes_max {
            return None;
        }
        if self.space() == 0 {
            self.stats.full += 1;
            return None;
        }
        self.reserved = Some(len_bytes);
        // SAFETY: the slot is not in use, so the kernel neither reads nor writes it until `commit` says so; `&mut self`
        // keeps it from being lent twice.
        unsafe { self.rings.bytes_mut(self.send.position() + SEND_OFFSET, len_bytes) }
    }

    #[inline]
    fn commit(&mut self, len_bytes: usize) {
        let Some(reserved) = self.reserved.take() else { return };
        let at = self.send.position();
        // SAFETY: the slot is ours until its status changes below.
        unsafe { self.rings.write(at + ring::LEN_OFFSET, len_bytes.min(reserved) as u32) };
        // Pairs with the kernel's look at the status: it sees the frame and its length.
        self.rings.word(at).store(libc::TP_STATUS_SEND_REQUEST, Ordering::Release);
        self.send.advance();
        self.in_use += 1;
        self.unsent += 1;
    }

    fn pending(&mut self) -> usize {
        self.unsent
    }

    fn flush(&mut self) -> io::Result<()> {
        for _ in 0..GIVEN_UP_MAX {
            if self.unsent == 0 {
                return Ok(());
            }
            let (outcome, before) = (self.kick(), self.unsent);
            self.count_unsent();
            let took_some = self.unsent != before;
            match outcome {
                Ok(()) => {
                    self.fruitless = 0;
                    return Ok(());
                }
                Err(error) => match error.raw_os_error() {
                    // No room in the card's queue, or too long for who is behind it.
                    Some(libc::ENOBUFS) if self.unsent > 0 && self.gives_up(took_some) => {}
                    // What is left goes with the next flush.
                    Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR) => return Ok(()),
                    _ => {
                        self.stats.refused += 1;
                        return Err(error);
                    }
                },
            }
        }
        Ok(())
    }

    #[inline]
    fn receive(&mut self) -> Option<&[u8]> {
        loop {
            self.release();
            if self.recv_status() & libc::TP_STATUS_USER == 0 {
                return None;
            }
            self.lent = true;
            self.stats.received += 1;
            if let Some((offset, len_bytes)) = ring::frame_in(&self.rings, &self.recv) {
                // SAFETY: the kernel does not write to a slot before `release` gives it back, which takes `&mut self`.
                return unsafe { self.rings.bytes(offset, len_bytes) };
            }
            self.stats.malformed += 1;
        }
    }

    #[inline]
    fn release(&mut self) {
        if std::mem::take(&mut self.lent) {
            // Pairs with the kernel's look at the status: we have read the frame.
            self.rings.word(self.recv.position()).store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.recv.advance();
        }
    }

    #[inline]
    fn ready(&self) -> bool {
        let next = if self.lent { self.recv.next() } else { self.recv.position() };
        self.rings.word(next).load(Ordering::Relaxed) & libc::TP_STATUS_USER != 0
    }

    fn receive_buffer_bytes(&self) -> usize {
        self.recv.slots() * self.frame_bytes_max
    }

    fn memory_bytes(&self) -> usize {
        self.rings.len_bytes()
    }

    fn stats(&mut self) -> FrameStats {
        // SAFETY: the kernel's answer is two words, and zeros are a valid start.
        let mut answer: libc::tpacket_stats = unsafe { std::mem::zeroed() };
        let mut len = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: writes at most `len` bytes to `answer`; both outlive the call.
        let done = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut answer).cast(),
                &raw mut len,
            )
        };
        if done == 0 {
            // Reading sets the kernel's counts to zero.
            self.stats.dropped += u64::from(answer.tp_drops);
        }
        self.stats
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Whether this process may open a [`Socket`] at all. `PermissionDenied`: it lacks CAP_NET_RAW.
pub fn probe() -> Result<()> {
    raw::packet_socket().map(drop)
}

fn set_packet(fd: &OwnedFd, option: libc::c_int, value: i32) -> io::Result<()> {
    let len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: reads one int, which outlives the call.
    let done =
        unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_PACKET, option, (&raw const value).cast(), len) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What is in the send ring counts against the socket's buffer, which would be full long before the ring.
pub(crate) fn size_send_buffer(fd: &OwnedFd, ring_bytes: usize) {
    let wanted = i32::try_from(ring_bytes).unwrap_or(i32::MAX / 2);
    let len = size_of::<i32>() as libc::socklen_t;
    for option in [libc::SO_SNDBUF, libc::SO_SNDBUFFORCE] {
        // SAFETY: reads one int, which outlives the call. The second needs CAP_NET_ADMIN: without, the first stands.
        unsafe {
            libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, option, (&raw const wanted).cast(), len)
        };
    }
}

fn set_ring(fd: &OwnedFd, option: libc::c_int, layout: &Layout, what: &'static str) -> Result<()> {
    let request = layout.request();
    let len = size_of::<libc::tpacket_req>() as libc::socklen_t;
    // SAFETY: reads one tpacket_req, which outlives the call.
    let done = unsafe {
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_PACKET, option, (&raw const request).cast(), len)
    };
    if done == 0 { Ok(()) } else { Err(SysError::last(what)) }
}
