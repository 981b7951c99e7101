//! Every key that a section of a configuration file may have: the transports for which it has a meaning, its values, and its
//! meaning. Any other key is an error ([`check`](super::check)). `docs/devices.md` has the same list, and a test compares the
//! two.

use super::check::Registry;
use super::schema::{Inert, Key, Needs, Renamed, Values};
use crate::device::TransportKind::{self, Any, Eth, Shm, Tcp, Udp};
use crate::security::SHM_HAS_NONE;
use crate::transport::datagram::{FRAME_MTU_BYTES_MIN, MTU_BYTES_MAX, MTU_BYTES_MIN};

const ALL: &[TransportKind] = &[Shm, Udp, Tcp, Eth, Any];
const IP: &[TransportKind] = &[Udp, Tcp, Any];
const DATAGRAMS: &[TransportKind] = &[Udp, Any];
const LOCAL: &[TransportKind] = &[Shm, Any];
const SEALED: &[TransportKind] = &[Udp, Tcp, Eth, Any];
const ON_OFF: Values = Values::OneOf(&["on", "off"]);

const fn key(
    name: &'static str,
    transports: &'static [TransportKind],
    values: Values,
    meaning: &'static str,
) -> Key {
    Key { name, transports, values, meaning, needs: None, why_not_others: None }
}

/// A key that has a meaning only if `security` has one of these values.
const fn sealed(
    name: &'static str,
    methods: &'static [&'static str],
    values: Values,
    meaning: &'static str,
) -> Key {
    let needs = Some(Needs { key: "security", values: methods });
    Key { needs, ..key(name, SEALED, values, meaning) }
}

const KEYS: &[Key] = &[
    key("transport", ALL, Values::Text, "what carries messages: shm, udp, tcp, eth or any"),
    key(
        "priority",
        ALL,
        Values::Number { min: 0, max: 100 },
        "the place among the devices: the highest is first",
    ),
    key("default", ALL, Values::OneOf(&["0", "1"]), "1 on the device that a program gets which names none"),
    key("ip", IP, Values::Text, "the address to bind to; on udp two, with a comma between, to be bonded"),
    key(
        "interface",
        IP,
        Values::Text,
        "the interface to bind to; on udp two, with a comma between, to be bonded",
    ),
    key("interface", &[Eth], Values::Text, "the Ethernet interface"),
    key(
        "port",
        IP,
        Values::Number { min: 0, max: u16::MAX as u64 },
        "the port of an endpoint that names no service; 0 is any",
    ),
    key(
        "mtu",
        DATAGRAMS,
        Values::Number { min: MTU_BYTES_MIN as u64, max: MTU_BYTES_MAX as u64 },
        "the longest IP packet, bytes",
    ),
    key(
        "mtu",
        &[Eth],
        Values::Number { min: FRAME_MTU_BYTES_MIN as u64, max: MTU_BYTES_MAX as u64 },
        "the longest frame without its Ethernet header, bytes",
    ),
    key(
        "multicast_ttl",
        DATAGRAMS,
        Values::Number { min: 0, max: u8::MAX as u64 },
        "how many links a message to a group may cross: 0 is this host, 1 this link",
    ),
    key("multicast_loop", DATAGRAMS, ON_OFF, "whether a member of a group hears itself"),
    key(
        "endpoint",
        &[Eth],
        Values::Number { min: 0, max: u32::MAX as u64 },
        "the number of an endpoint that names no service; 0 is any",
    ),
    key(
        "mode",
        &[Eth],
        Values::OneOf(&["auto", "xdp", "xdp-generic", "packet"]),
        "the kernel's interface for frames",
    ),
    key("directory", LOCAL, Values::Text, "the absolute path of the folder for services"),
    key(
        "all_users",
        LOCAL,
        ON_OFF,
        "whether processes of all users of the host may connect by shared memory",
    ),
    key("direct", LOCAL, ON_OFF, "whether peers map each other's memory"),
    key(
        "cma",
        LOCAL,
        Values::OneOf(&["on", "off", "always"]),
        "whether the memory of another process is read by process_vm_readv",
    ),
    Key {
        why_not_others: Some(SHM_HAS_NONE),
        ..key(
            "security",
            SEALED,
            Values::OneOf(&["off", "psk", "certificates"]),
            "how peers prove who they are; everything is sealed then",
        )
    },
    sealed("security_required", METHODS, ON_OFF, "whether peers without security get no answer"),
    sealed("psk_file", &["psk"], Values::Text, "the path of the file of pre-shared keys"),
    sealed("certificate", &["certificates"], Values::Text, "the path of the own certificate (PEM)"),
    sealed("private_key", &["certificates"], Values::Text, "the path of its private key (PEM)"),
    sealed("authorities", &["certificates"], Values::Text, "the path of the authorities for peers (PEM)"),
    sealed("expect", METHODS, Values::Text, "the name of the peer that connections from here must lead to"),
    sealed("allow_connect", METHODS, Values::Text, "the names that may be at the other end of a connection"),
    sealed("allow_rma_read", METHODS, Values::Text, "the names that may read memory registered here"),
    sealed("allow_rma_write", METHODS, Values::Text, "the names that may write memory registered here"),
];

const METHODS: &[&str] = &["psk", "certificates"];

const fn inert(name: &'static str, instead: &'static str) -> Inert {
    Inert { name, transports: ALL, instead }
}

/// Keys from the documents or the sources of CCI 2.x that have no effect.
const INERT: &[Inert] = &[
    Inert {
        name: "mtu",
        transports: &[Tcp],
        instead: "a stream has no datagrams, and the longest message is always 8 KiB",
    },
    inert("mss", "the longest message follows from the transport and its MTU"),
    inert("bufsize", "socket buffers are made as large as the system allows"),
    inert("path", "sockets have abstract names; directory = PATH puts them into a folder"),
    inert("pid", "a name is chosen by the service of the endpoint"),
    inert("id", "a name is chosen by the service of the endpoint"),
    inert("min_idx", "there is no Portals transport"),
    inert("mac", "interface = NAME chooses the Ethernet interface"),
    inert("hca_id", "there is no verbs transport"),
    inert("ptag", "there is no GNI transport"),
    inert("cookie", "there is no GNI transport"),
    inert("as", "there is no routing between networks"),
    inert("subnet", "there is no routing between networks"),
    inert("router", "there is no routing between networks"),
];

/// Keys that were renamed and are still read under the old name. There are none at present. A row is removed in the first version
/// after the one that it names.
const RENAMED: &[Renamed] = &[];

/// All keys that this version reads.
pub(super) const REGISTRY: Registry = Registry { keys: KEYS, inert: INERT, renamed: RENAMED };

/// Transports of CCI 2.x that this version lacks. A section with one of them gives no device, and is no error.
pub(super) const LACKING: &[&str] = &["verbs", "gni", "portals", "mx", "e2e"];
