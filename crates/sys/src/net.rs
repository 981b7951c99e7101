//! Network interfaces, as the system describes them now.

use std::ffi::CStr;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use crate::error::{Result, SysError};
use crate::limits::number_in;

pub(crate) mod addr;
pub mod namespace;

/// One network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name, e.g. `eth0`. Bytes that are not UTF-8 are replaced.
    pub name: String,
    /// Its number; the scope of its link-local addresses.
    pub index: u32,
    /// Administratively up and with a carrier (`IFF_UP`, `IFF_RUNNING`).
    pub up: bool,
    /// Reaches only this machine (`IFF_LOOPBACK`).
    pub loopback: bool,
    /// Largest IP packet in bytes; 0 where the system does not say.
    pub mtu_bytes: u32,
    /// Its addresses, port 0; link-local ones with their scope, so that they can be bound as they stand.
    pub addrs: Vec<SocketAddr>,
    /// Bits a second of the link, where the driver says.
    pub speed_bits_per_s: Option<u64>,
    /// The PCI function behind it, for placing threads near it.
    pub pci: Option<PciAddress>,
}

/// A PCI function: `domain:bus:dev.func`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PciAddress {
    /// Domain (segment).
    pub domain: u32,
    /// Number of the bus.
    pub bus: u8,
    /// Device on the bus.
    pub dev: u8,
    /// Function of the device.
    pub func: u8,
}

/// All interfaces that exist in this network namespace, in the system's order.
pub fn interfaces() -> Result<Vec<Interface>> {
    let mut found: Vec<Interface> = Vec::new();
    let list = AddrList::read()?;
    for entry in list.iter() {
        // SAFETY: getifaddrs gives every entry a NUL-terminated name that lives as long as the list.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy();
        let at = found.iter().position(|known| known.name == name).unwrap_or_else(|| {
            found.push(describe(&name, entry.ifa_flags));
            found.len() - 1
        });
        let Some(interface) = found.get_mut(at) else { continue };
        // SAFETY: the list's socket addresses are complete for their family, or null.
        let parsed = unsafe { addr_of(entry.ifa_addr) };
        interface.addrs.extend(parsed);
    }
    Ok(found)
}

/// The address of this host that the system sends from to reach `target`. It asks for the route; nothing is sent.
pub fn source_address(target: SocketAddr) -> Result<IpAddr> {
    let unspecified: IpAddr =
        if target.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let route = || {
        let socket = UdpSocket::bind((unspecified, 0))?;
        socket.connect(target)?;
        socket.local_addr()
    };
    route().map(|local| local.ip()).map_err(|error| SysError::new("find the route to an address", error))
}

fn describe(name: &str, flags: libc::c_uint) -> Interface {
    let has = |flag: libc::c_int| flags & flag as libc::c_uint != 0;
    let sys = format!("/sys/class/net/{name}");
    Interface {
        name: name.to_owned(),
        index: index_of(name),
        up: has(libc::IFF_UP) && has(libc::IFF_RUNNING),
        loopback: has(libc::IFF_LOOPBACK),
        mtu_bytes: mtu_of(name).or_else(|| number_in(format!("{sys}/mtu"))?.try_into().ok()).unwrap_or(0),
        addrs: Vec::new(),
        // Unknown is -1 (unparsable as u64) or an error on reading.
        speed_bits_per_s: number_in(format!("{sys}/speed"))
            .filter(|&mbit| mbit > 0)
            .map(|mbit| mbit * 1_000_000),
        pci: fs::canonicalize(format!("{sys}/device")).ok().and_then(|path| pci_in(path.to_str()?)),
    }
}

fn index_of(name: &str) -> u32 {
    let Ok(socket) = plain_socket() else { return 0 };
    rustix::net::netdevice::name_to_index(&socket, name).unwrap_or(0)
}

/// MTU by ioctl: /sys may show another network namespace than the one we are in.
fn mtu_of(name: &str) -> Option<u32> {
    mtu_seen_by(plain_socket().ok()?.as_fd(), name)
}

/// MTU of the interface of that name in the network namespace of a socket.
pub(crate) fn mtu_seen_by(socket: BorrowedFd<'_>, name: &str) -> Option<u32> {
    // SAFETY: an ifreq of zeros is a valid one with an empty name.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // Keeps the last byte 0, so that the name is terminated.
    for (to, from) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let fd = socket.as_raw_fd();
    // SAFETY: SIOCGIFMTU reads the name and writes the MTU of the ifreq given, which outlives the call.
    let done = unsafe { libc::ioctl(fd, libc::SIOCGIFMTU as _, &mut request) };
    if done != 0 {
        return None;
    }
    // SAFETY: SIOCGIFMTU filled this member of the union, and any bytes are an int.
    u32::try_from(unsafe { request.ifr_ifru.ifru_mtu }).ok()
}

