//! A fuzz target of this transport, for [`crate::fuzzing`].

use super::eth::uri::{format, parse};

/// Checks that an `eth://` URI which was parsed and written again is parsed to the same address.
pub fn eth_uri(text: &str) {
    let Ok(address) = parse(text) else { return };
    let (mac, endpoint) = address.ethernet_addr().expect("of Ethernet");
    assert_eq!(parse(&format("eth0", mac, endpoint)), Ok(address), "{text:?}");
}
