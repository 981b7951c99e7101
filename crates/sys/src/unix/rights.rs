//! Whether a UNIX socket takes descriptors at all.
//!
//! A descriptor that nobody wants must be closed, and closing one may block for as long as its sender likes: a TCP socket that lingers, a file of a
//! file system that hangs. The kernel closes those of messages that are never read, in the thread that closes the socket. So a
//! socket whose peer is not known yet takes none: the sender's call fails (`SO_PASSRIGHTS`, Linux 6.16).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// From `asm-generic/socket.h`; not in the libc crate yet.
const SO_PASSRIGHTS: libc::c_int = 83;

/// Says whether descriptors may come by this socket, and by those that it accepts from now on. False: the kernel is older, and they may come.
pub(super) fn take_descriptors(fd: &OwnedFd, yes: bool) -> bool {
    let value = libc::c_int::from(yes);
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: reads one int, which outlives the call.
    let done = unsafe {
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, SO_PASSRIGHTS, (&raw const value).cast(), len)
    };
    debug_assert!(
        done == 0 || io::Error::last_os_error().raw_os_error() == Some(libc::ENOPROTOOPT),
        "{}",
        io::Error::last_os_error()
    );
    done == 0
}
