//! Socket addresses as the kernel lays them out, written and read as bytes.

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Length of a `sockaddr_in6`, the longer of the two.
const V6_BYTES: usize = size_of::<libc::sockaddr_in6>();
const V4_BYTES: usize = size_of::<libc::sockaddr_in>();
const _: () = assert!(V6_BYTES == 28 && V4_BYTES == 16, "the layouts below");

/// A `sockaddr_in` or `sockaddr_in6`.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(crate) struct RawAddr {
    bytes: [u8; V6_BYTES],
    len: u32,
}

impl RawAddr {
    /// No address, with space for one.
    pub(crate) const EMPTY: RawAddr = RawAddr { bytes: [0; V6_BYTES], len: V6_BYTES as u32 };

    #[inline]
    pub(crate) fn new(addr: &SocketAddr) -> RawAddr {
        let mut bytes = [0; V6_BYTES];
        bytes[2..4].copy_from_slice(&addr.port().to_be_bytes());
        match addr {
            SocketAddr::V4(v4) => {
                bytes[0..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
                bytes[4..8].copy_from_slice(&v4.ip().octets());
                RawAddr { bytes, len: V4_BYTES as u32 }
            }
            SocketAddr::V6(v6) => {
                bytes[0..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
                bytes[4..8].copy_from_slice(&v6.flowinfo().to_ne_bytes());
                bytes[8..24].copy_from_slice(&v6.ip().octets());
                bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
                RawAddr { bytes, len: V6_BYTES as u32 }
            }
        }
    }

    /// The address the kernel wrote, `len` bytes of it; `None` for a family or a length that is neither IP version.
    #[inline]
    pub(crate) fn get(&self, len: usize) -> Option<SocketAddr> {
        let [f0, f1, p0, p1, a, b, c, d, remainder @ ..] = self.bytes;
        let port = u16::from_be_bytes([p0, p1]);
        match libc::c_int::from(u16::from_ne_bytes([f0, f1])) {
            libc::AF_INET if len >= V4_BYTES => Some(SocketAddrV4::new([a, b, c, d].into(), port).into()),
            libc::AF_INET6 if len >= V6_BYTES => {
                let (ip, scope) = remainder.split_first_chunk::<16>()?;
                let scope_id = u32::from_ne_bytes(*scope.first_chunk()?);
                // Flow labels are dropped: they may change between datagrams of one peer, which stays one peer.
                Some(SocketAddrV6::new(Ipv6Addr::from(*ip), port, 0, scope_id).into())
            }
            _ => None,
        }
    }

    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.bytes.as_ptr()
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr()
    }

    /// Bytes in use.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }
}

/// Whether `ip` means something only together with an interface (`fe80::/10`).
pub(crate) fn is_link_local(ip: &Ipv6Addr) -> bool {
    ip.segments()[0] & 0xffc0 == 0xfe80
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back() {
        let all: [SocketAddr; 4] = [
            "127.0.0.1:1".parse().unwrap(),
            "255.254.253.252:65535".parse().unwrap(),
            "[::1]:4791".parse().unwrap(),
            SocketAddrV6::new("fe80::1:2".parse().unwrap(), 9, 0, 3).into(),
        ];
        for addr in all {
            let raw = RawAddr::new(&addr);
            assert_eq!(raw.get(raw.len() as usize), Some(addr));
            assert_eq!(raw.get(raw.len() as usize - 1), None, "cut off");
        }
        assert_eq!(RawAddr::EMPTY.get(28), None);
    }
}
