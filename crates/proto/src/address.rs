//! Where datagrams go.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Where a datagram goes or came from: opaque to the protocol, which only compares it and feeds it to the
/// cookie's MAC.
///
/// An address says by `via` which of the endpoint's own sockets leads there, and whether what goes there is sealed by the
/// carrier ([`Address::is_secured`]). Both are part of what makes two addresses equal: a connection made sealed is never
/// spoken to in the clear.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    kind: Kind,
    /// The socket, and [`SECURED`].
    via: u8,
    port: u16,
    /// An IPv4 address, an IPv6 address, or an interface and the number of an endpoint behind it. What follows is 0. An IPv6 address
    /// that is good on one link only has that link's number (its scope id) in [`SCOPE`], where such addresses have zeros
    /// (RFC 4291, 2.5.6).
    bytes: [u8; 16],
}

/// Which of the bytes of a link-local IPv6 address hold the number of the link.
const SCOPE: std::ops::Range<usize> = 4..8;
/// Whether an IPv6 address is good on one link only, and means nothing without that link's number.
fn is_link_local(bytes: &[u8; 16]) -> bool {
    bytes[0] == 0xfe && bytes[1] & 0xc0 == 0x80
}

/// Which of the bytes of an Ethernet address hold the number of the endpoint.
const ENDPOINT: std::ops::Range<usize> = 6..10;

/// In `via`: the carrier seals what goes there, and has opened what came from there.
const SECURED: u8 = 1 << 7;

#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
enum Kind {
    V4 = 4,
    V6 = 6,
    Ethernet = 1,
}

const _: () =
    assert!(size_of::<Address>() == 20, "an idle connection is 88 bytes, 20 of them the peer's address");

impl From<SocketAddr> for Address {
    fn from(addr: SocketAddr) -> Address {
        match addr {
            SocketAddr::V4(v4) => {
                let mut bytes = [0; 16];
                let [a, b, c, d] = v4.ip().octets();
                bytes[..4].copy_from_slice(&[a, b, c, d]);
                Address { kind: Kind::V4, via: 0, port: v4.port(), bytes }
            }
            SocketAddr::V6(v6) => {
                let mut bytes = v6.ip().octets();
                if is_link_local(&bytes) {
                    bytes[SCOPE].copy_from_slice(&v6.scope_id().to_be_bytes());
                }
                Address { kind: Kind::V6, via: 0, port: v6.port(), bytes }
            }
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.socket_addr(), self.ethernet_addr()) {
            (Some(addr), _) => addr.fmt(f),
            (None, Some(([a, b, c, d, e, g], endpoint))) => {
                write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}/{endpoint}")
            }
            (None, None) => Ok(()),
        }
    }
}

