//! Parses and writes `eth://interface/mac/endpoint`. The interface is the one of the endpoint's own host. A peer reaches it
//! through an interface of its own.

use cci_proto::Address;
use cci_sys::ethernet::Mac;

/// How every URI of an Ethernet endpoint begins.
const SCHEME: &str = "eth://";
/// What a good URI looks like, for error messages.
const LOOKS: &str = "write eth://INTERFACE/MAC/ENDPOINT, such as eth://eth0/02:00:00:00:00:01/7";

/// The address of a URI. The error says what is wrong with it and what a good one looks like.
pub(in super::super) fn parse(uri: &str) -> Result<Address, String> {
    let Some(remainder) = uri.strip_prefix(SCHEME) else {
        return Err(format!("it does not begin with {SCHEME}; {LOOKS}"));
    };
    let mut parts = remainder.split('/');
    let (Some(interface), Some(mac), Some(endpoint), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(format!("it is not interface, hardware address and endpoint; {LOOKS}"));
    };
    if interface.is_empty() {
        return Err(format!("it names no interface; {LOOKS}"));
    }
    let mac = parse_mac(mac).ok_or_else(|| format!("{mac:?} is no hardware address; {LOOKS}"))?;
    //= wire.md R-ETH-2
    if is_group(mac) || mac == [0; 6] {
        return Err(format!("{} is no interface's address; {LOOKS}", show_mac(mac)));
    }
    let endpoint = parse_endpoint(endpoint)
        .ok_or_else(|| format!("its endpoint is not a number from 1 to {}; {LOOKS}", u32::MAX))?;
    Ok(Address::ethernet(mac, endpoint))
}

/// Parses an endpoint's number, which is decimal and not 0.
pub(super) fn parse_endpoint(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number| *number != 0)
}

/// Parses a hardware address: six pairs of hexadecimal digits with colons between them.
fn parse_mac(text: &str) -> Option<Mac> {
    let mut mac = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut mac {
        let pair = parts.next().filter(|pair| pair.len() == 2 && !pair.starts_with('+'))?;
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    parts.next().is_none().then_some(mac)
}

/// Whether frames to this address go to several interfaces.
fn is_group([first, ..]: Mac) -> bool {
    first & 1 != 0
}

/// The hardware address as people write it.
pub(crate) fn show_mac(mac: Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// The URI of an endpoint.
pub(in super::super) fn format(interface: &str, mac: Mac, endpoint: u32) -> String {
    format!("{SCHEME}{interface}/{}/{endpoint}", show_mac(mac))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn uris_are_read() {
        let mac = [2, 0, 0, 0, 0xab, 1];
        assert_eq!(parse("eth://eth0/02:00:00:00:ab:01/7"), Ok(Address::ethernet(mac, 7)));
        assert_eq!(parse("eth://x/02:00:00:00:AB:01/4294967295"), Ok(Address::ethernet(mac, u32::MAX)));
    }

    #[test]
    fn mistakes_are_named() {
        for (uri, word) in [
            ("", "begin with"),
            ("udp://1.2.3.4:5", "begin with"),
            ("eth://", "is not interface"),
            ("eth://eth0/02:00:00:00:00:01", "is not interface"),
            ("eth://eth0/02:00:00:00:00:01/7/8", "is not interface"),
            ("eth:///02:00:00:00:00:01/7", "names no interface"),
            ("eth://eth0/02:00:00:00:00/7", "no hardware address"),
            ("eth://eth0/02:00:00:00:00:01:02/7", "no hardware address"),
            ("eth://eth0/02:00:00:00:00:+1/7", "no hardware address"),
            ("eth://eth0/2:0:0:0:0:1/7", "no hardware address"),
            ("eth://eth0/ff:ff:ff:ff:ff:ff/7", "no interface's"),
            ("eth://eth0/01:00:5e:00:00:01/7", "no interface's"),
            ("eth://eth0/00:00:00:00:00:00/7", "no interface's"),
            ("eth://eth0/02:00:00:00:00:01/0", "number from 1"),
            ("eth://eth0/02:00:00:00:00:01/4294967296", "number from 1"),
            ("eth://eth0/02:00:00:00:00:01/x", "number from 1"),
        ] {
            let reason = parse(uri).unwrap_err();
            assert!(reason.contains(word), "{uri}: {reason}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn written_uris_are_read_back(mut mac: [u8; 6], endpoint in 1u32..) {
            mac[0] = mac[0] & !1 | 2;
            prop_assert_eq!(parse(&format("veth0", mac, endpoint)), Ok(Address::ethernet(mac, endpoint)));
        }

        #[test]
        fn nothing_panics(tail in ".{0,60}") {
            let _ = parse(&tail);
            let _ = parse(&format!("eth://{tail}"));
            let _ = parse(&format!("eth://e/{tail}/1"));
        }
    }
}
