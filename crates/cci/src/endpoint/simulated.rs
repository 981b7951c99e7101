//! What the simulator needs of an endpoint beside its public interface.

use super::{Endpoint, Poller};
use crate::device::{Cma, Device, DeviceInfo, ShmKeys, TransportKind};
use crate::engine::core::Core;
use crate::engine::regions::Keys;
use crate::error::CreateError;
use crate::limits::MESSAGE_BYTES_MAX;
use crate::options::Options;
use crate::transport::Activity;
use crate::transport::datagram::{self, Network, SimulatedNode};
use cci_sys::event::Events;
use cci_sys::process::fork;
use std::net::SocketAddr;
use std::sync::Arc;

/// How long a program may sleep.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// It may not sleep, as there is something now.
    No,
    /// It may sleep until this time in nanoseconds on the endpoint's clock, or until a datagram comes.
    Until(u64),
    /// It may sleep until a datagram comes.
    Forever,
}

/// Opens an endpoint on a simulated network.
///
/// # Errors
/// Those of [`Endpoint::create`].
pub fn open(
    node: &SimulatedNode,
    network: Box<dyn Network>,
    options: Options,
) -> Result<Endpoint, CreateError> {
    options.check()?;
    let message_bytes_max = cci_proto::limits::message_bytes_max(node.datagram_bytes_max);
    let info = DeviceInfo {
        max_send_size: u32::try_from(message_bytes_max).unwrap_or(MESSAGE_BYTES_MAX).min(MESSAGE_BYTES_MAX),
        ip: Some(node.address.ip()),
        mtu_bytes: node.datagram_bytes_max.into(),
        ..DeviceInfo::new("simulated".to_owned(), TransportKind::Udp)
    };
    let device = Device(Arc::new(info));
    let poller = Arc::new(Poller::for_simulation()?);
    let mut core = Core::new(options.clone(), device.max_send_size(), poller)?;
    let mut seed = 0;
    for (at, byte) in node.secret.iter().enumerate() {
        seed ^= u64::from(*byte) << (at % 8 * 8);
    }
    core.regions.keys = Keys::Seed(seed);
    let transport = datagram::open_simulated(node, network, &device.0, &options)?;
    Endpoint::of(&device, core, transport)
}

/// Opens an endpoint of shared memory, at this service, for the process that is entered.
///
/// # Errors
/// Those of [`Endpoint::create`].
pub fn open_shared_memory(service: &str, options: Options, seed: u64) -> Result<Endpoint, CreateError> {
    open_entered(TransportKind::Shm, None, options.service(service.to_owned()), seed)
}

/// Opens an endpoint of TCP at an address, for the process that is entered; one of `any`, if there is a service for shared memory.
///
/// # Errors
/// Those of [`Endpoint::create`].
pub fn open_streams(
    at: SocketAddr,
    service: Option<String>,
    mut options: Options,
    seed: u64,
) -> Result<Endpoint, CreateError> {
    let kind = if service.is_some() { TransportKind::Any } else { TransportKind::Tcp };
    options.service = service;
    open_entered(kind, Some(at), options, seed)
}

fn open_entered(
    kind: TransportKind,
    at: Option<SocketAddr>,
    options: Options,
    seed: u64,
) -> Result<Endpoint, CreateError> {
    let info = DeviceInfo {
        max_send_size: MESSAGE_BYTES_MAX,
        ip: at.map(|at| at.ip()),
        port: at.map_or(0, |at| at.port()),
        shm: ShmKeys { cma: Cma::Off, ..ShmKeys::default() },
        ..DeviceInfo::new("simulated".to_owned(), kind)
    };
    let mut endpoint = Endpoint::create(&Device(Arc::new(info)), options)?;
    endpoint.core.regions.keys = Keys::Seed(seed);
    Ok(endpoint)
}

/// Whether its descriptor is readable: whoever sleeps on it wakes up.
pub fn is_woken(endpoint: &Endpoint) -> bool {
    let mut events = Events::with_capacity(1);
    endpoint.core.poller.ready(&mut events);
    !events.is_empty()
}

/// Prepares for sleep as [`Endpoint::arm`] does, and returns how long that sleep may be.
pub fn sleep(endpoint: &mut Endpoint) -> Sleep {
    if endpoint.arm() {
        return Sleep::No;
    }
    endpoint.core.poller.timer_at_ns().map_or(Sleep::Forever, Sleep::Until)
}

/// Begins to close an endpoint as dropping it does, by disconnecting every connection.
pub fn close_begins(endpoint: &mut Endpoint) {
    for connection in endpoint.core.connections() {
        endpoint.disconnect(connection);
    }
}

/// Whether dropping the endpoint would take no time: nothing is on its way, no connection is left, and no event waits.
pub fn is_drained(endpoint: &Endpoint) -> bool {
    endpoint.core.operations.is_empty()
        && endpoint.core.waiting.is_empty()
        && endpoint.core.connections().is_empty()
        && endpoint.transport.activity() >= Activity::Drained
        && !endpoint.has_news()
}

/// Drops an endpoint as if its process had been killed, so that no peer hears of it.
pub fn abandon(mut endpoint: Endpoint) {
    endpoint.made_by = fork::Token::NOBODY;
}
