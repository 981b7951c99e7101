//! A TCP device: from an interface, a configuration, or both.

use super::udp::{self, Choice};
use crate::device::{DeviceInfo, TransportKind, Unavailable};
use crate::transport::tcp;
use cci_sys::tcp::Listener;
use std::net::SocketAddr;

/// The device that was asked for. It is down if it is not available.
pub(super) fn device(name: String, choice: &Choice<'_>) -> DeviceInfo {
    let addr = choice.interface.and_then(|interface| udp::address(interface, choice.ip));
    let mut unavailable: Vec<Unavailable> = choice.missing.clone().into_iter().collect();
    let mut up = unavailable.is_empty() && addr.is_some();
    if let Some(mut addr) = addr.filter(|_| up) {
        // Opening an endpoint shows whether the configured port is free. It is not checked here.
        addr.set_port(0);
        up = probe(addr, &mut unavailable);
    }
    DeviceInfo {
        up,
        info: udp::describe("TCP", choice.interface, addr.map(|addr| addr.ip()).or(choice.ip)),
        // A stream has no datagrams, so a message may have the greatest length.
        max_send_size: tcp::MESSAGE_BYTES_MAX,
        unavailable,
        ..udp::about(name, TransportKind::Tcp, choice)
    }
}

/// Opens a socket as an endpoint would.
fn probe(addr: SocketAddr, unavailable: &mut Vec<Unavailable>) -> bool {
    match Listener::bind(addr) {
        Ok(_) => true,
        Err(error) => {
            unavailable.push(Unavailable {
                what: "tcp".to_owned(),
                reason: error.to_string(),
                remedy: "give this process the right to listen on TCP sockets on this address".to_owned(),
            });
            false
        }
    }
}