fn plain_socket() -> rustix::io::Result<std::os::fd::OwnedFd> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .or_else(|_| socket_with(AddressFamily::INET6, SocketType::DGRAM, SocketFlags::CLOEXEC, None))
}

/// The last PCI address on a device path: virtio and the like lie one folder below their function.
fn pci_in(path: &str) -> Option<PciAddress> {
    path.split('/').rev().find_map(parse_pci)
}

fn parse_pci(text: &str) -> Option<PciAddress> {
    let (remainder, func) = text.split_once('.')?;
    let mut parts = remainder.split(':');
    let (domain, bus, dev) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || domain.len() < 4 || bus.len() != 2 || dev.len() != 2 || func.len() != 1 {
        return None;
    }
    Some(PciAddress {
        domain: u32::from_str_radix(domain, 16).ok()?,
        bus: u8::from_str_radix(bus, 16).ok()?,
        dev: u8::from_str_radix(dev, 16).ok()?,
        func: u8::from_str_radix(func, 16).ok()?,
    })
}

/// The IP address in `sockaddr`, port 0.
///
/// # Safety
/// Null, or a socket address that is complete for the family it names.
unsafe fn addr_of(sockaddr: *const libc::sockaddr) -> Option<SocketAddr> {
    if sockaddr.is_null() {
        return None;
    }
    // SAFETY: not null, and every socket address has a family.
    match libc::c_int::from(unsafe { (*sockaddr).sa_family }) {
        libc::AF_INET => {
            // SAFETY: the family says that it is a sockaddr_in.
            let v4 = unsafe { sockaddr.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(SocketAddrV4::new(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr)), 0).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that it is a sockaddr_in6.
            let v6 = unsafe { sockaddr.cast::<libc::sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let scope = if addr::is_link_local(&ip) { v6.sin6_scope_id } else { 0 };
            Some(SocketAddrV6::new(ip, 0, 0, scope).into())
        }
        _ => None,
    }
}

/// What getifaddrs allocated, freed when dropped.
struct AddrList(*mut libc::ifaddrs);

impl AddrList {
    fn read() -> Result<AddrList> {
        let mut first = std::ptr::null_mut();
        // SAFETY: writes one pointer, to a variable that outlives the call.
        if unsafe { libc::getifaddrs(&mut first) } != 0 {
            return Err(SysError::last("list network interfaces (getifaddrs)"));
        }
        Ok(AddrList(first))
    }

    fn iter(&self) -> impl Iterator<Item = &libc::ifaddrs> {
        // SAFETY: the list is not freed before `self`, and each entry links to the next or to null.
        let entry = |at: *mut libc::ifaddrs| unsafe { at.as_ref() };
        std::iter::successors(entry(self.0), move |current| entry(current.ifa_next))
    }
}

impl Drop for AddrList {
    fn drop(&mut self) {
        // SAFETY: comes from getifaddrs and is freed only here.
        unsafe { libc::freeifaddrs(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_loopback_with_its_address_and_mtu() {
        let all = interfaces().unwrap();
        let Some(lo) = all.iter().find(|interface| interface.loopback) else {
            println!("skipped: no loopback interface here");
            return;
        };
        assert!(lo.index > 0 && lo.mtu_bytes >= 1_280, "{lo:?}");
        assert!(!lo.up || lo.addrs.iter().any(|addr| addr.ip().is_loopback()), "{lo:?}");
        assert!(all.iter().flat_map(|i| &i.addrs).all(|addr| addr.port() == 0));
        for interface in &all {
            let link_local =
                |addr: &&SocketAddr| matches!(addr, SocketAddr::V6(v6) if addr::is_link_local(v6.ip()));
            for addr in interface.addrs.iter().filter(link_local) {
                assert!(
                    matches!(addr, SocketAddr::V6(v6) if v6.scope_id() == interface.index),
                    "{interface:?}"
                );
            }
        }
    }

    #[test]
    fn pci_functions_are_read_from_device_paths() {
        let found = PciAddress { domain: 0, bus: 0x3b, dev: 0x1f, func: 1 };
        assert_eq!(pci_in("/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:1f.1"), Some(found));
        assert_eq!(pci_in("/sys/devices/pci0000:3a/0000:3b:1f.1/virtio3"), Some(found));
        for none in
            ["", "/sys/devices/virtual/net/lo", "/sys/a.b", "0000:00:00", "0000:00:00:00.0", "0000:zz:00.0"]
        {
            assert_eq!(pci_in(none), None, "{none}");
        }
    }
}
