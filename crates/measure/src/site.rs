//! Where the two sides of a measurement are: on this machine as it is, or at the two ends of a pair of virtual Ethernet
//! interfaces, each in a network namespace of its own.
//!
//! Between two addresses of one namespace the kernel hands packets over without any interface; across a pair they take
//! the way that they would take to a network. And raw Ethernet needs two interfaces.

use crate::failure::{Failure, Outcome};
use crate::iproute::ip;
use cci_sys::net::interfaces;
use cci_sys::net::namespace::{Inside, Namespace};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::thread;
use std::time::{Duration, Instant};

/// Both interfaces of the pair: each is alone in its namespace.
const INTERFACE: &str = "wire0";
const NEAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 99, 0, 1));
const FAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 99, 0, 2));
const CARRIER_LIMIT: Duration = Duration::from_secs(5);

/// Where both processes of a measurement run: on one host, or in two network namespaces joined by a virtual pair.
pub struct Site {
    pair: Option<Pair>,
}

/// This thread is at one end for as long as this lives. The kernel takes the pair away with the last process in it.
struct Pair {
    far: Namespace,
    _near: Inside,
}

impl Site {
    /// What the interface at either end of a pair is called.
    pub const INTERFACE: &str = INTERFACE;

    /// This machine, as it is.
    pub const fn same_host() -> Site {
        Site { pair: None }
    }

    /// The two ends of a new pair; the calling thread goes to one of them.
    pub fn across_a_pair() -> Outcome<Site> {
        let entered = |error: cci_sys::SysError| {
            Failure::from(error)
                .remedy("as root, or without --veth, with the URI of another machine's server")
        };
        let other = Namespace::fresh().map_err(entered)?;
        let far = other.namespace().clone();
        drop(other);
        let near = Namespace::fresh().map_err(entered)?;
        // Different numbers at the ends: where they are the same the kernel takes the pair for hardware.
        let add = format!(
            "link add name {INTERFACE} index 11 type veth peer name {INTERFACE} index 12 netns {}\n",
            far.path()
        );
        ip(&format!("{add}{}", bring_up(NEAR)))?;
        {
            let _inside = far.enter().map_err(entered)?;
            ip(&bring_up(FAR))?;
        }
        let until = Instant::now() + CARRIER_LIMIT;
        while !has_carrier() {
            if Instant::now() > until {
                return Err(Failure::new("the new pair of interfaces gets no carrier"));
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(Site { pair: Some(Pair { far, _near: near }) })
    }

    /// True for a pair.
    pub const fn is_pair(&self) -> bool {
        self.pair.is_some()
    }

    /// The address of this side for plain sockets, which the other side reaches.
    pub const fn address(&self) -> IpAddr {
        if self.is_pair() { NEAR } else { IpAddr::V4(Ipv4Addr::LOCALHOST) }
    }

    /// Whether both sides of a device can be at this site: at a pair, that of its interface; otherwise one that
    /// `loops_back` what it sends to its own address. (A frame to one's own interface does not come back.)
    pub fn has_both_sides_of(&self, interface: Option<&str>, loops_back: bool) -> bool {
        match &self.pair {
            Some(_) => interface == Some(INTERFACE),
            None => loops_back,
        }
    }

    /// The addresses for plain sockets, on this side and on the other: `own` on both where the site is no pair. None: there
    /// is no address.
    pub fn addresses(&self, own: Option<IpAddr>) -> Option<(IpAddr, IpAddr)> {
        match &self.pair {
            Some(_) => Some((NEAR, FAR)),
            None => own.map(|ip| (ip, ip)),
        }
    }

    /// Does something on the other side: sockets made there stay there, and processes started there.
    pub fn in_peer_namespace<T>(&self, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let inside = self.pair.as_ref().map(|pair| pair.far.enter().map_err(io::Error::other)).transpose()?;
        let done = act();
        drop(inside);
        done
    }
}

fn bring_up(address: IpAddr) -> String {
    format!(
        "link set lo up\naddr add {address}/24 dev {INTERFACE}\nlink set {INTERFACE} addrgenmode none\nlink set {INTERFACE} up\n"
    )
}

fn has_carrier() -> bool {
    interfaces().is_ok_and(|all| all.iter().any(|interface| interface.name == INTERFACE && interface.up))
}
