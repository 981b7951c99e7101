//! An AF_XDP socket: frames in memory shared with the kernel, and four rings.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use libc::{xdp_desc, xdp_mmap_offsets, xdp_statistics, xdp_umem_reg};
use rustix::io::Errno;
use rustix::net::SendFlags;

use super::refusal::Refusal;
use super::rights::RAW;
use super::ring::{Input, Output};
use crate::error::{Result, SysError, Tried};
use crate::ethernet::{FrameSocket, FrameStats, PAYLOAD_OFFSET};
use crate::mapped::Mapped;

mod umem;

use umem::{Areas, Layout};

/// The kernel keeps so many bytes free before each frame received (`XDP_PACKET_HEADROOM`).
const HEADROOM_BYTES: usize = 256;
const _: () = assert!((HEADROOM_BYTES + PAYLOAD_OFFSET).is_multiple_of(8));
/// After so many frames what was read and given back is published to the kernel, also in the middle of a batch.
const PUBLISH_FRAMES: u32 = 32;
/// So many frames the kernel sends for one call, where this cannot be set (`TX_BATCH_SIZE`).
const KICK_FRAMES: u32 = 32;
/// So much of a frame is fetched before the kernel's entry gives its address: all headers and a small message.
const EXPECTED_BYTES: usize = 192;
/// The frame goes on in the next entry.
const CONTINUES: u32 = libc::XDP_PKT_CONTD;
/// Since 6.17: how many frames the kernel sends for one call.
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;
/// How often, and how long after, is looked again when no queue is free.
const QUEUE_TRIES: u32 = 25;
const QUEUE_PAUSE: Duration = Duration::from_millis(2);
/// More queues than any interface has.
const QUEUES_MAX: u32 = 4_096;

/// What a [`Socket`] is opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Number of the interface ([`Link::index`](crate::ethernet::Link)).
    pub interface_index: u32,
    /// Longest frame, Ethernet header included: MTU and 14. Frames above 3,512 bytes lie in several areas, which takes
    /// Linux 6.6; before, the socket's own `frame_bytes_max` is less than this.
    pub frame_bytes_max: usize,
    /// Frames that the kernel can store for us.
    pub recv_frames: usize,
    /// Frames that can wait to be sent.
    pub send_frames: usize,
}

/// An AF_XDP socket on one queue of an interface: non-blocking, close-on-exec, gone with its process. Receives nothing
/// before it has a [`Attachment`](super::Attachment).
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    queue: u32,
    zero_copy: bool,
    layout: Layout,
    umem: Mapped,
    rx: Input<xdp_desc>,
    fill: Output<u64>,
    tx: Output<xdp_desc>,
    done: Input<u64>,
    areas: Areas,
    /// The area of the frame lent out.
    lent: Option<u64>,
    /// Frames since the rings were published last.
    untold: u32,
    /// Where the next frame will probably be.
    expected: usize,
    reserved: Option<usize>,
    committed: u64,
    stats: FrameStats,
}

impl Socket {
    /// Opens a socket on the first queue of the interface that has none; looks for one for some 50 ms, for queues become
    /// free late. Takes CAP_NET_RAW.
    pub fn open(options: &Options) -> std::result::Result<Socket, Refusal> {
        let whole = Layout::new(options.frame_bytes_max, options.recv_frames, options.send_frames);
        match Socket::make(options, whole) {
            // Kernels before 6.6 know no frames in several areas: then only what fits in one.
            Err(Refusal::System(error)) if whole.in_fragments() && error.errno() == Some(libc::EINVAL) => {
                Socket::make(options, whole.in_one_fragment())
            }
            other => other,
        }
    }

    fn make(options: &Options, layout: Layout) -> std::result::Result<Socket, Refusal> {
        let refuse = |error: SysError| match error.errno() {
            Some(libc::ENOBUFS | libc::ENOMEM) => Refusal::Locked { bytes: layout.umem_bytes() },
            _ => Refusal::from_error(error, &[RAW]),
        };
        let (fd, umem, offsets) = prepare(&layout).map_err(refuse)?;
        let rings = |fd: &OwnedFd| -> io::Result<_> {
            let (recv, send) = (layout.recv_entries(), layout.send_entries());
            Ok((
                Input::map(fd, libc::XDP_PGOFF_RX_RING as u64, offsets.rx, recv)?,
                Output::map(fd, libc::XDP_UMEM_PGOFF_FILL_RING, offsets.fr, 2 * recv)?,
                Output::map(fd, libc::XDP_PGOFF_TX_RING as u64, offsets.tx, 2 * send)?,
                Input::map(fd, libc::XDP_UMEM_PGOFF_COMPLETION_RING, offsets.cr, send)?,
            ))
        };
        let (rx, mut fill, tx, done) =
            rings(&fd).tried("map the rings of an AF_XDP socket").map_err(refuse)?;
        for area in 0..layout.recv_areas() {
            fill.push((area * layout.area_bytes()) as u64);
        }
        fill.publish();
        let queue = bind_patiently(&fd, options.interface_index, layout.in_fragments())?;
        Ok(Socket {
            queue,
            zero_copy: is_zero_copy(&fd),
            areas: Areas::new(&layout),
            layout,
            umem,
            rx,
            fill,
            tx,
            done,
            lent: None,
            untold: 0,
            expected: HEADROOM_BYTES,
            reserved: None,
            committed: 0,
            stats: FrameStats::default(),
            fd,
        })
    }

