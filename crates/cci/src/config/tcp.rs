//! A TCP device: from an interface, from what a configuration says, or both.

use super::udp::{self, Choice};
use crate::device::{DeviceInfo, TransportKind, Unavailable};
use crate::transport::tcp;
use cci_sys::tcp::Listener;
use std::net::SocketAddr;

/// The device that was asked for, down if it cannot be had.
pub(super) fn device(name: String, choice: &Choice<'_>) -> DeviceInfo {
    let addr = choice.interface.and_then(|interface| udp::address(interface, choice.ip));
    let mut unavailable: Vec<Unavailable> = choice.missing.clone().into_iter().collect();
    let mut up = unavailable.is_empty() && addr.is_some();
    if let Some(mut addr) = addr.filter(|_| up) {
        // Whether the configured port is free is a question for whoever opens an endpoint, not for us.
        addr.set_port(0);
        up = probe(addr, &mut unavailable);
    }
    DeviceInfo {
        up,
        info: udp::describe("TCP", choice.interface, addr.map(|addr| addr.ip()).or(choice.ip)),
        // A stream has no datagrams: a message may be as long as any.
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
