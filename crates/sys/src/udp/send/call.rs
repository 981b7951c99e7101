//! The ways to give datagrams to the kernel.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::net::SendFlags;

use super::ENTRIES_MAX;
use crate::net::addr::RawAddr;
use crate::udp::cmsg::SegmentControl;

const FLAGS: libc::c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

/// Up to here a call uses a short array of headers.
const FEW: usize = 8;

/// One thing to send: a datagram, or several to be split from one buffer (`len` above `segment_len`).
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    pub(super) addr: &'a RawAddr,
    pub(super) start: usize,
    pub(super) len: usize,
    pub(super) segment_len: usize,
}

/// Gives the kernel the first of `entries`, with one system call; how many it took (at least one).
/// `count` is how many entries there are: few need fewer headers.
#[inline]
pub(super) fn send_entries<'a>(
    fd: BorrowedFd<'_>,
    arena: &[u8],
    mut entries: impl Iterator<Item = Entry<'a>>,
    count: usize,
) -> io::Result<usize> {
    let Some(first) = entries.next() else { return Ok(0) };
    match entries.next() {
        // The most frequent case by far where latency counts.
        None if first.len <= first.segment_len => send_plain(fd, arena, first),
        None => send_all::<1>(fd, arena, [first].into_iter()),
        Some(second) if count <= FEW => {
            send_all::<FEW>(fd, arena, [first, second].into_iter().chain(entries))
        }
        Some(second) => send_all::<ENTRIES_MAX>(fd, arena, [first, second].into_iter().chain(entries)),
    }
}

/// Gives one datagram to a connected socket.
#[inline]
pub(super) fn send_connected(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
    // No cancellation point, as the C library's call would be, which costs programs with several threads.
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::net::send(fd, bytes, flags).map(drop).map_err(io::Error::from)
}

fn send_plain(fd: BorrowedFd<'_>, arena: &[u8], entry: Entry<'_>) -> io::Result<usize> {
    let bytes = bytes_of(arena, &entry)?;
    // SAFETY: `bytes` and the address are borrowed for longer than the call, and given with their true lengths.
    let sent = unsafe {
        let (data, addr) = (bytes.as_ptr().cast(), entry.addr.as_ptr().cast());
        libc::sendto(fd.as_raw_fd(), data, bytes.len(), FLAGS, addr, entry.addr.len())
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(1) }
}

fn send_all<'a, const N: usize>(
    fd: BorrowedFd<'_>,
    arena: &[u8],
    entries: impl Iterator<Item = Entry<'a>>,
) -> io::Result<usize> {
    // SAFETY: an mmsghdr of zeros has no buffers at all, which is valid.
    let mut headers = [const { unsafe { std::mem::zeroed::<libc::mmsghdr>() } }; N];
    let mut vectors = [const { libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 } }; N];
    let mut controls = [SegmentControl::new(0); N];
    let mut count: libc::c_uint = 0;
    let slots = headers.iter_mut().zip(&mut vectors).zip(&mut controls);
    for (entry, ((header, vector), control)) in entries.zip(slots) {
        let bytes = bytes_of(arena, &entry)?;
        *vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let header = &mut header.msg_hdr;
        header.msg_name = entry.addr.as_ptr().cast_mut().cast();
        header.msg_namelen = entry.addr.len();
        header.msg_iov = vector;
        header.msg_iovlen = 1;
        if entry.len > entry.segment_len {
            // A datagram is at most 65,507 bytes long.
            *control = SegmentControl::new(entry.segment_len as u16);
            header.msg_control = control.0.as_mut_ptr().cast();
            header.msg_controllen = control.0.len() as _;
        }
        count += 1;
    }
    // SAFETY: the first `count` headers point to bytes, addresses, vectors and control messages that outlive the
    // call, with their true lengths; the kernel only reads them, and writes the headers' own msg_len.
    let sent = unsafe {
        match headers.first() {
            Some(only) if count == 1 => {
                libc::sendmsg(fd.as_raw_fd(), &only.msg_hdr, FLAGS).min(1) as libc::c_int
            }
            _ => libc::sendmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), count, FLAGS as _),
        }
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// The entry's bytes. They are always there; an error rather than a panic should we have miscounted.
fn bytes_of<'a>(arena: &'a [u8], entry: &Entry<'_>) -> io::Result<&'a [u8]> {
    arena.get(entry.start..entry.start + entry.len).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}
