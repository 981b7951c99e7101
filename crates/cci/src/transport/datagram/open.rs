//! Opening: from a device and options to a socket and a protocol endpoint that fit the memory cap.

use super::carrier::Carrier;
use super::glue::Glue;
use super::{Transport, Udp, size, uri};
use crate::device::DeviceInfo;
use crate::engine::poller::Poller;
use crate::error::{CreateError, SysError};
use crate::event::Event;
use crate::limits;
use crate::options::Options;
use cci_proto::{Config, ConfigError, Endpoint, Time};
use cci_sys::udp::UdpSocket;
use cci_sys::{clock, random};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::sync::Arc;

/// The socket's place in the endpoint's descriptor.
pub(super) const TOKEN_SOCKET: u64 = 0;
/// What an entry of the engine's connection table may cost while the table doubles.
const TABLE_BYTES_PER_CONNECTION: u64 = 96;

/// Opens an endpoint's UDP transport.
pub(crate) fn open_udp(
    device: &DeviceInfo,
    options: &Options,
    poller: &Arc<Poller>,
) -> Result<Box<dyn Transport>, CreateError> {
    let ip = device.ip.ok_or(CreateError::DeviceDown)?;
    let port = port(device, options)?;
    let socket = UdpSocket::bind(uri::socket_addr(ip, device.scope_id, port))
        .map_err(|error| bind_error(error, options, port))?;
    let local = socket.local_addr();
    let datagram_bytes_max = size::datagram_bytes_max(device.mtu_bytes, ip.is_ipv6());
    let receive_buffer_bytes = socket.recv_buffer_bytes() as u64;
    let carrier = Carrier::new(socket, datagram_bytes_max.into(), options.memory_bytes_max);
    let config = config(device, options, &carrier, datagram_bytes_max, receive_buffer_bytes)?;
    let proto = Endpoint::new(config).map_err(|error| config_error(error, options))?;
    poller.watch(carrier.socket().as_fd(), TOKEN_SOCKET)?;
    Ok(Box::new(Udp {
        proto,
        carrier,
        glue: Glue::new(datagram_bytes_max, device.max_send_size),
        uri: uri::format(local, device.interface.as_deref()),
        local,
        now: Time(clock::now_ns()),
        polls_since_clock: 0,
        polls_per_clock: 0,
        received_at: Time(0),
        sends_since_clock: 0,
        left_alone_at: None,
        is_watched: true,
        queued_bytes: 0,
    }))
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

/// Of the cap, the engine's buffers and our batches come off; a quarter of the rest is for the engine's table of
/// connections, the protocol has the other three.
fn config(
    device: &DeviceInfo,
    options: &Options,
    carrier: &Carrier,
    datagram_bytes_max: u16,
    receive_buffer_bytes: u64,
) -> Result<Config, CreateError> {
    let events = u64::from(options.recv_buffers)
        + u64::from(options.send_buffers.min(limits::SENDS_DEFAULT))
        + u64::from(options.rma_operations.min(limits::RMA_OPERATIONS_DEFAULT));
    let slots_bytes = u64::from(options.recv_buffers) * u64::from(device.max_send_size.next_multiple_of(64));
    let (send_bytes, recv_bytes) = carrier.memory_bytes();
    let engine_bytes = slots_bytes + events * size_of::<Event>() as u64 + send_bytes + recv_bytes;
    let Some(rest_bytes) = options.memory_bytes_max.checked_sub(engine_bytes) else {
        return Err(CreateError::NoMemory {
            needed_bytes: engine_bytes,
            cap_bytes: options.memory_bytes_max,
        });
    };
    let connections = (rest_bytes / 4 / TABLE_BYTES_PER_CONNECTION).clamp(1, limits::CONNECTIONS_MAX.into());
    let mut secret = [0; 32];
    random::fill(&mut secret)?;
    Ok(Config {
        secret,
        datagram_bytes_max,
        memory_bytes_max: rest_bytes / 4 * 3,
        receive_buffer_bytes,
        connections_max: u32::try_from(connections).unwrap_or(limits::CONNECTIONS_MAX),
        requests_max: limits::REQUESTS_MAX,
        sends_max: options.send_buffers,
        operations_max: options.rma_operations,
        send_timeout_ns: ns(options.send_timeout),
        keepalive_ns: options.keepalive.map_or(0, ns),
        first_seq: None,
    })
}

fn config_error(error: ConfigError, options: &Options) -> CreateError {
    match error {
        ConfigError::Memory { bytes_min } => CreateError::NoMemory {
            // What the protocol lacks it gets three quarters of.
            needed_bytes: options.memory_bytes_max.saturating_add(bytes_min.saturating_mul(4) / 3),
            cap_bytes: options.memory_bytes_max,
        },
        ConfigError::DatagramBytes | ConfigError::Count => {
            CreateError::BadOption { name: "send_buffers", reason: error.to_string() }
        }
    }
}

fn ns(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
