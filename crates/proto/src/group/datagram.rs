//! One datagram to a group, byte for byte.

use crate::PeerFault;
use crate::limits::{DATAGRAM_BYTES_MAX, GROUP_HEADER_BYTES, VERSION};
use crate::wire::{Holds, Messages, check, types};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The group that a datagram is for, as it travels: address and port. A zone is left out, since it means something on one
/// machine only.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct GroupName {
    /// An IPv6 address, or an IPv4 address mapped into one.
    ip: [u8; 16],
    port: u16,
}

impl From<SocketAddr> for GroupName {
    fn from(addr: SocketAddr) -> GroupName {
        let ip = match addr.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        GroupName { ip: ip.octets(), port: addr.port() }
    }
}

impl std::fmt::Display for GroupName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.ip {
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] => {
                write!(f, "{}:{}", Ipv4Addr::new(a, b, c, d), self.port)
            }
            ip => write!(f, "[{}]:{}", std::net::Ipv6Addr::from(ip), self.port),
        }
    }
}

/// One datagram to a group, parsed. Everything has been checked but whether it is for this endpoint.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct GroupDatagram<'a> {
    //= wire.md R-MC-2
    /// The group it was sent to.
    pub group: GroupName,
    //= wire.md R-MC-3
    /// Its sender: 48 random bits of an endpoint, and a count of the times it began to number.
    pub sender: u64,
    //= wire.md R-MC-4
    /// The number that the sender gave this datagram, among all of its to this group.
    pub number: u64,
    /// The records, checked.
    body: &'a [u8],
}

impl<'a> GroupDatagram<'a> {
    /// Reads one datagram.
    ///
    /// # Errors
    /// What is wrong with it. The caller counts and drops it.
    pub fn parse(datagram: &'a [u8]) -> Result<GroupDatagram<'a>, PeerFault> {
        //= wire.md R-MC-1
        if datagram.len() > DATAGRAM_BYTES_MAX.into() || !datagram.len().is_multiple_of(8) {
            return Err(PeerFault::Length);
        }
        let Some((header, tail)) = datagram.split_first_chunk::<GROUP_HEADER_BYTES>() else {
            return Err(PeerFault::Short);
        };
        let [first, zero, w0, w1, p0, p1, z0, z1, numbers @ ..] = header;
        let (sender, numbers) = numbers.split_first_chunk::<8>().ok_or(PeerFault::Short)?;
        let (number, ip) = numbers.split_first_chunk::<8>().ok_or(PeerFault::Short)?;
        let ip = *ip.first_chunk::<16>().ok_or(PeerFault::Short)?;
        match (first >> 4, first & 15) {
            (VERSION, types::GROUP) => {}
            (VERSION, _) => return Err(PeerFault::Type),
            _ => return Err(PeerFault::Version),
        }
        if [*zero, *z0, *z1] != [0; 3] {
            return Err(PeerFault::Field);
        }
        let body_bytes = usize::from(u16::from_le_bytes([*w0, *w1])) * 8;
        let body = tail.get(..body_bytes).ok_or(PeerFault::Short)?;
        //= wire.md R-MC-5
        if !matches!(check(body)?, Holds::Messages(_)) {
            return Err(PeerFault::Record);
        }
        Ok(GroupDatagram {
            group: GroupName { ip, port: u16::from_le_bytes([*p0, *p1]) },
            sender: u64::from_le_bytes(*sender),
            number: u64::from_le_bytes(*number),
            body,
        })
    }

    /// Its messages, in the order they were sent.
    pub fn messages(&self) -> impl Iterator<Item = &'a [u8]> {
        Messages::from(self.body, 0).filter_map(|(message, _)| message)
    }
}

/// Writes the header of a datagram whose body, `body_bytes` long, follows it.
pub(super) fn write_header(
    out: &mut [u8; GROUP_HEADER_BYTES],
    body_bytes: usize,
    group: GroupName,
    sender: u64,
    number: u64,
) {
    //= wire.md R-MC-1
    let words = (body_bytes / 8) as u16;
    let parts: [&[u8]; 7] = [
        &[VERSION << 4 | types::GROUP, 0],
        &words.to_le_bytes(),
        &group.port.to_le_bytes(),
        &[0, 0],
        &sender.to_le_bytes(),
        &number.to_le_bytes(),
        &group.ip,
    ];
    for (to, from) in out.iter_mut().zip(parts.into_iter().flatten()) {
        *to = *from;
    }
}
