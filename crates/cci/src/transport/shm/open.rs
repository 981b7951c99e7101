//! Opens the shared-memory transport of an endpoint.

use super::client::Client;
use super::common::Common;
use super::connecting::Connecting;
use super::connections::{Connections, Conns, Counts, to_us};
use super::handshakes::Handshakes;
use super::keepalive::Keepalive;
use super::links::Links;
use super::listening::Listening;
use super::pace::Pace;
use super::server::Server;
use super::transfers::Transfers;
use super::{Admission, KERNEL_EVENTS, MESSAGE_BYTES_MAX, Proof, Shm, name, pending};
use crate::device::DeviceInfo;
use crate::engine::charge::ChargedBytes;
use crate::engine::poller::Poller;
use crate::error::CreateError;
use crate::options::Options;
use crate::transport::Transport;
use cci_sys::event::Events;
use cci_sys::process::fork;
use cci_sys::unix::Listener;
use cci_sys::{clock, random};
use std::io;
use std::sync::Arc;

/// Opens an endpoint's shared-memory transport. It may take `own_bytes_max` of the memory cap. `admission` says to which
/// processes it connects; `proof` is the secret for clients that know its commitment.
pub(crate) fn open(
    device: &DeviceInfo,
    options: &Options,
    own_bytes_max: u64,
    poller: &Arc<Poller>,
    admission: Admission,
    proof: Option<Proof>,
) -> Result<Box<dyn Transport>, CreateError> {
    let address = name::listen_address(device, options.service.as_deref())?;
    let listener = device.serves.then(|| Listener::bind(&address.name)).transpose();
    let listener = listener.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => CreateError::InUse { service: address.uri.clone() },
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied | io::ErrorKind::NotADirectory => {
            name::no_folder(device, &address, &error)
        }
        _ => CreateError::System(error),
    })?;
    let no_memory = CreateError::NoMemory {
        needed_bytes: u64::from(options.send_buffers) * size_of::<pending::Send>() as u64,
        cap_bytes: options.memory_bytes_max,
    };
    let sends = pending::Sends::new(options.send_buffers).ok_or(no_memory)?;
    let listening = Listening::new(listener, poller)?;
    let (send_timeout, keepalive) =
        (options.send_timeout.as_nanos(), options.keepalive.unwrap_or_default().as_nanos());
    let connections = Connections {
        conns: Conns::new(),
        sends,
        counts: Counts::default(),
        closing: Vec::new(),
        keepalive: Keepalive::new(),
        now_ns: clock::now_ns(),
        mss: device.max_send_size.min(MESSAGE_BYTES_MAX),
        send_timeout_us: to_us(u64::try_from(send_timeout).unwrap_or(u64::MAX)),
        keepalive_us: to_us(u64::try_from(keepalive).unwrap_or(u64::MAX)),
    };
    let transfers = Transfers::new(options.rma_operations, own_bytes_max, device.shm.direct, device.shm.cma);
    Ok(Box::new(Shm {
        uri: address.uri,
        connecting: Connecting {
            client: Client { admission },
            server: Server::new(admission, proof, listening),
        },
        links: Links::new(),
        common: Common {
            endpoint: random::u64()?,
            connections,
            transfers,
            handshakes: Handshakes::new(),
            lent: ChargedBytes::default(),
        },
        own_bytes_max,
        set_apart_bytes: options.memory_bytes_max.saturating_sub(own_bytes_max),
        events: Some(Events::with_capacity(KERNEL_EVENTS)),
        pace: Pace::new(),
        made_by: fork::token(),
    }))
}
