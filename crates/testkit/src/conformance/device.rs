//! The devices that the suite runs on.
//!
//! To add one: its section, a constant here that says what it can't do and what the machine must have,
//! modules of it in the `conformance` tests of this crate and of the C interface, and `cargo xtask devices` for its lines
//! in docs/devices.md. A device whose peer is the other end of a wire names two sections, with the interfaces `a0` and `b0`
//! (or `a1` and `b1`, with jumbo frames): each case has them to itself, in a network namespace.

use super::Skipped;
use crate::credentials;
use crate::net::{End, Resting, Unavailable, Veth, Wire};
use cci_sys::net::namespace::Namespace;
use std::net::UdpSocket;
use std::sync::{Mutex, PoisonError};

/// A device's name, its keys, those of the other end of its wires, and the `mtu` of others like these whose longest message is shorter. One
/// whose name ends in `-psk` or `-certificates` has such credentials.
type Section = (&'static str, &'static str, Option<&'static str>, Option<u16>);

const BONDED: &str = "transport = udp\nip = 10.77.0.1, 10.77.1.1";
const BONDED_FAR: &str = "transport = udp\nip = 10.77.0.2, 10.77.1.2";
const FAR: Option<&str> = Some("transport = any\nip = 10.77.0.2");
const ETH_A: &str = "transport = eth\ninterface = a0";
const ETH_B: Option<&str> = Some("transport = eth\ninterface = b0");

const SECTIONS: &[Section] = &[
    ("shm", "transport = shm", None, None),
    ("shm-pull", "transport = shm\ndirect = off\ncma = always", None, None),
    ("shm-ring", "transport = shm\ndirect = off\ncma = off", None, None),
    ("udp4", "transport = udp\nip = 127.0.0.1", None, Some(1500)),
    ("udp6", "transport = udp\nip = ::1", None, Some(1500)),
    ("udp6-wire", "transport = udp\ninterface = a0\nip = fd77::1", None, None),
    ("tcp4", "transport = tcp\nip = 127.0.0.1", None, None),
    ("tcp6", "transport = tcp\nip = ::1", None, None),
    ("any", "transport = any\nip = 127.0.0.1", None, None),
    ("any-far", "transport = any\nip = 10.77.0.1", FAR, None),
    ("udp-bonded", BONDED, Some(BONDED_FAR), Some(1400)),
    ("eth", ETH_A, ETH_B, Some(1400)),
    (
        "eth-driver",
        "transport = eth\ninterface = a0\nmode = xdp",
        Some("transport = eth\ninterface = b0\nmode = xdp"),
        None,
    ),
    (
        "eth-packet",
        "transport = eth\ninterface = a0\nmode = packet",
        Some("transport = eth\ninterface = b0\nmode = packet"),
        None,
    ),
    ("eth-jumbo", "transport = eth\ninterface = a1", Some("transport = eth\ninterface = b1"), Some(1400)),
    ("udp-psk", "transport = udp\nip = 127.0.0.1", None, Some(1500)),
    ("udp-certificates", "transport = udp\nip = 127.0.0.1", None, Some(1500)),
    ("tcp-psk", "transport = tcp\nip = 127.0.0.1", None, None),
    ("tcp-certificates", "transport = tcp\nip = 127.0.0.1", None, None),
    ("any-far-psk", "transport = any\nip = 10.77.0.1", FAR, None),
    ("eth-psk", ETH_A, ETH_B, Some(1400)),
];

/// All devices that the suite runs on, as a program configures them. The credentials of those that have some are written to files of this
/// process.
pub fn config() -> String {
    let folder = credentials::folder().display().to_string();
    let mut text = String::new();
    for (name, near, far, mtu) in SECTIONS {
        let security = if name.ends_with("-psk") {
            format!("security = psk\npsk_file = {folder}/cluster.psk\n")
        } else if name.ends_with("-certificates") {
            format!(
                "security = certificates\ncertificate = {folder}/node1.pem\nprivate_key = {folder}/node1.key\n\
                 authorities = {folder}/authority.pem\n"
            )
        } else {
            String::new()
        };
        for (end, keys) in [("", Some(near)), ("-b", far.as_ref())] {
            let Some(keys) = keys else { continue };
            text += &format!("[{name}{end}]\n{keys}\n{security}");
            if let Some(mtu) = mtu {
                text += &format!("[{name}-small{end}]\n{keys}\nmtu = {mtu}\n{security}");
            }
        }
    }
    text
}

/// One section of [`config`]. Each device of a configuration is looked at when it is read, and raw Ethernet takes the
/// kernel a while.
pub fn config_of(device: &str) -> String {
    let config = config();
    let found =
        config.split_inclusive("\n[").map(|section| section.trim_start_matches('[').trim_end_matches('['));
    let found = found.into_iter().find(|section| section.starts_with(&format!("{device}]")));
    format!("[{}", found.unwrap_or_else(|| panic!("no device {device:?} is configured")))
}

/// What not every device can do. Cases of what a device can't do are skipped, with the reason.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Capability {
    /// An endpoint connects to itself.
    Itself,
    /// A device like it can have a shorter longest message.
    Smaller,
    /// Several endpoints are open on one device at the same time.
    Crowd,
    /// All endpoints of one device go the same way, so that none is faster for its way.
    OneWay,
    /// Endpoints of two processes reach each other.
    Processes,
}

