//! Who owns an endpoint number behind a hardware address.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use super::{Mac, raw};
use crate::error::{Result, SysError, Tried};
use crate::random;

/// Places for numbers that were asked for, and behind them for those that nobody asked for by name.
const NAMED_SLOTS: u32 = 48 << 10;
const ANY_SLOTS: u32 = 16 << 10;
const _: () = assert!(NAMED_SLOTS + ANY_SLOTS == 1 << 16, "a group's number has 16 bits");

/// What an owner's socket would receive, and that of somebody who looks: IEEE 802.3 has neither. Sockets for different protocols
/// can't be in one group.
const OWNED: u16 = 0xffff;
const LOOKED_AT: u16 = 0xfffb;

/// Tries, and the pause between them, while the slot is taken: it may be one who only looks, or an owner who has just gone,
/// of whose socket a child process has a copy until it begins its program.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(2);
/// Places tried to find out whether the kernel knows groups of one.
const SAMPLES: u32 = 3;

/// The right to be endpoint so-and-so behind a hardware address: held by one process of the network namespace at most, and free
/// again when it ends, however it ends. Only who may send and receive raw frames there (CAP_NET_RAW) can take it.
///
/// It is a packet socket alone in a fanout group with one member at most. Groups belong to a network namespace, as interfaces do,
/// and are known by 16 bits: two numbers of one address that differ by a multiple of 49,152 can't be held at the same time.
#[derive(Debug)]
pub struct EndpointLock {
    _fd: OwnedFd,
    endpoint: u32,
}

/// The outcome of an attempt to enter the group of a slot.
enum Entered {
    Yes,
    /// It is full, with a socket of the same kind.
    Full,
    /// There is one of another kind, or this kernel knows no groups of one.
    Otherwise,
}

impl EndpointLock {
    /// Takes `endpoint` (not 0) behind that address; tries for some 100 ms. `EADDRINUSE`: somebody has it. `EPERM`: the process lacks
    /// CAP_NET_RAW.
    pub fn take(mac: Mac, endpoint: u32) -> Result<EndpointLock> {
        let on = |error: SysError| error.on(format_args!("endpoint {endpoint}"));
        if endpoint == 0 {
            return Err(on(SysError::refused("take an endpoint number", "0 is nobody's")));
        }
        let fd = silent_socket(OWNED).map_err(on)?;
        let mut is_full = false;
        for _ in 0..TRIES {
            match enter(&fd, slot(mac, endpoint)).map_err(on)? {
                Entered::Yes => return Ok(EndpointLock { _fd: fd, endpoint }),
                entered => {
                    is_full = matches!(entered, Entered::Full);
                    std::thread::sleep(PAUSE);
                }
            }
        }
        if !is_full && !kernel_knows_groups_of_one().map_err(on)? {
            return Err(on(SysError::refused("take an endpoint number", "this takes Linux 5.13 or later")));
        }
        Err(on(SysError::new("take an endpoint number", io::Error::from_raw_os_error(libc::EADDRINUSE))))
    }

    /// The number held.
    pub fn endpoint(&self) -> u32 {
        self.endpoint
    }
}

/// Looks at who is there. While it does, whoever takes that number may have to try again, which `take` does.
#[derive(Debug, Default)]
pub(crate) struct Looker {
    /// For the next look: closing one takes the kernel milliseconds.
    fd: Option<OwnedFd>,
}

impl Looker {
    /// Whether some process holds `endpoint` behind that address. True where that cannot be found out.
    pub fn is_held(&mut self, mac: Mac, endpoint: u32) -> bool {
        if self.fd.is_none() {
            self.fd = silent_socket(LOOKED_AT).ok();
        }
        let Some(fd) = &self.fd else { return true };
        match enter(fd, slot(mac, endpoint)) {
            // It is a member now, until it is closed.
            Ok(Entered::Yes) => {
                self.fd = None;
                false
            }
            // By somebody else who looks.
            Ok(Entered::Full) => false,
            Ok(Entered::Otherwise) | Err(_) => true,
        }
    }
}

/// Which group stands for a number behind an address. Of one address, all numbers below 49,152 have groups of their own.
fn slot(mac: Mac, endpoint: u32) -> u16 {
    let [m0, m1, m2, m3, m4, m5] = mac;
    let mixed = u64::from_le_bytes([m0, m1, m2, m3, m4, m5, 0, 0]).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let start = (mixed >> 32) as u32;
    let within = |slots: u32| (endpoint % slots + start % slots) % slots;
    let slot = if endpoint >> 31 == 0 { within(NAMED_SLOTS) } else { NAMED_SLOTS + within(ANY_SLOTS) };
    slot as u16
}

/// A packet socket for a protocol of which no frames come; if some do, they are dropped.
fn silent_socket(protocol: u16) -> Result<OwnedFd> {
    let fd = raw::packet_socket()?;
    let drop_all = libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
    raw::filter(&fd, &mut [drop_all])?;
    raw::bind(&fd, 0, protocol)?;
    Ok(fd)
}

/// Makes the socket the only member of a group.
fn enter(fd: &OwnedFd, slot: u16) -> Result<Entered> {
    /// `struct fanout_args`, since 5.13.
    #[repr(C)]
    struct Group {
        id: u16,
        kind: u16,
        members_max: u32,
    }
    let group = Group { id: slot, kind: libc::PACKET_FANOUT_LB as u16, members_max: 1 };
    let len = size_of::<Group>() as libc::socklen_t;
    // SAFETY: reads one `Group`, which outlives the call.
    let done = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_FANOUT,
            (&raw const group).cast(),
            len,
        )
    };
    let error = match done {
        0 => return Ok(Entered::Yes),
        _ => io::Error::last_os_error(),
    };
    match error.raw_os_error() {
        Some(libc::ENOSPC) => Ok(Entered::Full),
        Some(libc::EINVAL) => Ok(Entered::Otherwise),
        _ => Err(error).tried("take an endpoint number (PACKET_FANOUT)"),
    }
}

/// Before Linux 5.13 no group can be made so, whatever its number.
fn kernel_knows_groups_of_one() -> Result<bool> {
    let fd = silent_socket(OWNED)?;
    for _ in 0..SAMPLES {
        if !matches!(enter(&fd, random::u64()? as u16)?, Entered::Otherwise) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_below_49152_are_apart_and_those_of_nobodys_choice_are_elsewhere() {
        for mac in [[2, 0, 0, 0, 0, 1], [0xff; 6], [0x52, 0x54, 0, 0x12, 0x34, 0x56]] {
            let mut seen = vec![false; 1 << 16];
            for endpoint in 0..NAMED_SLOTS {
                assert!(!std::mem::replace(&mut seen[usize::from(slot(mac, endpoint))], true), "{endpoint}");
            }
            for endpoint in (1 << 31)..(1 << 31) + ANY_SLOTS {
                assert!(!std::mem::replace(&mut seen[usize::from(slot(mac, endpoint))], true), "{endpoint}");
            }
            assert_eq!(slot(mac, 7), slot(mac, 7 + NAMED_SLOTS));
        }
        assert_ne!(slot([2, 0, 0, 0, 0, 1], 7), slot([2, 0, 0, 0, 0, 2], 7));
    }
}
