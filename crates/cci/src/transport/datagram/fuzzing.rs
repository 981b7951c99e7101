//! See [`crate::fuzzing`].

use super::eth::uri::{format, parse};

/// `eth://` URIs: what is read and written again is read as the same.
pub fn eth_uri(text: &str) {
    let Ok(address) = parse(text) else { return };
    let (mac, endpoint) = address.ethernet_addr().expect("of Ethernet");
    assert_eq!(parse(&format("eth0", mac, endpoint)), Ok(address), "{text:?}");
}