/// One device of [`config`], or two that are the ends of a wire.
#[derive(Copy, Clone, Debug)]
pub struct DeviceUnderTest {
    /// What the report and the table in docs/devices.md call it; its section of [`config`] where clients are opened.
    pub name: &'static str,
    /// The section where servers are opened. None: the same.
    pub peer: Option<&'static str>,
    /// Sections like the two with a shorter longest message. None: there is no such device.
    pub smaller: Option<(&'static str, &'static str)>,
    /// How its URIs begin.
    pub scheme: &'static str,
    /// What it can't do, and why.
    pub cannot: &'static [(Capability, &'static str)],
    /// Its longest cases go fewer rounds: it is a variant of a device that is tested in full, or has its protocol.
    pub flavour: bool,
    /// What a machine may not have.
    needs: Needs,
}

/// What a machine may not have.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Needs {
    Nothing,
    /// An address it binds to, such as one of IPv6, which may be switched off.
    Address(&'static str),
    /// A namespace that the case has to itself with the ends of [`WIRES`] in it, which takes root.
    Wires,
    /// A namespace that the case has to itself with the ends of [`WIRES`] in it and an IPv6 address on `a0`.
    AddressedWires,
    /// Two namespaces with IP and two wires between them: clients in one, servers in the other.
    Across,
}

/// Networks of cases that have passed. The kernel takes a network away much more slowly than it makes one, and makes no
/// other meanwhile.
static UNUSED: Mutex<Vec<(Needs, Resting)>> = Mutex::new(Vec::new());

/// Wires of a case's namespace: `a0` to `b0` as Ethernet is, `a1` to `b1` with jumbo frames.
const WIRES: [Wire; 2] =
    [Wire { mtu_bytes: 1500, rate_bits_per_s: None }, Wire { mtu_bytes: 9000, rate_bits_per_s: None }];

/// Shared memory.
pub const SHM: DeviceUnderTest = DeviceUnderTest {
    name: "shm",
    peer: None,
    smaller: None,
    scheme: "shm://",
    cannot: &[(Capability::Smaller, "the longest message is the same everywhere")],
    flavour: false,
    needs: Needs::Nothing,
};
/// Shared memory whose peers do not map each other's memory: what is long they read by system calls.
pub const SHM_PULL: DeviceUnderTest = DeviceUnderTest { name: "shm-pull", ..SHM };
/// Shared memory with the ring alone.
pub const SHM_RING: DeviceUnderTest = DeviceUnderTest { name: "shm-ring", ..SHM };
/// UDP over IPv4.
pub const UDP4: DeviceUnderTest = DeviceUnderTest {
    name: "udp4",
    peer: None,
    smaller: Some(("udp4-small", "udp4-small")),
    scheme: "udp://",
    cannot: &[],
    flavour: false,
    needs: Needs::Address("127.0.0.1"),
};
/// UDP over IPv6.
pub const UDP6: DeviceUnderTest = DeviceUnderTest {
    name: "udp6",
    flavour: true,
    smaller: Some(("udp6-small", "udp6-small")),
    needs: Needs::Address("::1"),
    ..UDP4
};

