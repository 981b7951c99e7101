//! `udp://host:port`, `tcp://host:port`: both ways.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// What one looks like, for error messages.
fn looks(scheme: &str) -> String {
    format!("write {scheme}192.0.2.1:4791, {scheme}[2001:db8::1]:4791 or {scheme}[fe80::1%eth0]:4791")
}

/// Where a URI leads that begins with `scheme`, such as `udp://`. The error says what is wrong and what one looks like.
pub(crate) fn parse(scheme: &str, uri: &str) -> Result<SocketAddr, String> {
    parse_one(scheme, without(scheme, uri)?)
}

/// The addresses of a peer: one, or the two of one with two interfaces, as in `udp://10.0.1.1:5000,10.0.2.1:5000`.
pub(crate) fn parse_both(scheme: &str, uri: &str) -> Result<(SocketAddr, Option<SocketAddr>), String> {
    let remainder = without(scheme, uri)?;
    let (first, second) = match remainder.split_once(',') {
        None => return parse_one(scheme, remainder).map(|addr| (addr, None)),
        Some((_, second)) if second.contains(',') => {
            return Err("it names more than two addresses; name the peer's two interfaces".to_owned());
        }
        Some((first, second)) => (parse_one(scheme, first)?, parse_one(scheme, second)?),
    };
    if first == second {
        return Err(format!("it names {first} twice; name it once, or the peer's two interfaces"));
    }
    Ok((first, Some(second)))
}

fn without<'a>(scheme: &str, uri: &'a str) -> Result<&'a str, String> {
    uri.strip_prefix(scheme).ok_or_else(|| format!("it does not begin with {scheme}; {}", looks(scheme)))
}

/// What stands behind the scheme.
fn parse_one(scheme: &str, remainder: &str) -> Result<SocketAddr, String> {
    let looks = || looks(scheme);
    let (host, port) = split(remainder).ok_or_else(|| format!("it is not host:port; {}", looks()))?;
    let port = port.parse().ok().filter(|port| *port > 0);
    let Some(port) = port else {
        return Err(format!("its port is not a number from 1 to 65535; {}", looks()));
    };
    let (ip, scope_id) = parse_host(host)?;
    if ip.is_unspecified() {
        return Err(format!("{ip} is no address to connect to; {}", looks()));
    }
    Ok(socket_addr(ip, scope_id, port))
}

/// Host and port; an IPv6 address stands in brackets.
fn split(remainder: &str) -> Option<(&str, &str)> {
    match remainder.strip_prefix('[') {
        Some(bracketed) => bracketed.split_once("]:").filter(|(host, _)| host.contains(':')),
        None => remainder.split_once(':'),
    }
}

/// A numeric address, with the interface it means if it is link-local. Names would have to be looked up, which can take seconds,
/// and nothing here may block.
pub(crate) fn parse_host(text: &str) -> Result<(IpAddr, u32), String> {
    let (ip, scope) = match text.split_once('%') {
        Some((ip, scope)) => (ip, Some(scope)),
        None => (text, None),
    };
    let Ok(ip) = ip.parse::<IpAddr>() else {
        let reason = "is not a numeric address, and names are not looked up here, since that could block";
        let remedy =
            "call cci::resolve (in C cci_resolve) first, or write 192.0.2.1, 2001:db8::1 or fe80::1%eth0";
        return Err(format!("{text:?} {reason}: {remedy}"));
    };
    match (ip, scope) {
        (_, None) => Ok((ip, 0)),
        (IpAddr::V6(v6), Some(scope)) if is_link_local(v6) || v6.is_multicast() => Ok((ip, scope_id(scope)?)),
        (_, Some(_)) => Err(format!("{ip} is neither link-local nor a multicast group: write it without %")),
    }
}

/// An interface's number, from its name or number.
fn scope_id(scope: &str) -> Result<u32, String> {
    if let Ok(number) = scope.parse::<u32>() {
        return Ok(number);
    }
    let interfaces = cci_sys::net::interfaces().unwrap_or_default();
    let found = interfaces.iter().find(|interface| interface.name == scope);
    found.map(|interface| interface.index).ok_or_else(|| {
        let names: Vec<&str> = interfaces.iter().map(|interface| interface.name.as_str()).collect();
        format!("there is no interface {scope:?} here; after % write one of {}", names.join(", "))
    })
}

/// Whether an address means something only together with an interface.
pub(crate) fn is_link_local(ip: Ipv6Addr) -> bool {
    ip.segments()[0] & 0xffc0 == 0xfe80
}

pub(crate) fn socket_addr(ip: IpAddr, scope_id: u32, port: u16) -> SocketAddr {
    match ip {
        IpAddr::V4(_) => SocketAddr::new(ip, port),
        IpAddr::V6(v6) => SocketAddrV6::new(v6, port, 0, scope_id).into(),
    }
}

