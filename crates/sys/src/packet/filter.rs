//! What the kernel drops before it costs us anything: a classic BPF program on the socket.

use std::os::fd::OwnedFd;

use crate::error::Result;
use crate::ethernet::{ETHERNET_BYTES, PAYLOAD_OFFSET, TO_ENDPOINT_OFFSET, VERSION, raw};

/// Extensions of the kernel's classic BPF (linux/filter.h): loads at these addresses read facts about the packet.
const AD_OFF: i32 = -0x1000;
const AD_PKTTYPE: i32 = AD_OFF + 4;
const AD_IFINDEX: i32 = AD_OFF + 8;
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

const OPS: usize = 14;
const DROP_AT: u8 = OPS as u8 - 1;

/// Takes frames addressed to this very interface (not overheard, not broadcast, and not to a virtual interface on top of it: the
/// kernel shows those here too), without the tag of a virtual LAN, with our header's version, for `endpoint`.
//= wire.md R-ETH-6
const fn program(interface_index: u32, endpoint: u32) -> [libc::sock_filter; OPS] {
    [
        op(LOAD_LEN, 0),
        or_drop(AT_LEAST, PAYLOAD_OFFSET as u32, 1),
        op(LOAD_WORD, AD_PKTTYPE as u32),
        or_drop(EQUAL, libc::PACKET_HOST as u32, 3),
        // Where there is an interface for a virtual LAN, the kernel has taken the tag off and moved the frame there.
        op(LOAD_WORD, AD_IFINDEX as u32),
        or_drop(EQUAL, interface_index, 5),
        op(LOAD_WORD, AD_VLAN_TAG_PRESENT as u32),
        or_drop(EQUAL, 0, 7),
        op(LOAD_HALF, ETHERNET_BYTES as u32),
        or_drop(EQUAL, (VERSION as u32) << 8, 9),
        // The load reads big-endian, and the field is little-endian.
        op(LOAD_WORD, TO_ENDPOINT_OFFSET as u32),
        or_drop(EQUAL, endpoint.swap_bytes(), 11),
        op(RETURN, u32::MAX),
        op(RETURN, 0),
    ]
}

/// Makes `fd` receive frames for `endpoint` on that interface only.
pub(super) fn attach(fd: &OwnedFd, interface_index: u32, endpoint: u32) -> Result<()> {
    raw::filter(fd, &mut program(interface_index, endpoint))
}
