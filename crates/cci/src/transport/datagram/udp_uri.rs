//! Parses and writes `udp://host:port`. [`ip_uri`] says what is allowed.

pub(super) use crate::transport::ip_uri::{nearness, socket_addr, with_local_zone};

use crate::transport::ip_uri;
use cci_proto::Address;
use std::net::SocketAddr;

/// How every URI of a UDP endpoint begins.
const SCHEME: &str = "udp://";

/// The address of a URI. The error says what is wrong with it.
pub(super) fn parse(uri: &str) -> Result<SocketAddr, String> {
    ip_uri::parse(SCHEME, uri)
}

/// The URI of an endpoint. It names the interface if the address alone is ambiguous.
pub(super) fn format(addr: SocketAddr, interface: Option<&str>) -> String {
    ip_uri::format(SCHEME, addr, interface)
}

/// The URI of a peer; empty if the address is not one of IP.
pub(super) fn of(peer: Address) -> String {
    peer.socket_addr().map_or_else(String::new, |peer| format(peer, None))
}

/// The addresses of a peer: one, or two if the peer has two interfaces. A multicast group is an error.
pub(super) fn parse_peer(uri: &str) -> Result<(SocketAddr, Option<SocketAddr>), String> {
    let (first, second) = ip_uri::parse_both(SCHEME, uri)?;
    match [Some(first), second].into_iter().flatten().find(|addr| addr.ip().is_multicast()) {
        None => Ok((first, second)),
        Some(group) => {
            let how =
                "connect with Attribute::MulticastSend or MulticastReceive (CCI_CONN_ATTR_UU_MC_TX, _MC_RX)";
            Err(format!("{} is a multicast group: {how}", group.ip()))
        }
    }
}

/// The URI of an endpoint with two interfaces.
pub(super) fn format_both(addrs: [(SocketAddr, Option<&str>); 2]) -> String {
    ip_uri::format_both(SCHEME, addrs)
}
