//! An Ethernet interface, as the system describes it now.

use std::os::fd::{AsRawFd, OwnedFd};

use super::Mac;
use crate::error::{Result, SysError, Tried};

/// An Ethernet interface of this network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The interface's name.
    pub name: String,
    /// The interface's number.
    pub index: u32,
    /// Its hardware address.
    pub mac: Mac,
    /// Longest frame without the Ethernet header, in bytes.
    pub mtu_bytes: usize,
    /// Administratively up and with a carrier (`IFF_UP`, `IFF_RUNNING`).
    pub up: bool,
}

impl Link {
    /// Asks for the interface `name`. `NotFound` (`ENODEV`): there is none; `InvalidData`: it is no Ethernet.
    pub fn of(name: &str) -> Result<Link> {
        let on = |error: SysError| error.on(name);
        let fd = any_socket().map_err(on)?;
        let ask = |number| ask(&fd, name, number).map_err(on);
        let hardware = ask(libc::SIOCGIFHWADDR)?;
        // SAFETY: SIOCGIFHWADDR fills this member; any bytes are a sockaddr.
        let address = unsafe { hardware.ifr_ifru.ifru_hwaddr };
        if address.sa_family != libc::ARPHRD_ETHER {
            return Err(on(SysError::refused("describe an interface", "it is no Ethernet")));
        }
        let [m0, m1, m2, m3, m4, m5, ..] = address.sa_data.map(|byte| byte as u8);
        // SAFETY: SIOCGIFINDEX fills this member, and any bytes are an int.
        let index = unsafe { ask(libc::SIOCGIFINDEX)?.ifr_ifru.ifru_ifindex };
        // SAFETY: SIOCGIFMTU fills this member, and any bytes are an int.
        let mtu = unsafe { ask(libc::SIOCGIFMTU)?.ifr_ifru.ifru_mtu };
        // SAFETY: SIOCGIFFLAGS fills this member, and any bytes are a short.
        let flags = libc::c_int::from(unsafe { ask(libc::SIOCGIFFLAGS)?.ifr_ifru.ifru_flags });
        Ok(Link {
            name: name.to_owned(),
            index: u32::try_from(index).unwrap_or(0),
            mac: [m0, m1, m2, m3, m4, m5],
            mtu_bytes: usize::try_from(mtu).unwrap_or(0),
            up: flags & libc::IFF_UP != 0 && flags & libc::IFF_RUNNING != 0,
        })
    }

    /// Whether it is one end of a pair of virtual interfaces: no card, and what is sent is received by the same call.
    pub fn is_veth(&self) -> bool {
        // Not by sysfs, which shows the interfaces of the namespace it was mounted in.
        any_socket().and_then(|fd| driver(&fd, &self.name)).is_ok_and(|name| name == *b"veth")
    }
}

/// Looks for the interfaces of the network namespace in which it was made, whichever one the asking thread is in by then.
#[derive(Debug)]
pub struct Lookout(OwnedFd);

impl Lookout {
    /// In the thread's namespace.
    pub fn current() -> Result<Lookout> {
        any_socket().map(Lookout)
    }

    /// Whether there is an interface of this number, whatever its name is now. Where the system does not say, there is.
    pub fn sees(&self, index: u32) -> bool {
        // SAFETY: an ifreq of zeros is a valid one.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        request.ifr_ifru.ifru_ifindex = libc::c_int::try_from(index).unwrap_or(0);
        // SAFETY: SIOCGIFNAME reads the number and writes the name of the ifreq given, which outlives the call.
        let done = unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SIOCGIFNAME as _, &mut request) };
        done == 0 || SysError::last("look for an interface").errno() != Some(libc::ENODEV)
    }
}

/// The start of the name of the interface's driver, if it fills no more than that.
fn driver(fd: &OwnedFd, name: &str) -> Result<[u8; 4]> {
    /// `struct ethtool_drvinfo`: the command, the driver's name, and what we do not ask for.
    #[repr(C)]
    struct DriverInfo {
        command: u32,
        driver: [u8; 32],
        remainder: [u32; 40],
    }
    const _: () = assert!(size_of::<DriverInfo>() == 196);
    const ETHTOOL_GDRVINFO: u32 = 3;
    let mut info = DriverInfo { command: ETHTOOL_GDRVINFO, driver: [0; 32], remainder: [0; 40] };
    let mut request = named(name)?;
    request.ifr_ifru.ifru_data = (&raw mut info).cast();
    // SAFETY: the request reads the ifreq and writes the structure it points to, which is as long as the kernel's; both
    // outlive the call.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCETHTOOL as _, &mut request) };
    if done != 0 {
        return Err(SysError::last("ask for an interface's driver"));
    }
    let [a, b, c, d, end, ..] = info.driver;
    Ok(if end == 0 { [a, b, c, d] } else { [0; 4] })
}

fn any_socket() -> Result<OwnedFd> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    // UNIX sockets are there whatever the kernel was built without.
    socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .tried("make a socket to ask for an interface")
}

/// A request that names an interface.
fn named(name: &str) -> Result<libc::ifreq> {
    // SAFETY: an ifreq of zeros is a valid one with an empty name.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.is_empty() || name.len() >= request.ifr_name.len() || name.contains('\0') {
        return Err(SysError::new("describe an interface", std::io::Error::from_raw_os_error(libc::ENODEV)));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

/// One of the `SIOCGIF...` requests, all of which read the name and write one member of the union.
fn ask(fd: &OwnedFd, name: &str, number: libc::c_ulong) -> Result<libc::ifreq> {
    let mut request = named(name)?;
    // SAFETY: the request reads and writes the ifreq given, which outlives the call.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), number as _, &mut request) };
    if done == 0 { Ok(request) } else { Err(SysError::last("describe an interface")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_no_ethernet_and_strange_names_are_none() {
        let lo = Link::of("lo").unwrap_err();
        assert!(
            matches!(lo.kind(), std::io::ErrorKind::InvalidData) || lo.errno() == Some(libc::ENODEV),
            "{lo}"
        );
        for name in ["", "no-such-if", "longer-than-any-interface", "a\0b"] {
            assert_eq!(Link::of(name).unwrap_err().errno(), Some(libc::ENODEV), "{name:?}");
        }
    }
}
