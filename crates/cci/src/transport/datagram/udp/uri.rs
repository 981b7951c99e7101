//! `udp://host:port`, both ways: see [`ip_uri`].

pub(in super::super) use crate::transport::ip_uri::{from_here, socket_addr};

use crate::transport::ip_uri;
use std::net::SocketAddr;

/// The start of every URI of this transport.
const SCHEME: &str = "udp://";

pub(in super::super) fn parse(uri: &str) -> Result<SocketAddr, String> {
    ip_uri::parse(SCHEME, uri)
}

pub(in super::super) fn format(addr: SocketAddr, interface: Option<&str>) -> String {
    ip_uri::format(SCHEME, addr, interface)
}
