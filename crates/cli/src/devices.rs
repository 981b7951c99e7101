//! Choosing a device: by name, or by where a URI leads.

use crate::failure::{Failure, Outcome};
use cci::{Context, Device, TransportKind, Unavailable};
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// The devices of this machine.
pub fn context() -> Outcome<Context> {
    Context::new().map_err(|error| Failure::new(error.to_string()))
}

/// The device of a name; otherwise says which there are.
pub fn named<'a>(context: &'a Context, name: &str) -> Outcome<&'a Device> {
    context.device(name).ok_or_else(|| {
        let names: Vec<&str> = context.devices().iter().map(Device::name).collect();
        Failure::usage(format!("no device {name:?} here")).remedy(format!("one of: {}", names.join(", ")))
    })
}

/// The device to reach `uri` from.
pub fn towards<'a>(context: &'a Context, uri: &str) -> Outcome<&'a Device> {
    let malformed = || {
        Failure::usage(format!("{uri:?} is not the URI of an endpoint"))
            .remedy("one that `cci serve` prints: it begins with shm://, udp://, tcp://, eth:// or any://")
    };
    let by_address = |kind: TransportKind, rest: &str| {
        let up =
            || context.devices().iter().filter(move |device| device.transport() == kind && device.is_up());
        let source = source_address(rest);
        let has_it = |device: &&Device| source.is_some() && device.ip() == source;
        // Where the system knows no route, or no device has the address: the first of the right family, and the
        // library tells what is wrong.
        let of_family = |device: &&Device| device.ip().map(|ip| ip.is_ipv4()) == Some(!rest.starts_with('['));
        up().find(has_it).or_else(|| up().find(of_family))
    };
    let (scheme, rest) = uri.split_once("://").ok_or_else(malformed)?;
    let up =
        |kind| context.devices().iter().filter(move |device| device.transport() == kind && device.is_up());
    let found = match scheme {
        "shm" => up(TransportKind::Shm).next(),
        "udp" => by_address(TransportKind::Udp, rest),
        "tcp" => by_address(TransportKind::Tcp, rest),
        // The interface in the URI is one of the owner's machine. Here the one that leads there must be named.
        "eth" => up(TransportKind::Eth).next(),
        "any" => up(TransportKind::Any).next(),
        _ => return Err(malformed()),
    };
    found.ok_or_else(|| {
        let of_scheme = |device: &&Device| device.transport().name() == scheme;
        let lack = context.devices().iter().filter(of_scheme).find_map(|device| device.unavailable().first());
        match network_lack().as_ref().filter(|_| scheme != "shm").or(lack) {
            Some(lack) => Failure::new(format!("no {scheme} device to reach {uri} from: {}", lack.reason))
                .remedy(lack.remedy.clone()),
            None => Failure::new(format!("no {scheme} device to reach {uri} from"))
                .remedy("`cci info` lists the devices that there are"),
        }
    })
}

/// What is missing where no network interface can be used, as in a new network namespace.
pub fn network_lack() -> Option<Unavailable> {
    let interfaces = cci_sys::net::interfaces().ok()?;
    if interfaces.iter().any(|interface| interface.up && !interface.addrs.is_empty()) {
        return None;
    }
    let down: Vec<&str> = interfaces.iter().map(|interface| interface.name.as_str()).collect();
    let (reason, remedy) = match down.as_slice() {
        [] => ("this network namespace has no interface".to_owned(), "add one, or use shm".to_owned()),
        [first, ..] => (
            format!("no network interface is up and has an address (down: {})", down.join(", ")),
            format!("ip link set {first} up"),
        ),
    };
    Some(Unavailable { what: "UDP, TCP and raw Ethernet".to_owned(), reason, remedy })
}

/// The address of ours that the system would send from. Connecting a UDP socket asks for the route and sends
/// nothing.
fn source_address(host_and_port: &str) -> Option<IpAddr> {
    let target: SocketAddr = host_and_port.replace("localhost", "127.0.0.1").parse().ok()?;
    let any: SocketAddr = if target.is_ipv4() { ([0; 4], 0).into() } else { ([0u16; 8], 0).into() };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(target).ok()?;
    socket.local_addr().ok().map(|addr| addr.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_finds_its_device() {
        let context = context().unwrap();
        assert_eq!(towards(&context, "shm://x").unwrap().name(), "shm");
        if context.device("udp-lo").is_some_and(Device::is_up) {
            assert_eq!(towards(&context, "udp://127.0.0.1:9").unwrap().name(), "udp-lo");
            assert_eq!(towards(&context, "udp://localhost:9").unwrap().name(), "udp-lo");
        }
        for wrong in ["", "x", "http://127.0.0.1:9", "://"] {
            assert!(towards(&context, wrong).is_err(), "{wrong:?}");
        }
    }
}