/// Where to send to reach `peer` from a socket bound to `local`. A link-local address means one link, the socket's own
/// if that is bound to one: a URI made on the peer's machine names the interface there.
pub(crate) fn with_local_zone(peer: SocketAddr, local: SocketAddr) -> Result<SocketAddr, String> {
    match (peer, local) {
        (SocketAddr::V4(_), SocketAddr::V4(_)) => Ok(peer),
        (SocketAddr::V6(mut to), SocketAddr::V6(from)) => {
            if is_link_local(*to.ip()) && from.scope_id() != 0 {
                to.set_scope_id(from.scope_id());
            }
            Ok(to.into())
        }
        (SocketAddr::V4(_), SocketAddr::V6(_)) => {
            Err("this endpoint speaks IPv6; connect from one on a device with an IPv4 address".to_owned())
        }
        (SocketAddr::V6(_), SocketAddr::V4(_)) => {
            let remedy =
                "connect from one on a device with an IPv6 address (ip = ADDRESS in the configuration)";
            Err(format!("this endpoint speaks IPv4; {remedy}"))
        }
    }
}

/// How near two addresses are: how many bits they begin with alike.
pub(crate) fn nearness(a: SocketAddr, b: SocketAddr) -> u32 {
    match (a.ip(), b.ip()) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        _ => 0,
    }
}

/// The URI of an endpoint with two interfaces.
pub(crate) fn format_both(scheme: &str, addrs: [(SocketAddr, Option<&str>); 2]) -> String {
    let [first, second] = addrs.map(|(addr, interface)| format(scheme, addr, interface));
    format!("{first},{}", second.strip_prefix(scheme).unwrap_or(&second))
}

/// The URI of an address. A link-local one names the interface on this machine; peers on others write theirs.
pub(crate) fn format(scheme: &str, addr: SocketAddr, interface: Option<&str>) -> String {
    match (addr, interface) {
        (SocketAddr::V6(v6), Some(name)) if v6.scope_id() != 0 => {
            format!("{scheme}[{}%{name}]:{}", v6.ip(), v6.port())
        }
        _ => format!("{scheme}{addr}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::Ipv4Addr;

    #[test]
    fn uris_are_read() {
        let all = [
            ("udp://127.0.0.1:1", "127.0.0.1:1"),
            ("udp://[::1]:4791", "[::1]:4791"),
            ("udp://[fe80::1%7]:2", "[fe80::1%7]:2"),
            ("udp://239.1.2.3:5000", "239.1.2.3:5000"),
            ("udp://[ff15::1%7]:2", "[ff15::1%7]:2"),
        ];
        for (uri, addr) in all {
            assert_eq!(parse("udp://", uri), Ok(addr.parse().unwrap()), "{uri}");
        }
    }

    #[test]
    fn two_addresses_are_read_and_written() {
        let (a, b): (SocketAddr, SocketAddr) =
            ("10.0.1.1:5000".parse().unwrap(), "[::1]:5001".parse().unwrap());
        let uri = format_both("udp://", [(a, None), (b, None)]);
        assert_eq!(uri, "udp://10.0.1.1:5000,[::1]:5001");
        assert_eq!(parse_both("udp://", &uri), Ok((a, Some(b))));
        assert_eq!(parse_both("udp://", "udp://10.0.1.1:5000"), Ok((a, None)));
        for (uri, word) in [
            ("udp://10.0.1.1:1,10.0.2.1:1,10.0.3.1:1", "more than two"),
            ("udp://10.0.1.1:1,", "host:port"),
            ("udp://10.0.1.1:1,10.0.1.1:1", "twice"),
        ] {
            let reason = parse_both("udp://", uri).unwrap_err();
            assert!(reason.contains(word), "{uri}: {reason}");
        }
        assert!(parse("udp://", &uri).is_err(), "one address means one");
    }

    #[test]
    fn addresses_of_one_network_are_near() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert!(nearness(at("10.0.1.1:1"), at("10.0.1.9:2")) > nearness(at("10.0.1.1:1"), at("10.0.2.1:1")));
        assert_eq!(nearness(at("10.0.1.1:1"), at("[::1]:1")), 0);
    }

    #[test]
    fn mistakes_are_named() {
        for (uri, word) in [
            ("", "begin with"),
            ("shm://x", "begin with"),
            ("udp://", "host:port"),
            ("udp://1.2.3.4", "host:port"),
            ("udp://1.2.3.4:0", "port"),
            ("udp://1.2.3.4:65536", "port"),
            ("udp://1.2.3.4:x", "port"),
            ("udp://example.org:1", "not looked up"),
            ("udp://localhost:1", "cci::resolve"),
            ("udp://::1:4", "port"),
            ("udp://[1.2.3.4]:4", "host:port"),
            ("udp://[::1%lo]:4", "neither link-local"),
            ("udp://[fe80::1%no such]:4", "no interface"),
            ("udp://0.0.0.0:4", "no address to connect to"),
        ] {
            let reason = parse("udp://", uri).unwrap_err();
            assert!(reason.contains(word), "{uri}: {reason}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn written_uris_are_read_back(bits: u128, v6: bool, port in 1u16..) {
            let ip: IpAddr = if v6 { Ipv6Addr::from(bits).into() } else { Ipv4Addr::from(bits as u32).into() };
            prop_assume!(!ip.is_unspecified());
            let addr = SocketAddr::new(ip, port);
            prop_assert_eq!(parse("tcp://", &format("tcp://", addr, None)), Ok(addr));
        }

        #[test]
        fn nothing_panics(tail in ".{0,60}") {
            let _ = parse("udp://", &tail);
            let _ = parse("udp://", &format!("udp://{tail}"));
            let _ = parse("udp://", &format!("udp://[{tail}]:1"));
        }
    }
}