/// TCP over IPv4.
pub const TCP4: DeviceUnderTest = DeviceUnderTest {
    name: "tcp4",
    peer: None,
    smaller: None,
    scheme: "tcp://",
    cannot: &[(Capability::Smaller, "the longest message is the same everywhere")],
    flavour: false,
    needs: Needs::Address("127.0.0.1"),
};
/// TCP over IPv6.
pub const TCP6: DeviceUnderTest =
    DeviceUnderTest { name: "tcp6", needs: Needs::Address("::1"), flavour: true, ..TCP4 };
/// Every path at once; the one that is taken within a host is shared memory.
pub const ANY: DeviceUnderTest =
    DeviceUnderTest { name: "any", scheme: "any://", needs: Needs::Address("127.0.0.1"), ..SHM };
/// `any` between namespaces, as between hosts: there is no shared memory, UDP is taken.
pub const ANY_FAR: DeviceUnderTest =
    DeviceUnderTest { name: "any-far", peer: Some("any-far-b"), flavour: true, needs: Needs::Across, ..ANY };
/// `any` between namespaces, with a key that both peers have.
pub const ANY_FAR_PSK: DeviceUnderTest =
    DeviceUnderTest { name: "any-far-psk", peer: Some("any-far-psk-b"), ..ANY_FAR };
/// UDP with two interfaces at each end.
pub const UDP_BONDED: DeviceUnderTest = DeviceUnderTest {
    name: "udp-bonded",
    peer: Some("udp-bonded-b"),
    smaller: Some(("udp-bonded-small", "udp-bonded-small-b")),
    flavour: true,
    needs: Needs::Across,
    ..UDP4
};
/// Raw Ethernet, the best way there is, over veth.
pub const ETH: DeviceUnderTest = DeviceUnderTest {
    name: "eth",
    peer: Some("eth-b"),
    smaller: Some(("eth-small", "eth-small-b")),
    scheme: "eth://",
    cannot: &[
        (Capability::Itself, "a frame to an interface's own address does not come back"),
        (
            Capability::OneWay,
            "an interface with one queue has AF_XDP for its first endpoint and AF_PACKET for the next",
        ),
    ],
    flavour: true,
    needs: Needs::Wires,
};
/// Raw Ethernet through AF_XDP in the driver, as on cards, and no other way.
pub const ETH_DRIVER: DeviceUnderTest = DeviceUnderTest {
    name: "eth-driver",
    peer: Some("eth-driver-b"),
    cannot: &[
        (Capability::Itself, "a frame to an interface's own address does not come back"),
        (Capability::Crowd, "a queue of an interface has one AF_XDP socket, and veth has one queue"),
    ],
    ..ETH
};
/// Raw Ethernet through AF_PACKET.
pub const ETH_PACKET: DeviceUnderTest = DeviceUnderTest {
    name: "eth-packet",
    peer: Some("eth-packet-b"),
    cannot: &[(Capability::Itself, "a frame to an interface's own address does not come back")],
    ..ETH
};
/// Raw Ethernet with jumbo frames.
pub const ETH_JUMBO: DeviceUnderTest = DeviceUnderTest {
    name: "eth-jumbo",
    peer: Some("eth-jumbo-b"),
    smaller: Some(("eth-jumbo-small", "eth-jumbo-small-b")),
    ..ETH
};

