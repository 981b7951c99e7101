//! Choosing a device: by name, or by where a URI leads.

use crate::failure::{Failure, Outcome};
use cci::{Context, Device, TransportKind};
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
        Failure::usage(format!("{uri:?} is no URI of a device here"))
            .remedy("one that `cci serve` prints, such as shm://cci-0-8f3a or udp://192.168.0.7:7777")
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
        Failure::new(format!("no {scheme} device of this machine is up to reach {uri} from"))
            .remedy("`cci info` shows the devices and what they lack")
    })
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
