//! Opens an endpoint's UDP transport, by its device and options.

use super::super::Datagram;
use super::super::sealed::{self, Sealed};
use super::Udp;
use super::bonded::Bonded;
use crate::device::DeviceInfo;
use crate::error::CreateError;
use crate::options::Options;
use crate::sealing::Sealing;
use crate::transport::datagram::multicast::{Groups, Settings, WithGroups};
use crate::transport::datagram::open::{Numbers, Setup, ns, secret};
use crate::transport::datagram::size;
use crate::transport::datagram::udp_uri;
use crate::transport::{Transport, ip_port};
use cci_secure::limits::OVERHEAD_BYTES;
use cci_sys::udp::{DATAGRAM_BYTES_MAX, UdpSocket};

/// The part of the memory cap that multicast groups may take.
const GROUPS_SHARE: u64 = 32;

/// Opens an endpoint's UDP transport.
pub(crate) fn open(device: &DeviceInfo, options: &Options) -> Result<Box<dyn Transport>, CreateError> {
    let ip = device.ip.ok_or(CreateError::DeviceDown)?;
    let port = ip_port::port("UDP", device, options)?;
    let sealing = Sealing::of(device, options)?;
    if sealing.is_some() && device.second.is_some() {
        return Err(CreateError::BadOption {
            name: "security",
            reason: "a device with two interfaces can't be sealed yet: use one with a single interface"
                .to_owned(),
        });
    }
    let bind = |ip, scope_id| {
        UdpSocket::bind(udp_uri::socket_addr(ip, scope_id, port))
            .map_err(|error| ip_port::bind_error(error, options, port))
    };
    let socket = bind(ip, device.scope_id)?;
    let second = device.second.as_ref().map(|second| bind(second.ip, second.scope_id)).transpose()?;
    let overhead_bytes = if sealing.is_some() { OVERHEAD_BYTES } else { 0 };
    let mtu_bytes = device.mtu_bytes.saturating_sub(overhead_bytes as u32);
    if mtu_bytes < size::MTU_BYTES_MIN {
        return Err(sealed::mtu_too_small(device.mtu_bytes, size::MTU_BYTES_MIN));
    }
    let datagram_bytes_max = size::datagram_bytes_max(mtu_bytes, ip.is_ipv6());
    let groups = Groups::new(Settings {
        local: udp_uri::socket_addr(ip, device.scope_id, 0),
        interface_name: device.interface.clone().unwrap_or_default(),
        keys: device.multicast,
        datagram_bytes_max,
        message_bytes_max: device.max_send_size,
        memory_bytes_max: options.memory_bytes_max / GROUPS_SHARE,
        send_timeout_ns: ns(options.send_timeout),
        keepalive_ns: options.keepalive.map_or(0, ns),
    })?;
    let sealed_only = sealing.as_ref().is_some_and(|sealing| sealing.required);
    let interface = device.interface.as_deref();
    let second_interface = device.second.as_ref().and_then(|second| second.interface.as_deref());
    let local = socket.local_addr();
    let setup = Setup {
        uri: match &second {
            None => udp_uri::format(local, interface),
            Some(second) => {
                udp_uri::format_both([(local, interface), (second.local_addr(), second_interface)])
            }
        },
        secret: secret()?,
        datagram_bytes_max,
        // All that peers have in flight may come by one interface.
        receive_buffer_bytes: second
            .iter()
            .fold(socket.recv_buffer_bytes(), |least, second| least.min(second.recv_buffer_bytes()))
            as u64,
        reserved_bytes: options.memory_bytes_max / GROUPS_SHARE
            + sealing.as_ref().map_or(0, |_| options.memory_bytes_max / sealed::MEMORY_SHARE),
        numbers: Numbers::default(),
    };
    let (datagram_bytes, memory_bytes) =
        (usize::from(datagram_bytes_max) + overhead_bytes, options.memory_bytes_max);
    if let Some(second) = second {
        let side = |socket, interface| Udp::new(socket, interface, datagram_bytes, memory_bytes / 2);
        let carrier = Bonded::new([side(socket, interface)?, side(second, second_interface)?])
            .ok_or_else(|| CreateError::without_memory("have memory for datagrams", DATAGRAM_BYTES_MAX))?;
        let connections = Datagram::open(carrier, setup, device, options)?;
        return Ok(Box::new(WithGroups { connections, groups, sealed_only }));
    }
    let carrier = Udp::new(socket, interface, datagram_bytes, memory_bytes)?;
    let Some(sealing) = sealing else {
        let connections = Datagram::open(carrier, setup, device, options)?;
        return Ok(Box::new(WithGroups { connections, groups, sealed_only }));
    };
    let carrier = Sealed::new(carrier, sealing, Some(local.into()), &setup, memory_bytes)?;
    let connections = Datagram::open(carrier, setup, device, options)?;
    Ok(Box::new(WithGroups { connections, groups, sealed_only }))
}
