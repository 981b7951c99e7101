//! Which device leads to a URI.

use crate::device::{Device, TransportKind};
use crate::error::DeviceForError;
use crate::transport::ip_uri;
use crate::transport::own_part;
use cci_sys::net;
use std::net::SocketAddr;

/// What a URI may begin with.
const KINDS: [TransportKind; 5] =
    [TransportKind::Shm, TransportKind::Udp, TransportKind::Tcp, TransportKind::Eth, TransportKind::Any];

/// The device of `devices`, ordered by priority, that leads to `uri`.
pub(crate) fn device_for<'a>(devices: &'a [Device], uri: &str) -> Result<&'a Device, DeviceForError> {
    let bad = |reason: String| DeviceForError::BadUri { uri: uri.to_owned(), reason };
    let scheme = uri.split_once("://").map(|(scheme, _)| scheme);
    let kind = KINDS.into_iter().find(|kind| scheme == Some(kind.name())).ok_or_else(|| {
        bad("it does not begin with shm://, udp://, tcp://, eth:// or any://; write what the server printed".to_owned())
    })?;
    let found = match kind {
        TransportKind::Udp | TransportKind::Tcp => {
            let scheme = format!("{kind}://");
            let (addr, _) = ip_uri::parse_both(&scheme, uri).map_err(bad)?;
            by_route(devices, kind, addr)
        }
        TransportKind::Any => of_kind(devices, kind).next().or_else(|| by_part(devices, uri)),
        // The interface that a URI of Ethernet names is one of the peer's machine: who has several must choose by name.
        TransportKind::Shm | TransportKind::Eth => of_kind(devices, kind).next(),
    };
    found.ok_or_else(|| {
        let names: Vec<&str> = devices.iter().filter(|device| device.is_up()).map(Device::name).collect();
        let reason = format!("no {kind} device that leads there is up here; there is {}", names.join(", "));
        DeviceForError::NoDevice { uri: uri.to_owned(), reason }
    })
}

/// The devices of a kind that are up.
fn of_kind(devices: &[Device], kind: TransportKind) -> impl Iterator<Item = &Device> {
    devices.iter().filter(move |device| device.transport() == kind && device.is_up())
}

/// The device with the address that the system sends from; else the first that speaks the same version of IP, whose attempt
/// will say what is in its way.
fn by_route(devices: &[Device], kind: TransportKind, addr: SocketAddr) -> Option<&Device> {
    let source = net::source_address(addr).ok();
    let has_source = |device: &&Device| source.is_some() && device.ip() == source;
    let same_version = |device: &&Device| device.ip().is_some_and(|ip| ip.is_ipv4() == addr.is_ipv4());
    of_kind(devices, kind).find(has_source).or_else(|| of_kind(devices, kind).find(same_version))
}

/// Without a device `any`: the one that leads to a part of the list.
fn by_part<'a>(devices: &'a [Device], uri: &str) -> Option<&'a Device> {
    devices.iter().filter(|device| device.is_up()).find(|device| match own_part(&device.0, uri) {
        Ok((part, _)) => part != uri && device_for(std::slice::from_ref(*device), &part).is_ok(),
        Err(_) => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attribute, ConnectError, Context, Endpoint, Options};
    use std::path::Path;

    const DEVICES: &str = "\
[memory]
transport = shm
[local-udp]
transport = udp
ip = 127.0.0.1
[other-udp]
transport = udp
ip = 127.0.0.2
[local-tcp]
transport = tcp
ip = 127.0.0.1
";

    fn context() -> Context {
        Context::from_text(DEVICES, Path::new("test.ini")).unwrap()
    }

    fn found(uri: &str) -> Result<String, DeviceForError> {
        context().device_for(uri).map(|device| device.name().to_owned())
    }

    #[test]
    fn each_uri_has_its_device() {
        for (uri, name) in [
            ("shm://x", "memory"),
            ("shm:///tmp/x", "memory"),
            ("udp://127.0.0.1:9", "local-udp"),
            ("tcp://127.0.0.1:9", "local-tcp"),
            ("tcp://127.0.0.1:9,127.0.0.2:9", "local-tcp"),
            // No device `any` is configured: one that leads to a part of the list.
            ("any://id=00000000000000000000000000000000,shm=x,udp=127.0.0.1:9", "memory"),
            ("any://tcp=127.0.0.1:9", "local-tcp"),
        ] {
            assert_eq!(found(uri).as_deref(), Ok(name), "{uri}");
        }
    }

    #[test]
    fn what_leads_nowhere_is_named() {
        for uri in ["", "x", "http://127.0.0.1:9", "://", "udp://127.0.0.1", "udp://127.0.0.1:0"] {
            assert!(matches!(found(uri), Err(DeviceForError::BadUri { .. })), "{uri:?} {:?}", found(uri));
        }
        for uri in ["eth://eth0/02:00:00:00:00:01/7", "udp://[::1]:9"] {
            let error = found(uri).unwrap_err();
            assert!(matches!(error, DeviceForError::NoDevice { .. }), "{uri} {error}");
            assert!(error.to_string().contains("local-udp"), "{error}");
        }
    }

    /// A name is refused where it is given, and not found out by a time-out.
    #[test]
    fn host_names_are_refused_at_once_with_the_remedy() {
        let context = context();
        for uri in ["udp://localhost:9", "udp://example.org:9", "tcp://localhost:9"] {
            let reason = found(uri).unwrap_err().to_string();
            assert!(reason.contains("resolve"), "{reason}");
            let device = if uri.starts_with("udp") { "local-udp" } else { "local-tcp" };
            let mut endpoint = Endpoint::create(context.device(device).unwrap(), Options::default()).unwrap();
            let error = endpoint.connect(uri, b"", Attribute::ReliableOrdered, 0, None).unwrap_err();
            assert!(matches!(error, ConnectError::BadUri { .. }), "{error}");
            assert!(error.to_string().contains("resolve"), "{error}");
        }
    }
}
