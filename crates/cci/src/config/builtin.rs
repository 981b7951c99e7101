//! The devices of a machine without configuration: shared memory, then UDP, TCP and Ethernet on each interface that is up.

use super::any;
use super::eth;
use super::shm;
use super::tcp;
use super::udp::{self, Choice};
use crate::device::{Device, DeviceInfo};
use std::sync::Arc;

/// Makes a device of this name from a choice.
type Make = fn(String, &Choice<'_>) -> DeviceInfo;

/// Lists shared memory first, then UDP by interface with loopback last, then TCP likewise. There is one device for each interface
/// that is up and has an address: its IPv4 address, or its IPv6 one if it has no other. A configuration file can name the other
/// address. Then comes `any`, which joins these on the first interface that leads out of the machine. It comes so late that no
/// program listens on the network without asking for it. Last, with lower priority, comes Ethernet, which needs rights that
/// programs seldom have.
pub(crate) fn devices() -> Vec<Device> {
    let mut devices = vec![shm("shm")];
    // A system that does not list its interfaces still has shared memory.
    let mut interfaces = cci_sys::net::interfaces().unwrap_or_default();
    let ethernet: Vec<Device> = eth::found(&interfaces).map(|info| Device(Arc::new(info))).collect();
    interfaces.retain(|interface| interface.up && !interface.addrs.is_empty());
    interfaces.sort_by_key(|interface| interface.loopback);
    let kinds: [(&str, Make); 2] = [("udp", udp::device), ("tcp", tcp::device)];
    for (kind, device) in kinds {
        for interface in &interfaces {
            let choice = Choice { interface: Some(interface), ..Choice::default() };
            let mut info = device(format!("{kind}-{}", interface.name), &choice);
            info.conf_argv = vec![format!("transport={kind}"), format!("interface={}", interface.name)];
            info.conf_argv.extend(info.ip.map(|ip| format!("ip={ip}")));
            devices.push(Device(Arc::new(info)));
        }
    }
    let choice = Choice { interface: udp::usual(&interfaces), ..Choice::default() };
    let any = any::device(shm::info("any".to_owned()), udp::device("any".to_owned(), &choice));
    devices.push(Device(Arc::new(any)));
    devices.extend(ethernet);
    devices
}

/// The shared-memory device without a configuration.
pub(crate) fn shm(name: &str) -> Device {
    Device(Arc::new(shm::info(name.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::TransportKind;

    #[test]
    fn shared_memory_comes_first_and_priorities_fall() {
        let mut devices = devices();
        assert_eq!(devices[0].name(), "shm");
        let mut names: Vec<&str> = devices.iter().map(Device::name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), devices.len(), "names are unique");
        assert!(devices.is_sorted_by(|one, next| one.priority() >= next.priority()), "{devices:?}");
        let at = devices.iter().position(|device| device.transport() == TransportKind::Any);
        let any = devices.remove(at.expect("it is always there"));
        assert_eq!((any.name(), any.transport()), ("any", TransportKind::Any));
        assert_eq!((any.is_up(), any.max_send_size()), (true, crate::limits::MESSAGE_BYTES_MAX));
        let (ethernet, ip): (Vec<&Device>, Vec<&Device>) =
            devices[1..].iter().partition(|device| device.transport() == TransportKind::Eth);
        assert!(
            devices.iter().rev().zip(ethernet.iter().rev()).all(|(at, eth)| at.name() == eth.name()),
            "last"
        );
        for device in ethernet.iter().chain(&ip) {
            let is_ip = matches!(device.transport(), TransportKind::Udp | TransportKind::Tcp);
            assert!(device.ip().is_some() == is_ip && device.mtu_bytes() >= 1200, "{device:?}");
            assert!((1..=crate::limits::MESSAGE_BYTES_MAX).contains(&device.max_send_size()), "{device:?}");
            assert!(device.conf_argv().iter().all(|pair| pair.contains('=')), "{device:?}");
            for missing in device.unavailable() {
                assert!(!missing.reason.contains('\n') && !missing.remedy.is_empty(), "{missing:?}");
            }
        }
        for kind in [TransportKind::Udp, TransportKind::Tcp] {
            let mut of_kind = ip.iter().filter(|device| device.transport() == kind);
            let Some(lo) = of_kind.position(|device| device.interface() == Some("lo")) else {
                println!("skipped: no loopback interface is up here");
                return;
            };
            assert_eq!(lo + 1, ip.iter().filter(|device| device.transport() == kind).count());
        }
    }
}
