//! Choosing a device: by name, or by where a URI leads.

use crate::failure::{Failure, Outcome};
use cci::{Context, Device, DeviceForError, Unavailable};

const URI_REMEDY: &str = "a URI that `cci serve` prints";

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

/// A URI with addresses in the place of host names. Asking for them may take seconds.
pub fn resolved(uri: &str) -> Outcome<String> {
    cci::resolve(uri).map_err(|error| Failure::usage(error.to_string()).remedy(URI_REMEDY))
}

/// The device to reach `uri` from.
pub fn towards<'a>(context: &'a Context, uri: &str) -> Outcome<&'a Device> {
    context.device_for(uri).map_err(|error| match error {
        DeviceForError::BadUri { .. } => Failure::usage(error.to_string()).remedy(URI_REMEDY),
        DeviceForError::NoDevice { .. } => {
            let scheme = uri.split("://").next().unwrap_or_default();
            let of_scheme = |device: &&Device| device.transport().name() == scheme;
            let own =
                context.devices().iter().filter(of_scheme).find_map(|device| device.unavailable().first());
            match network_lack().as_ref().filter(|_| scheme != "shm").or(own) {
                Some(lack) => {
                    Failure::new(format!("no {scheme} device to reach {uri} from: {}", lack.reason))
                        .remedy(lack.remedy.clone())
                }
                None => Failure::new(error.to_string()).remedy("`cci info` says what each device lacks"),
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_finds_its_device() {
        let context = context().unwrap();
        assert_eq!(towards(&context, "shm://x").unwrap().name(), "shm");
        if context.device("udp-lo").is_some_and(Device::is_up) {
            assert_eq!(towards(&context, "udp://127.0.0.1:9").unwrap().name(), "udp-lo");
            let uri = resolved("udp://localhost:9").unwrap();
            assert!(towards(&context, &uri).unwrap().interface() == Some("lo"), "{uri}");
        }
        for wrong in ["", "x", "http://127.0.0.1:9", "://"] {
            assert!(towards(&context, wrong).is_err(), "{wrong:?}");
        }
    }
}