/// UDP whose peers have a key in common.
pub const UDP_PSK: DeviceUnderTest = DeviceUnderTest {
    name: "udp-psk",
    smaller: Some(("udp-psk-small", "udp-psk-small")),
    cannot: &[(Capability::Itself, "an endpoint with security can't shake hands with itself")],
    flavour: true,
    ..UDP4
};
/// UDP whose peers show certificates.
pub const UDP_CERTIFICATES: DeviceUnderTest = DeviceUnderTest {
    name: "udp-certificates",
    smaller: Some(("udp-certificates-small", "udp-certificates-small")),
    ..UDP_PSK
};
/// TCP whose peers have a key in common.
pub const TCP_PSK: DeviceUnderTest = DeviceUnderTest {
    name: "tcp-psk",
    flavour: true,
    cannot: &[
        (Capability::Smaller, "the longest message is the same everywhere"),
        (Capability::Itself, "an endpoint with security can't shake hands with itself"),
    ],
    ..TCP4
};
/// TCP whose peers show certificates.
pub const TCP_CERTIFICATES: DeviceUnderTest = DeviceUnderTest { name: "tcp-certificates", ..TCP_PSK };
/// Raw Ethernet whose peers have a key in common.
pub const ETH_PSK: DeviceUnderTest = DeviceUnderTest {
    name: "eth-psk",
    peer: Some("eth-psk-b"),
    smaller: Some(("eth-psk-small", "eth-psk-small-b")),
    ..ETH
};

/// The test kit's own transport within one process, for Rust only: it shows how a transport is written, and that the suite needs
/// nothing else of one.
pub const LOOP: DeviceUnderTest = DeviceUnderTest {
    name: "loop",
    scheme: crate::loopback::SCHEME,
    cannot: &[
        (Capability::Smaller, "the longest message is the same everywhere"),
        (Capability::Processes, "both endpoints are in one process"),
    ],
    ..SHM
};

/// UDP over IPv6 on an interface that is not loopback's, which Linux carries no IPv6 groups over.
pub const UDP6_WIRE: DeviceUnderTest =
    DeviceUnderTest { name: "udp6-wire", smaller: None, needs: Needs::AddressedWires, ..UDP4 };

impl DeviceUnderTest {
    /// Makes what it needs, for as long as the value lives. Called in the thread of the case; its threads and child
    /// processes are in the same network then. An error is the reason why this machine can't.
    pub fn network(&self) -> Result<Option<Veth>, Unavailable> {
        match self.needs {
            Needs::Nothing => Ok(None),
            Needs::Address(ip) => match UdpSocket::bind((ip, 0)) {
                Ok(_) => Ok(None),
                Err(_) => Err(Unavailable::new(format!("this machine has no address {ip}"))),
            },
            Needs::Wires => Veth::pairs_in_one_namespace(&WIRES).map(Some),
            Needs::AddressedWires => network_for_all().map(Some),
            Needs::Across => Veth::across(&[Wire::default(); 2]).map(Some),
        }
    }

    /// A network as [`DeviceUnderTest::network`] makes it, or one that [`DeviceUnderTest::give_back`] was given.
    pub(super) fn network_of_a_case(&self) -> Result<Option<Veth>, Unavailable> {
        let mut unused = UNUSED.lock().unwrap_or_else(PoisonError::into_inner);
        let found = unused.iter().position(|(needs, _)| *needs == self.needs);
        let found = found.map(|at| unused.swap_remove(at).1);
        // Making one takes a while.
        drop(unused);
        found.map_or_else(|| self.network(), |network| Ok(Some(network.enter())))
    }

    /// Keeps the network of a case that passed, in which nothing is left of it, for another case.
    pub(super) fn give_back(&self, network: Option<Veth>) {
        let network = network.map(|network| (self.needs, network.rest()));
        UNUSED.lock().unwrap_or_else(PoisonError::into_inner).extend(network);
    }

    /// Where its servers are opened, if that is another namespace.
    pub(crate) fn far(&self, network: Option<&Veth>) -> Option<Namespace> {
        network.filter(|_| matches!(self.needs, Needs::Across)).map(|veth| veth.namespace(End::B))
    }

    pub(super) fn needs(&self, capability: Capability) -> Result<(), Skipped> {
        match self.cannot.iter().find(|(cannot, _)| *cannot == capability) {
            Some((_, reason)) => Err(Skipped((*reason).to_owned())),
            None => Ok(()),
        }
    }
}

/// A network in which every section of [`config`] can be had, for a program that reads its configuration once, while
/// each case has a network of its own: names and addresses in them are the same.
pub fn network_for_all() -> Result<Veth, Unavailable> {
    let veth = Veth::pairs_in_one_namespace(&WIRES)?;
    veth.give_ipv6(End::A, 0);
    Ok(veth)
}