impl Address {
    /// Endpoint number `endpoint` behind an Ethernet interface.
    #[must_use]
    pub fn ethernet(mac: [u8; 6], endpoint: u32) -> Address {
        let nowhere = Address::from(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0));
        let mut bytes = [0; 16];
        let (to, _) = bytes.split_at_mut(mac.len());
        to.copy_from_slice(&mac);
        bytes[ENDPOINT].copy_from_slice(&endpoint.to_be_bytes());
        Address { kind: Kind::Ethernet, bytes, ..nowhere }
    }

    /// The interface and the endpoint this stands for; `None` if it is of another kind.
    #[must_use]
    pub fn ethernet_addr(&self) -> Option<([u8; 6], u32)> {
        let [a, b, c, d, e, f, endpoint @ ..] = self.bytes;
        let [g, h, i, j, ..] = endpoint;
        (self.kind == Kind::Ethernet).then_some(([a, b, c, d, e, f], u32::from_be_bytes([g, h, i, j])))
    }

    /// This address, reached from (or heard by) another of the endpoint's own sockets: 0 is its first, 127 the last
    /// there can be.
    #[must_use]
    pub fn with_via(self, via: u8) -> Address {
        Address { via: self.via & SECURED | via & !SECURED, ..self }
    }

    /// Which of the endpoint's own sockets leads there, or heard from there.
    #[must_use]
    pub fn via(&self) -> u8 {
        self.via & !SECURED
    }

    /// This address, spoken to by a carrier that seals, or in the clear.
    #[must_use]
    pub fn with_secured(self, secured: bool) -> Address {
        Address { via: self.via & !SECURED | if secured { SECURED } else { 0 }, ..self }
    }

    /// Whether the carrier seals what goes there, and has authenticated what came from there.
    #[must_use]
    pub fn is_secured(&self) -> bool {
        self.via & SECURED != 0
    }

    /// The host alone: an IPv4 address, the network of an IPv6 address (any of a /64 may be one host's), an interface.
    #[must_use]
    pub fn host(&self) -> Address {
        let mut bytes = self.bytes;
        match self.kind {
            Kind::V4 => {}
            Kind::V6 => bytes[8..].fill(0),
            Kind::Ethernet => bytes[ENDPOINT].fill(0),
        }
        Address { kind: self.kind, via: 0, port: 0, bytes }
    }

    /// The socket address this stands for; `None` if it is of another kind (raw Ethernet).
    #[must_use]
    pub fn socket_addr(&self) -> Option<SocketAddr> {
        match self.kind {
            Kind::V4 => {
                let [a, b, c, d, ..] = self.bytes;
                Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(a, b, c, d)), self.port))
            }
            Kind::V6 => {
                let (mut bytes, mut scope_id) = (self.bytes, 0);
                if is_link_local(&bytes) {
                    let [_, _, _, _, a, b, c, d, ..] = bytes;
                    scope_id = u32::from_be_bytes([a, b, c, d]);
                    bytes[SCOPE].fill(0);
                }
                Some(SocketAddrV6::new(Ipv6Addr::from(bytes), self.port, 0, scope_id).into())
            }
            Kind::Ethernet => None,
        }
    }

    /// Every bit that tells this address from another, for the cookie's MAC.
    pub(crate) fn mac_bytes(&self) -> [u8; 20] {
        let mut out = [0; 20];
        out[0] = self.kind as u8;
        out[1] = self.via;
        out[2..4].copy_from_slice(&self.port.to_le_bytes());
        out[4..].copy_from_slice(&self.bytes);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_addresses_survive() {
        for text in ["127.0.0.1:9", "[::1]:65535", "[fe80::1%3]:5", "10.1.2.3:0"] {
            let addr: SocketAddr = text.parse().unwrap();
            assert_eq!(Address::from(addr).socket_addr(), Some(addr));
        }
    }

    #[test]
    fn ethernet_addresses_survive() {
        let mac = [2, 0, 0, 0xab, 0, 1];
        let address = Address::ethernet(mac, 7);
        assert_eq!((address.ethernet_addr(), address.socket_addr()), (Some((mac, 7)), None));
        assert_eq!(address.to_string(), "02:00:00:ab:00:01/7");
        assert_ne!(address.mac_bytes(), Address::ethernet(mac, 8).mac_bytes());
        let ip = Address::from("10.1.2.3:0".parse::<SocketAddr>().unwrap());
        assert_eq!(ip.ethernet_addr(), None);
    }

    #[test]
    fn families_and_scopes_differ() {
        let bytes = |text: &str| Address::from(text.parse::<SocketAddr>().unwrap()).mac_bytes();
        assert_ne!(bytes("0.0.0.0:5"), bytes("[::]:5"));
        assert_ne!(bytes("[fe80::1%3]:5"), bytes("[fe80::1%4]:5"));
        // Such an address is against the rules, and must not stand for a host on another link.
        assert_eq!(bytes("[fe80:0:0:4::1%3]:5"), bytes("[fe80::1%3]:5"));
        let first = Address::from("10.1.2.3:5".parse::<SocketAddr>().unwrap());
        assert_ne!(first.mac_bytes(), first.with_via(1).mac_bytes());
        assert_ne!(first, first.with_via(1));
        assert_eq!(first, first.with_via(1).with_via(0));
    }

    #[test]
    fn sealed_is_another_address() {
        let plain = Address::from("10.1.2.3:5".parse::<SocketAddr>().unwrap()).with_via(1);
        let sealed = plain.with_secured(true);
        assert!(sealed.is_secured() && !plain.is_secured());
        assert_ne!((plain, plain.mac_bytes()), (sealed, sealed.mac_bytes()));
        assert_eq!((sealed.via(), sealed.with_via(0).is_secured()), (1, true));
        assert_eq!((sealed.with_secured(false), sealed.socket_addr()), (plain, plain.socket_addr()));
    }
}