    /// Whether this process could [`open`](Socket::open) one, as far as shows without doing so.
    pub(super) fn probe(options: &Options) -> std::result::Result<(), Refusal> {
        xdp_socket().map_err(|error| Refusal::from_error(error, &[RAW]))?;
        let layout = Layout::new(options.frame_bytes_max, options.recv_frames, options.send_frames);
        let limit = crate::limits::read().locked_bytes;
        let short = limit.is_some_and(|limit| limit < layout.umem_bytes() as u64);
        if short && !super::rights::missing(&[super::rights::LOCK]).is_empty() {
            return Err(Refusal::Locked { bytes: layout.umem_bytes() });
        }
        Ok(())
    }

    /// The queue it is bound to.
    pub fn queue(&self) -> u32 {
        self.queue
    }

    /// Whether the card itself reads and writes the frames' memory. Otherwise the kernel copies.
    pub fn zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// Takes areas back whose frames have left.
    fn reap(&mut self) {
        while let Some(address) = self.done.peek(0) {
            self.done.skip(1);
            if !self.areas.sent(address) {
                self.stats.malformed += 1;
            }
        }
        self.done.publish();
    }

    fn give_back(&mut self) {
        if let Some(area) = self.lent.take() {
            self.fill.push(area);
        }
    }

    fn publish(&mut self) {
        self.untold = 0;
        self.rx.publish();
        self.fill.publish();
        // The kernel takes areas in the order in which it was given them. Only a guess: it may have dropped a frame.
        let area = self.fill.entry(self.rx.position()).unwrap_or(0);
        self.expected = area as usize + HEADROOM_BYTES;
    }

    /// A frame that lies in several areas: copied together, for the reader wants it contiguous. Its length; `Err`:
    /// it was skipped. `None`: its end has not come.
    fn gather(&mut self) -> Option<std::result::Result<usize, ()>> {
        let mut count = 0;
        while self.rx.peek(count)?.options & CONTINUES != 0 {
            count += 1;
        }
        let (to, space) = self.layout.scratch();
        let mut len = 0;
        let mut whole = true;
        for _ in 0..=count {
            let fragment = self.rx.peek(0)?;
            self.rx.skip(1);
            let bytes = fragment.len as usize;
            let Some(offset) = self.layout.received(fragment.addr, bytes) else {
                whole = false;
                continue;
            };
            if bytes > space - len {
                whole = false;
            }
            if whole {
                // SAFETY: the fragment is ours until it is pushed below, and the scratch area is ours alone.
                let (from, into) =
                    unsafe { (self.umem.bytes(offset, bytes), self.umem.bytes_mut(to + len, bytes)) };
                if let (Some(from), Some(into)) = (from, into) {
                    into.copy_from_slice(from);
                }
                len += bytes;
            }
            self.fill.push(self.layout.area_of(fragment.addr));
        }
        Some(if whole { Ok(len) } else { Err(()) })
    }

    /// Tells the kernel to send. True: it may send more if asked again at once.
    fn kick(&mut self) -> io::Result<bool> {
        self.stats.kicks += 1;
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        // What is to be sent lies in the ring. Not the C library's call, which makes the thread cancellable meanwhile.
        match rustix::net::send(&self.fd, &[], flags) {
            Ok(_) => Ok(false),
            // The kernel has sent as many as it does in one call, or it has no space.
            Err(Errno::AGAIN | Errno::INTR) => Ok(true),
            Err(Errno::BUSY | Errno::NOBUFS) => Ok(false),
            Err(error) => {
                self.stats.refused += 1;
                Err(error.into())
            }
        }
    }
}

impl FrameSocket for Socket {
    fn frame_bytes_max(&self) -> usize {
        self.layout.frame_bytes_max()
    }

    fn space(&mut self) -> usize {
        if self.areas.free() == 0 {
            self.reap();
        }
        self.areas.free()
    }

