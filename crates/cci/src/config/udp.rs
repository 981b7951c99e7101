//! A UDP device: from an interface, a configuration, or both; and what it can't do.

use crate::device::{DeviceInfo, PciAddress, SecondInterface, TransportKind, Unavailable};
use crate::transport::datagram;
use cci_sys::net::Interface;
use cci_sys::udp::{BUFFER_BYTES_WANTED, UdpSocket};
use std::net::{IpAddr, SocketAddr};

/// What a section or a found interface asks for.
#[derive(Default)]
pub(super) struct Choice<'a> {
    /// The interface, if it exists.
    pub interface: Option<&'a Interface>,
    /// The address, if one was named. It may be one of the interface or not.
    pub ip: Option<IpAddr>,
    /// The port; 0 means any.
    pub port: u16,
    /// The largest IP packets to send.
    pub mtu_bytes: Option<u32>,
    /// Why this machine has no such interface or address. The device exists then, and is down.
    pub missing: Option<Unavailable>,
}

/// The device that was asked for. It is down if it is not available.
pub(super) fn device(name: String, choice: &Choice<'_>) -> DeviceInfo {
    let about = about(name, TransportKind::Udp, choice);
    let mut unavailable: Vec<Unavailable> = choice.missing.clone().into_iter().collect();
    let mut up = unavailable.is_empty();
    match choice.interface.and_then(|interface| address(interface, choice.ip)) {
        Some(mut addr) if up => {
            // Opening an endpoint shows whether the configured port is free. It is not checked here.
            addr.set_port(0);
            up = probe(addr, choice.interface, &mut unavailable);
        }
        _ => up = false,
    }
    let ipv6 = about.ip.is_some_and(|ip| ip.is_ipv6());
    DeviceInfo {
        up,
        info: describe("UDP", choice.interface, about.ip),
        max_send_size: datagram::message_bytes_max(about.mtu_bytes, ipv6),
        unavailable,
        ..about
    }
}

/// A device on IP as the interface and the configuration describe it, before it is probed.
pub(super) fn about(name: String, kind: TransportKind, choice: &Choice<'_>) -> DeviceInfo {
    let addr = choice.interface.and_then(|interface| address(interface, choice.ip));
    let mtu_bytes = choice.interface.map_or(datagram::MTU_BYTES_DEFAULT, |interface| interface.mtu_bytes);
    DeviceInfo {
        rate_bits_per_s: choice.interface.and_then(|interface| interface.speed_bits_per_s).unwrap_or(0),
        pci: choice.interface.and_then(|interface| interface.pci).map(|pci| PciAddress {
            domain: pci.domain,
            bus: pci.bus.into(),
            dev: pci.dev.into(),
            func: pci.func.into(),
        }),
        ip: addr.map(|addr| addr.ip()).or(choice.ip),
        scope_id: if let Some(SocketAddr::V6(v6)) = addr { v6.scope_id() } else { 0 },
        interface: choice.interface.map(|interface| interface.name.clone()),
        port: choice.port,
        mtu_bytes: mtu_bytes.min(choice.mtu_bytes.unwrap_or(u32::MAX)),
        ..DeviceInfo::new(name, kind)
    }
}

/// Makes one device of two. Its connections to others like it are bonded (CCI-032). If one interface is missing, the device is
/// that of the other one, and reports what it lacks.
pub(super) fn bonded(first: DeviceInfo, second: DeviceInfo) -> DeviceInfo {
    let (ip, up) = (second.ip, first.up && second.up);
    let (mut device, other) = if second.up && !first.up { (second, first) } else { (first, second) };
    for lack in other.unavailable {
        if !device.unavailable.contains(&lack) {
            device.unavailable.push(lack);
        }
    }
    if let Some(ip) = ip.filter(|_| up) {
        device.info = format!("{} bonded with {}", device.info, other.info);
        device.mtu_bytes = device.mtu_bytes.min(other.mtu_bytes);
        device.max_send_size = device.max_send_size.min(other.max_send_size);
        device.rate_bits_per_s = device.rate_bits_per_s.saturating_add(other.rate_bits_per_s);
        device.second = Some(SecondInterface { ip, scope_id: other.scope_id, interface: other.interface });
    }
    device
}

