//! Who owns an endpoint number on an interface.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, socket_with};

use crate::error::{Result, SysError, Tried};

/// The right to be endpoint so-and-so on an interface: held by one process of the network namespace at most, and free
/// again when it ends, however it ends.
///
/// It is an abstract UNIX socket with both numbers in its name. Such names belong to a network namespace, as
/// interfaces do.
#[derive(Debug)]
pub struct EndpointLock {
    _fd: OwnedFd,
    endpoint: u32,
}

impl EndpointLock {
    /// Takes `endpoint` (not 0) on the interface with that number. `EADDRINUSE`: somebody has it.
    pub fn take(interface_index: u32, endpoint: u32) -> Result<EndpointLock> {
        let on =
            |error: SysError| error.on(format_args!("endpoint {endpoint} of interface {interface_index}"));
        if endpoint == 0 {
            return Err(on(SysError::refused("take an endpoint number", "0 is nobody's")));
        }
        let fd = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
            .tried("make a socket to hold an endpoint number")
            .map_err(on)?;
        name(interface_index, endpoint)
            .and_then(|name| bind(&fd, &name))
            .tried("take an endpoint number")
            .map_err(on)?;
        Ok(EndpointLock { _fd: fd, endpoint })
    }

    /// Whether some process holds `endpoint`. True where that cannot be found out.
    pub fn is_held(interface_index: u32, endpoint: u32) -> bool {
        let connected = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
            .and_then(|fd| connect(&fd, &name(interface_index, endpoint)?));
        connected != Err(Errno::CONNREFUSED)
    }

    /// The number held.
    pub fn endpoint(&self) -> u32 {
        self.endpoint
    }
}

fn name(interface_index: u32, endpoint: u32) -> rustix::io::Result<SocketAddrUnix> {
    SocketAddrUnix::new_abstract_name(format!("cci-eth-{interface_index}-{endpoint}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_one_owner_at_a_time() {
        // An interface number that no machine has.
        let index = 1 << 30 | std::process::id();
        let held = EndpointLock::take(index, 7).unwrap();
        assert_eq!(held.endpoint(), 7);
        assert_eq!(EndpointLock::take(index, 7).unwrap_err().errno(), Some(libc::EADDRINUSE));
        let _other = EndpointLock::take(index, 8).unwrap();
        assert!(EndpointLock::is_held(index, 7) && !EndpointLock::is_held(index, 9));
        drop(held);
        assert!(!EndpointLock::is_held(index, 7));
        EndpointLock::take(index, 7).unwrap();
        assert!(EndpointLock::take(index, 0).is_err());
    }
}