    #[inline]
    fn begin(&mut self, len_bytes: usize) -> Option<&mut [u8]> {
        if len_bytes > self.layout.frame_bytes_max() {
            return None;
        }
        if self.space() == 0 {
            self.stats.full += 1;
            return None;
        }
        let offset = self.areas.next()?;
        self.reserved = Some(len_bytes);
        // SAFETY: the area is free: the kernel does not read it until `commit` has put it into the ring; `&mut self`
        // keeps it from being lent twice.
        unsafe { self.umem.bytes_mut(offset, len_bytes) }
    }

    #[inline]
    fn commit(&mut self, len_bytes: usize) {
        let Some(reserved) = self.reserved.take() else { return };
        let Some((offset, slot)) = self.areas.take() else { return };
        let (area, mut remaining) = (self.layout.area_bytes(), len_bytes.min(reserved));
        let (mut addr, mut fragments) = (offset as u64, 0);
        loop {
            let len = remaining.min(area);
            remaining -= len;
            fragments += 1;
            let options = if remaining > 0 { CONTINUES } else { 0 };
            // There is space: the ring has two entries for each area.
            self.tx.push(xdp_desc { addr, len: len as u32, options });
            if remaining == 0 {
                break;
            }
            addr += area as u64;
        }
        self.areas.expect(slot, fragments);
        self.committed += 1;
    }

    fn pending(&mut self) -> usize {
        (self.tx.unread() as usize).div_ceil(self.layout.fragments_sent())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.tx.publish();
        // Counted in calls: before 6.6 the kernel does not show each time how far it has come.
        for _ in 0..=self.tx.unread() / KICK_FRAMES {
            if self.tx.unread() == 0 || !self.tx.needs_wakeup() || !self.kick()? {
                break;
            }
        }
        // Now, when nobody waits for us: the next frame is then written where the last one was, which is in the cache.
        self.reap();
        Ok(())
    }

    #[inline]
    fn receive(&mut self) -> Option<&[u8]> {
        self.give_back();
        loop {
            let Some(entry) = self.rx.peek(0) else {
                self.publish();
                return None;
            };
            self.untold += 1;
            if self.untold >= PUBLISH_FRAMES {
                self.publish();
            }
            if entry.options & CONTINUES != 0 {
                match self.gather() {
                    None => {
                        self.publish();
                        return None;
                    }
                    Some(Err(())) => self.stats.malformed += 1,
                    Some(Ok(len)) => {
                        self.stats.received += 1;
                        // SAFETY: the scratch area is ours alone, and `&mut self` is taken before it changes again.
                        return unsafe { self.umem.bytes(self.layout.scratch().0, len) };
                    }
                }
                continue;
            }
            self.rx.skip(1);
            let Some(offset) = self.layout.received(entry.addr, entry.len as usize) else {
                self.stats.malformed += 1;
                continue;
            };
            self.lent = Some(self.layout.area_of(entry.addr));
            self.stats.received += 1;
            // SAFETY: the kernel does not write to an area before it is in the fill ring again, which takes `&mut self`.
            return unsafe { self.umem.bytes(offset, entry.len as usize) };
        }
    }

    #[inline]
    fn release(&mut self) {
        self.give_back();
        if self.untold == 0 {
            return;
        }
        self.publish();
        if self.zero_copy && self.fill.needs_wakeup() {
            // SAFETY: no memory is passed: this shows the driver that there are areas again.
            unsafe {
                libc::recvfrom(
                    self.fd.as_raw_fd(),
                    std::ptr::null_mut(),
                    0,
                    libc::MSG_DONTWAIT,
                    std::ptr::null_mut(),
                    std::ptr::null_mut(),
                )
            };
        }
    }

    #[inline]
    fn ready(&self) -> bool {
        let ready = self.rx.ready();
        if ready {
            // Entry and frame come from another processor's cache, one after the other if they wait for each other.
            self.rx.prefetch();
            self.umem.prefetch(self.expected, EXPECTED_BYTES);
        }
        ready
    }

    fn receive_buffer_bytes(&self) -> usize {
        self.layout.receive_buffer_bytes()
    }

    fn memory_bytes(&self) -> usize {
        let rings = self.rx.memory_bytes() + self.fill.memory_bytes() + self.tx.memory_bytes();
        self.umem.len_bytes() + rings + self.done.memory_bytes() + self.areas.memory_bytes()
    }

    fn stats(&mut self) -> FrameStats {
        let mut stats = self.stats;
        stats.sent = self.committed.saturating_sub(self.pending() as u64);
        if let Ok(kernel) = ask::<xdp_statistics>(&self.fd, libc::XDP_STATISTICS) {
            stats.dropped += kernel.rx_dropped + kernel.rx_ring_full;
            stats.refused += kernel.tx_invalid_descs;
            stats.malformed += kernel.rx_invalid_descs;
        }
        stats
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn xdp_socket() -> Result<OwnedFd> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::XDP, SocketType::RAW, flags, None).tried("make an AF_XDP socket")
}

