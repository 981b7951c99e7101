//! Opening: from a device and options to a socket.

use super::super::{Datagram, Sizes};
use super::{Udp, uri};
use crate::device::DeviceInfo;
use crate::error::{CreateError, SysError};
use crate::options::Options;
use crate::transport::Transport;
use crate::transport::datagram::multicast::{Groups, Settings, WithGroups};
use crate::transport::datagram::open::ns;
use crate::transport::datagram::size;
use cci_sys::udp::UdpSocket;
use std::io::ErrorKind;

/// The share of the memory cap that multicast groups may take: one in this many parts.
const GROUPS_SHARE: u64 = 32;

/// Opens an endpoint's UDP transport.
pub(crate) fn open(device: &DeviceInfo, options: &Options) -> Result<Box<dyn Transport>, CreateError> {
    let ip = device.ip.ok_or(CreateError::DeviceDown)?;
    let port = port(device, options)?;
    let socket = UdpSocket::bind(uri::socket_addr(ip, device.scope_id, port))
        .map_err(|error| bind_error(error, options, port))?;
    let uri = uri::format(socket.local_addr(), device.interface.as_deref());
    let datagram_bytes_max = size::datagram_bytes_max(device.mtu_bytes, ip.is_ipv6());
    let sizes = Sizes {
        datagram_bytes_max,
        receive_buffer_bytes: socket.recv_buffer_bytes() as u64,
        reserved_bytes: options.memory_bytes_max / GROUPS_SHARE,
    };
    let groups = Groups::new(Settings {
        local: uri::socket_addr(ip, device.scope_id, 0),
        interface_name: device.interface.clone().unwrap_or_default(),
        keys: device.multicast,
        datagram_bytes_max,
        message_bytes_max: device.max_send_size,
        memory_bytes_max: sizes.reserved_bytes,
        send_timeout_ns: ns(options.send_timeout),
        keepalive_ns: options.keepalive.map_or(0, ns),
    })?;
    let carrier = Udp::new(socket, datagram_bytes_max.into(), options.memory_bytes_max);
    let connections = Datagram::open(carrier, uri, sizes, device, options)?;
    Ok(Box::new(WithGroups { connections, groups }))
}

/// The service is a port; without one the device's, or any.
fn port(device: &DeviceInfo, options: &Options) -> Result<u16, CreateError> {
    let Some(service) = &options.service else { return Ok(device.port) };
    service.parse().map_err(|_| CreateError::BadService {
        service: service.clone(),
        reason: "a UDP service is a port number from 1 to 65535, or 0 for any".to_owned(),
    })
}

fn bind_error(error: SysError, options: &Options, port: u16) -> CreateError {
    let service = options.service.clone().unwrap_or_else(|| port.to_string());
    match error.kind() {
        ErrorKind::AddrInUse => CreateError::InUse { service },
        ErrorKind::PermissionDenied => CreateError::BadService {
            service,
            reason: "this process may not bind it; choose a port from 1024 on".to_owned(),
        },
        ErrorKind::AddrNotAvailable => CreateError::DeviceDown,
        _ => CreateError::System(error),
    }
}
