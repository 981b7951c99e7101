//! What the kernel drops before it costs us anything: a classic BPF program on the socket.

use std::os::fd::{AsRawFd, BorrowedFd};

use crate::error::{Result, SysError};
use crate::ethernet::{ETHERNET_BYTES, PAYLOAD_OFFSET, TO_ENDPOINT_OFFSET, VERSION};

/// Extensions of the kernel's classic BPF (linux/filter.h): loads at these addresses read facts about the packet.
const AD_OFF: i32 = -0x1000;
const AD_PKTTYPE: i32 = AD_OFF + 4;
const AD_VLAN_TAG_PRESENT: i32 = AD_OFF + 48;

const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const LOAD_HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
const LOAD_LEN: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_LEN) as u16;
const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

const fn op(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: 0, jf: 0, k }
}

/// A test at position `at`: goes on if it holds, else to the last operation but one, which drops.
const fn or_drop(code: u16, k: u32, at: u8) -> libc::sock_filter {
    libc::sock_filter { code, jt: 0, jf: DROP_AT - at - 1, k }
}

const OPS: usize = 12;
const DROP_AT: u8 = OPS as u8 - 1;

/// Takes frames addressed to this machine's interface (not overheard, not broadcast), without a VLAN tag, with our
/// header's version, for `endpoint`.
const fn program(endpoint: u32) -> [libc::sock_filter; OPS] {
    [
        op(LOAD_LEN, 0),
        or_drop(AT_LEAST, PAYLOAD_OFFSET as u32, 1),
        op(LOAD_WORD, AD_PKTTYPE as u32),
        or_drop(EQUAL, libc::PACKET_HOST as u32, 3),
        op(LOAD_WORD, AD_VLAN_TAG_PRESENT as u32),
        or_drop(EQUAL, 0, 5),
        op(LOAD_HALF, ETHERNET_BYTES as u32),
        or_drop(EQUAL, (VERSION as u32) << 8, 7),
        // The load reads big-endian, and the field is little-endian.
        op(LOAD_WORD, TO_ENDPOINT_OFFSET as u32),
        or_drop(EQUAL, endpoint.swap_bytes(), 9),
        op(RETURN, u32::MAX),
        op(RETURN, 0),
    ]
}

/// Makes `fd` receive frames for `endpoint` only.
pub(super) fn attach(fd: BorrowedFd<'_>, endpoint: u32) -> Result<()> {
    let mut ops = program(endpoint);
    let filter = libc::sock_fprog { len: OPS as u16, filter: ops.as_mut_ptr() };
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
