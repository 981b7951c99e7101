//! Host names become addresses here and nowhere else, since looking up a name may take seconds.

use crate::error::ResolveError;
use std::net::{IpAddr, ToSocketAddrs};

/// Replaces the host names in a URI by numeric addresses, as [`crate::Endpoint::connect`] wants them:
/// `udp://localhost:7811` becomes `udp://127.0.0.1:7811`, or `udp://[::1]:7811` where the system says so first. Numeric addresses, names of
/// shared memory and Ethernet addresses stay as they are.
///
/// It asks the system (`/etc/hosts`, DNS), which **may block for seconds**: call it where that does no harm.
///
/// # Errors
/// [`ResolveError`]: a name that the system does not know, or text that is no URI with a host and a port.
///
/// ```
/// # fn main() -> Result<(), cci::ResolveError> {
/// assert_eq!(cci::resolve("udp://192.0.2.1:7811")?, "udp://192.0.2.1:7811");
/// assert_eq!(cci::resolve("shm://bench")?, "shm://bench");
/// # Ok(())
/// # }
/// ```
pub fn resolve(uri: &str) -> Result<String, ResolveError> {
    let failed = |failure: Failure| match failure {
        Failure::Uri(reason) => ResolveError::BadUri { uri: uri.to_owned(), reason },
        Failure::Host(reason) => ResolveError::UnknownHost { uri: uri.to_owned(), reason },
    };
    let Some((scheme, tail)) = uri.split_once("://") else {
        return Err(failed(Failure::Uri("it does not begin with a transport, such as udp://".to_owned())));
    };
    let parts: Result<Vec<String>, Failure> = match scheme {
        "udp" | "tcp" => tail.split(',').map(resolve_one).collect(),
        "any" => tail.split(',').map(resolve_part).collect(),
        _ => return Ok(uri.to_owned()),
    };
    Ok(format!("{scheme}://{}", parts.map_err(failed)?.join(",")))
}

/// What went wrong.
enum Failure {
    /// The text.
    Uri(String),
    /// The name.
    Host(String),
}

/// A part of a URI of the device `any`: only its network addresses have hosts.
fn resolve_part(part: &str) -> Result<String, Failure> {
    match part.split_once('=') {
        Some((kind @ ("udp" | "tcp"), address)) => Ok(format!("{kind}={}", resolve_one(address)?)),
        _ => Ok(part.to_owned()),
    }
}

/// `host:port`, with the host as a number.
fn resolve_one(address: &str) -> Result<String, Failure> {
    let Some((host, port)) = address.rsplit_once(':') else {
        return Err(Failure::Uri(format!("{address:?} is not host:port")));
    };
    let is_numeric = host.starts_with('[') || host.parse::<IpAddr>().is_ok();
    if is_numeric {
        return Ok(address.to_owned());
    }
    let port: u16 =
        port.parse().map_err(|_| Failure::Uri(format!("{port:?} is not a port from 1 to 65535")))?;
    let found = (host, port).to_socket_addrs();
    let mut found = found.map_err(|error| Failure::Host(format!("host {host:?}: {error}")))?;
    let first = found.next().ok_or_else(|| Failure::Host(format!("host {host:?} has no address")))?;
    Ok(first.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_numbers_and_all_else_stays() {
        let local = resolve("udp://localhost:7811").unwrap();
        assert!(local == "udp://127.0.0.1:7811" || local == "udp://[::1]:7811", "{local}");
        let any = resolve("any://id=0,shm=localhost,udp=localhost:1,tcp=192.0.2.1:2").unwrap();
        assert!(
            any.starts_with("any://id=0,shm=localhost,udp=") && any.ends_with(",tcp=192.0.2.1:2"),
            "{any}"
        );
        assert!(!any.contains("udp=localhost"), "{any}");
        for uri in [
            "udp://[fe80::1%eth0]:1",
            "tcp://192.0.2.1:1",
            "udp://192.0.2.1:1,192.0.2.2:1",
            "shm:///a/b",
            "eth://x/02:00:00:00:00:01/7",
        ] {
            assert_eq!(resolve(uri).as_deref(), Ok(uri));
        }
    }

    #[test]
    fn what_has_no_address_is_named() {
        for (uri, word) in [
            ("udp://no-such-host.invalid:1", "no-such-host.invalid"),
            ("udp://localhost", "host:port"),
            ("udp://localhost:http", "port"),
            ("localhost:1", "transport"),
        ] {
            let error = resolve(uri).unwrap_err().to_string();
            assert!(error.contains(uri) && error.contains(word), "{error}");
        }
    }
}
