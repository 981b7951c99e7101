//! A raw Ethernet device: an interface, its configuration, and what the rights of this process allow.

use super::syntax::{Section, Wrong};
use super::udp::not_here;
use crate::device::{DeviceInfo, EthKeys, EthMode, PciAddress, TransportKind, Unavailable};
use crate::transport::datagram;
use cci_sys::ethernet::Link;
use cci_sys::net::Interface;
use cci_sys::packet;

/// The priority of a device that was found on the machine: lower than all that need no special rights.
const PRIORITY_FOUND: u8 = 40;

/// What a section or a found interface asks for.
struct Choice<'a> {
    interface: &'a str,
    mtu_bytes: Option<u32>,
    keys: EthKeys,
}

/// The devices of a machine without configuration: one for each Ethernet interface that is up, with or without an IP
/// address.
pub(super) fn found(interfaces: &[Interface]) -> impl Iterator<Item = DeviceInfo> {
    let usable = |interface: &&Interface| {
        interface.up && !interface.loopback && Link::of(&interface.name).is_ok_and(|link| link.up)
    };
    interfaces.iter().filter(usable).map(move |interface| {
        let choice = Choice { interface: &interface.name, mtu_bytes: None, keys: EthKeys::default() };
        DeviceInfo {
            conf_argv: vec!["transport=eth".to_owned(), format!("interface={}", interface.name)],
            priority: PRIORITY_FOUND,
            ..device(format!("eth-{}", interface.name), choice, interfaces)
        }
    })
}

/// The device of a section.
pub(super) fn from_section(section: &Section<'_>, interfaces: &[Interface]) -> Result<DeviceInfo, Wrong> {
    let Some(interface) = section.get("interface") else {
        let reason =
            format!("section [{}] has no interface; add interface = NAME, such as eth0", section.name);
        return Err(Wrong { line: section.line, reason });
    };
    let mut choice = Choice { interface: interface.value, mtu_bytes: None, keys: EthKeys::default() };
    choice.mtu_bytes = section.number("mtu")?;
    choice.keys.endpoint = section.number("endpoint")?.filter(|endpoint| *endpoint != 0);
    choice.keys.mode = match section.get("mode").map(|pair| pair.value) {
        Some("xdp") => EthMode::Xdp,
        Some("xdp-generic") => EthMode::XdpGeneric,
        Some("packet") => EthMode::Packet,
        _ => EthMode::Auto,
    };
    Ok(device(section.name.to_owned(), choice, interfaces))
}

/// The device that was asked for. It is down if it is not available.
fn device(name: String, choice: Choice<'_>, interfaces: &[Interface]) -> DeviceInfo {
    let interface = interfaces.iter().find(|interface| interface.name == choice.interface);
    let mut unavailable = Vec::new();
    let link = match Link::of(choice.interface) {
        Ok(link) if link.up => Some(link),
        // A device that does not exist here is down, and no error: one file may serve many machines.
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            unavailable.push(Unavailable {
                what: format!("raw Ethernet on {}", choice.interface),
                reason: "the interface is no Ethernet".to_owned(),
                remedy: "name one that is".to_owned(),
            });
            None
        }
        _ => {
            unavailable.push(not_here(format!("interface {}", choice.interface), interfaces));
            None
        }
    };
    let mtu_bytes = link.as_ref().map_or(datagram::MTU_BYTES_DEFAULT, |link| {
        u32::try_from(link.mtu_bytes).unwrap_or(datagram::MTU_BYTES_DEFAULT)
    });
    let mtu_bytes = mtu_bytes.min(choice.mtu_bytes.unwrap_or(u32::MAX));
    let up = link.as_ref().is_some_and(|link| probe(link, choice.keys.mode, mtu_bytes, &mut unavailable));
    let address = link.map_or_else(|| "not there".to_owned(), |link| datagram::show_mac(link.mac));
    DeviceInfo {
        up,
        info: format!("raw Ethernet on {} ({address})", choice.interface),
        max_send_size: datagram::message_bytes_max_in_frame(mtu_bytes),
        rate_bits_per_s: interface.and_then(|interface| interface.speed_bits_per_s).unwrap_or(0),
        pci: interface.and_then(|interface| interface.pci).map(|pci| PciAddress {
            domain: pci.domain,
            bus: pci.bus.into(),
            dev: pci.dev.into(),
            func: pci.func.into(),
        }),
        interface: Some(choice.interface.to_owned()),
        mtu_bytes,
        eth: choice.keys,
        unavailable,
        ..DeviceInfo::new(name, TransportKind::Eth)
    }
}

/// Notes what this process can't do on the interface. Returns false if it can do nothing.
fn probe(link: &Link, mode: EthMode, mtu_bytes: u32, unavailable: &mut Vec<Unavailable>) -> bool {
    if mtu_bytes < datagram::FRAME_MTU_BYTES_MIN {
        unavailable.push(Unavailable {
            what: format!("raw Ethernet on {}", link.name),
            reason: format!("its MTU is {mtu_bytes} bytes"),
            remedy: format!(
                "at least {} are needed: ip link set {} mtu 1500",
                datagram::FRAME_MTU_BYTES_MIN,
                link.name
            ),
        });
        return false;
    }
    if let Err(error) = packet::probe() {
        unavailable.push(Unavailable {
            what: "raw Ethernet by AF_PACKET".to_owned(),
            reason: error.to_string(),
            remedy: "give this process CAP_NET_RAW (setcap cap_net_raw+ep PROGRAM)".to_owned(),
        });
        return false;
    }
    if mode == EthMode::Packet {
        return true;
    }
    let lacks = datagram::lacks_xdp(link, mtu_bytes);
    let up = lacks.is_none() || mode == EthMode::Auto;
    unavailable.extend(lacks);
    up
}

#[cfg(test)]
mod tests {
    use crate::device::EthMode;
    use crate::{Context, TransportKind};
    use std::path::Path;

    fn read(lines: &str) -> Result<Context, crate::error::ContextError> {
        Context::from_text(&format!("[e]\ntransport = eth\n{lines}\n"), Path::new("cci.ini"))
    }

    #[test]
    fn keys_are_taken() {
        let context = read("interface = nosuch0\nmtu = 1400\nendpoint = 7\nmode = packet").unwrap();
        let device = context.default_device();
        assert_eq!((device.transport(), device.is_up()), (TransportKind::Eth, false));
        assert_eq!((device.interface(), device.mtu_bytes()), (Some("nosuch0"), 1400));
        assert_eq!((device.0.eth.mode, device.0.eth.endpoint), (EthMode::Packet, Some(7)));
        assert!(!device.unavailable()[0].remedy.is_empty());
        assert!(!read("interface = lo").unwrap().default_device().is_up(), "loopback is no Ethernet");
    }

    #[test]
    fn mistakes_are_named() {
        for (lines, word) in [
            ("", "interface = NAME"),
            ("interface = a\nmtu = 1000", "a whole number from 1170 to"),
            ("interface = a\nmode = fast", "xdp-generic"),
            ("interface = a\nendpoint = -1", "from 0 to 4294967295"),
        ] {
            let shown = read(lines).unwrap_err().to_string();
            assert!(shown.contains(word), "{lines:?}: {shown}");
        }
    }
}
