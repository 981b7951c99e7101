//! Which XDP program is on an interface, as routing netlink reports it to everybody.

use std::io;
use std::os::fd::OwnedFd;

use crate::error::{Result, SysError, Tried};
use cci_memory::fallible;
use rustix::io::Errno;

/// An attached program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attached {
    /// Its number in the kernel.
    pub program_id: u32,
    /// It runs in the driver (or the card), not behind it.
    pub native: bool,
}

const WHAT: &str = "ask for the XDP program of an interface (netlink)";

/// `struct nlmsghdr` and `struct ifinfomsg`, 16 bytes each.
const HEADERS_BYTES: usize = 32;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_PROG_ID: u16 = 4;
/// Values of `IFLA_XDP_ATTACHED`.
const ATTACHED_NONE: u8 = 0;
const ATTACHED_GENERIC: u8 = 2;

/// The program on that interface, if there is one. `ENODEV`.
pub(super) fn attached(interface_index: u32) -> Result<Option<Attached>> {
    use rustix::net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
    };
    // No protocol number: NETLINK_ROUTE is 0.
    let fd: OwnedFd =
        socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None).tried(WHAT)?;
    let request = request(interface_index);
    // A socket that is connected to nobody talks to the kernel.
    send(&fd, &request, SendFlags::empty()).tried(WHAT)?;
    // The kernel answers before `send` returns, so this does not block; an interface takes some 2 KiB.
    let mut answer = fallible::zeroed(64 << 10).ok_or(Errno::NOMEM).tried(WHAT)?;
    let (len, _) = recv(&fd, &mut answer[..], RecvFlags::DONTWAIT).tried(WHAT)?;
    parse(answer.get(..len).unwrap_or_default()).map_err(|error| SysError::new(WHAT, error))
}

fn request(interface_index: u32) -> [u8; HEADERS_BYTES] {
    let mut bytes = [0; HEADERS_BYTES];
    let fields: [(usize, &[u8]); 4] = [
        (0, &(HEADERS_BYTES as u32).to_ne_bytes()),
        (4, &libc::RTM_GETLINK.to_ne_bytes()),
        (6, &(libc::NLM_F_REQUEST as u16).to_ne_bytes()),
        (20, &interface_index.to_ne_bytes()),
    ];
    for (at, field) in fields {
        bytes[at..at + field.len()].copy_from_slice(field);
    }
    bytes
}

fn parse(answer: &[u8]) -> io::Result<Option<Attached>> {
    let bad = || io::Error::new(io::ErrorKind::InvalidData, "netlink's answer makes no sense");
    let (head, remainder) = answer.split_first_chunk::<HEADERS_BYTES>().ok_or_else(bad)?;
    let kind = u16::from_ne_bytes([head[4], head[5]]);
    if i32::from(kind) == libc::NLMSG_ERROR {
        let errno = i32::from_ne_bytes([head[16], head[17], head[18], head[19]]);
        return Err(io::Error::from_raw_os_error(errno.saturating_neg()));
    }
    if kind != libc::RTM_NEWLINK {
        return Err(bad());
    }
    let Some((_, xdp)) = attributes(remainder).find(|(kind, _)| *kind == IFLA_XDP) else { return Ok(None) };
    let (mut how, mut program_id) = (ATTACHED_NONE, 0);
    for (kind, value) in attributes(xdp) {
        match (kind, value) {
            (IFLA_XDP_ATTACHED, &[value, ..]) => how = value,
            (IFLA_XDP_PROG_ID, &[a, b, c, d, ..]) => program_id = u32::from_ne_bytes([a, b, c, d]),
            _ => {}
        }
    }
    Ok((how != ATTACHED_NONE).then_some(Attached { program_id, native: how != ATTACHED_GENERIC }))
}

/// The attributes one after the other: kind and value.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let &[l0, l1, k0, k1, ..] = bytes else { return None };
        let len = usize::from(u16::from_ne_bytes([l0, l1]));
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        // The high bits say that the value is nested or in network order.
        Some((u16::from_ne_bytes([k0, k1]) & 0x3fff, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_none_and_what_is_not_there_is_told() {
        attached(1).unwrap();
        let gone = attached(1 << 30).unwrap_err();
        assert_eq!(gone.errno(), Some(libc::ENODEV), "{gone}");
    }

    #[test]
    fn answers_are_read_and_cut_ones_refused_quietly() {
        let attribute = |kind: u16, value: &[u8]| {
            let mut bytes = [((4 + value.len()) as u16).to_ne_bytes(), kind.to_ne_bytes()].concat();
            bytes.extend(value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let inner =
            [attribute(IFLA_XDP_ATTACHED, &[2]), attribute(IFLA_XDP_PROG_ID, &77u32.to_ne_bytes())].concat();
        let mut answer = request(1).to_vec();
        answer[4..6].copy_from_slice(&libc::RTM_NEWLINK.to_ne_bytes());
        answer.extend(attribute(3, b"veth0\0"));
        answer.extend(attribute(IFLA_XDP | 0x8000, &inner));
        assert_eq!(parse(&answer).unwrap(), Some(Attached { program_id: 77, native: false }));
        for len in 0..answer.len() {
            let cut = parse(&answer[..len]);
            assert!(!matches!(cut, Ok(Some(found)) if found.program_id == 77), "{len}");
        }
    }
}
