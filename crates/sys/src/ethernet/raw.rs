//! A packet socket (AF_PACKET) before there are rings: opened, filtered, bound.

use std::os::fd::{AsRawFd, OwnedFd};

use crate::error::{Result, SysError, Tried};

/// Opens one that receives nothing yet. `EPERM`: the process lacks CAP_NET_RAW in the network namespace's user namespace.
pub(crate) fn packet_socket() -> Result<OwnedFd> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None).tried("make a packet socket (AF_PACKET)")
}

/// Has the kernel drop what the filter returns 0 for.
pub(crate) fn filter(fd: &OwnedFd, ops: &mut [libc::sock_filter]) -> Result<()> {
    let len = u16::try_from(ops.len()).unwrap_or(0);
    let filter = libc::sock_fprog { len, filter: ops.as_mut_ptr() };
    let len = size_of::<libc::sock_fprog>() as libc::socklen_t;
    // SAFETY: reads one sock_fprog and the operations it points to, both of which outlive the call.
    let done = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const filter).cast(),
            len,
        )
    };
    if done == 0 { Ok(()) } else { Err(SysError::last("filter frames (SO_ATTACH_FILTER)")) }
}

/// From now on frames with that ethertype are received, of that interface; 0: of all.
pub(crate) fn bind(fd: &OwnedFd, interface_index: u32, ethertype: u16) -> Result<()> {
    // SAFETY: zeros are a valid sockaddr_ll.
    let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    to.sll_family = libc::AF_PACKET as u16;
    to.sll_protocol = ethertype.to_be();
    to.sll_ifindex = i32::try_from(interface_index).unwrap_or(-1);
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: reads `len` bytes of `to`, which outlives the call.
    let done = unsafe { libc::bind(fd.as_raw_fd(), (&raw const to).cast(), len) };
    if done == 0 { Ok(()) } else { Err(SysError::last("bind a packet socket to an interface")) }
}