/// The address that was asked for, or the interface's best: IPv4, then IPv6 that is valid beyond one link, then link-local.
pub(super) fn address(interface: &Interface, wanted: Option<IpAddr>) -> Option<SocketAddr> {
    let rank = |addr: &&SocketAddr| match addr {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(v6) if v6.scope_id() == 0 => 1,
        SocketAddr::V6(_) => 2,
    };
    match wanted {
        Some(ip) => interface.addrs.iter().find(|addr| addr.ip() == ip).copied(),
        None => interface.addrs.iter().min_by_key(rank).copied(),
    }
}

/// A description of the device in one line.
pub(super) fn describe(kind: &str, interface: Option<&Interface>, ip: Option<IpAddr>) -> String {
    let ip = ip.map_or_else(|| "no address".to_owned(), |ip| ip.to_string());
    match interface {
        Some(interface) if interface.loopback => {
            format!("{kind} on {} ({ip}), within this host", interface.name)
        }
        Some(interface) => format!("{kind} on {} ({ip})", interface.name),
        None => format!("{kind} ({ip})"),
    }
}

/// Opens a socket as an endpoint would, and notes what it lacks. Returns false if there is no socket at all.
fn probe(addr: SocketAddr, interface: Option<&Interface>, unavailable: &mut Vec<Unavailable>) -> bool {
    let mut lacks = |what: &str, reason: String, remedy: &str| {
        unavailable.push(Unavailable { what: what.to_owned(), reason, remedy: remedy.to_owned() });
    };
    let socket = match UdpSocket::bind(addr) {
        Ok(socket) => socket,
        Err(error) => {
            lacks(
                "udp",
                error.to_string(),
                "give this process the right to bind UDP sockets on this address",
            );
            return false;
        }
    };
    if let Err(error) = socket.gso() {
        lacks("udp send offload (GSO)", error.to_string(), "use Linux 4.18 or newer");
    }
    if let Err(error) = socket.gro() {
        lacks("udp receive offload (GRO)", error.to_string(), "use Linux 5.0 or newer");
    }
    let granted_bytes = socket.recv_buffer_bytes();
    if granted_bytes < BUFFER_BYTES_WANTED {
        lacks(
            "udp receive buffer of the size wanted",
            format!(
                "the kernel grants {granted_bytes} of {BUFFER_BYTES_WANTED} bytes: bursts may be lost and resent"
            ),
            &format!("sysctl -w net.core.rmem_max={BUFFER_BYTES_WANTED}"),
        );
    }
    let granted_bytes = socket.send_buffer_bytes();
    if granted_bytes < BUFFER_BYTES_WANTED {
        lacks(
            "udp send buffer of the size wanted",
            format!(
                "the kernel grants {granted_bytes} of {BUFFER_BYTES_WANTED} bytes: bursts take more system calls"
            ),
            &format!("sysctl -w net.core.wmem_max={BUFFER_BYTES_WANTED}"),
        );
    }
    if addr.is_ipv6() && addr.ip().is_loopback() {
        lacks(
            "multicast",
            "Linux carries no IPv6 groups over the loopback interface".to_owned(),
            "within this host use IPv4 (127.0.0.1), or IPv6 on another interface",
        );
    }
    if interface.is_some_and(|interface| !interface.addrs.iter().any(SocketAddr::is_ipv6)) {
        lacks(
            "IPv6 on this interface",
            "it has no IPv6 address".to_owned(),
            "only if peers need it: switch IPv6 on (sysctl net.ipv6.conf.all.disable_ipv6=0) or give it an address",
        );
    }
    true
}

/// The default for a section that names neither interface nor address: the first interface that leads out of the machine,
/// otherwise loopback.
pub(super) fn usual(interfaces: &[Interface]) -> Option<&Interface> {
    let usable = |interface: &&Interface| interface.up && !interface.addrs.is_empty();
    interfaces.iter().filter(usable).min_by_key(|interface| interface.loopback)
}

/// The report for an interface or address that this machine does not have.
pub(super) fn not_here(what: String, interfaces: &[Interface]) -> Unavailable {
    let present: Vec<String> = interfaces
        .iter()
        .filter(|interface| interface.up)
        .map(|interface| {
            let ips: Vec<String> = interface.addrs.iter().map(|addr| addr.ip().to_string()).collect();
            format!("{} ({})", interface.name, ips.join(", "))
        })
        .collect();
    let remedy = if present.is_empty() {
        "bring a network interface up".to_owned()
    } else {
        format!("name one that is: {}", present.join("; "))
    };
    Unavailable { what, reason: "it is not on this machine, or not up".to_owned(), remedy }
}