/// A socket with memory and rings, not bound yet.
fn prepare(layout: &Layout) -> Result<(OwnedFd, Mapped, xdp_mmap_offsets)> {
    let fd = xdp_socket()?;
    let umem = Mapped::anonymous(layout.umem_bytes()).tried("make memory for frames")?;
    let area = xdp_umem_reg {
        addr: umem.as_ptr().as_ptr() as usize as u64,
        len: umem.len_bytes() as u64,
        chunk_size: layout.area_bytes() as u32,
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    set(&fd, libc::XDP_UMEM_REG, &area, "share memory with the kernel (XDP_UMEM_REG)")?;
    for (ring, entries) in [
        // Twice as many as there are areas: the kernel gives areas back before it shows that it has read their entries,
        // and may hold back as many as it found when it looked last.
        (libc::XDP_UMEM_FILL_RING, 2 * layout.recv_entries()),
        (libc::XDP_UMEM_COMPLETION_RING, layout.send_entries()),
        (libc::XDP_RX_RING, layout.recv_entries()),
        (libc::XDP_TX_RING, 2 * layout.send_entries()),
    ] {
        set(&fd, ring, &entries, "make a ring of an AF_XDP socket")?;
    }
    // Older kernels send 32 a call; the flush asks again.
    let _ = set(&fd, XDP_MAX_TX_SKB_BUDGET, &layout.send_entries().max(KICK_FRAMES), "send more a call");
    crate::packet::size_send_buffer(&fd, layout.umem_bytes());
    let offsets = ask::<xdp_mmap_offsets>(&fd, libc::XDP_MMAP_OFFSETS).tried("ask for the rings' layout")?;
    Ok((fd, umem, offsets))
}

/// The kernel frees the queue of a socket that was closed some milliseconds later.
fn bind_patiently(fd: &OwnedFd, interface_index: u32, fragments: bool) -> std::result::Result<u32, Refusal> {
    for _ in 0..QUEUE_TRIES {
        match bind_to_free_queue(fd, interface_index, fragments) {
            Err(Refusal::NoQueue { .. }) => std::thread::sleep(QUEUE_PAUSE),
            other => return other,
        }
    }
    bind_to_free_queue(fd, interface_index, fragments)
}

fn bind_to_free_queue(
    fd: &OwnedFd,
    interface_index: u32,
    fragments: bool,
) -> std::result::Result<u32, Refusal> {
    let sg = if fragments { libc::XDP_USE_SG } else { 0 };
    for queue in 0..QUEUES_MAX {
        let to = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            // Without XDP_COPY or XDP_ZEROCOPY the kernel takes the better one that the driver offers.
            sxdp_flags: libc::XDP_USE_NEED_WAKEUP | sg,
            sxdp_ifindex: interface_index,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        };
        let len = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
        // SAFETY: reads `len` bytes of `to`, which outlives the call.
        let done = unsafe { libc::bind(fd.as_raw_fd(), (&raw const to).cast(), len) };
        if done == 0 {
            return Ok(queue);
        }
        let error = SysError::last("bind an AF_XDP socket to a queue").on(format_args!("queue {queue}"));
        match error.errno() {
            Some(libc::EBUSY) => {}
            // Past the last queue.
            Some(libc::EINVAL) if queue > 0 => return Err(Refusal::NoQueue { queues: queue }),
            _ => return Err(Refusal::from_error(error, &[RAW])),
        }
    }
    Err(Refusal::NoQueue { queues: QUEUES_MAX })
}

fn is_zero_copy(fd: &OwnedFd) -> bool {
    ask::<libc::xdp_options>(fd, libc::XDP_OPTIONS)
        .is_ok_and(|options| options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
}

fn set<T>(fd: &OwnedFd, option: libc::c_int, value: &T, what: &'static str) -> Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: reads one `T`, which outlives the call.
    let done =
        unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_XDP, option, (&raw const *value).cast(), len) };
    if done == 0 { Ok(()) } else { Err(SysError::last(what)) }
}

/// Asks for a structure of plain numbers.
fn ask<T>(fd: &OwnedFd, option: libc::c_int) -> io::Result<T> {
    let mut answer = std::mem::MaybeUninit::<T>::zeroed();
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: writes at most `len` bytes to `answer`; both outlive the call.
    let done = unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_XDP, option, answer.as_mut_ptr().cast(), &raw mut len)
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: every `T` asked for is numbers, of which any bytes are valid, zeros included.
    Ok(unsafe { answer.assume_init() })
}
